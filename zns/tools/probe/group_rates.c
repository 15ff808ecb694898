/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures how fast a zone of each group is written and read. The median of a few random zones would not do:
 * if two of four lie on a slow die, it is neither the rate of that die nor that of the others. Nor do the
 * sets behind the times of groups: they are short, and the program unit that ends such a set may be filled
 * in part only.
 */
#include <stdlib.h>

#include "probe_priv.h"

/* Reads of one zone; the best rate counts, since a busy host makes no read quicker. */
#define TRIES 3u

static int of_zone(struct probe *p, uint32_t zone, uint32_t units, double *write, double *read,
		   struct zns_err *err)
{
	double ns = 1, now;
	int ret = probe_write_timed(p, &zone, 1, units, &ns, err);

	*write = probe_set_mibps(p, 1, units, ns);
	*read = 0;
	/* Parts of other lengths: clients of a striped zone should not all begin on the same die. */
	for (uint32_t k = 0; !ret && k < TRIES; k++) {
		uint32_t less = units > 4 * TRIES ? 4 * k : 0;

		ret = probe_read_rate(p, zone, units - less, &now, err);
		*read = zns_max(*read, now);
	}
	return ret ? ret : probe_drop(p, &zone, 1, err);
}

int probe_group_rates(struct probe *p, const struct probe_index *x, bool *raised,
		      struct zns_err *err)
{
	struct zns_probe_map *m = p->map;
	const uint64_t full = probe_rate_units(p);
	uint64_t units, left;

	*raised = false;
	/* the default budget covers a prediction only, so grant what this measurement writes */
	if (!p->par->budget)
		p->budget += m->nr_groups * full * p->unit;
	left = p->budget - zns_min(p->budget, m->written);
	units = zns_min(full, left / p->unit / zns_max(m->nr_groups, 1u));
	for (uint32_t g = 0; g < m->nr_groups && units; g++) {
		uint32_t n = x->first[g + 1] - x->first[g];
		double write, read;
		int ret;

		m->group_read_mibps[g] = 0;
		if (!n)
			continue;
		ret = of_zone(p, x->zone[x->first[g] + probe_random(p, n)], (uint32_t)units, &write,
			      &read, err);
		if (ret)
			return ret;
		m->group_read_mibps[g] = zns_max((uint32_t)(read + 0.5), 1u);
		write /= p->load;
		/* a given budget may leave too little for a write that is long enough */
		if (units < full || write <= PROBE_ALIKE * m->group_write_mibps[g])
			continue;
		m->group_write_mibps[g] = (uint32_t)(write + 0.5);
		*raised = true;
	}
	p->usual_mibps = zns_max(probe_usual(m, m->group_write_mibps), p->usual_mibps);
	return 0;
}

uint32_t probe_usual(const struct zns_probe_map *m, const uint32_t *mibps)
{
	cleanup_free double *v = calloc(m->nr_groups + 1, sizeof(*v));
	uint32_t n = 0;

	for (uint32_t g = 0; v && g < m->nr_groups; g++)
		if (mibps[g])
			v[n++] = mibps[g];
	return v ? (uint32_t)(probe_median(v, n) + 0.5) : 0;
}
