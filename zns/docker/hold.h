/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_HOLD_H
#define ZNS_HOLD_H
/* A held restore: what hold.c, which the engine calls, and supervise.c share. */
#include <stdint.h>
#include "runc.h"

#define HOLD_PACKET_MAX (PATH_MAX + 64)
#define HOLD_DELETED 2 /* exit code: kill or delete came before create was done */

struct hold {
	const struct call *c;
	const struct docker_container *k;
	const struct docker_resume *r;
	/* paths in the run directory */
	char socket[PATH_MAX], log[PATH_MAX], work[PATH_MAX], tty[PATH_MAX];
	char bundle[PATH_MAX], host[256];
	int listener, ready, criu, asker, killer;
	int restore; /* a pidfd */
	/* of a container with a terminal: the pair of ours, and where runc sends the real one to */
	int master, slave, console;
	pid_t init;
};

/* supervise.c: the parent of the restore, until it has ended. */
void __attribute__((noreturn)) supervise(struct hold *h);
/* terminal.c: makes the pair; gives its master to the engine; begins the process that copies, which
 * is a child of the caller's. False: it was not begun. */
int terminal_make(struct hold *h, struct zns_err *err);
int terminal_give(const struct hold *h, struct zns_err *err);
bool terminal_relay(const struct hold *h);
/* Ends process @pid and all below it; @pid may be a child of the caller's, which stays to be waited
 * for. */
void hold_kill_all(pid_t pid);
/* Ends the caller's children that are of session @sid, with all below them, and waits for them, for
 * some seconds. A daemon that a restore has started (broker, keeper) has a session of its own. */
void hold_kill_session(pid_t sid);
/* Removes what is in the run directory, and what a killed runc left in its own. */
void hold_forget(const struct hold *h);
bool hold_runc_has(const struct hold *h);
void hold_forget_in_runc(const struct hold *h);
int64_t hold_since_boot(void);

#endif
