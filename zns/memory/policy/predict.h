/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_PREDICT_H
#define MEM_PREDICT_H
/*
 * What follows what: a chain of first order over the faults of one process, as test/sim/cache.py
 * has it (class Chains). Arithmetic alone; the caller has a lock. A block is the number of a unit,
 * less than 2^31.
 */
#include <stdbool.h>
#include <stdint.h>

#define PREDICT_CHAIN 8U /* blocks that are fetched at a fault */

struct predict_link;

/* All zeroes is a new one. */
struct predict {
	struct predict_link *link; /* a hash table */
	uint32_t nr, size; /* size: a power of two */
	uint32_t tail; /* the last block that was asked for or fetched, + 1; 0: none */
};

void predict_free(struct predict *p);
/*
 * A fault on @block: it follows what was last, if @learn. Returns how many blocks are likely to
 * follow, in @next; at most @max, which is at most PREDICT_CHAIN.
 */
unsigned int predict_fault(struct predict *p, uint32_t block, bool learn, unsigned int max,
			   uint32_t next[PREDICT_CHAIN]);
/* What was before @block when it was learned, the last first; at most PREDICT_CHAIN. */
unsigned int predict_before(const struct predict *p, uint32_t block,
			    uint32_t before[PREDICT_CHAIN]);
/* @block was fetched, and not used until it was dropped. */
void predict_unused(struct predict *p, uint32_t block);

#endif
