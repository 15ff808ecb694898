/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_HOLD_H
#define ZNS_HOLD_H
/* A held restore, as hold.c (called by the engine) and supervise.c share it. */
#include <stdint.h>
#include "runc.h"

#define HOLD_PACKET_MAX (PATH_MAX + 64)
/* the supervisor's exit code if kill or delete came before create had returned */
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
	/* Of a container with a terminal: the two ends of the pair that we make for the engine,
	 * and the socket on which runc sends the restored terminal. */
	int master, slave, console;
	pid_t init;
};

/* supervise.c: runs the restore as its child and serves the socket until the restore has ended. */
void __attribute__((noreturn)) supervise(struct hold *h);
/* terminal.c: terminal_make() makes the pair of terminals, terminal_give() sends its master to
 * the engine, terminal_relay() starts a child process that copies between the pair and the
 * restored terminal (false: it could not be started). */
int terminal_make(struct hold *h, struct zns_err *err);
int terminal_give(const struct hold *h, struct zns_err *err);
bool terminal_relay(const struct hold *h);
/* Kills process @pid and all its descendants. If @pid is the caller's child, the caller still
 * has to wait for it. */
void hold_kill_all(pid_t pid);
/* Kills those children of the caller that are in session @sid, with their descendants, and waits
 * some seconds for their end. A daemon that a restore has started (broker, keeper) has another
 * session, so it lives on. */
void hold_kill_session(pid_t sid);
/* Removes the hold's files in the run directory, and the container that a killed runc left in
 * runc's own. */
void hold_forget(const struct hold *h);
bool hold_runc_has(const struct hold *h);
void hold_forget_in_runc(const struct hold *h);
int64_t hold_since_boot(void);

#endif
