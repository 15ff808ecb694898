// SPDX-License-Identifier: GPL-2.0-only
/* The groups as one container sees them. */
#include <string.h>
#include "znsd.h"

void groups_state(const struct znsd *d, const char *container, struct zns_group_state *gs)
{
	const struct lease *l;
	uint32_t i, k;
	size_t r;

	memset(gs, 0, d->nr_groups * sizeof(*gs));
	for (i = 0; i < d->nr_groups; i++) {
		const struct zn_group *g = &d->groups[i];

		gs[i].id = i;
		gs[i].channel = g->channel;
		gs[i].metadata = g->metadata;
		for (k = 0; k < g->nr_zones; k++) {
			uint32_t z = g->zones[k];

			gs[i].free_zones += zone_empty(&d->zones[z]) || zone_garbage(d, z) ||
					    zone_parked_for(d, z, container, 0);
		}
	}
	for (r = 0; r < zns_store_nr_reservations(d->store); r++) {
		const ZnsPb__Reservation *res = zns_store_reservation(d->store, r);

		if (!strcmp(res->container, container))
			continue;
		for (k = 0; k < res->n_groups; k++) {
			if (res->groups[k] >= d->nr_groups)
				continue;
			gs[res->groups[k]].nr_reservations++;
			if (res->explicit_)
				gs[res->groups[k]].reserved_io = true;
		}
	}
	for (l = d->leases; l; l = l->next) {
		for (k = 0; k < l->nr_groups; k++) {
			struct zns_group_state *g = &gs[l->groups[k]];

			g->nr_leases++;
			/* Without a reservation, its lease is what it holds. */
			if (l->dump && l->dynamic && strcmp(l->container, container))
				g->nr_reservations++;
		}
	}
}

static void list_groups(char *buf, size_t len, size_t *at, const uint32_t *groups, size_t nr)
{
	size_t i;

	for (i = 0; i < nr && *at < len; i++)
		*at += snprintf(buf + *at, len - *at, "%s%u", i ? " " : "groups ", groups[i]);
}

/* Who stands in the way of @container: "web (dump, PID 12, groups 0 1 2), io (normal I/O, groups 4 5)". */
const char *groups_holders(const struct znsd *d, const char *container, char *buf, size_t len)
{
	const struct lease *l;
	size_t at = 0, r;

	*buf = 0;
	for (l = d->leases; l && at < len; l = l->next) {
		at += snprintf(buf + at, len - at, "%s%s (%s, PID %u, ", at ? ", " : "", l->container,
			       l->dump ? "dump" : "restore", l->pid);
		list_groups(buf, len, &at, l->groups, l->nr_groups);
		if (at < len)
			at += snprintf(buf + at, len - at, ")");
	}
	for (r = 0; r < zns_store_nr_reservations(d->store) && at < len; r++) {
		const ZnsPb__Reservation *res = zns_store_reservation(d->store, r);

		if (!res->explicit_ || !strcmp(res->container, container))
			continue;
		at += snprintf(buf + at, len - at, "%s%s (normal I/O, ", at ? ", " : "", res->container);
		list_groups(buf, len, &at, res->groups, res->n_groups);
		if (at < len)
			at += snprintf(buf + at, len - at, ")");
	}
	if (!*buf)
		snprintf(buf, len, "nobody; the rest have no free zone");
	return buf;
}
