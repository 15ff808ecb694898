/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_WALK_H
#define MEM_WALK_H
/* A walk of the evictor over a process's memory. */
#include "mem.h"

struct walk {
	struct proc *p;
	const struct place *area; /* of the victims in v */
	struct victim v[BATCH];
	unsigned int nr;
	uint64_t want, got; /* bytes; the walk ends when it got as many */
	enum hiber_state wanted; /* it ends when the context is asked for another state */
	uint32_t since_ms; /* what was used after that stays */
	uint64_t last; /* unit that was looked at last */
	bool ends;
	int error; /* of evict() */
	struct zns_err err;
	struct heat *heat; /* not NULL: the ages are put there, and nothing is evicted */
};

/* Fills @l with the areas of @p that may be evicted. False: nothing of it may, and its `why` says
 * why; or it has ended. In both cases @l must be freed. */
bool walk_places(struct proc *p, struct places *l);
/* Evicts the unit at @base of w->area soon, if it was not used lately. */
void walk_add(struct walk *w, uint64_t base);
/* Evicts what was added. Call it before w->area changes, and at the end. */
void walk_flush(struct walk *w);
/* Evicts what is in memory of these areas from @from to @to, in the order of addresses. */
void walk_areas(struct walk *w, const struct places *l, uint64_t from, uint64_t to);

#endif
