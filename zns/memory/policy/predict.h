/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_PREDICT_H
#define MEM_PREDICT_H
/*
 * Predicts which unit is used after which: a first-order Markov chain over the faults of one
 * process, the predictor. It works like class Chains in test/sim/cache.py. These functions only
 * compute; the caller holds a lock. A block is the number of a unit, less than 2^31.
 */
#include <stdbool.h>
#include <stdint.h>

#define PREDICT_CHAIN 8U /* most blocks that are fetched for one fault */

struct predict_link;

/* Set it to zeroes at the start. */
struct predict {
	struct predict_link *link; /* a hash table */
	uint32_t nr, size; /* size: a power of two */
	uint32_t tail; /* the block that was last used or fetched, plus 1; 0: none */
};

void predict_free(struct predict *p);
/*
 * Handles a fault on @block. @learn: note that @block followed `tail`. Puts the blocks that are
 * expected next into @next, at most @max (not above PREDICT_CHAIN), and returns their number.
 */
unsigned int predict_fault(struct predict *p, uint32_t block, bool learn, unsigned int max,
			   uint32_t next[PREDICT_CHAIN]);
/*
 * Gets the blocks that preceded @block when it was learned, the nearest first; at most
 * PREDICT_CHAIN.
 */
unsigned int predict_before(const struct predict *p, uint32_t block,
			    uint32_t before[PREDICT_CHAIN]);
/* Call when @block was fetched, and then evicted before it was used. */
void predict_unused(struct predict *p, uint32_t block);

#endif
