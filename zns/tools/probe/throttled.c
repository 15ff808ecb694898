/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Is the drive throttled because it became hot? Then its rate changes during the measurement, and
 * zones seem to wait for each other although they do not. A drive is throttled if a zone alone is
 * slow each time right after much was written, and fast before that or some time later.
 */
#include "probe_priv.h"

#define ROUNDS 3u
#define HEAT MIB(192) /* amount that is written at once in each round */
/* number of times alone that are measured right after that; the shortest is used */
#define FIRST 3u
#define LATER 8u /* number of times alone that are measured later */

/* A set of as many zones as the drive accepts at once: @units of each of @n zones. */
struct set {
	uint32_t n, units;
};

static struct set largest(const struct probe *p)
{
	uint32_t most = zns_min(zns_min(p->room, p->open_room), PROBE_WRITE_BATCH), empty = 0;

	for (uint32_t z = 0; z < p->nr && empty < most; z++)
		empty += probe_can_write(p, z);
	return (struct set){ .n = empty, .units = probe_long_units(p) };
}

static int heat(struct probe *p, const struct set *s, uint64_t bytes, struct zns_err *err)
{
	uint32_t zones[PROBE_WRITE_BATCH], n = probe_pick_empty(p, zones, s->n);
	double ns;
	int ret = 0;

	for (uint64_t done = 0; !ret && n && done < bytes; done += (uint64_t)n * s->units * p->unit)
		ret = probe_write_set(p, zones, n, s->units, &ns, err);
	return ret;
}

/*
 * All times are of one zone and one length, since another zone may be on a slower die. The zone
 * with the shortest time so far is used: the drive was cool at that time, even if it is hot all the
 * time now.
 */
int probe_throttled(struct probe *p, struct zns_err *err)
{
	struct probe_alone z = p->quickest;
	const struct set s = largest(p);
	uint64_t set = (uint64_t)s.n * s.units * p->unit, bytes;
	double hot = 0, quick;
	int ret = 0;

	if (!z.units || !probe_can_write(p, z.zone) || p->have[z.zone])
		z = (struct probe_alone){ .units = p->set_units };
	if (!set || (!(z.ns > 0) && !probe_pick_empty(p, &z.zone, 1)))
		return 0;
	bytes = zns_align_up(HEAT, set);
	if (!p->par->budget)
		p->budget += ROUNDS * bytes +
			     (uint64_t)(FIRST + ROUNDS * (FIRST + LATER)) * z.units * p->unit;
	if (!(z.ns > 0))
		ret = probe_best_alone(p, z.zone, z.units, FIRST, &z.ns, err);
	quick = z.ns;
	for (uint32_t k = 0; !ret && k < ROUNDS; k++) {
		double first, later;

		ret = heat(p, &s, bytes, err);
		if (!ret)
			ret = probe_best_alone(p, z.zone, z.units, FIRST, &first, err);
		if (!ret)
			ret = probe_best_alone(p, z.zone, z.units, LATER, &later, err);
		if (ret)
			break;
		hot = k ? zns_min(hot, first) : first;
		quick = zns_min(quick, zns_min(first, later));
	}
	if (ret || hot < PROBE_ONE_RATE * quick)
		return ret;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: right after much was written, a zone alone takes %.1f times as long as at other times: the device's rate changes while it is measured, as that of a device that gets hot and is throttled; nothing is stored: let the device cool down and probe again",
		hot / quick);
}
