/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Predicts memory that is used in the order of its addresses, as an allocator hands it out or a
 * program copies it. No history is needed: if the units right below came back a moment ago, the
 * units right above come next, as many as have come so far. Only the units' stamps are looked at,
 * so many streams may run at once.
 */
#include "mem.h"

#define RECENT_MS 1000U

unsigned int stream_before(struct proc *p, uint32_t block)
{
	unsigned int n = 0;

	while (n < STREAM_MAX && n < block &&
	       unit_came_lately(unit_at(p, (block - n - 1) * UNIT), RECENT_MS))
		n++;
	return n;
}

unsigned int stream_next(struct proc *p, uint32_t block, unsigned int max,
			 uint32_t next[STREAM_MAX])
{
	unsigned int nr = 0;

	/* stop at a unit that is in memory: another stream or chain has fetched it */
	while (nr < max && STATE(unit_at(p, (block + nr + 1) * UNIT)->word) == U_ZONE) {
		next[nr] = block + nr + 1;
		nr++;
	}
	return nr;
}
