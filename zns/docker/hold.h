/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_HOLD_H
#define ZNS_HOLD_H
/* A restore that waits for start, shared by hold.c (which the engine calls) and supervise.c. */
#include <stdint.h>
#include "runc.h"

#define HOLD_PACKET_MAX (PATH_MAX + 64)
/* the supervisor's exit code if kill or delete was called before create had returned */
#define HOLD_DELETED 2

struct hold {
	const struct call *c;
	const struct docker_container *k;
	const struct docker_resume *r;
	/* paths in the run directory */
	char socket[PATH_MAX], log[PATH_MAX], work[PATH_MAX], tty[PATH_MAX], from[PATH_MAX];
	char bundle[PATH_MAX], host[256];
	int listener, ready, criu, asker, killer;
	int restore; /* pidfd of the restore */
	/*
	 * For a container with a terminal: both ends of the terminal that we make for the engine,
	 * and the socket on which runc sends the restored terminal.
	 */
	int master, slave, console;
	pid_t init;
};

/* supervise.c: runs the restore as its child, and serves the socket until the restore has ended. */
void __attribute__((noreturn)) supervise(struct hold *h);
/*
 * terminal.c: terminal_make() makes a terminal, terminal_give() sends its master to the engine,
 * terminal_relay() starts a child process that copies between it and the restored terminal (false:
 * it could not be started).
 */
int terminal_make(struct hold *h, struct zns_err *err);
int terminal_give(const struct hold *h, struct zns_err *err);
bool terminal_relay(const struct hold *h);
/*
 * Kills process @pid and all its descendants. If @pid is a child of the caller, the caller still
 * has to reap it.
 */
void hold_kill_all(pid_t pid);
/*
 * Kills children of the caller that are in session @sid, with their descendants, and waits some
 * seconds until they have ended. A daemon that a restore has started (broker, keeper) has another
 * session, so it continues.
 */
void hold_kill_session(pid_t sid);
/*
 * Removes the files of this restore in the run directory, and the container that a killed runc has
 * left in runc's own directory.
 */
void hold_forget(const struct hold *h);
bool hold_runc_has(const struct hold *h);
void hold_forget_in_runc(const struct hold *h);
int64_t hold_since_boot(void);

#endif
