/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_GOING_H
#define MEM_GOING_H
/* Units that leave a process, in a stop of all its threads. */
#include "mem.h"
#include "zns/inject.h"

struct going {
	struct proc *p;
	struct batch b;
	struct stop *stop; /* while its threads stand still for it */
	uint32_t lost; /* bits: taken away in the last moment */
	uint32_t own; /* bits: of these, what stays because we say so */
	uint32_t poisoned; /* pages that could not be put back */
	uint8_t buf[UNIT]; /* in the stop nothing can be allocated */
};

/* --- going.c --- */
/* @unit was copied: pages that are not the same in the stop stay. */
void going_note(struct victim *v, const uint8_t *unit);
/* A stop_body; @arg: struct going. */
int going_go(void *arg, struct zns_guest *guest, const struct range *own, bool *begun);

/* --- move.c: where pages are taken, while the threads stand still --- */
struct scratch {
	struct proc *p;
	struct zns_guest *guest;
	uint64_t arg, at; /* where the process has it: a page for arguments, and BATCH units */
	long fd; /* its number of the userfaultfd */
	bool exec; /* it may be executed, as the areas that they are taken from */
};
bool move_can(void); /* Linux 6.8 */
/* -errno: nothing is left behind. */
int move_begin(struct scratch *s, struct proc *p, struct zns_guest *guest);
/* All pages of a range go to @to in the scratch. -errno: those before the first that is refused,
 * -EBUSY: somebody holds it, or has it, too. */
int move_pages(struct scratch *s, const struct range *r, uint64_t to);
/* The scratch goes, and what is in it. */
void move_end(struct scratch *s);
/* One call there. It waits for who is frozen, since it must not be left half way. */
long move_call(struct zns_guest *guest, long nr, const uint64_t arg[6]);

#endif
