/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Shares of device time in proportion to weights: see zns/alloc.h. */
#include "alloc_priv.h"
#include "zns/util.h"

#define ALMOST 1e-9

struct state {
	/* by how much its level rises for each MiB/s: the cost of its most expensive resource,
	 * divided by its weight */
	double level_per_mibps;
	bool still; /* the item's rate is final */
};

static void prepare(struct zns_weighed *v, uint32_t nr, struct state *st)
{
	for (uint32_t i = 0; i < nr; i++) {
		double dear = 0;

		for (uint32_t k = 0; k < v[i].nr; k++)
			dear = zns_max(dear, v[i].cost[k]);
		st[i].level_per_mibps = v[i].weight > 0 ? dear / v[i].weight : 0;
		st[i].still = st[i].level_per_mibps <= 0;
		v[i].rate = 0;
	}
}

/* The lowest level at which a resource is full, or an item has all it can use. */
static double next_level(const struct zns_weighed *v, uint32_t nr, const struct state *st,
			 const double *room, const double *slope, uint32_t nr_res)
{
	double level = -1;

	for (uint32_t g = 0; g < nr_res; g++)
		if (slope[g] > 0 && (level < 0 || room[g] < level * slope[g]))
			level = zns_max(room[g], 0.0) / slope[g];
	for (uint32_t i = 0; i < nr; i++)
		if (!st[i].still && v[i].most > 0 &&
		    (level < 0 || v[i].most * st[i].level_per_mibps < level))
			level = v[i].most * st[i].level_per_mibps;
	return level;
}

static bool full(const struct zns_weighed *v, const double *room, const double *slope, double level)
{
	for (uint32_t k = 0; k < v->nr; k++) {
		uint32_t g = v->res[k];

		if (v->cost[k] > 0 && slope[g] > 0 &&
		    level * slope[g] >= room[g] - ALMOST * slope[g])
			return true;
	}
	return false;
}

int zns_alloc_weigh(struct zns_weighed *v, uint32_t nr, const double *capacity, uint32_t nr_res)
{
	cleanup_free struct state *st = calloc((size_t)nr + 1, sizeof(*st));
	cleanup_free double *room = calloc((size_t)nr_res + 1, sizeof(*room));
	cleanup_free double *slope = calloc((size_t)nr_res + 1, sizeof(*slope));
	uint32_t left = 0, i, k;

	if (!st || !room || !slope)
		return -ENOMEM;
	for (i = 0; i < nr_res; i++)
		room[i] = capacity[i];
	prepare(v, nr, st);
	for (i = 0; i < nr; i++) {
		left += !st[i].still;
		for (k = 0; !st[i].still && k < v[i].nr; k++)
			slope[v[i].res[k]] += v[i].cost[k] / st[i].level_per_mibps;
	}
	while (left) {
		double level = next_level(v, nr, st, room, slope, nr_res);
		uint32_t before = left;

		/*
		 * First decide which items are final, and change the slopes afterwards, since all
		 * items on a full resource must have the same level.
		 */
		for (i = 0; i < nr; i++) {
			if (st[i].still)
				continue;
			v[i].rate = level / st[i].level_per_mibps;
			if (full(&v[i], room, slope, level) ||
			    (v[i].most > 0 && v[i].rate >= v[i].most * (1 - ALMOST))) {
				st[i].still = true;
				left--;
			}
		}
		if (left == before)
			break; /* nothing limits the remaining items */
		for (i = 0; i < nr_res; i++) {
			room[i] = capacity[i];
			slope[i] = 0;
		}
		for (i = 0; i < nr; i++)
			for (k = 0; k < v[i].nr && st[i].level_per_mibps > 0; k++) {
				if (st[i].still)
					room[v[i].res[k]] -= v[i].rate * v[i].cost[k];
				else
					slope[v[i].res[k]] += v[i].cost[k] / st[i].level_per_mibps;
			}
	}
	return 0;
}
