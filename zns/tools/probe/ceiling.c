/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Can the whole device write as fast as the sum of its groups? The controller, the host's link or
 * the channels may be slower. This writes one zone of each group, for as many groups as the open
 * limit and the budget allow.
 */
#include "probe_priv.h"

#define ROUNDS 3u
#define LONG_ROUNDS 2u
/*
 * Ratio of the time to that of the slowest group alone: up to this, the device reaches the sum of
 * rates.
 */
#define ENOUGH 1.04
/* Part of the sum of rates: less than this is clearly slower, since times vary by a few percent. */
#define BELOW 0.93
#define PROMISED 0.95 /* of what all groups together get: more is promised to nobody */

double probe_may_be_promised(const struct zns_probe_map *m)
{
	return PROMISED * m->device_write_mibps;
}

/*
 * Are most groups clearly faster than this one? Then their zones would have to be written for long
 * to take as much time as a zone of this group.
 */
static bool is_slow(const struct probe *p, uint32_t group)
{
	uint32_t quicker = 0;

	for (uint32_t g = 0; g < p->map->nr_groups; g++)
		quicker += p->group_ns[g] > 0 &&
			   p->group_ns[g] * PROBE_ONE_RATE < p->group_ns[group];
	return quicker * 2 > p->map->nr_groups;
}

/* Picks an empty zone of each group that is not slow. */
static uint32_t pick_all(struct probe *p, uint32_t most, uint32_t *zones)
{
	uint32_t n = 0, from = probe_random(p, p->nr);

	for (uint32_t g = 0; g < p->map->nr_groups && n < most; g++) {
		uint32_t zone = is_slow(p, g) ? ZNS_PROBE_NONE : probe_zone_of(p, g, from);

		if (zone != ZNS_PROBE_NONE)
			zones[n++] = zone;
	}
	return n;
}

/*
 * Chooses the number of units for each zone such that all take as long as the slowest one, which
 * gets @each. Returns the time of that one alone. *sum: MiB/s of all zones together.
 */
static double share_out(const struct probe *p, const uint32_t *zones, uint32_t n, uint32_t each,
			uint32_t *units, double *sum)
{
	uint32_t fit = p->d->geo.zone_capacity / p->unit;
	double slowest = 0;

	*sum = 0;
	for (uint32_t k = 0; k < n; k++)
		slowest = zns_max(slowest, p->group_ns[p->map->zone_group[zones[k]]]);
	for (uint32_t k = 0; k < n; k++) {
		uint32_t g = p->map->zone_group[zones[k]];

		units[k] = each;
		if (p->group_ns[g] > 0)
			units[k] = zns_min((uint32_t)(each * slowest / p->group_ns[g]), fit);
		*sum += p->map->group_write_mibps[g];
	}
	return slowest * each / p->set_units;
}

int probe_ceiling(struct probe *p, struct zns_err *err)
{
	uint32_t zones[PROBE_WRITE_BATCH], units[PROBE_WRITE_BATCH],
		n = zns_min(zns_min(p->room, p->open_room), PROBE_WRITE_BATCH), each, rounds;
	uint64_t left = (p->budget - zns_min(p->budget, p->map->written)) / p->unit, all = 0;
	double best = PROBE_UNTOLD, together = 0, sum, slowest;

	p->map->device_write_mibps = 0;
	n = pick_all(p, n, zones);
	if (n < 2)
		return 0;
	share_out(p, zones, n, p->set_units, units, &sum);
	for (uint32_t k = 0; k < n; k++)
		all += units[k];
	rounds = (uint32_t)zns_min(left / all, (uint64_t)ROUNDS + 1);
	each = p->set_units;
	/* one short set suffices if the sum is reached */
	for (uint32_t i = 0; i < rounds && best > ENOUGH; i++) {
		double ns;
		int ret;

		if (pick_all(p, n, zones) < n)
			break;
		slowest = share_out(p, zones, n, each, units, &sum);
		ret = probe_write_units(p, zones, units, n, &ns, err);
		if (ret)
			return ret;
		each = (uint32_t)zns_min(left * p->set_units / all / rounds,
					 (uint64_t)probe_long_units(p));
		each = zns_max(each, p->set_units);
		/* ratio to the time of the slowest zone alone, which all zones were to take */
		if (ns / slowest < best) {
			best = ns / slowest;
			together = sum;
		}
		probe_tick(p, i + 1, rounds);
	}
	if (together > 0 && best * BELOW > 1)
		p->map->device_write_mibps = (uint32_t)(together / best);
	return 0;
}

int probe_long_ceiling(struct probe *p, struct zns_err *err)
{
	uint32_t zones[PROBE_WRITE_BATCH], each[PROBE_WRITE_BATCH],
		n = pick_all(p, zns_min(zns_min(p->room, p->open_room), PROBE_WRITE_BATCH), zones);
	double sum, expected = 0, best = PROBE_UNTOLD;

	if (n < 2)
		return 0;
	share_out(p, zones, n, probe_rate_units(p), each, &sum);
	for (uint32_t k = 0; k < n; k++) {
		double rate = p->map->group_write_mibps[p->map->zone_group[zones[k]]];

		expected = zns_max(expected, each[k] * (double)p->unit / MIB(1) / rate);
		if (!p->par->budget)
			p->budget += (uint64_t)each[k] * p->unit * LONG_ROUNDS;
	}
	for (uint32_t i = 0; i < LONG_ROUNDS; i++) {
		double ns;
		int ret = probe_write_units(p, zones, each, n, &ns, err);

		if (ret)
			return ret;
		best = zns_min(best, ns / 1e9 / expected);
	}
	p->map->device_write_mibps = best * BELOW > 1 ? (uint32_t)(sum / best) : 0;
	return 0;
}
