/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures how fast a zone of each group is read. The median of a few random zones would not do: if two
 * of four lie on a slow die, it is neither the rate of that die nor that of the others.
 */
#include <stdlib.h>

#include "probe_priv.h"

#define UNITS 12u
/* Reads of one zone; the best rate counts, since a busy host makes no read quicker. */
#define TRIES 3u

static int best_of(struct probe *p, uint32_t zone, uint32_t units, uint32_t *mibps,
		   struct zns_err *err)
{
	double ns, now, best = 0;
	int ret = probe_write_timed(p, &zone, 1, units, &ns, err);

	for (uint32_t k = 0; !ret && k < TRIES; k++) {
		ret = probe_read_rate(p, zone, units, &now, err);
		best = zns_max(best, now);
	}
	*mibps = zns_max((uint32_t)(best + 0.5), 1u);
	return ret ? ret : probe_drop(p, &zone, 1, err);
}

int probe_group_reads(struct probe *p, const struct probe_index *x, struct zns_err *err)
{
	uint32_t units = zns_min((uint64_t)UNITS, p->d->geo.zone_capacity / p->unit),
		 nr = p->map->nr_groups;
	int ret = 0;

	/* the default budget covers a prediction only, so grant what this measurement writes */
	if (!p->par->budget)
		p->budget += (uint64_t)nr * units * p->unit;
	for (uint32_t g = 0; !ret && g < nr; g++) {
		uint32_t n = x->first[g + 1] - x->first[g];

		p->map->group_read_mibps[g] = 0;
		if (n)
			ret = best_of(p, x->zone[x->first[g] + probe_random(p, n)], units,
				      &p->map->group_read_mibps[g], err);
	}
	return ret;
}

uint32_t probe_usual_read(const struct zns_probe_map *m)
{
	cleanup_free double *v = calloc(m->nr_groups + 1, sizeof(*v));
	uint32_t n = 0;

	for (uint32_t g = 0; v && g < m->nr_groups; g++)
		if (m->group_read_mibps[g])
			v[n++] = m->group_read_mibps[g];
	return v ? (uint32_t)(probe_median(v, n) + 0.5) : 0;
}
