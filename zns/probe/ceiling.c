/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Can the whole device write as fast as the sum of its dies? Writes zones of many groups together:
 * as many as may be open and as the budget allows. The controller, the host's link or the channels
 * may be slower than the sum.
 */
#include "probe_priv.h"

#define ROUNDS 3u
#define EACH 24u /* units per zone */
#define EACH_LEAST 8u /* fewer tell nothing: the first ones go into buffers */
#define BELOW 0.93 /* of the sum: less is slower; measurements are good to a few per cent */

/* Picks an empty zone of each group. */
static uint32_t pick_all(struct probe *p, uint32_t most, uint32_t *zones)
{
	const struct zns_probe_map *m = p->map;
	uint32_t n = 0, from = probe_random(p, p->nr);

	for (uint32_t g = 0; g < m->nr_groups && n < most; g++) {
		for (uint32_t k = 0; k < p->nr; k++) {
			uint32_t z = (from + k) % p->nr;

			if (m->zone_group[z] != g || p->kind[z] != KIND_EMPTY || !p->typical[z] ||
			    p->have[z])
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
	uint64_t left = (p->budget - zns_min(p->budget, p->map->written)) / p->unit;
	double best = 0;

	p->map->device_write_mibps = 0;
	n = zns_min(zns_min(n, p->map->nr_groups),
		    (uint32_t)zns_min(left / EACH_LEAST, (uint64_t)UINT32_MAX));
	if (n < 2)
		return 0;
	rounds = (uint32_t)zns_min(left / n / EACH_LEAST, (uint64_t)ROUNDS);
	each = (uint32_t)zns_min(zns_min(left / n / rounds, (uint64_t)EACH),
				 p->d->geo.zone_capacity / p->unit - 1);
	for (uint32_t i = 0; i < rounds && each >= EACH_LEAST; i++) {
		double rate;
		int ret;

		if (pick_all(p, n, zones) < n)
			break;
		ret = probe_write_together(p, zones, n, each, &rate, err);
		if (!ret)
			ret = probe_drop(p, zones, n, err);
		if (ret)
			return ret;
		best = zns_max(best, rate);
		probe_tick(p, i + 1, rounds);
	}
	if (best > 0 && best < BELOW * n * p->map->zone_write_mibps)
		p->map->device_write_mibps = (uint32_t)best;
	return 0;
}
