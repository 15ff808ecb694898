/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of the groups, as it looks for one container. */
#include <string.h>
#include "tables.h"

bool reserved_by(const ZnsPb__Reservation *r, uint32_t group)
{
	size_t i;

	for (i = 0; r && i < r->n_groups; i++)
		if (r->groups[i] == group)
			return true;
	return false;
}

double group_read_mibps(const struct znsd *d, uint32_t group)
{
	return zns_max(zns_store_profile(d->store)->zone_read_mibps, 1u) * group_worth(d, group);
}

/* Counts the lease also on groups that were not granted to the dump, but where it got a zone
 * because its own groups were full. */
static void count_strays(const struct znsd *d, const struct lease *l, struct zns_group_state *gs)
{
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++) {
		const struct lease_zone *z = &l->zones[i];
		uint32_t g = d->zones[z->zone].group;

		if (!z->done && !z->bad && !lease_has_group(l, g))
			gs[g].nr_leases++;
	}
}

void groups_state(const struct znsd *d, const char *container, const struct lease *self,
		  struct zns_group_state *gs)
{
	const struct lease *l;
	uint32_t i, k;
	size_t r;

	memset(gs, 0, d->nr_groups * sizeof(*gs));
	for (i = 0; i < d->nr_groups; i++) {
		const struct zn_group *g = &d->groups[i];

		gs[i].id = i;
		gs[i].channel = g->channel;
		gs[i].worth = group_worth(d, i);
		gs[i].metadata = g->metadata;
		gs[i].reserved_io = g->io;
		for (k = 0; k < g->nr_zones; k++) {
			uint32_t z = g->zones[k];

			gs[i].free_zones += zone_empty(d, z) || zone_garbage(d, z) ||
					    zone_parked_for(d, z, container, 0);
		}
	}
	for (r = 0; r < zns_store_nr_reservations(d->store); r++) {
		const ZnsPb__Reservation *res = zns_store_reservation(d->store, r);

		if (!strcmp(res->container, container))
			continue;
		for (k = 0; k < res->n_groups; k++)
			if (res->groups[k] < d->nr_groups)
				gs[res->groups[k]].nr_reservations++;
	}
	for (l = d->leases; l; l = l->next) {
		if (l == self || lease_background(l))
			continue;
		for (k = 0; k < l->nr_groups; k++) {
			struct zns_group_state *g = &gs[l->groups[k]];

			g->nr_leases++;
			g->promised |= lease_promised(l);
			/* A dump without a reservation holds its groups only by its lease. */
			if ((l->kind == LEASE_YIELDING || (lease_admitted(l) && l->dump.dynamic)) &&
			    strcmp(l->container, container))
				g->nr_reservations++;
		}
		if (lease_writes(l))
			count_strays(d, l, gs);
	}
}

static void mark(struct lease *l, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < l->dump.nr_shared; i++)
		if (l->dump.shared[i] == group)
			return;
	znsd_grow(l->dump.shared, l->dump.nr_shared, l->dump.max_shared);
	l->dump.shared[l->dump.nr_shared++] = group;
}

static bool uses_group(const struct znsd *d, const struct lease *l, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++)
		if (!l->zones[i].done && !l->zones[i].bad &&
		    d->zones[l->zones[i].zone].group == group)
			return true;
	return lease_has_group(l, group);
}

/* Marks a group as shared in the leases that use it now. The record will list groups that were
 * shared at any time, not only at the beginning. */
void groups_mark_shared(struct znsd *d, struct lease *l, uint32_t group)
{
	size_t r;
	struct lease *o;

	for (r = 0; r < zns_store_nr_reservations(d->store); r++) {
		const ZnsPb__Reservation *res = zns_store_reservation(d->store, r);

		if (reserved_by(res, group) && strcmp(res->container, l->container))
			mark(l, group);
	}
	for (o = d->leases; o; o = o->next) {
		if (o == l || !lease_admitted(o) || !uses_group(d, o, group))
			continue;
		mark(o, group);
		mark(l, group);
	}
}

void groups_io_refresh(struct znsd *d)
{
	uint32_t i;
	size_t r, k;

	for (i = 0; i < d->nr_groups; i++)
		d->groups[i].io = false;
	for (r = 0; r < zns_store_nr_reservations(d->store); r++) {
		const ZnsPb__Reservation *res = zns_store_reservation(d->store, r);

		for (k = 0; res->explicit_ && k < res->n_groups; k++)
			if (res->groups[k] < d->nr_groups)
				d->groups[res->groups[k]].io = true;
	}
	d->sweep = true;
}

static void list_groups(char *buf, size_t len, size_t *at, const uint32_t *groups, size_t nr)
{
	size_t i;

	for (i = 0; i < nr && *at < len; i++)
		*at += snprintf(buf + *at, len - *at, "%s%u", i ? " " : "groups ", groups[i]);
}

/* Was a lease of the same connection listed before? A connection may have two reading leases: for a
 * checkpoint and for its chain. */
static bool named_before(const struct znsd *d, const struct lease *l)
{
	const struct lease *k;

	for (k = d->leases; k != l; k = k->next)
		if (k->conn && k->conn == l->conn && lease_writes(k) == lease_writes(l) &&
		    !strcmp(k->container, l->container))
			return true;
	return false;
}

/* Lists who prevents the admission of @container: "web (dump, PID 12, groups 0 1 2), io (normal
 * I/O, groups 4 5)". */
const char *groups_holders(const struct znsd *d, const char *container, char *buf, size_t len)
{
	const struct lease *l;
	size_t at = 0, r;

	*buf = 0;
	for (l = d->leases; l && at < len; l = l->next) {
		if (l->kind == LEASE_NAMED || named_before(d, l))
			continue;
		at += snprintf(buf + at, len - at, "%s%s (%s, PID %u, ", at ? ", " : "",
			       l->container,
			       lease_background(l)       ? "compaction" :
			       l->kind == LEASE_YIELDING ? l->yields.ops->kind :
			       lease_writes(l)           ? "dump" :
							   "restore",
			       l->pid);
		list_groups(buf, len, &at, l->groups, l->nr_groups);
		if (at < len)
			at += snprintf(buf + at, len - at, ")");
	}
	for (r = 0; r < zns_store_nr_reservations(d->store) && at < len; r++) {
		const ZnsPb__Reservation *res = zns_store_reservation(d->store, r);

		if (!res->explicit_ || !strcmp(res->container, container))
			continue;
		at += snprintf(buf + at, len - at, "%s%s (normal I/O, ", at ? ", " : "",
			       res->container);
		list_groups(buf, len, &at, res->groups, res->n_groups);
		if (at < len)
			at += snprintf(buf + at, len - at, ")");
	}
	if (!*buf)
		snprintf(buf, len, "nobody; the rest have no free zone");
	return buf;
}
