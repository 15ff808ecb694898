/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Chooses a dump's groups: only the rules, on a plain table (design.md §5). */
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

struct rank {
	uint32_t reservations;
	uint32_t leased; /* number of leases on the group; each counts the same */
	double worth;
	uint32_t io; /* number of groups on its channel that are reserved for normal I/O */
	uint32_t channel; /* how many groups of the present selection are on its channel */
	uint32_t metadata;
	uint64_t neighbours; /* number of reservations on its channel */
	uint32_t id;
};

static bool rank_less(const struct rank *a, const struct rank *b)
{
	if (a->reservations != b->reservations)
		return a->reservations < b->reservations;
	if (a->leased != b->leased)
		return a->leased < b->leased;
	if (a->worth < b->worth || b->worth < a->worth)
		return a->worth > b->worth;
	if (a->io != b->io)
		return a->io < b->io;
	if (a->channel != b->channel)
		return a->channel < b->channel;
	if (a->metadata != b->metadata)
		return a->metadata < b->metadata;
	if (a->neighbours != b->neighbours)
		return a->neighbours < b->neighbours;
	return a->id < b->id;
}

/* Groups whose channel is unknown share it with no other group. */
static bool same_channel(const struct zns_group_state *a, const struct zns_group_state *b)
{
	return a->channel >= 0 && a->channel == b->channel;
}

uint32_t zns_alloc_pick(const struct zns_group_state *groups, uint32_t nr, uint32_t width,
			uint32_t *out)
{
	cleanup_free struct rank *rank = calloc(nr ? nr : 1, sizeof(*rank));
	cleanup_free bool *taken = calloc(nr ? nr : 1, sizeof(*taken));
	uint32_t n = 0, i, k;

	if (!taken || !rank)
		return 0;
	for (i = 0; i < nr; i++) {
		const struct zns_group_state *g = &groups[i];

		taken[i] = g->reserved_io || g->promised || !g->free_zones;
		rank[i] = (struct rank){ .reservations = g->nr_reservations,
					 .leased = g->nr_leases > 0,
					 .worth = zns_group_worth(g),
					 .metadata = g->metadata,
					 .id = g->id };
		for (k = 0; k < nr; k++)
			if (same_channel(g, &groups[k])) {
				rank[i].neighbours += groups[k].nr_reservations;
				rank[i].io += groups[k].reserved_io;
			}
	}
	/* Greedy: each round takes the best of the remaining groups, since each choice changes how
	 * crowded the channels are. */
	while (n < width) {
		uint32_t best = nr;

		for (i = 0; i < nr; i++)
			if (!taken[i] && (best == nr || rank_less(&rank[i], &rank[best])))
				best = i;
		if (best == nr)
			break;
		taken[best] = true;
		out[n++] = best;
		for (i = 0; i < nr; i++)
			rank[i].channel += same_channel(&groups[i], &groups[best]);
	}
	return n;
}

/* The cost of using a group that is not free, for its other users and for us. */
static uint64_t busy(const struct zns_group_state *g)
{
	return 2 * (uint64_t)g->nr_reservations + (g->nr_leases > 0);
}

/* Takes the first @width groups of @order, without @meta and, with @channel, without groups on
 * @meta's channel. Returns how many it took; *cost: the sum of their costs. */
static uint32_t beside(const struct zns_group_state *groups, const uint32_t *order, uint32_t found,
		       uint32_t width, uint32_t meta, bool channel, uint32_t *out, uint64_t *cost)
{
	uint32_t n = 0, i;

	*cost = busy(&groups[meta]);
	for (i = 0; i < found && n < width; i++) {
		const struct zns_group_state *g = &groups[order[i]];

		if (order[i] == meta ||
		    (channel && (g->channel < 0 || same_channel(g, &groups[meta]))))
			continue;
		*cost += busy(g);
		if (out)
			out[n] = order[i];
		n++;
	}
	return n;
}

enum zns_apart zns_alloc_apart(const struct zns_group_state *groups, const uint32_t *order,
			       uint32_t found, uint32_t width, uint32_t *out, uint32_t *nr_out,
			       uint32_t *meta)
{
	enum zns_apart apart = ZNS_APART_NONE;
	uint64_t best = UINT64_MAX, cost;
	uint32_t pass, i, n, most = 0;

	/* Prefers the choice of *meta that leaves most groups for pages, then the one with the
	 * lowest cost. A separate channel wins if it costs no more. Among equal choices the last
	 * group in @order is taken, so that the best groups are left for pages. */
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < found && found > 1; i++) {
			bool channel = pass == 1;

			if (channel && groups[order[i]].channel < 0)
				continue;
			n = beside(groups, order, found, width, order[i], channel, NULL, &cost);
			if (n < most || (n == most && cost > best))
				continue;
			most = n;
			best = cost;
			*meta = order[i];
			apart = channel ? ZNS_APART_CHANNEL : ZNS_APART_DIE;
		}
	}
	if (apart == ZNS_APART_NONE) {
		*nr_out = found ? 1 : 0;
		if (found)
			out[0] = order[0];
		return apart;
	}
	*nr_out = beside(groups, order, found, width, *meta, apart == ZNS_APART_CHANNEL, out,
			 &cost);
	return apart;
}

/* The group's rate relative to the others', in 1/1024; at least 1/1024. */
static uint64_t worth_of(const struct zns_group_state *g)
{
	return (uint64_t)zns_max(zns_group_worth(g) * 1024, 1.0);
}

/*
 * Computes weights: the group @best has the largest, @m; the others get their rounded share of it.
 * Returns the largest error relative to the exact share, in 1/65536.
 */
static uint64_t weigh(const struct zns_group_state *groups, const uint32_t *picked, uint32_t nr,
		      const struct zns_group_state *best, uint32_t m, uint32_t *weights)
{
	uint64_t worst = 0;
	uint32_t i;

	for (i = 0; i < nr; i++) {
		const struct zns_group_state *g = &groups[picked[i]];
		/* the group's share relative to that of the best one */
		uint64_t num = m * (1 + (uint64_t)best->nr_reservations) * worth_of(g);
		uint64_t den = (1 + (uint64_t)g->nr_reservations) * worth_of(best);
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

void zns_alloc_weights(const struct zns_group_state *groups, const uint32_t *picked, uint32_t nr,
		       uint32_t *weights)
{
	const struct zns_group_state *most = NULL;
	uint64_t best = UINT64_MAX;
	uint32_t m, best_m = 1, i;

	for (i = 0; i < nr; i++) {
		const struct zns_group_state *g = &groups[picked[i]];

		if (!most || worth_of(g) * (1 + (uint64_t)most->nr_reservations) >
				     worth_of(most) * (1 + (uint64_t)g->nr_reservations))
			most = g;
	}
	/* Take the smallest scale @m whose weights are closest to the exact shares. */
	for (m = 1; m <= WEIGHT_MAX && best; m++) {
		uint64_t e = weigh(groups, picked, nr, most, m, weights);

		if (e < best) {
			best = e;
			best_m = m;
		}
	}
	weigh(groups, picked, nr, most, best_m, weights);
}

uint32_t zns_alloc_max_qos(uint32_t nr_groups, uint32_t max_open, uint32_t max_active,
			   uint32_t zone_mibps)
{
	uint64_t zones = nr_groups, rate;

	if (max_open && max_open < zones)
		zones = max_open;
	if (max_active && max_active < zones)
		zones = max_active;
	rate = zones * zone_mibps;
	return rate > UINT32_MAX ? UINT32_MAX : (uint32_t)rate;
}
