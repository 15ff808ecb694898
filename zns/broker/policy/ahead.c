/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Allocates blocks for the zones that dumps get next, if the store is a sparse file
 * (zns_dev_allocate). Blocks for a run of zones cost as little time as for one zone. All dumps get
 * zones from the same run, as they get them from the same list of empty zones. The broker does this
 * instead of the writers, because it can free unused blocks if a writer is killed. If the broker is
 * killed, the blocks of at most one run stay allocated until the zones have been used and reset.
 */
#include "policy.h"

#define AHEAD_MAX MIB(64)
#define AHEAD_MIN MIB(4) /* for less, the time saved is not worth a system call */

/* Frees the blocks of the rest of the run. */
void ahead_end(struct znsd *d)
{
	struct policy *p = d->policy;
	uint32_t zone = p->ahead, end = zns_min(p->ahead_end, d->nr_zones), n;

	for (; zone < end; zone += n + 1) {
		for (n = 0; zone + n < end && zone_empty(d, zone + n); n++)
			d->zones[zone + n].ahead = false;
		if (n)
			zns_dev_give_back(d->dev, zone, n);
	}
	p->ahead = p->ahead_end = 0;
}

void ahead_let_go(struct znsd *d, const struct lease *l)
{
	const struct lease *other;
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++) {
		struct zn_zone *z = &d->zones[l->zones[i].zone];

		if (z->ahead && z->z.state != ZNS_ZONE_FULL)
			zns_dev_give_back(d->dev, l->zones[i].zone, 1);
		z->ahead = false;
	}
	for (other = d->leases; other; other = other->next)
		if (other != l && lease_admitted(other))
			return;
	ahead_end(d);
}

/* How many zones the run should have for @l, depending on the size that the dump has announced, if
 * any. It may write more than that: what a live dump copies again, and its manifest. */
static uint32_t wanted(const struct znsd *d, const struct lease *l)
{
	const uint64_t each = d->dev->geo.zone_capacity;
	uint64_t has = 0, bytes;
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++)
		has += l->zones[i].end - l->zones[i].start;
	bytes = l->dump.expected > has ? l->dump.expected - has : has / 8;
	if (!l->dump.expected)
		bytes = has;
	if (bytes < AHEAD_MIN || bytes < each / 2)
		return 0;
	return (uint32_t)zns_max(zns_min(bytes, AHEAD_MAX) / each, UINT64_C(1));
}

void ahead_take(struct znsd *d, const struct lease *l, uint32_t zone)
{
	struct policy *p = d->policy;
	uint32_t n = 0, most, i;

	if (!on_disk(d) || !zone_empty(d, zone))
		return;
	if (zone >= p->ahead && zone < p->ahead_end) {
		p->ahead += zone == p->ahead;
		return;
	}
	ahead_end(d);
	most = wanted(d, l);
	while (n < most && zone + n < d->nr_zones && zone_empty(d, zone + n) &&
	       d->zones[zone + n].group == d->zones[zone].group)
		n++;
	if (!n || zns_dev_allocate(d->dev, zone, n))
		return;
	for (i = 0; i < n; i++)
		d->zones[zone + i].ahead = true;
	p->ahead = zone + 1;
	p->ahead_end = zone + n;
}
