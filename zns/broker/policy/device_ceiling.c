/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device may be slower than the sum of its groups, because of its controller or link. Then a dump
 * with groups of its own gets its promised rate only if the sum of all promises stays below the
 * device's rate. What the promises leave is for the dumps that share. Each of them is limited to
 * its max-min fair share of that.
 */
#include "policy.h"

static uint64_t promised(const struct znsd *d)
{
	const struct lease *l;
	uint64_t sum = 0;

	for (l = d->leases; l; l = l->next)
		if (lease_promised(l))
			sum += l->dump.qos_mibps;
	return sum;
}

uint32_t ceiling_left(const struct znsd *d)
{
	uint64_t p = promised(d);

	if (!d->ceiling_mibps)
		return UINT32_MAX;
	return p < d->ceiling_mibps ? (uint32_t)(d->ceiling_mibps - p) : 0;
}

double ceiling_share(const struct znsd *d)
{
	return d->ceiling_mibps ? zns_max((double)ceiling_left(d) / d->zone_mibps, 0.01) : 0;
}

static bool shares(const struct lease *l)
{
	return lease_admitted(l) && !l->dump.promised;
}

/* The rate that the dump asked for, limited by the rate of its zones. */
static double want_of(const struct znsd *d, const struct lease *l)
{
	return zns_max(1.0,
		       zns_min((double)l->dump.qos_mibps, (double)l->nr_groups * d->zone_mibps));
}

static double most_of(const struct znsd *d, const struct lease *l)
{
	return zns_max(1.0, (double)l->nr_groups * d->zone_mibps);
}

/*
 * Returns the limit of one dump. First each dump gets the rate that it asked for, as far as
 * possible. The rest is divided by weight, up to the rate of each dump's zones. There is a limit
 * only if all dumps together could write more than the device.
 */
uint32_t ceiling_limit(const struct znsd *d, const struct lease *l)
{
	double rest = ceiling_left(d), sum = 0, most = 0, base, level;
	cleanup_free double *v = NULL, *w = NULL;
	const struct lease *o;
	uint32_t n = 0;

	if (!d->ceiling_mibps || !shares(l))
		return 0;
	for (o = d->leases; o; o = o->next, n++)
		if (shares(o))
			most += most_of(d, o);
	if (most <= rest)
		return 0;
	v = znsd_alloc((n + 1) * sizeof(*v));
	w = znsd_alloc((n + 1) * sizeof(*w));
	for (o = d->leases, n = 0; o; o = o->next)
		if (shares(o)) {
			w[n] = weight_of(o);
			v[n++] = want_of(d, o);
		}
	level = zns_alloc_fair(v, w, n, rest);
	base = zns_min(want_of(d, l), level * weight_of(l));
	for (o = d->leases, n = 0; o; o = o->next) {
		if (!shares(o))
			continue;
		sum += zns_min(want_of(d, o), level * weight_of(o));
		v[n++] = most_of(d, o) - zns_min(want_of(d, o), level * weight_of(o));
	}
	if (sum < rest)
		base += zns_min(most_of(d, l) - base,
				zns_alloc_fair(v, w, n, rest - sum) * weight_of(l));
	return (uint32_t)zns_max(base, 1.0);
}
