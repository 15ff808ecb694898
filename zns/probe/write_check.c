/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The groups come from reads but serve for writes. So a few pairs of zones are written at once. Two
 * zones of one die are as fast as one alone. Two zones of different dies are nearly twice as fast.
 */
#include "probe_priv.h"

#define PAIRS 5u
#define BORDER 1.4 /* multiple of one zone alone */

/* Picks two empty zones of one group or of two (on different channels, if known). */
static bool pick_pair(struct probe *p, bool same, uint32_t pair[2])
{
	const struct zns_probe_map *m = p->map;
	uint32_t ga, ca;

	for (uint32_t tries = 0; tries < 8; tries++) {
		if (!probe_pick_empty(p, pair, 1))
			return false;
		ga = m->zone_group[pair[0]];
		if (ga == ZNS_PROBE_NONE)
			continue;
		ca = m->group_channel[ga];
		for (uint32_t from = probe_random(p, p->nr), k = 0; k < p->nr; k++) {
			uint32_t z = (from + k) % p->nr, g = m->zone_group[z];

			if (z == pair[0] || g == ZNS_PROBE_NONE || p->kind[z] != KIND_EMPTY ||
			    !p->typical[z] || (g == ga) != same)
				continue;
			if (!same && m->nr_channels > 1 && m->group_channel[g] == ca)
				continue;
			pair[1] = z;
			return true;
		}
	}
	return false;
}

static int try_pairs(struct probe *p, bool same, uint32_t count, uint32_t *tried, uint32_t *wrong,
		     struct zns_err *err)
{
	*tried = *wrong = 0;
	for (uint32_t i = 0; i < PAIRS; i++) {
		uint32_t pair[2];
		double sum;
		int ret;

		if (!pick_pair(p, same, pair))
			return 0;
		ret = probe_write_together(p, pair, 2, count, &sum, err);
		if (!ret)
			ret = probe_drop(p, pair, 2, err);
		if (ret)
			return ret;
		*tried += 1;
		*wrong += (sum > BORDER * p->map->zone_write_mibps) == same;
		probe_tick(p, i + 1 + (same ? 0 : PAIRS), 2 * PAIRS);
	}
	return 0;
}

int probe_check(struct probe *p, struct zns_err *err)
{
	uint64_t left = (p->budget - zns_min(p->budget, p->map->written)) / p->unit;
	uint32_t fits = p->d->geo.zone_capacity / p->unit - 1, tried, wrong, count;
	int ret;

	/* leave units for the later tests of the map */
	left = (left - zns_min(left, (uint64_t)probe_retest_units(p))) / (4 * PAIRS);
	count = zns_min(zns_min(left, fits), 24u);

	/* fewer units would only measure the buffers */
	if (count < 8 || p->open_room < 2 || p->map->nr_groups < 2)
		return 0;
	ret = try_pairs(p, true, count, &tried, &wrong, err);
	if (!ret && wrong * 2 > tried)
		ret = zns_fail(
			err, -EPROTO,
			"zones that disturb each other's reads do not when they are written (%u of %u pairs), so the groups found are of no use; nothing is stored: let the device and this host be idle and probe again; where it stays like that, the drive places reads and writes by different rules",
			wrong, tried);
	if (ret)
		return ret;
	ret = try_pairs(p, false, count, &tried, &wrong, err);
	if (!ret && wrong * 2 > tried)
		ret = zns_fail(
			err, -EPROTO,
			"zones that do not disturb each other's reads do when they are written (%u of %u pairs), so the groups found are of no use; nothing is stored: let the device and this host be idle and probe again; where it stays like that, something that all dies share is slower than two of them",
			wrong, tried);
	return ret;
}
