/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_DRAM_H
#define MEM_DRAM_H
/*
 * How the contexts of a machine share its DRAM: each tells the ages of what it has, and all compute
 * the same division from what all have told. In effect the globally oldest goes first, so idle ones
 * shrink, and nobody gets less than its minimum. Arithmetic alone.
 */
#include <stdbool.h>
#include <stdint.h>
#include "heat.h"

/* What a context tells of itself; bytes. */
struct dram_line {
	uint64_t resident, min;
	/* What it would keep if it kept all that was used within an age; and what it has had to
	 * read back lately, at the age at which it evicts. */
	struct heat heat;
	uint64_t stays; /* what cannot be evicted */
	uint64_t total; /* of the machine, as this one was told */
	uint32_t stall_permille; /* time that its threads waited for zones, of the last seconds */
	uint32_t pressure; /* of the machine: some avg10, in 1/100 % */
};

/* @share[i] of context i. The sum is no more than @total, unless what stays is. */
void dram_divide(const struct dram_line *line, unsigned int nr, uint64_t total, uint64_t *share);
/* The least that any was told, less what the kernel's memory pressure takes away. */
uint64_t dram_total(const struct dram_line *line, unsigned int nr);
/* The next budget of one that has @now: down by an eighth at most, up by its part of what nobody
 * uses. */
uint64_t dram_step(uint64_t now, uint64_t share, const struct dram_line *line, unsigned int nr,
		   uint64_t total);

#endif
