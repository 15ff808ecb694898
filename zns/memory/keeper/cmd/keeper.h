/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEPER_H
#define KEEPER_H
/* The inside of zns-memkeep: one poll loop, one context for each pager. */
#include "../wire.h"

#define CONTEXTS_MAX ZNS_MEMKEEP_CONTEXTS_MAX
#define GUESTS_MAX 64u /* connections besides those, which have not sent MK_BEGIN yet */
#define LEAVE_MS 300 /* time without a context after which it exits */

struct context {
	char name[ZNS_NAME_MAX + 1]; /* "": it has not sent MK_BEGIN yet */
	uint32_t tenant; /* a number that stands for its tenant */
	int sk; /* connection to its pager; -1: closed */
	int pidfd; /* of its pager; -1: no pager runs */
	pid_t pid; /* PID of its pager */
	pid_t child; /* PID of a pager that we started, to be reaped; 0: none */
	int exe; /* program file of the last pager that handed over everything; -1: not known */
	pid_t exe_pid; /* the pager that `exe` belongs to */
	struct mk_set has, next; /* what the keeper has, and what is being received */
	bool holds; /* `has` is complete */
	uint32_t deaths;
	uint32_t failures; /* pagers in a row that ended before they handed over */
	uint64_t since_ns; /* when the connection was made */
	uint64_t start_ns; /* when the next pager will be started; 0: none is planned */
};

extern struct context *contexts;
extern uint32_t nr_contexts;

void keeper_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* context.c */
int context_new(int sk, pid_t pid); /* takes @sk over */
void context_forget(uint32_t n);
/* Handles a packet of its pager. */
void context_said(struct context *c);
void context_died(struct context *c); /* its pager's process has ended */

/* successor.c */
void successor_start(struct context *c);
void successors_reap(void);

#endif
