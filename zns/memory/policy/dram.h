/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_DRAM_H
#define MEM_DRAM_H
/*
 * Divides a machine's DRAM among its contexts. Each publishes the ages of its memory, and each
 * computes the same division from what all have published. In effect the oldest memory of the
 * machine goes first: idle contexts shrink, and none gets less than its minimum. Only arithmetic
 * here.
 */
#include <stdbool.h>
#include <stdint.h>
#include "heat.h"

/* What a context publishes, in bytes. */
struct dram_line {
	uint64_t resident, min;
	/* By age, how much it would keep if it kept all that was used within that age. What it
	 * had to read back lately counts at the age at which it evicts. */
	struct heat heat;
	uint64_t stays; /* memory that cannot be evicted */
	uint64_t total; /* the machine's total, as this context was told */
	uint32_t stall_permille; /* part of the last seconds that its threads waited for zones */
	uint32_t pressure; /* memory pressure of the machine: avg10 of "some", in 1/100 % */
};

/* Computes @share[i] for context i. The sum is at most @total, unless more than that cannot be
 * evicted. */
void dram_divide(const struct dram_line *line, unsigned int nr, uint64_t total, uint64_t *share);
/* The smallest total that any context was told, minus what the kernel's memory pressure asks
 * for. */
uint64_t dram_total(const struct dram_line *line, unsigned int nr);
/* The next budget of a context that has @now: at most an eighth less, or more by its part of
 * what no context uses. */
uint64_t dram_step(uint64_t now, uint64_t share, const struct dram_line *line, unsigned int nr,
		   uint64_t total);

#endif
