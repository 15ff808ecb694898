/* SPDX-License-Identifier: GPL-2.0-only */
/* Counts the zones that may be open and active, and computes what is left of a tenant's limits. */
#include <string.h>
#include "policy.h"

/*
 * The least number of pack zones that may be written at once. A dump does not write all the time,
 * so several dumps make progress together even on one die.
 */
#define PACKS_MIN 4u
/* the least number of pack zones on an ordinary disk, where zones are small */
#define DISK_PACKS 16u
/* programs that do normal I/O open zones without asking the broker, so the count is updated after
 * this time */
#define IO_LOOK_NS 1000000000ull

uint32_t budget_device(struct znsd *d)
{
	uint32_t open = d->dev->geo.max_open, active = d->dev->geo.max_active, n = UINT32_MAX, meta;

	if (open) {
		meta = meta_zones(d, true);
		n = open > meta ? open - meta : 1;
	}
	if (active) {
		meta = meta_zones(d, false);
		n = zns_min(n, active > meta ? active - meta : 1);
	}
	return n;
}

/* How many zones of normal I/O count as open: one for each of its groups, or as many as are active
 * if that is more. */
static uint32_t io_zones(struct znsd *d)
{
	uint64_t now = zns_mono_ns();
	uint32_t groups = 0, active = 0, i;

	for (i = 0; i < d->nr_groups; i++)
		groups += d->groups[i].io;
	if (!groups)
		return 0;
	if (d->policy->io_ns && now - d->policy->io_ns < IO_LOOK_NS)
		return d->policy->io_zones;
	zones_refresh(d, 0, d->nr_zones, NULL);
	for (i = 0; i < d->nr_zones; i++)
		active += !d->zones[i].meta && d->groups[d->zones[i].group].io &&
			  zns_zone_is_active(d->zones[i].z.state);
	d->policy->io_ns = now;
	return d->policy->io_zones = zns_max(groups, active);
}

uint32_t budget_total(struct znsd *d)
{
	uint32_t n = budget_device(d), io;

	if (n == UINT32_MAX)
		return n;
	io = io_zones(d);
	return n > io ? n - io : 0;
}

uint32_t budget_used(const struct znsd *d)
{
	const struct lease *l;
	uint32_t n = 0;

	for (l = d->leases; l; l = l->next)
		if (lease_writes(l))
			n += zns_max(lease_admitted(l) ? l->dump.width : 0, lease_unfull(d, l));
	return n;
}

static bool of_tenant(const struct lease *l, const struct zns_tenant *t)
{
	return lease_admitted(l) && l->dump.tenant && !strcmp(l->dump.tenant, t->who);
}

uint32_t budget_tenant_groups(const struct znsd *d, const struct zns_tenant *t)
{
	const struct lease *l;
	uint32_t n = 0;

	for (l = d->leases; l; l = l->next)
		if (of_tenant(l, t))
			n += l->nr_groups;
	if (!*t->who || !t->total_groups)
		return UINT32_MAX;
	return t->total_groups > n ? t->total_groups - n : 0;
}

uint32_t budget_tenant_qos(const struct znsd *d, const struct zns_tenant *t)
{
	const struct lease *l;
	uint64_t n = 0;

	for (l = d->leases; l; l = l->next)
		if (of_tenant(l, t))
			n += l->dump.qos_mibps;
	if (!*t->who || !t->total_qos_mibps)
		return UINT32_MAX;
	return t->total_qos_mibps > n ? t->total_qos_mibps - (uint32_t)n : 0;
}

uint32_t budget_excess(struct znsd *d, uint32_t more, uint32_t own)
{
	uint32_t max = d->dev->geo.max_active, meta, idle = zones_idle_active(d);
	uint64_t sum;

	if (!max)
		return 0;
	meta = meta_zones(d, false) + io_zones(d);
	max = max > meta ? max - meta : 0;
	sum = (uint64_t)budget_used(d) + more + (idle > own ? idle - own : 0);
	return sum > max ? (uint32_t)(sum - max) : 0;
}

uint32_t pack_leases(const struct znsd *d)
{
	const struct lease *l;
	uint32_t n = 0;

	for (l = d->leases; l; l = l->next)
		n += lease_writes(l) && l->packed;
	return n;
}

/* The largest number of pack zones that may be written at once. A compromise: a burst of small
 * dumps should neither use up all zones nor leave hundreds of them partly filled. */
uint32_t pack_limit(struct znsd *d)
{
	return zns_max(1u, zns_min(zns_max(d->nr_groups, on_disk(d) ? DISK_PACKS : PACKS_MIN),
				   budget_total(d) / 4));
}
