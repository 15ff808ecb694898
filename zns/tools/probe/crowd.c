/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Are the promised rates reached while many groups are written? Groups that share a channel may be
 * slightly slower together than alone, by less than the difference between one die and two. So the
 * sets of several groups that took longest are written once more, for longer, and each zone is
 * written as much as its group is promised in the same time. If this takes longer than promised,
 * all promised rates are lowered in proportion.
 *
 * The shortest of several times does not show that the whole device stalls now and then, as one
 * does that collects garbage. So the larger of these sets is written for a while, and its mean time
 * is used. A device that stalls less often than once in that while is not noticed.
 */
#include "probe_priv.h"

/* Each length is twice the one before: in a longer set the slow start has less weight. */
#define LENGTHS 3u
#define TRIES (2 * LENGTHS)
/* Ratio to the promised time: up to this, stalls of single zones may be the cause. */
#define HOLDS 1.1
#define MOST (PROBE_LONG_UNITS << (LENGTHS - 1)) /* units written to a zone in the longest set */
#define WHILE (UINT64_C(1) << 30) /* bytes written for the mean; at most the drive's size / PART */
#define PART 4u
/*
 * The larger set is this many times as long, so that one stall at its start or end has little
 * weight.
 */
#define LONGER 4u

/*
 * The rate promised to a zone. A group that is faster than the usual one is promised only the usual
 * rate.
 */
static uint32_t promised(const struct probe *p, uint32_t zone)
{
	return zns_min(p->map->group_write_mibps[p->map->zone_group[zone]], p->usual_mibps);
}

static uint32_t quickest(const struct probe *p, const struct probe_crowd *c)
{
	uint32_t quick = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		quick = zns_max(quick, promised(p, c->zone[i]));
	return quick;
}

/*
 * Writes @most units of each zone with the highest promised rate, and of the others as much as
 * promised in the same time. *times: ratio of the time to the promised time.
 */
static int write_promised(struct probe *p, const struct probe_crowd *c, uint32_t most,
			  double *times, struct zns_err *err)
{
	uint32_t quick = quickest(p, c), units[PROBE_WRITE_BATCH];
	double ns = 0;
	int ret;

	for (uint32_t i = 0; i < c->nr; i++)
		units[i] = zns_max((uint32_t)((double)most * promised(p, c->zone[i]) / quick + 0.5),
				   1u);
	ret = probe_write_units(p, c->zone, units, c->nr, &ns, err);
	*times = ns / 1e9 / (most * (double)p->unit / MIB(1) / quick);
	return ret;
}

/*
 * Returns the ratio of a set's time to the promised time. The least of several is used, since noise
 * makes nothing faster.
 */
static int overdue(struct probe *p, const struct probe_crowd *c, double *times, struct zns_err *err)
{
	uint32_t quick = quickest(p, c), fit = p->d->geo.zone_capacity / p->unit;

	for (uint32_t k = 0; k < TRIES && quick; k++) {
		double now;
		int ret = write_promised(p, c, zns_min(PROBE_LONG_UNITS << k % LENGTHS, fit), &now,
					 err);

		if (ret)
			return ret;
		*times = k ? zns_min(*times, now) : now;
		if (*times <= HOLDS)
			break;
	}
	return 0;
}

/* Writes @bytes. *times: mean ratio to the promised time. */
static int mean_of(struct probe *p, const struct probe_crowd *c, uint64_t bytes, double *times,
		   struct zns_err *err)
{
	uint32_t fit = zns_min((uint64_t)MOST, p->d->geo.zone_capacity / p->unit), n = 0;
	uint64_t end = p->map->written + bytes;
	double sum = 0, now;
	int ret = 0;

	if (!p->par->budget)
		p->budget += bytes + (uint64_t)c->nr * fit * p->unit;
	for (; !ret && p->map->written < end; n++) {
		ret = write_promised(p, c, fit, &now, err);
		sum += now;
	}
	*times = ret ? 1 : sum / n;
	return ret;
}

/*
 * Like mean_of(), but if the mean is clearly above @known, the least ratio, it is measured again
 * with LONGER times as many bytes: in a short while, a single stall or a busy host has too much
 * weight.
 */
static int with_stalls(struct probe *p, const struct probe_crowd *c, double known, double *times,
		       struct zns_err *err)
{
	uint64_t bytes = zns_min(WHILE, p->nr * p->d->geo.zone_capacity / PART);
	int ret = mean_of(p, c, bytes, times, err);

	return ret || *times <= HOLDS * known ? ret : mean_of(p, c, LONGER * bytes, times, err);
}

/* Since this set was tried, its groups' rates may have been raised: leaves out what exceeds the rate of all
 * groups together. */
static void leave_out(const struct probe *p, struct probe_crowd *c)
{
	double most = probe_may_be_promised(p->map), sum = 0;

	for (uint32_t i = 0; most > 0 && i < c->nr; i++) {
		sum += promised(p, c->zone[i]);
		if (i && sum > most)
			c->nr = i;
	}
}

int probe_crowd(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	const struct probe_crowd *all = &p->crowd[0];
	double most = 1, times = 0;
	int ret = 0;

	if (!p->par->budget)
		p->budget += (uint64_t)PROBE_CROWDS * TRIES * PROBE_WRITE_BATCH * MOST * p->unit;
	for (uint32_t i = 0; !ret && i < PROBE_CROWDS; i++) {
		leave_out(p, &p->crowd[i]);
		if (p->crowd[i].nr)
			ret = overdue(p, &p->crowd[i], &times, err);
		most = zns_max(most, times);
		all = p->crowd[i].nr > all->nr ? &p->crowd[i] : all;
	}
	if (!ret && all->nr) {
		ret = with_stalls(p, all, most, &times, err);
		ret = ret == -EDQUOT ? 0 : ret;
		most = zns_max(most, times);
	}
	if (ret || most <= HOLDS)
		return ret;
	m->load = zns_max(m->load, 1.0) * most;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		m->group_write_mibps[g] = zns_max((uint32_t)(m->group_write_mibps[g] / most), 1u);
	/* the rate of all groups together was measured without these stalls, so lower it too */
	m->device_write_mibps = (uint32_t)(m->device_write_mibps / most);
	m->zone_write_mibps = zns_max((uint32_t)(m->zone_write_mibps / most), 1u);
	p->usual_mibps = zns_max((uint32_t)(p->usual_mibps / most), 1u);
	return 0;
}
