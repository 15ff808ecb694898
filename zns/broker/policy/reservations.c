/* SPDX-License-Identifier: GPL-2.0-only */
/* Reservations: groups that a container keeps between its dumps, and groups for normal I/O. */
#include <string.h>
#include "policy.h"

static bool container_in_use(const struct znsd *d, const char *container)
{
	const struct lease *l;
	size_t i;

	for (l = d->leases; l; l = l->next)
		if (lease_writes(l) && !strcmp(l->container, container))
			return true;
	for (i = 0; i < zns_store_nr_checkpoints(d->store); i++)
		if (!strcmp(zns_store_checkpoint(d->store, i)->container, container))
			return true;
	return false;
}

void reservation_settle(struct znsd *d, const char *container)
{
	const ZnsPb__Reservation *r = zns_store_find_reservation(d->store, container);
	struct zns_err err = ZNS_ERR_INIT;

	if (!r || r->explicit_ || container_in_use(d, container))
		return;
	if (zns_store_release(d->store, container, &err))
		znsd_warn("releasing the reservation of %s: %s", container, err.msg);
}

/* Makes the reservation again that the store has dropped with the container's last checkpoint,
 * because a running dump still keeps its groups. */
void reservation_renew(struct znsd *d, const char *container)
{
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct lease *l;
	cleanup_free uint32_t *groups = NULL;
	cleanup_free char *name = NULL;
	uint32_t pages;

	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l) && !l->dump.dynamic && !strcmp(l->container, container))
			break;
	if (!l || zns_store_find_reservation(d->store, container))
		return;
	name = znsd_strdup(container);
	r.container = name;
	pages = l->nr_groups - l->dump.nr_meta - l->dump.nr_gained;
	groups = znsd_alloc((pages + l->dump.nr_meta) * sizeof(*groups));
	memcpy(groups, l->groups, pages * sizeof(*groups));
	memcpy(groups + pages, l->groups + l->nr_groups - l->dump.nr_meta,
	       l->dump.nr_meta * sizeof(*groups));
	r.groups = groups;
	r.n_groups = pages + l->dump.nr_meta;
	r.has_created_ns = r.has_qos_mibps = 1;
	r.created_ns = zns_now_ns();
	r.qos_mibps = l->dump.qos_mibps;
	if (zns_store_reserve(d->store, &r, &err))
		znsd_warn("renewing the reservation of %s: %s", container, err.msg);
}

/* Adds the newly granted groups to the reservation; durable before the dump gets its answer. */
int reservation_extend(struct znsd *d, const struct dump_ask *a, const struct choice *ch,
		       struct zns_err *err)
{
	const ZnsPb__Reservation *own = zns_store_find_reservation(d->store, a->container);
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	cleanup_free uint32_t *groups = NULL;
	cleanup_free char *name = znsd_strdup(a->container);
	uint32_t i, had = own ? own->n_groups : 0;

	groups = znsd_alloc((had + ch->width + ch->nr_meta) * sizeof(*groups));
	if (own)
		memcpy(groups, own->groups, had * sizeof(*groups));
	r.groups = groups;
	r.n_groups = had;
	for (i = 0; i < ch->width + ch->nr_meta; i++)
		if (!reserved_by(own, ch->order[i]))
			groups[r.n_groups++] = ch->order[i];
	if (own && r.n_groups == had && own->qos_mibps == a->qos)
		return 0;
	r.container = name;
	r.has_created_ns = 1;
	r.created_ns = own && own->has_created_ns ? own->created_ns : zns_now_ns();
	r.has_qos_mibps = 1;
	r.qos_mibps = a->qos;
	return zns_store_reserve(d->store, &r, err);
}

static void io_changed(struct znsd *d)
{
	groups_io_refresh(d);
	d->policy->io_ns = 0;
}

/* Sets the number of free zones to 0 in all groups that are reserved or leased, so that only the
 * others are picked. */
static void free_groups(const struct znsd *d, const char *container, struct zns_group_state *gs)
{
	uint32_t i;

	groups_state(d, container, NULL, gs);
	for (i = 0; i < d->nr_groups; i++)
		if (gs[i].nr_reservations || gs[i].nr_leases || !d->groups[i].nr_zones)
			gs[i].free_zones = 0;
}

