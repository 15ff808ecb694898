/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_PREDICT_H
#define MEM_PREDICT_H
/*
 * Predicts which unit follows which: a chain of first order over the faults of one process, like
 * class Chains in test/sim/cache.py. Only arithmetic here; the caller holds a lock. A block is the
 * number of a unit, less than 2^31.
 */
#include <stdbool.h>
#include <stdint.h>

#define PREDICT_CHAIN 8U /* most blocks that a fault fetches */

struct predict_link;

/* To begin, set it to zeroes. */
struct predict {
	struct predict_link *link; /* a hash table */
	uint32_t nr, size; /* size: a power of two */
	uint32_t tail; /* the block that was last asked for or fetched, plus 1; 0: none */
};

void predict_free(struct predict *p);
/*
 * Handles a fault on @block. @learn: note that it followed `tail`. Puts the blocks that are likely
 * to follow into @next, at most @max (not above PREDICT_CHAIN), and returns how many.
 */
unsigned int predict_fault(struct predict *p, uint32_t block, bool learn, unsigned int max,
			   uint32_t next[PREDICT_CHAIN]);
/* The blocks that came before @block when it was learned, the nearest first; at most
 * PREDICT_CHAIN. */
unsigned int predict_before(const struct predict *p, uint32_t block,
			    uint32_t before[PREDICT_CHAIN]);
/* @block was fetched, and evicted before it was used. */
void predict_unused(struct predict *p, uint32_t block);

#endif
