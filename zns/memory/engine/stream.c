/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Predicts which memory is used next if a program uses it in address order, as an allocator hands
 * it out or a program copies it. This needs no history: if the units right below came back a moment
 * ago, the units right above are expected next, as many as have come so far. Only the time stamps
 * of units are used, so many streams may run at once.
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

	/* stop at a unit that is in memory: another stream or the predictor has fetched it */
	while (nr < max && STATE(unit_at(p, (block + nr + 1) * UNIT)->word) == U_ZONE) {
		next[nr] = block + nr + 1;
		nr++;
	}
	return nr;
}
