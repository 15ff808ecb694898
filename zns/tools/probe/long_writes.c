/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A zone is written by one command after another. If most of a command's time is latency, several
 * zones together are faster than one, even if they share everything. So commands are made longer as
 * long as that makes a single zone faster. If zones together are still faster then, they are
 * independent.
 */
#include "probe_priv.h"

#define TIMES 2u /* each step makes commands this many times as long */
#define GAINS 1.06 /* a step is accepted if it raises the rate by this factor */
#define UNITS 32u /* number of units of the first length that one measurement writes */
#define LONGEST MIB(8)

/*
 * Measures the rate of a zone alone with commands of this length. The better of two results is
 * used.
 */
static int rate(struct probe *p, uint32_t zone, uint64_t bytes, double *mibps, struct zns_err *err)
{
	uint32_t count = (uint32_t)(bytes / p->unit);
	double ns;
	int ret = probe_best_alone(p, zone, count, 2, &ns, err);

	*mibps = probe_set_mibps(p, 1, count, ns);
	return ret;
}

static int lengthen(struct probe *p, uint32_t zone, struct zns_err *err)
{
	uint64_t most = zns_min(p->d->geo.zone_capacity / 2, LONGEST),
		 bytes = zns_min(p->d->geo.zone_capacity, (uint64_t)UNITS * p->unit);
	double before, now;
	int ret = rate(p, zone, bytes, &before, err);

	while (!ret && (uint64_t)p->unit * TIMES <= most) {
		ret = probe_set_unit(p, p->unit * TIMES, err);
		if (!ret)
			ret = rate(p, zone, zns_max(bytes, (uint64_t)2 * p->unit), &now, err);
		if (ret || now < GAINS * before)
			break;
		before = now;
	}
	return ret;
}

int probe_long_writes(struct probe *p, struct zns_err *err)
{
	uint32_t zone, was = p->unit;
	double scaling = p->map->scaling;
	int ret;

	if (!probe_pick_empty(p, &zone, 1))
		return 0;
	ret = lengthen(p, zone, err);
	if (!ret && p->unit > was * TIMES)
		ret = probe_rates(p, err);
	if (!ret && p->map->one_domain)
		return 0;
	p->map->scaling = scaling;
	return ret ? ret : probe_set_unit(p, was, err);
}
