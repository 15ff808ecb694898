/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Groups of the reads that are several when they are written: where dies of a channel wait for each
 * other's reads, because the channel is slower than one of them, reads show channels. The zones of
 * such a group are placed by writing pairs.
 */
#include <stdlib.h>

#include "probe_priv.h"

#define PIVOTS 64u /* of one group of the reads */
#define PAIRS 3u /* tried of a group of which nothing is known yet */

/* Do two zones share, of which one takes @alone? The best of two times. */
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
		/* a quiet measurement needs no second one */
		if (ns <= PROBE_SAME_MOST * alone)
			break;
	}
	return 0;
}

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

static int split(struct probe *p, const struct probe_index *x, uint32_t group, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t pivot[PIVOTS], to[PIVOTS], nr = 0;
	double alone[PIVOTS];

	for (uint32_t i = x->first[group]; i < x->first[group + 1]; i++) {
		uint32_t z = x->zone[i], k;
		bool yes = false;
		int ret = 0;

		for (k = 0; !ret && k < nr; k++) {
			ret = share(p, z, pivot[k], alone[k], &yes, err);
			if (yes)
				break;
		}
		if (ret)
			return ret;
		if (!yes) {
			if (nr == PIVOTS)
				return 0; /* the prediction fails */
			ret = probe_write_set(p, &z, 1, p->set_units, &alone[nr], err);
			if (ret)
				return ret;
			to[nr] = nr ? m->nr_groups++ : group;
			m->pivot[to[nr]] = z;
			pivot[nr++] = z;
		}
		m->zone_group[z] = to[k];
		probe_tick(p, i - x->first[group], x->first[group + 1] - x->first[group]);
	}
	return 0;
}

int probe_split_groups(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	uint32_t nr = m->nr_groups;
	int ret = 0;

	/* zones that cannot be written could only be placed by reads */
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
	m->nr_split = m->nr_groups - nr;
	probe_doubt_channels(p, "dies read as one, and write independently");
	probe_forget_channels(m);
	return ret;
}
