// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups for dumps that run. One that shares was given what was to be had when it came. When others end, their groups
 * are free; and those that are left may have more than they asked for, while others have less. So whoever has less than
 * its max-min fair share gets further groups with the answer to its progress, a zone of each, until the share is
 * reached (zns/alloc). They are the lease's as those of its admission are and end with it, but are not reserved: the
 * container's next dump begins where its checkpoints are. A newcomer takes from them as from any other.
 *
 * Whoever waits for admission comes first; where groups were promised, where somebody restores and where normal I/O has
 * its place nothing is gained; and no limit is exceeded for it: of the device, of the tenant.
 */
#include <string.h>
#include "../znsd.h"

#define AGAIN_MS 20	/* how late a dump that shares learns that others have ended */

static bool may_grow(const struct znsd *d, const struct lease *l)
{
	return l->dump && !l->promised && !l->packed && !l->background && !l->dying && !rate_one_domain(d);
}

/* As many as the limits still have. */
static uint32_t most(struct znsd *d, const struct lease *l, uint32_t want)
{
	uint32_t total = budget_total(d), used = budget_used(d), n;
	struct zns_tenant t = { .total_groups = l->total_groups };

	snprintf(t.who, sizeof(t.who), "%s", l->tenant ? l->tenant : "");
	n = zns_min(want, budget_tenant_groups(d, &t));
	n = zns_min(n, total > used ? total - used : 0);
	if (l->max_groups)
		n = zns_min(n, l->max_groups > l->nr_groups ? l->max_groups - l->nr_groups : 0);
	return zns_min(n, l->most > l->nr_groups ? l->most - l->nr_groups : 0);
}

/* Parked zones that stand in the way are finished in the background, as for an admission; until then it gets fewer. */
static uint32_t fits(struct znsd *d, uint32_t n)
{
	uint32_t excess = budget_excess(d, n, 0);

	if (!excess)
		return n;
	d->room_wanted = zns_max(d->room_wanted, excess);
	d->sweep = true;
	return n - zns_min(n, excess);
}

/* Behind those for pages, before those for metadata images. */
static void add_group(struct lease *l, uint32_t group)
{
	uint32_t at = l->nr_groups - l->nr_meta, *groups, *weights;

	groups = znsd_alloc((l->nr_groups + 1) * sizeof(*groups));
	weights = znsd_alloc((l->nr_groups + 1) * sizeof(*weights));
	memcpy(groups, l->groups, at * sizeof(*groups));
	memcpy(weights, l->weights, at * sizeof(*weights));
	groups[at] = group;
	weights[at] = 1;
	memcpy(groups + at + 1, l->groups + at, l->nr_meta * sizeof(*groups));
	memcpy(weights + at + 1, l->weights + at, l->nr_meta * sizeof(*weights));
	free(l->groups);
	free(l->weights);
	l->groups = groups;
	l->weights = weights;
	l->nr_groups++;
	l->nr_gained++;
	l->width++;
}

static uint32_t writers_of(const struct zns_sharer *s, uint32_t nr, uint32_t group)
{
	uint32_t i, k, n = 0;

	for (i = 0; i < nr; i++)
		for (k = 0; k < s[i].nr_groups; k++)
			n += s[i].groups[k] == group;
	return n;
}

/* What is not its own yet, best first. */
static uint32_t others(struct znsd *d, const struct lease *l, struct zns_group_state *gs, uint32_t *order)
{
	uint32_t found, n = 0, i;

	groups_state(d, l->container, l, gs);
	found = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, order);
	for (i = 0; i < found; i++)
		if (!lease_has_group(l, order[i]))
			order[n++] = order[i];
	return n;
}

/* Who else writes where it writes: what its zones will take of it is known before it can be measured. */
static void tell_writers(const struct lease *l, const struct zns_sharer *s, uint32_t nr, struct reply *rep)
{
	uint32_t i;

	rep->r.has_crowded = 1;
	rep->r.writers = reply_alloc(rep, l->nr_groups * sizeof(*rep->r.writers));
	for (i = 0; i < l->nr_groups; i++) {
		ZnsPb__GrantedGroup *g = reply_alloc(rep, sizeof(*g));

		zns_pb__granted_group__init(g);
		g->group = l->groups[i];
		g->weight = writers_of(s, nr, g->group);
		rep->r.crowded |= g->weight > 1;
		rep->r.writers[rep->r.n_writers++] = g;
	}
}

void gain_answer(struct znsd *d, struct lease *l, const ZnsPb__Progress *q, struct reply *rep)
{
	cleanup_free struct zns_group_state *gs = NULL;
	cleanup_free struct zns_sharer *s = NULL;
	cleanup_free uint32_t *order = NULL;
	uint32_t nr, self = 0, n, found, i;

	double limit;

	if (!may_grow(d, l))
		return;
	if (!q->has_more_zones)
		return;
	/* Before it knows what its zones take it can do nothing with more of them, or with a limit. */
	l->grows |= q->waits;
	if (q->waits)
		l->waits_ns = zns_mono_ns();
	s = sharers_of(d, l, &nr, &self);
	rep->r.has_again_ms = nr > 1 || l->nr_shared || l->nr_groups < zns_alloc_width(l->qos_mibps, d->zone_mibps);
	rep->r.again_ms = zns_max((uint32_t)AGAIN_MS, nr);
	tell_writers(l, s, nr, rep);
	n = d->waiters || !q->waits ? 0 : most(d, l, q->more_zones);
	gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	order = znsd_alloc(d->nr_groups * sizeof(*order));
	found = others(d, l, gs, order);
	n = zns_alloc_gain(gs, d->nr_groups, s, nr, self, n, ceiling_share(d), order, found, &limit);
	if (limit > 0) {
		uint32_t mibps = zns_max((uint32_t)(limit * d->zone_mibps), 1u);

		rep->r.rate_mibps = rep->r.rate_mibps ? zns_min(rep->r.rate_mibps, mibps) : mibps;
	}
	if (n)
		n = fits(d, n);
	rep->r.more_zones = reply_alloc(rep, (n + 1) * sizeof(*rep->r.more_zones));
	for (i = 0; i < n; i++) {
		uint32_t zone = zone_gain(d, l, order[i]);
		ZnsPb__ZoneGrant *g;

		if (zone == ZNSD_NONE)
			continue;
		g = reply_alloc(rep, sizeof(*g));
		zns_pb__zone_grant__init(g);
		g->zone = zone;
		g->start = d->zones[zone].z.wp;
		g->capacity = d->zones[zone].z.capacity;
		g->group = order[i];
		g->has_writers = 1;
		g->writers = writers_of(s, nr, order[i]) + 1;
		rep->r.more_zones[rep->r.n_more_zones++] = g;
	}
	/* The list above points at the leases' groups: these change only now. */
	for (i = 0; i < rep->r.n_more_zones; i++) {
		groups_mark_shared(d, l, rep->r.more_zones[i]->group);
		add_group(l, rep->r.more_zones[i]->group);
	}
}
