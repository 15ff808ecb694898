/* SPDX-License-Identifier: GPL-2.0-only */
/* Leases: what running dumps, restores and other clients may use at present. */
#include <string.h>
#include "tables.h"

struct lease *lease_new(struct znsd *d, struct conn *c, uint32_t pid, enum lease_kind kind,
			const char *container, const uint8_t *id)
{
	struct lease *l = znsd_alloc(sizeof(*l)), **p;

	l->kind = kind;
	l->conn = c;
	l->pidfd = -1;
	if (lease_admitted(l))
		l->dump.claimed = ZNSD_NONE;
	l->pid = pid;
	l->container = znsd_strdup(container);
	memcpy(l->id, id, ZNS_UUID_LEN);
	l->since_ns = zns_now_ns();
	for (p = &d->leases; *p; p = &(*p)->next)
		;
	*p = l;
	return l;
}

struct lease *lease_of(const struct znsd *d, const struct conn *c)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (lease_writes(l) && l->conn == c)
			return l;
	return NULL;
}

struct lease *lease_last(const struct znsd *d, const struct conn *c)
{
	struct lease *l, *last = NULL;

	for (l = d->leases; l; l = l->next)
		if (l->conn == c && l->kind != LEASE_NAMED)
			last = l;
	return last;
}

struct lease_zone *lease_zone_find(const struct lease *l, uint32_t zone)
{
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++)
		if (l->zones[i].zone == zone)
			return &l->zones[i];
	return NULL;
}

void lease_zone_add(struct znsd *d, struct lease *l, uint32_t zone, uint64_t start)
{
	znsd_grow(l->zones, l->nr_zones, l->max_zones);
	l->zones[l->nr_zones++] = (struct lease_zone){ .zone = zone,
						       .start = start,
						       .end = d->zones[zone].z.capacity };
	if (lease_writes(l))
		d->zones[zone].writer = l;
	else
		d->zones[zone].readers++;
}

void lease_zone_drop(struct znsd *d, struct lease *l, uint32_t zone)
{
	struct lease_zone *lz = lease_zone_find(l, zone);

	if (!lz)
		return;
	*lz = l->zones[--l->nr_zones];
	d->zones[zone].writer = NULL;
	d->zones[zone].ours = true;
}

bool lease_has_group(const struct lease *l, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < l->nr_groups; i++)
		if (l->groups[i] == group)
			return true;
	return false;
}

/* How many zones the lease is still writing, according to its last report. */
uint32_t lease_unfull(const struct znsd *d, const struct lease *l)
{
	uint32_t i, n = 0;

	for (i = 0; i < l->nr_zones; i++) {
		enum zns_zone_state s = d->zones[l->zones[i].zone].z.state;

		n += !l->zones[i].bad && !l->zones[i].done &&
		     (s == ZNS_ZONE_EMPTY || zns_zone_is_active(s));
	}
	return n;
}

/* Adds a group to the lease, behind the groups for pages and before those for metadata images. */
void lease_gain_group(struct lease *l, uint32_t group)
{
	uint32_t at = l->nr_groups - l->dump.nr_meta, *groups, *weights;

	groups = znsd_alloc((l->nr_groups + 1) * sizeof(*groups));
	weights = znsd_alloc((l->nr_groups + 1) * sizeof(*weights));
	memcpy(groups, l->groups, at * sizeof(*groups));
	memcpy(weights, l->dump.weights, at * sizeof(*weights));
	groups[at] = group;
	weights[at] = 1;
	memcpy(groups + at + 1, l->groups + at, l->dump.nr_meta * sizeof(*groups));
	memcpy(weights + at + 1, l->dump.weights + at, l->dump.nr_meta * sizeof(*weights));
	free(l->groups);
	free(l->dump.weights);
	l->groups = groups;
	l->dump.weights = weights;
	l->nr_groups++;
	l->dump.nr_gained++;
	l->dump.width++;
}

uint32_t leases_yielding(const struct znsd *d)
{
	const struct lease *l;
	uint32_t n = 0;

	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_COMPACT || l->kind == LEASE_YIELDING)
			n += lease_unfull(d, l);
	return n;
}

void lease_unlink(struct znsd *d, struct lease *l)
{
	struct lease **p;

	for (p = &d->leases; *p != l; p = &(*p)->next)
		;
	*p = l->next;
}

void lease_free(struct lease *l)
{
	if (l->pidfd >= 0)
		close(l->pidfd);
	free(l->container);
	free(l->groups);
	if (lease_admitted(l)) {
		free(l->dump.weights);
		free(l->dump.shared);
		free(l->dump.tenant);
	}
	if (l->kind == LEASE_YIELDING)
		l->yields.ops->free(l);
	free(l->weigh.part);
	free(l->zones);
	free(l);
}

void leases_forget(struct znsd *d)
{
	struct lease *l;

	while ((l = d->leases)) {
		d->leases = l->next;
		lease_free(l);
	}
}
