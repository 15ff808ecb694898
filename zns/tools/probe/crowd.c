/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Does the promise hold? Groups that share a channel may be written one by one as fast as they are,
 * and all together a bit slower, by less than tells one die from two. So the sets of several groups
 * that took longest are written once more, long, each zone as much as its group is promised in the
 * same time. If that takes longer, all promises are lowered by it.
 */
#include "probe_priv.h"

#define LENGTHS 3u /* each twice the one before: what a set begins with counts less */
#define TRIES (2 * LENGTHS)
#define HOLDS 1.1 /* times as long as promised: less may be the stalls of one zone of many */
#define MOST (PROBE_LONG_UNITS << (LENGTHS - 1)) /* units of a zone */

/* What a zone of the set is promised: of a group that is quicker than most are, no more than those. */
static uint32_t promised(const struct probe *p, uint32_t zone)
{
	return zns_min(p->map->group_write_mibps[p->map->zone_group[zone]], p->usual_mibps);
}

/* How many times as long as promised the set takes, at best: noise makes nothing quicker. */
static int overdue(struct probe *p, const struct probe_crowd *c, double *times, struct zns_err *err)
{
	uint32_t quick = 0, fit = p->d->geo.zone_capacity / p->unit;

	for (uint32_t i = 0; i < c->nr; i++)
		quick = zns_max(quick, promised(p, c->zone[i]));
	for (uint32_t k = 0; k < TRIES && quick; k++) {
		uint32_t units[PROBE_WRITE_BATCH],
			most = zns_min(PROBE_LONG_UNITS << k % LENGTHS, fit);
		double s = most * (double)p->unit / MIB(1) / quick, ns;
		int ret;

		for (uint32_t i = 0; i < c->nr; i++) {
			uint32_t rate = promised(p, c->zone[i]);

			units[i] = zns_max((uint32_t)((double)most * rate / quick + 0.5), 1u);
		}
		ret = probe_write_units(p, c->zone, units, c->nr, &ns, err);
		if (ret)
			return ret;
		*times = k ? zns_min(*times, ns / 1e9 / s) : ns / 1e9 / s;
		if (*times <= HOLDS)
			break;
	}
	return 0;
}

int probe_crowd(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	double most = 1, times = 0;
	int ret = 0;

	if (!p->par->budget)
		p->budget += (uint64_t)PROBE_CROWDS * TRIES * PROBE_WRITE_BATCH * MOST * p->unit;
	for (uint32_t i = 0; !ret && i < PROBE_CROWDS; i++) {
		if (p->crowd[i].nr)
			ret = overdue(p, &p->crowd[i], &times, err);
		most = zns_max(most, times);
	}
	if (ret || most <= HOLDS)
		return ret;
	m->load = zns_max(m->load, 1.0) * most;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		m->group_write_mibps[g] = zns_max((uint32_t)(m->group_write_mibps[g] / most), 1u);
	/* all groups together were to have as much as this set */
	m->device_write_mibps = (uint32_t)(m->device_write_mibps / most);
	m->zone_write_mibps = zns_max((uint32_t)(m->zone_write_mibps / most), 1u);
	p->usual_mibps = zns_max((uint32_t)(p->usual_mibps / most), 1u);
	return 0;
}
