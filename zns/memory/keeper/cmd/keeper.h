/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEPER_H
#define KEEPER_H
/*
 * The internal interface of zns-memkeep, which has one poll loop, and one struct context for each
 * pager.
 */
#include "../wire.h"

#define CONTEXTS_MAX ZNS_MEMKEEP_CONTEXTS_MAX
/* most connections that have not sent MK_BEGIN yet, beside those of contexts */
#define GUESTS_MAX 64u
#define LEAVE_MS 300 /* ms without a context after which the keeper exits */

struct context {
	char name[ZNS_NAME_MAX + 1]; /* empty: it has not sent MK_BEGIN yet */
	uint32_t tenant; /* a number for its tenant */
	int sk; /* connection to its pager; -1: closed */
	int pidfd; /* pidfd of its pager; -1: no pager runs */
	pid_t pid; /* PID of its pager */
	pid_t child; /* PID of a pager that this process has started and must reap; 0: none */
	int exe; /* executable of the last pager that completed a hand-over; -1: unknown */
	pid_t exe_pid; /* PID of the pager that `exe` belongs to */
	/* the complete set that the keeper has, and the one that it is receiving */
	struct mk_set has, next;
	bool holds; /* `has` is complete */
	uint32_t deaths;
	/* number of pagers in a row that ended before they completed a hand-over */
	uint32_t failures;
	uint64_t since_ns; /* when the connection was made */
	uint64_t start_ns; /* when the next pager will be started; 0: none will */
};

extern struct context *contexts;
extern uint32_t nr_contexts;

void keeper_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* context.c */
int context_new(int sk, pid_t pid); /* takes over @sk */
void context_forget(uint32_t n);
/* Handles a packet of the pager. */
void context_said(struct context *c);
void context_died(struct context *c); /* call when the process of its pager has exited */

/* successor.c */
void successor_start(struct context *c);
void successors_reap(void);

#endif
