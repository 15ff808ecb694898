/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes blocks for the zones that a dump will get next, if the store is a file with holes
 * (zns_dev_allocate). A run of zones costs as little as one. The broker does it, not the writer,
 * since it outlives a writer that is killed: what the dump did not need is given back with its
 * lease.
 */
#include "policy.h"

#define AHEAD_MAX MIB(64)
#define AHEAD_MIN MIB(4) /* for less, the time that is saved is not worth a call */

/* Allocated for @l, or for another dump that may still need it. */
static bool somebodys(const struct znsd *d, const struct lease *not_of, uint32_t zone)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (l != not_of && lease_admitted(l) && zone >= l->dump.ahead &&
		    zone < l->dump.ahead_end)
			return true;
	return false;
}

static void give_back_run(struct znsd *d, struct lease *l)
{
	uint32_t zone = l->dump.ahead, end = zns_min(l->dump.ahead_end, d->nr_zones), n;

	for (; zone < end; zone += n + 1) {
		for (n = 0;
		     zone + n < end && zone_empty(d, zone + n) && !somebodys(d, l, zone + n);)
			n++;
		if (n)
			zns_dev_give_back(d->dev, zone, n);
	}
	l->dump.ahead = l->dump.ahead_end;
}

void ahead_end(struct znsd *d, struct lease *l)
{
	uint32_t i;

	if (!l->dump.ahead_end)
		return;
	for (i = 0; i < l->nr_zones; i++)
		if (d->zones[l->zones[i].zone].z.state != ZNS_ZONE_FULL)
			zns_dev_give_back(d->dev, l->zones[i].zone, 1);
	give_back_run(d, l);
	l->dump.ahead = l->dump.ahead_end = 0;
}

/* How many zones to take blocks for, from @zone on. */
static uint32_t run_from(const struct znsd *d, uint32_t zone, uint64_t bytes)
{
	const uint64_t each = d->dev->geo.zone_capacity,
		       most = zns_max(zns_min(bytes, AHEAD_MAX) / each, UINT64_C(1));
	uint32_t n = 1;

	while (n < most && zone + n < d->nr_zones && zone_empty(d, zone + n) &&
	       d->zones[zone + n].group == d->zones[zone].group)
		n++;
	return n;
}

/* A dump that has announced nothing, or less than it writes, gets as much as it has. */
static uint64_t still_needs(const struct lease *l)
{
	uint64_t has = 0;
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++)
		has += l->zones[i].end - l->zones[i].start;
	return l->dump.expected > has ? l->dump.expected - has : has;
}

void ahead_take(struct znsd *d, struct lease *l, uint32_t zone)
{
	uint64_t bytes;
	uint32_t n;

	if (!on_disk(d) || !zone_empty(d, zone))
		return;
	if (zone == l->dump.ahead && zone < l->dump.ahead_end) {
		l->dump.ahead++;
		return;
	}
	give_back_run(d, l);
	bytes = still_needs(l);
	n = bytes < AHEAD_MIN ? 0 : run_from(d, zone, bytes);
	if (n && !zns_dev_allocate(d->dev, zone, n)) {
		l->dump.ahead = zone + 1;
		l->dump.ahead_end = zone + n;
	}
}
