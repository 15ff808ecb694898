// SPDX-License-Identifier: LGPL-2.1-or-later
/* Which groups a dump gets: the rules alone, on a plain table (design.md §5). */
#include <string.h>
#include "zns/alloc.h"
#include "zns/util.h"

#define WEIGHT_MAX 16

uint32_t zns_alloc_width(uint32_t qos_mibps, uint32_t zone_mibps)
{
	uint64_t width;

	if (!qos_mibps || !zone_mibps)
		return 1;
	width = ((uint64_t)qos_mibps + zone_mibps - 1) / zone_mibps;
	return (uint32_t)width;
}

/* How many of the groups picked so far sit on the channel of @g. An unknown channel collides with none. */
static uint32_t on_channel(const struct zns_group_state *groups, const uint32_t *out, uint32_t n, int32_t channel)
{
	uint32_t i, hits = 0;

	if (channel < 0)
		return 0;
	for (i = 0; i < n; i++)
		hits += groups[out[i]].channel == channel;
	return hits;
}

struct rank {
	uint32_t reservations;
	uint32_t leased;	/* any live lease counts the same */
	uint32_t channel;	/* how crowded its channel already is by this pick */
	uint32_t metadata;
	uint32_t id;
};

static bool rank_less(const struct rank *a, const struct rank *b)
{
	if (a->reservations != b->reservations)
		return a->reservations < b->reservations;
	if (a->leased != b->leased)
		return a->leased < b->leased;
	if (a->channel != b->channel)
		return a->channel < b->channel;
	if (a->metadata != b->metadata)
		return a->metadata < b->metadata;
	return a->id < b->id;
}

uint32_t zns_alloc_pick(const struct zns_group_state *groups, uint32_t nr, uint32_t width, uint32_t *out)
{
	cleanup_free bool *taken = calloc(nr ? nr : 1, sizeof(*taken));
	uint32_t n = 0, i;

	if (!taken)
		return 0;
	/* Greedy: each turn takes the best of the rest, so that the crowding of channels follows the choice. */
	while (n < width) {
		struct rank best = { 0 }, r;
		uint32_t best_i = nr;

		for (i = 0; i < nr; i++) {
			const struct zns_group_state *g = &groups[i];

			if (taken[i] || g->reserved_io || !g->free_zones)
				continue;
			r = (struct rank){ g->nr_reservations, g->nr_leases > 0,
					   on_channel(groups, out, n, g->channel), g->metadata, g->id };
			if (best_i == nr || rank_less(&r, &best)) {
				best = r;
				best_i = i;
			}
		}
		if (best_i == nr)
			break;
		taken[best_i] = true;
		out[n++] = best_i;
	}
	return n;
}

/*
 * The largest weight is @m; the others follow their share, rounded. Returns the worst error relative to the
 * exact share, in 1/65536.
 */
static uint64_t weigh(const struct zns_group_state *groups, const uint32_t *picked, uint32_t nr, uint32_t least,
		      uint32_t m, uint32_t *weights)
{
	uint64_t worst = 0;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		/* share relative to the best one = (1 + least) / (1 + n) */
		uint64_t num = (uint64_t)m * (1 + (uint64_t)least);
		uint64_t den = 1 + (uint64_t)groups[picked[i]].nr_reservations;
		uint64_t w = (2 * num + den) / (2 * den), got, diff;

		if (!w)
			w = 1;
		weights[i] = (uint32_t)w;
		got = w * den;
		diff = got > num ? got - num : num - got;
		diff = (diff << 16) / num;
		if (diff > worst)
			worst = diff;
	}
	return worst;
}

void zns_alloc_weights(const struct zns_group_state *groups, const uint32_t *picked, uint32_t nr, uint32_t *weights)
{
	uint64_t best = UINT64_MAX;
	uint32_t least = UINT32_MAX, m, best_m = 1, i;

	for (i = 0; i < nr; i++)
		least = zns_min(least, groups[picked[i]].nr_reservations);
	/* The smallest scale that comes closest to the shares. */
	for (m = 1; m <= WEIGHT_MAX && best; m++) {
		uint64_t e = weigh(groups, picked, nr, least, m, weights);

		if (e < best) {
			best = e;
			best_m = m;
		}
	}
	weigh(groups, picked, nr, least, best_m, weights);
}

uint32_t zns_alloc_max_qos(uint32_t nr_groups, uint32_t max_open, uint32_t max_active, uint32_t zone_mibps)
{
	uint64_t zones = nr_groups, rate;

	if (max_open && max_open < zones)
		zones = max_open;
	if (max_active && max_active < zones)
		zones = max_active;
	rate = zones * zone_mibps;
	return rate > UINT32_MAX ? UINT32_MAX : (uint32_t)rate;
}
