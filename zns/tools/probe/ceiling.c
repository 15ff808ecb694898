/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Can the whole device write as fast as the sum of its dies? Writes zones of many groups together:
 * as many as may be open and as the budget allows. The controller, the host's link or the channels
 * may be slower than the sum.
 */
#include "probe_priv.h"

#define ROUNDS 3u
#define LONG_UNITS PROBE_LONG_UNITS /* where a short look does not reach the sum */
#define ENOUGH 1.04 /* times as long as the slowest of them alone */
#define BELOW 0.93 /* of the sum: less is slower; measurements are good to a few per cent */

/* Picks an empty zone of each group. */
static uint32_t pick_all(struct probe *p, uint32_t most, uint32_t *zones)
{
	const struct zns_probe_map *m = p->map;
	uint32_t n = 0, from = probe_random(p, p->nr);

	for (uint32_t g = 0; g < m->nr_groups && n < most; g++) {
		for (uint32_t k = 0; k < p->nr; k++) {
			uint32_t z = (from + k) % p->nr;

			if (m->zone_group[z] != g || !probe_can_write(p, z))
				continue;
			zones[n++] = z;
			break;
		}
	}
	return n;
}

int probe_ceiling(struct probe *p, struct zns_err *err)
{
	uint32_t zones[PROBE_WRITE_BATCH],
		n = zns_min(zns_min(p->room, p->open_room), PROBE_WRITE_BATCH), each, rounds;
	const uint32_t least = p->set_units;
	uint64_t left = (p->budget - zns_min(p->budget, p->map->written)) / p->unit;
	double best = PROBE_UNTOLD, all = 0;

	p->map->device_write_mibps = 0;
	n = zns_min(zns_min(n, p->map->nr_groups),
		    (uint32_t)zns_min(left / least, (uint64_t)UINT32_MAX));
	if (n < 2)
		return 0;
	rounds = (uint32_t)zns_min(left / n / least, (uint64_t)ROUNDS) + 1;
	each = least;
	/* a short look is enough where the sum is reached */
	for (uint32_t i = 0; i < rounds && best > ENOUGH; i++) {
		double ns, slowest = 0, sum = 0;
		int ret;

		if (pick_all(p, n, zones) < n)
			break;
		ret = probe_write_set(p, zones, n, each, &ns, err);
		if (ret)
			return ret;
		for (uint32_t k = 0; k < n; k++) {
			uint32_t g = p->map->zone_group[zones[k]];

			slowest = zns_max(slowest, p->group_ns[g] * each / p->set_units);
			sum += p->map->group_write_mibps[g];
		}
		each = (uint32_t)zns_min(zns_min(left / n / rounds, (uint64_t)LONG_UNITS),
					 p->d->geo.zone_capacity / p->unit);
		each = zns_max(each, least);
		/* what all have beside the slowest of them, which sets the time */
		if (ns / slowest < best) {
			best = ns / slowest;
			all = sum;
		}
		probe_tick(p, i + 1, rounds);
	}
	if (all > 0 && best * BELOW > 1)
		p->map->device_write_mibps = (uint32_t)(all / best);
	return 0;
}
