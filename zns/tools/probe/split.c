/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Assigns zones to groups by writing pairs, if reads cannot tell dies apart. If a channel is slower
 * than reads of one die, zones of all its dies wait for each other's reads, so the groups that
 * reads found are channels: such a group is split. If reads have shown nothing at all, all zones
 * begin as one group, which is split.
 */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

#define PIVOTS 64u /* most dies into which one group is split */
#define PAIRS 10u /* number of pairs of a group that are tried to see whether it is one die */
#define TOGETHER 8u /* after this many new pivots, all pivots are written together */
/* pivots that take more than this multiple of their time alone wait for each other */
#define TOGETHER_MOST 3.0

/* Do two zones share a die? @alone: the time alone of the slower one. */
static int share(struct probe *p, uint32_t a, uint32_t b, double alone, bool *yes,
		 struct zns_err *err)
{
	const uint32_t pair[2] = { a, b };

	*yes = true;
	for (uint32_t k = 0; k < 2 && *yes; k++) {
		double ns;
		int ret = probe_write_set(p, pair, 2, p->set_units, &ns, err);

		if (ret)
			return ret;
		*yes = ns >= PROBE_SAME * alone;
		p->between |= ns > PROBE_APART * alone && !*yes;
		/* longer than two zones of one die take: it was disturbed, so try once more */
		if (ns <= PROBE_SAME_MOST * alone)
			break;
	}
	return 0;
}

/* Sets @apart if a pair of the group does not share a die. */
static int look(struct probe *p, const struct probe_index *x, uint32_t group, struct zns_err *err)
{
	uint32_t first = x->first[group], n = x->first[group + 1] - first;
	int ret = 0;

	for (uint32_t i = 0; !ret && !p->apart[group] && i < PAIRS && 2 * i + 1 < n; i++) {
		bool yes;

		ret = share(p, x->zone[first + 2 * i], x->zone[first + 2 * i + 1],
			    p->group_ns[group], &yes, err);
		p->apart[group] |= !ret && !yes;
	}
	return ret;
}

/*
 * Measures the time of a zone alone: the shorter of two, unless the first one is equal to that of a
 * known die.
 */
static int alone_of(struct probe *p, uint32_t zone, const double *known, uint32_t nr, double *ns,
		    struct zns_err *err)
{
	*ns = 0;
	for (uint32_t k = 0; k < 2; k++) {
		double now;
		int ret = probe_write_set(p, &zone, 1, p->set_units, &now, err);

		if (ret)
			return ret;
		*ns = k ? zns_min(*ns, now) : now;
		for (uint32_t i = 0; i < nr; i++)
			if (*ns <= known[i] * PROBE_ALIKE && known[i] <= *ns * PROBE_ALIKE)
				return 0;
	}
	return 0;
}

/* Could two dies with these times alone be the same die? */
static bool alike(double a, double b)
{
	return a <= PROBE_ONE_RATE * b && b <= PROBE_ONE_RATE * a;
}

/*
 * -EAGAIN: no two of the pivots wait for each other, but they do wait when all are written
 * together, so they wait for something other than a die.
 */
static int independent(struct probe *p, const uint32_t *pivot, const double *alone, uint32_t nr,
		       struct zns_err *err)
{
	uint32_t n = zns_min(zns_min(nr, PROBE_WRITE_BATCH), zns_min(p->room, p->open_room));
	double slowest = 0, ns;
	int ret;

	if (nr % TOGETHER)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		slowest = zns_max(slowest, alone[i]);
	ret = probe_write_set(p, pivot, n, p->set_units, &ns, err);
	if (ret || ns <= TOGETHER_MOST * slowest)
		return ret;
	return zns_fail(
		err, -EAGAIN,
		"cannot be measured: two zones are written as fast as one each, and %u of them %.1f times as slow as one: what they wait for is no die; nothing is stored",
		n, ns / slowest);
}

static int split_once(struct probe *p, const struct probe_index *x, uint32_t group,
		      struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t pivot[PIVOTS], to[PIVOTS], nr = 0;
	double alone[PIVOTS];

	for (uint32_t i = x->first[group]; i < x->first[group + 1]; i++) {
		uint32_t z = x->zone[i], k;
		bool yes = false;
		double ns;
		int ret = alone_of(p, z, alone, nr, &ns, err);

		for (k = 0; !ret && k < nr; k++) {
			if (!alike(ns, alone[k]))
				continue;
			ret = share(p, z, pivot[k], zns_max(ns, alone[k]), &yes, err);
			if (yes)
				break;
		}
		if (ret)
			return ret;
		if (!yes) {
			/*
			 * if there are more pivots than dies, the prediction will refuse this map
			 */
			if (nr == PIVOTS)
				return 0;
			alone[nr] = ns;
			to[nr] = nr ? m->nr_groups++ : group;
			m->pivot[to[nr]] = z;
			m->group_channel[to[nr]] = ZNS_PROBE_NONE;
			pivot[nr++] = z;
			ret = independent(p, pivot, alone, nr, err);
			if (ret)
				return ret;
		}
		m->zone_group[z] = to[k];
		probe_tick(p, i - x->first[group], x->first[group + 1] - x->first[group]);
	}
	return 0;
}

