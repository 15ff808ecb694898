/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See dram.h. */
#include "dram.h"
#include "zns/util.h"

#define MOST (1ULL << 46) /* bytes; inputs are limited to this, so that no sum overflows */
/*
 * Permille of waiting time; a context that waits more than this shrinks only if nothing else
 * suffices.
 */
#define STALLED 100U
#define PRESSURE_MAX 5000U /* 1/100 %; more pressure than this does not reduce the total further */
#define STEP_MIN MIB(1)

static uint64_t capped(uint64_t bytes)
{
	return zns_min(bytes, MOST);
}

/* The bytes that the context gets in any case. */
static uint64_t floor_of(const struct dram_line *l, bool brake)
{
	uint64_t least = zns_max(capped(l->min), capped(l->stays));

	return brake && l->stall_permille >= STALLED ? zns_max(least, capped(l->resident)) : least;
}

/* The bytes that the context keeps if all memory younger than bucket @end stays. */
static uint64_t keeps(const struct dram_line *l, unsigned int end, bool brake)
{
	uint64_t sum = capped(l->stays);

	for (unsigned int b = 0; b < end; b++)
		sum += capped(l->heat.bytes[b]);
	return zns_max(sum, floor_of(l, brake));
}

static uint64_t all_keep(const struct dram_line *line, unsigned int nr, unsigned int end,
			 bool brake)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < nr; i++)
		sum += keeps(&line[i], end, brake);
	return sum;
}

/* rest * part / sum, without overflow. */
static uint64_t portion(uint64_t rest, uint64_t part, uint64_t sum)
{
	return sum ? (uint64_t)((__uint128_t)rest * part / sum) : 0;
}

void dram_divide(const struct dram_line *line, unsigned int nr, uint64_t total, uint64_t *share)
{
	bool brake = all_keep(line, nr, 0, true) <= total;
	unsigned int end = HEAT_BUCKETS;
	uint64_t sum, rest;

	while (end && all_keep(line, nr, end, brake) > total)
		end--;
	sum = all_keep(line, nr, end, brake);
	/*
	 * There is too little even for all minima: each gets what cannot be evicted, and a share of
	 * its minimum.
	 */
	if (sum > total) {
		for (unsigned int i = 0; i < nr; i++)
			share[i] = zns_max(portion(total, keeps(&line[i], 0, false), sum),
					   capped(line[i].stays));
		return;
	}
	rest = total - sum;
	sum = end < HEAT_BUCKETS ? all_keep(line, nr, end + 1, brake) - sum : 0;
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t has = keeps(&line[i], end, brake);

		/*
		 * If a bucket does not fit as a whole, the rest is divided in proportion to what
		 * the bucket would add to each; if all memory fits, evenly.
		 */
		share[i] = has +
			   (end < HEAT_BUCKETS ?
				    portion(rest, keeps(&line[i], end + 1, brake) - has, sum) :
				    rest / nr);
	}
}

uint64_t dram_total(const struct dram_line *line, unsigned int nr)
{
	uint64_t total = MOST;
	uint32_t pressure = 0;

	for (unsigned int i = 0; i < nr; i++) {
		if (line[i].total)
			total = zns_min(total, line[i].total);
		pressure = zns_max(pressure, line[i].pressure);
	}
	return total - portion(total, zns_min(pressure, PRESSURE_MAX), 10000);
}

uint64_t dram_step(uint64_t now, uint64_t share, const struct dram_line *line, unsigned int nr,
		   uint64_t total)
{
	uint64_t used = 0, room;

	for (unsigned int i = 0; i < nr; i++)
		used += capped(line[i].resident);
	if (share < now)
		return zns_max(share, now - zns_max(now / 8, zns_min(STEP_MIN, now)));
	room = used < total && nr ? (total - used) / nr : 0;
	return zns_min(share, now + room);
}
