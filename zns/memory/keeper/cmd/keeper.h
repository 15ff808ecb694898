/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEPER_H
#define KEEPER_H
/* Inside zns-memkeep: one poll loop, one context for each pager. */
#include "../wire.h"

#define CONTEXTS_MAX ZNS_MEMKEEP_CONTEXTS_MAX
#define GUESTS_MAX 64u /* beside them: who has not said MK_BEGIN yet */
#define LEAVE_MS 300 /* without a context */

struct context {
	char name[ZNS_NAME_MAX + 1]; /* "": it has not said MK_BEGIN yet */
	uint32_t tenant; /* a number */
	int sk; /* its pager's; -1: gone */
	int pidfd; /* its pager's; -1: none runs */
	pid_t pid; /* PID of its pager */
	pid_t child; /* a pager that we started, to be reaped; 0: none */
	int exe; /* the program of the last pager that had all it needs; -1: not known */
	pid_t exe_pid; /* of which pager that is */
	struct mk_set has, next; /* what we hold, and what is coming */
	bool holds; /* `has` is a set */
	uint32_t deaths;
	uint32_t failures; /* pagers in a row that ended without handing over */
	uint64_t since_ns; /* when the connection came */
	uint64_t start_ns; /* when the next pager is started; 0: not now */
};

extern struct context *contexts;
extern uint32_t nr_contexts;

void keeper_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* context.c */
int context_new(int sk, pid_t pid); /* takes @sk */
void context_forget(uint32_t n);
/* Handle a packet of its pager. */
void context_said(struct context *c);
void context_died(struct context *c); /* its pager's process has ended */

/* successor.c */
void successor_start(struct context *c);
void successors_reap(void);

#endif