/*
 * Makes pairs longer if a pair took longer than independent zones but less than zones of one die:
 * such a time shows nothing, since most of it is the filling and emptying of a large program unit.
 * Returns false if there was no such pair, or if pairs are long already.
 */
static bool lengthen(struct probe *p, uint64_t spent)
{
	uint32_t most = probe_long_units(p);

	if (!p->between || most <= p->set_units)
		return false;
	/* the default budget covers short pairs only, so increase it for longer ones */
	if (!p->par->budget)
		p->budget += spent * most / p->set_units;
	p->set_units = most;
	return true;
}

static int split(struct probe *p, const struct probe_index *x, uint32_t group, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t groups = m->nr_groups;
	uint64_t before = m->written;
	int ret;

	p->between = false;
	ret = split_once(p, x, group, err);
	if ((ret && ret != -EAGAIN) || !lengthen(p, m->written - before))
		return ret;
	if (err)
		*err = (struct zns_err)ZNS_ERR_INIT;
	m->nr_groups = groups;
	for (uint32_t i = x->first[group]; i < x->first[group + 1]; i++)
		m->zone_group[x->zone[i]] = group;
	return split_once(p, x, group, err);
}

int probe_split_groups(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t nr = m->nr_groups;
	int ret = 0;

	/* zones that cannot be written can only be assigned by reads */
	for (uint32_t z = 0; z < p->nr; z++)
		if (m->zone_group[z] != ZNS_PROBE_NONE && !probe_can_write(p, z))
			return 0;
	for (uint32_t g = 0; !ret && g < nr; g++)
		ret = look(p, x, g, err);
	for (uint32_t g = 0; !ret && g < nr; g++)
		if (p->apart[g])
			ret = split(p, x, g, err);
	if (m->nr_groups == nr)
		return ret;
	probe_doubt_channels(p, "some dies are read as one and written independently");
	probe_forget_channels(m);
	return ret;
}

/* Assigns a zone to a group by writes; to a new group if it shares a die with none. */
static int place(struct probe *p, const struct probe_index *x, uint32_t zone, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t n = m->nr_groups, g;
	double ns;
	int ret = alone_of(p, zone, p->group_ns, n, &ns, err);

	for (g = 0; !ret && g < n; g++) {
		uint32_t size = x->first[g + 1] - x->first[g];
		bool yes;

		if (!size || !alike(ns, p->group_ns[g]))
			continue;
		ret = share(p, zone, x->zone[x->first[g] + probe_random(p, size)],
			    zns_max(ns, p->group_ns[g]), &yes, err);
		if (yes)
			break;
	}
	if (ret)
		return ret;
	if (g == n) {
		m->pivot[g] = zone;
		m->group_channel[g] = ZNS_PROBE_NONE;
		m->channel_confidence[g] = 0;
		p->group_ns[g] = ns;
		m->group_write_mibps[g] = (uint32_t)(probe_set_mibps(p, 1, p->set_units, ns) + 0.5);
		m->nr_groups++;
	}
	m->zone_group[zone] = g;
	return 0;
}

/* Assigns the zones that are marked in @unknown. */
static int place_all(struct probe *p, struct probe_index *x, const bool *unknown,
		     struct zns_err *err)
{
	int ret = 0;

	for (uint32_t z = 0; !ret && z < p->nr; z++) {
		if (!unknown[z])
			continue;
		ret = place(p, x, z, err);
		/* add the zone to the index: the next zone may belong to the new group */
		if (!ret && p->map->zone_group[z] >= p->map->nr_groups - 1)
			ret = probe_index_build(p, x, err);
	}
	return ret ? ret : probe_index_build(p, x, err);
}

int probe_place_unknown(struct probe *p, struct probe_index *x, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	cleanup_free bool *unknown = calloc(p->nr, sizeof(*unknown));
	uint32_t groups = m->nr_groups, n = 0;
	uint64_t before = m->written;
	int ret;

	if (!unknown)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	for (uint32_t z = 0; z < p->nr; z++) {
		unknown[z] = m->zone_group[z] == ZNS_PROBE_NONE && probe_can_write(p, z);
		n += unknown[z];
	}
	p->between = false;
	ret = n ? place_all(p, x, unknown, err) : 0;
	if (ret || !lengthen(p, m->written - before))
		return ret;
	m->nr_groups = groups;
	for (uint32_t z = 0; z < p->nr; z++)
		if (unknown[z])
			m->zone_group[z] = ZNS_PROBE_NONE;
	ret = probe_index_build(p, x, err);
	if (!ret)
		ret = probe_group_times(p, x, err);
	return ret ? ret : place_all(p, x, unknown, err);
}

int probe_place_by_writes(struct probe *p, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	struct probe_index x = { 0 };
	int ret;

	p->by_writes = true;
	memset(m->group_channel, 0xff, p->nr * sizeof(*m->group_channel));
	memset(m->zone_confidence, 0, p->nr * sizeof(*m->zone_confidence));
	for (uint32_t z = 0; z < p->nr; z++)
		m->zone_group[z] = probe_can_write(p, z) ? 0 : ZNS_PROBE_NONE;
	m->nr_groups = 1;
	ret = probe_index_build(p, &x, err);
	if (!ret)
		ret = split(p, &x, 0, err);
	probe_index_free(&x);
	if (ret)
		return ret;
	probe_doubt_channels(p, "reads do not tell dies apart, so they tell nothing of channels");
	return 0;
}