/* Picks completely free channels, those with metadata zones last. Returns the number of groups. */
static uint32_t pick_channels(const struct znsd *d, const struct zns_group_state *gs,
			      uint32_t channels, uint32_t *out, uint32_t *found)
{
	uint32_t n = 0, i, k, pass;

	*found = 0;
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < d->nr_groups && *found < channels; i++) {
			bool all_free = true, metadata = false, first = true;

			/* Looks at each channel once, at its first group. */
			for (k = 0; k < d->nr_groups; k++) {
				if (gs[k].channel != gs[i].channel)
					continue;
				first &= k >= i;
				all_free &= gs[k].free_zones > 0 || !d->groups[k].nr_zones;
				metadata |= gs[k].metadata;
			}
			if (!first || !all_free || metadata != (pass == 1))
				continue;
			for (k = 0; k < d->nr_groups; k++)
				if (gs[k].channel == gs[i].channel)
					out[n++] = k;
			(*found)++;
		}
	}
	return n;
}

static void reset_groups(struct znsd *d, const uint32_t *groups, uint32_t nr)
{
	uint32_t batch[ZNSD_RESET_BATCH], n, i, k;

	for (i = 0; i < nr; i++) {
		const struct zn_group *g = &d->groups[groups[i]];

		for (k = n = 0; k < g->nr_zones; k++) {
			if (zone_garbage(d, g->zones[k]))
				batch[n++] = g->zones[k];
			if (n == ZNSD_RESET_BATCH || (n && k + 1 == g->nr_zones)) {
				zones_reset(d, batch, n, NULL);
				n = 0;
			}
		}
	}
}

int reserve_for_io(struct znsd *d, const ZnsPb__Reserve *q, struct zns_err *err)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	cleanup_free uint32_t *out = znsd_alloc(d->nr_groups * sizeof(*out));
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	uint32_t n, found, i;
	int ret;

	ret = zns_check_container(q->container, err);
	if (ret)
		return ret;
	if (!!q->groups == !!q->channels)
		return zns_fail(
			err, -EINVAL,
			"reserve: give a number of groups or a number of channels, not both");
	if (zns_store_find_reservation(d->store, q->container))
		return zns_fail(err, -EEXIST, "%s has a reservation already; release it first",
				q->container);
	free_groups(d, q->container, gs);
	if (q->groups) {
		n = zns_alloc_pick(gs, d->nr_groups, zns_min(q->groups, d->nr_groups), out);
		if (n < q->groups)
			return zns_fail(
				err, -EBUSY,
				"%s: %u groups of %u are free of reservations and leases, %u are asked for",
				d->reg.path, n, d->nr_groups, q->groups);
	} else {
		for (i = 0; i < d->nr_groups; i++)
			if (gs[i].channel < 0)
				return zns_fail(
					err, -EOPNOTSUPP,
					"%s: its channels are not known; reserve groups instead",
					d->reg.path);
		n = pick_channels(d, gs, q->channels, out, &found);
		if (found < q->channels)
			return zns_fail(
				err, -EBUSY,
				"%s: %u channels are free of any reservation, %u are asked for",
				d->reg.path, found, q->channels);
	}
	r.container = q->container;
	r.groups = out;
	r.n_groups = n;
	r.has_created_ns = r.has_explicit_ = 1;
	r.created_ns = zns_now_ns();
	r.explicit_ = 1;
	/* The groups are handed over empty. From then on the broker resets nothing in them. */
	reset_groups(d, out, n);
	ret = zns_store_reserve(d->store, &r, err);
	if (!ret)
		io_changed(d);
	return ret;
}

int reservation_release(struct znsd *d, const char *container, struct zns_err *err)
{
	struct lease *l;
	int ret;

	if (!zns_store_find_reservation(d->store, container))
		return zns_fail(err, -ENOENT, "%.200s has no reservation on %s", container,
				d->reg.path);
	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l) && !l->dump.dynamic && !strcmp(l->container, container))
			return zns_fail(err, -EBUSY, "a dump of %s is running (PID %u)", container,
					l->pid);
	ret = zns_store_release(d->store, container, err);
	if (!ret) /* updates the table, which does not contain writes of normal I/O */
		ret = zones_refresh(d, 0, d->nr_zones, err);
	io_changed(d);
	d->freed |= !ret;
	return ret;
}
