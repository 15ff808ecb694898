/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_WALK_H
#define MEM_WALK_H
/* The evictor's walk over the memory of a process. */
#include "mem.h"

struct walk {
	struct proc *p;
	const struct place *area; /* the area that contains the victims in v */
	struct victim v[BATCH];
	unsigned int nr;
	uint64_t want, got; /* bytes; the walk ends when this many were evicted */
	enum hiber_state wanted; /* the walk ends when another state of the context is requested */
	uint32_t since_ms; /* units used after this time stay */
	uint64_t last; /* the unit that was examined last */
	bool ends;
	int error; /* the result of evict() */
	struct zns_err err;
	struct heat *heat; /* not NULL: only count the ages there, and evict nothing */
};

/*
 * Fills @l with the areas of @p that may be evicted. False: the process has ended, or nothing of it
 * may be evicted, for the reason in its `why`. The caller frees @l in both cases.
 */
bool walk_places(struct proc *p, struct places *l);
/* Adds the unit at @base of w->area to the next batch, if it was not used lately. */
void walk_add(struct walk *w, uint64_t base);
/* Evicts the units that were added. Call it before w->area changes, and at the end. */
void walk_flush(struct walk *w);
/* Evicts the memory of these areas that is resident between @from and @to, in address order. */
void walk_areas(struct walk *w, const struct places *l, uint64_t from, uint64_t to);

#endif
