/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_DRAM_H
#define MEM_DRAM_H
/*
 * Divides a machine's DRAM among its contexts. Each context publishes the ages of its memory, and
 * each computes the same division from what all have published. As a result the oldest memory of
 * the machine is evicted first: idle contexts shrink, but none below its minimum. These functions
 * only compute; they make no system calls.
 */
#include <stdbool.h>
#include <stdint.h>
#include "heat.h"

/* What a context publishes. Sizes are in bytes. */
struct dram_line {
	uint64_t resident, min;
	/*
	 * For each age: how much the context would keep if it kept all memory used within that age.
	 * Memory that it read back lately counts at the age at which it evicts.
	 */
	struct heat heat;
	uint64_t stays; /* memory that cannot be evicted */
	uint64_t total; /* the machine's total, as given to this context */
	/* permille of the last seconds for which its threads waited for zones */
	uint32_t stall_permille;
	uint32_t pressure; /* memory pressure of the machine: avg10 of "some", in 1/100 % */
};

/*
 * Computes the budget @share[i] of context i. The sum is at most @total, unless more than @total
 * cannot be evicted.
 */
void dram_divide(const struct dram_line *line, unsigned int nr, uint64_t total, uint64_t *share);
/* The smallest total that any context was given, reduced if the kernel reports memory pressure. */
uint64_t dram_total(const struct dram_line *line, unsigned int nr);
/*
 * The next budget of a context that has @now: at most an eighth less, or more by its share of the
 * memory that no context uses.
 */
uint64_t dram_step(uint64_t now, uint64_t share, const struct dram_line *line, unsigned int nr,
		   uint64_t total);

#endif
