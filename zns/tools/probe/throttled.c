/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A drive that gets hot is throttled, and its rate changes while it is measured: then sets seem to
 * wait for each other that do not. It shows where a zone alone is slow right after much was
 * written, each time, and quick before or some time later.
 */
#include "probe_priv.h"

#define ROUNDS 3u
#define HEAT MIB(192) /* written at once in a round */
#define FIRST 3u /* times alone right after it: the best one counts */
#define LATER 8u /* times alone after these */

/* Writes as much at once as the drive takes. */
static int heat(struct probe *p, struct zns_err *err)
{
	uint32_t zones[PROBE_WRITE_BATCH],
		most = zns_min(p->room, p->open_room),
		n = probe_pick_empty(p, zones, zns_min(most, PROBE_WRITE_BATCH)),
		units = (uint32_t)zns_min((uint64_t)PROBE_LONG_UNITS,
					  p->d->geo.zone_capacity / p->unit);
	double ns;
	int ret = 0;

	for (uint64_t done = 0; !ret && n && done < HEAT; done += (uint64_t)n * units * p->unit)
		ret = probe_write_set(p, zones, n, units, &ns, err);
	return ret;
}

int probe_throttled(struct probe *p, struct zns_err *err)
{
	uint32_t zone, group;
	double hot = 0, quick;
	int ret = 0;

	if (!probe_pick_empty(p, &zone, 1) || !p->set_units)
		return 0;
	if (!p->par->budget)
		p->budget += ROUNDS * (HEAT + (FIRST + LATER) * p->set_units * p->unit) + HEAT;
	group = p->map->zone_group[zone];
	quick = group != ZNS_PROBE_NONE && p->group_ns[group] > 0 ? p->group_ns[group] :
								    PROBE_UNTOLD * 1e9;
	for (uint32_t k = 0; !ret && k < ROUNDS; k++) {
		double first = 0, ns;

		ret = heat(p, err);
		for (uint32_t i = 0; !ret && i < FIRST + LATER; i++) {
			ret = probe_write_set(p, &zone, 1, p->set_units, &ns, err);
			if (i < FIRST)
				first = i ? zns_min(first, ns) : ns;
			quick = zns_min(quick, ns);
		}
		hot = k ? zns_min(hot, first) : first;
	}
	if (ret || hot < PROBE_ONE_RATE * quick)
		return ret;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: right after much was written a zone alone takes %.1f times as long as at other times: the device's rate changes while it is measured, as that of one that gets hot and is throttled; nothing is stored: let the device cool down and probe again",
		hot / quick);
}
