/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes sets of zones at once and measures the time from the first write to the end of a flush, so
 * that data in a buffer or in a write cache count only when they are on the medium.
 */
#include <stdlib.h>
#include <string.h>

#include "probe_priv.h"

static void fill_race(struct probe *p, struct zns_race *r, const uint32_t *zones,
		      const uint32_t *units, uint32_t nr, uint32_t each, uint64_t *done_ns)
{
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t count = units ? units[i] : each;

		probe_fill(p, p->wbuf + (size_t)i * p->unit, zones[i]);
		r[i] = (struct zns_race){ .write = true,
					  .zone = zones[i],
					  .len = p->unit,
					  .count = count,
					  .buf = p->wbuf + (size_t)i * p->unit,
					  .done_ns = done_ns };
		done_ns += count;
		probe_mark(p, zones[i], count);
	}
}

void probe_write_race(struct probe *p, struct zns_race *r, const uint32_t *zones, uint32_t nr,
		      uint32_t count, uint64_t *done_ns)
{
	fill_race(p, r, zones, NULL, nr, count, done_ns);
}

/* @units: by zone; NULL: @each. */
static int write_timed(struct probe *p, const uint32_t *zones, const uint32_t *units, uint32_t nr,
		       uint32_t each, double *ns, struct zns_err *err)
{
	struct zns_race r[PROBE_WRITE_BATCH] = { 0 };
	cleanup_free uint64_t *done = NULL;
	uint64_t start, all = 0;
	int ret;

	for (uint32_t i = 0; i < nr; i++)
		all += units ? units[i] : each;
	done = calloc(all, sizeof(*done));
	if (!done)
		return zns_fail(err, -ENOMEM, "no memory for %u clients", nr);
	ret = probe_spend(p, all * p->unit, err);
	if (ret)
		return ret;
	fill_race(p, r, zones, units, nr, each, done);
	start = zns_dev_now_ns(p->d);
	ret = probe_race(p, r, nr, err);
	p->accept_ns = zns_max(zns_dev_now_ns(p->d) - start, UINT64_C(1));
	if (!ret)
		ret = zns_dev_flush(p->d, err);
	*ns = zns_max(zns_dev_now_ns(p->d) - start, UINT64_C(1));
	return ret;
}

int probe_write_timed(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count,
		      double *ns, struct zns_err *err)
{
	return write_timed(p, zones, NULL, nr, count, ns, err);
}

int probe_write_units(struct probe *p, const uint32_t *zones, const uint32_t *units, uint32_t nr,
		      double *ns, struct zns_err *err)
{
	int ret = write_timed(p, zones, units, nr, p->set_units, ns, err);

	return ret ? ret : probe_drop(p, zones, nr, err);
}

int probe_write_set(struct probe *p, const uint32_t *zones, uint32_t nr, uint32_t count, double *ns,
		    struct zns_err *err)
{
	int ret = probe_write_timed(p, zones, nr, count, ns, err);

	return ret ? ret : probe_drop(p, zones, nr, err);
}

int probe_best_alone(struct probe *p, uint32_t zone, uint32_t units, uint32_t tries, double *ns,
		     struct zns_err *err)
{
	*ns = PROBE_UNTOLD * 1e9;
	for (uint32_t i = 0; i < tries; i++) {
		double now;
		int ret = probe_write_set(p, &zone, 1, units, &now, err);

		if (ret)
			return ret;
		*ns = zns_min(*ns, now);
	}
	return 0;
}

int probe_best_set(struct probe *p, const uint32_t *zones, const uint32_t *units, uint32_t nr,
		   double alone, double high, uint32_t tries, double *ratio, struct zns_err *err)
{
	*ratio = PROBE_UNTOLD;
	for (uint32_t i = 0; i < tries; i++) {
		double ns = 0;
		int ret = probe_write_units(p, zones, units, nr, &ns, err);

		if (ret)
			return ret;
		*ratio = zns_min(*ratio, ns / alone);
		if (*ratio <= high)
			break;
	}
	return 0;
}

double probe_set_mibps(const struct probe *p, uint32_t nr, uint32_t count, double ns)
{
	return (double)nr * count * p->unit / MIB(1) / (ns / 1e9);
}

int probe_index_build(struct probe *p, struct probe_index *x, struct zns_err *err)
{
	const struct zns_probe_map *m = p->map;
	uint32_t at = 0;

	probe_index_free(x);
	x->zone = calloc(p->nr + 1, sizeof(*x->zone));
	x->first = calloc(m->nr_groups + 1, sizeof(*x->first));
	if (!x->zone || !x->first)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", p->nr);
	for (uint32_t z = 0; z < p->nr; z++)
		if (probe_can_write(p, z) && m->zone_group[z] != ZNS_PROBE_NONE)
			x->first[m->zone_group[z]]++;
	for (uint32_t g = 0, n; g <= m->nr_groups; g++) {
		n = g < m->nr_groups ? x->first[g] : 0;
		x->first[g] = at;
		at += n;
	}
	for (uint32_t z = p->nr; z--;)
		if (probe_can_write(p, z) && m->zone_group[z] != ZNS_PROBE_NONE)
			x->zone[x->first[m->zone_group[z]]++] = z;
	for (uint32_t g = m->nr_groups; g; g--)
		x->first[g] = x->first[g - 1];
	x->first[0] = 0;
	for (uint32_t g = 0; g < m->nr_groups; g++)
		probe_shuffle(p, x->zone + x->first[g], x->first[g + 1] - x->first[g]);
	return 0;
}

uint32_t probe_zone_of(const struct probe *p, uint32_t group, uint32_t from)
{
	for (uint32_t k = 0; k < p->nr; k++) {
		uint32_t z = (from + k) % p->nr;

		if (p->map->zone_group[z] == group && probe_can_write(p, z))
			return z;
	}
	return ZNS_PROBE_NONE;
}

void probe_index_free(struct probe_index *x)
{
	free(x->zone);
	free(x->first);
	*x = (struct probe_index){ 0 };
}

void probe_shuffle(struct probe *p, uint32_t *v, uint32_t n)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = probe_random(p, i), x = v[k];

		v[k] = v[i - 1];
		v[i - 1] = x;
	}
}
