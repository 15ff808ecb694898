/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Further groups for running dumps. A dump that shares begins with the groups that are available
 * then. More groups become free when other dumps end. With the answer to its progress report, a
 * dump below its max-min fair share then gets further groups, one zone of each, until it has its
 * share (zns/alloc). The lease keeps these groups until it ends. They are not reserved: the
 * container's next dump begins in the groups of its checkpoints.
 *
 * A dump that waits for admission has priority. No dump gains a group that is promised, that a
 * restore reads, or that is reserved for normal I/O. The limits of the device and of the tenant
 * apply here too.
 */
#include <string.h>
#include "policy.h"

/* a dump that shares asks again after this time, so that it soon learns that others have ended */
#define AGAIN_MS 20

static bool may_grow(const struct znsd *d, const struct lease *l)
{
	return lease_admitted(l) && !l->dump.promised && !l->packed && !l->dying_until &&
	       !rate_one_domain(d);
}

/* The largest number of further groups that the limits allow. */
static uint32_t most(struct znsd *d, const struct lease *l, uint32_t want)
{
	uint32_t total = budget_total(d), used = budget_used(d), n;
	struct zns_tenant t = { .total_groups = l->dump.total_groups };

	snprintf(t.who, sizeof(t.who), "%s", l->dump.tenant ? l->dump.tenant : "");
	n = zns_min(want, budget_tenant_groups(d, &t));
	n = zns_min(n, total > used ? total - used : 0);
	if (l->dump.max_groups)
		n = zns_min(n, l->dump.max_groups > l->nr_groups ?
				       l->dump.max_groups - l->nr_groups :
				       0);
	return zns_min(n, l->dump.most > l->nr_groups ? l->dump.most - l->nr_groups : 0);
}

/* How many of @n groups the limit of active zones allows now. If parked zones are in the way, they
 * are finished in the background, as for an admission. Until then the dump gets fewer groups. */
static uint32_t fits(struct znsd *d, uint32_t n)
{
	uint32_t excess = budget_excess(d, n, 0);

	if (!excess)
		return n;
	room_want(d, excess);
	return n - zns_min(n, excess);
}

static uint32_t writers_of(const struct zns_sharer *s, uint32_t nr, uint32_t group)
{
	uint32_t i, k, n = 0;

	for (i = 0; i < nr; i++)
		for (k = 0; k < s[i].nr_groups; k++)
			n += s[i].groups[k] == group;
	return n;
}

/* Lists the groups that the dump does not have yet, best first. */
static uint32_t others(struct znsd *d, const struct lease *l, struct zns_group_state *gs,
		       uint32_t *order)
{
	uint32_t found, n = 0, i;

	groups_state(d, l->container, l, gs);
	found = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, order);
	for (i = 0; i < found; i++)
		if (!lease_has_group(l, order[i]))
			order[n++] = order[i];
	return n;
}

/* Counts the dumps that write to each of the lease's groups. The helper uses this for its weights
 * until it has measured its zones. */
static void note_writers(const struct lease *l, const struct zns_sharer *s, uint32_t nr,
			 struct growth *g)
{
	g->groups = znsd_alloc(l->nr_groups * sizeof(*g->groups));
	for (g->nr_groups = 0; g->nr_groups < l->nr_groups; g->nr_groups++) {
		uint32_t group = l->groups[g->nr_groups];

		g->groups[g->nr_groups] = (struct group_writers){ group, writers_of(s, nr, group) };
	}
}

/* Gives the lease a zone of @group, and never of another group. The caller has checked the limits.
 * ZNSD_NONE: the group has no zone to give. */
static uint32_t gain_zone(struct znsd *d, struct lease *l, uint32_t group)
{
	uint32_t zone = ZNSD_NONE;

	if (!dump_failed_in(d, l, group) && !dump_writes_in(d, l, group))
		zone = zone_search_in(d, &(struct wish){ .l = l }, group);
	if (zone != ZNSD_NONE)
		lease_zone_add(d, l, zone, d->zones[zone].z.wp);
	return zone;
}

void dump_grow(struct znsd *d, struct lease *l, const ZnsPb__Progress *q, struct growth *g)
{
	cleanup_free struct zns_group_state *gs = NULL;
	cleanup_free struct zns_sharer *s = NULL;
	cleanup_free uint32_t *order = NULL;
	uint32_t nr, self = 0, n, found, i;
	double limit;

	*g = (struct growth){ .shares = may_grow(d, l) && q->has_more_zones };
	if (!g->shares)
		return;
	/* A dump that has not measured its zones yet is not given more zones or a limit, as it
	 * could not use them. */
	l->dump.grows |= q->waits;
	if (q->waits)
		l->dump.waits_ns = zns_mono_ns();
	s = sharers_of(d, l, &nr, &self);
	g->again = nr > 1 || l->dump.nr_shared ||
		   l->nr_groups < zns_alloc_width(l->dump.qos_mibps, d->zone_mibps);
	g->again_ms = zns_max((uint32_t)AGAIN_MS, nr);
	note_writers(l, s, nr, g);
	n = d->policy->nr_waiting || !q->waits ? 0 : most(d, l, q->more_zones);
	gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	order = znsd_alloc(d->nr_groups * sizeof(*order));
	found = others(d, l, gs, order);
	n = zns_alloc_gain(gs, d->nr_groups, s, nr, self, n, ceiling_share(d), order, found,
			   &limit);
	if (limit > 0)
		g->limit_mibps = zns_max((uint32_t)(limit * d->zone_mibps), 1u);
	if (n)
		n = fits(d, n);
	g->gained = znsd_alloc((n + 1) * sizeof(*g->gained));
	for (i = 0; i < n; i++) {
		uint32_t zone = gain_zone(d, l, order[i]);

		if (zone != ZNSD_NONE)
			g->gained[g->nr_gained++] =
				(struct gained){ zone, writers_of(s, nr, order[i]) + 1 };
	}
	/* The list of sharers points into the groups of leases, so these change last. */
	for (i = 0; i < g->nr_gained; i++) {
		uint32_t group = d->zones[g->gained[i].zone].group;

		groups_mark_shared(d, l, group);
		lease_gain_group(l, group);
	}
}

void growth_fini(struct growth *g)
{
	free(g->groups);
	free(g->gained);
}
