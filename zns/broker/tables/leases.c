// SPDX-License-Identifier: GPL-2.0-only
/* Leases: the live rights of dumps and restores, and what follows when one ends. */
#include <poll.h>
#include <string.h>
#include "../znsd.h"

#define REAP_MS 50

struct lease *lease_new(struct znsd *d, struct conn *c, bool dump, const char *container, const uint8_t *id)
{
	struct lease *l = znsd_alloc(sizeof(*l)), **p;

	l->dump = dump;
	l->conn = c;
	l->pidfd = -1;
	l->claimed = ZNSD_NONE;
	l->pid = conn_pid(c);
	l->container = znsd_strdup(container);
	memcpy(l->id, id, ZNS_UUID_LEN);
	l->since_ns = zns_now_ns();
	for (p = &d->leases; *p; p = &(*p)->next)
		;
	*p = l;
	return l;
}

struct lease *lease_of(struct znsd *d, const struct conn *c)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->dump && l->conn == c)
			return l;
	return NULL;
}

bool lease_any(const struct znsd *d, const struct conn *c)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l->conn == c)
			return true;
	return false;
}

struct lease_zone *lease_zone_find(struct lease *l, uint32_t zone)
{
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++)
		if (l->zones[i].zone == zone)
			return &l->zones[i];
	return NULL;
}

void lease_zone_add(struct znsd *d, struct lease *l, uint32_t zone, uint64_t start)
{
	/* Grows by powers of two; the count says when. */
	if (!(l->nr_zones & (l->nr_zones - 1))) {
		struct lease_zone *z = znsd_alloc((l->nr_zones ? l->nr_zones * 2 : 1) * sizeof(*z));

		if (l->nr_zones)
			memcpy(z, l->zones, l->nr_zones * sizeof(*z));
		free(l->zones);
		l->zones = z;
	}
	l->zones[l->nr_zones++] = (struct lease_zone){ .zone = zone, .start = start };
	if (l->dump)
		d->zones[zone].writer = l;
	else
		d->zones[zone].readers++;
}

bool lease_has_group(const struct lease *l, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < l->nr_groups; i++)
		if (l->groups[i] == group)
			return true;
	return false;
}

/* Zones it still writes, as of the last report. */
uint32_t lease_unfull(const struct znsd *d, const struct lease *l)
{
	uint32_t i, n = 0;

	for (i = 0; i < l->nr_zones; i++) {
		enum zns_zone_state s = d->zones[l->zones[i].zone].z.state;

		n += !l->zones[i].bad && !l->zones[i].done && (s == ZNS_ZONE_EMPTY || zns_zone_is_active(s));
	}
	return n;
}

uint32_t lease_shared(const struct lease *l)
{
	return l->nr_shared;
}

static bool container_in_use(const struct znsd *d, const char *container)
{
	const struct lease *l;
	size_t i;

	for (l = d->leases; l; l = l->next)
		if (l->dump && !strcmp(l->container, container))
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
		znsd_log("releasing the reservation of %s: %s", container, err.msg);
}

/*
 * The store ends a reservation with the container's last checkpoint; a dump that runs at that moment keeps its
 * groups all the same.
 */
void reservation_renew(struct znsd *d, const char *container)
{
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct lease *l;
	cleanup_free uint32_t *groups = NULL;
	cleanup_free char *name = NULL;
	uint32_t pages;

	for (l = d->leases; l; l = l->next)
		if (l->dump && !l->dynamic && !l->background && !strcmp(l->container, container))
			break;
	if (!l || zns_store_find_reservation(d->store, container))
		return;
	name = znsd_strdup(container);
	r.container = name;
	pages = l->nr_groups - l->nr_meta - l->nr_gained;
	groups = znsd_alloc((pages + l->nr_meta) * sizeof(*groups));
	memcpy(groups, l->groups, pages * sizeof(*groups));
	memcpy(groups + pages, l->groups + l->nr_groups - l->nr_meta, l->nr_meta * sizeof(*groups));
	r.groups = groups;
	r.n_groups = pages + l->nr_meta;
	r.has_created_ns = r.has_qos_mibps = 1;
	r.created_ns = zns_now_ns();
	r.qos_mibps = l->qos_mibps;
	if (zns_store_reserve(d->store, &r, &err))
		znsd_log("renewing the reservation of %s: %s", container, err.msg);
}

static void lease_free(struct lease *l)
{
	if (l->pidfd >= 0)
		close(l->pidfd);
	free(l->container);
	free(l->groups);
	free(l->weights);
	free(l->shared);
	free(l->tenant);
	free(l->zones);
	free(l);
}

void lease_end(struct znsd *d, struct lease *l)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct lease **p;
	uint32_t i;

	for (p = &d->leases; *p != l; p = &(*p)->next)
		;
	*p = l->next;
	for (i = 0; i < l->nr_zones; i++) {
		uint32_t zone = l->zones[i].zone;
		struct zn_zone *z = &d->zones[zone];

		if (!l->dump) {
			z->readers--;
			continue;
		}
		z->writer = NULL;
		z->ours = true;
		if (zones_refresh(d, zone, 1, &err))
			znsd_log("zone %u: %s", zone, err.msg);
		zone_settle(d, zone);
	}
	d->sweep = true;
	d->compact_yield &= compact_zones(d) > 0;
	if (l->dump)
		reservation_settle(d, l->container);
	lease_free(l);
	waiters_run(d);
}

void leases_forget(struct znsd *d)
{
	struct lease *l;

	while ((l = d->leases)) {
		d->leases = l->next;
		lease_free(l);
	}
}

static bool writer_gone(struct lease *l)
{
	struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

	return l->pidfd < 0 || poll(&p, 1, 0) == 1;
}

/*
 * The connection went without commit or abort. A process that dies closes it while its last writes may still be
 * on their way: its zones stay its own until it is gone, or has had time enough.
 */
void leases_of_conn_lost(struct znsd *d, struct conn *c)
{
	struct lease *l, *next;

	for (l = d->leases; l; l = next) {
		next = l->next;
		if (l->conn != c)
			continue;
		l->conn = NULL;
		if (l->dump && l->nr_zones) {
			l->pidfd = conn_take_pidfd(c);
			l->dying = true;
			l->dying_until = zns_mono_ns() + ZNSD_WRITER_GONE_MS * 1000000ull;
			znsd_log("dump of %s (PID %u) ended without a commit", l->container, l->pid);
		} else {
			lease_end(d, l);
			/* Ending one may admit a waiter, which adds to the list: start over. */
			next = d->leases;
		}
	}
	leases_reap(d);
}

int leases_reap(struct znsd *d)
{
	uint64_t now = zns_mono_ns();
	struct lease *l;
	int ms = -1;

again:
	for (l = d->leases; l; l = l->next) {
		if (!l->dying)
			continue;
		if (writer_gone(l) || now >= l->dying_until) {
			lease_end(d, l);
			goto again;
		}
		ms = REAP_MS;
	}
	return ms;
}
