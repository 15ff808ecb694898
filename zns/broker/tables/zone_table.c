/* SPDX-License-Identifier: GPL-2.0-only */
/* The zone table: state, writer and possible uses of each zone. */
#include <string.h>
#include "zns/layout.h"
#include "tables.h"

uint64_t zone_live(const struct znsd *d, uint32_t zone)
{
	return zns_store_zone_live(d->store, zone);
}

bool zone_usable(const struct zn_zone *z)
{
	return !z->meta && z->z.state != ZNS_ZONE_READ_ONLY && z->z.state != ZNS_ZONE_OFFLINE;
}

/*
 * Does a record claim bytes that were never written, or that were reset? A dump in such a zone
 * could not commit, so the zone is not granted until the checkpoint is removed.
 */
static bool claimed_unwritten(const struct znsd *d, uint32_t zone)
{
	return zone_live(d, zone) > d->zones[zone].z.wp;
}

bool zone_empty(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_usable(z) && !claimed_unwritten(d, zone) && z->z.state == ZNS_ZONE_EMPTY &&
	       !z->writer && !z->going && z->z.capacity >= ZNSD_UNIT_MIN;
}

bool zone_parked(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_usable(z) && !z->writer && !z->finishing && zns_zone_is_active(z->z.state) &&
	       zone_live(d, zone) && !claimed_unwritten(d, zone);
}

bool zone_parked_for(const struct znsd *d, uint32_t zone, const char *container, uint32_t min_room)
{
	const struct zn_zone *z = &d->zones[zone];
	const char *owner;

	/* On a disk a zone belongs to one checkpoint, and is free when that is removed, so it is
	 * never continued. */
	if (on_disk(d) || !zone_parked(d, zone) ||
	    z->z.wp + zns_max((uint64_t)min_room, ZNSD_UNIT_MIN) > z->z.capacity)
		return false;
	owner = zns_store_zone_owner(d->store, zone);
	return owner && !strcmp(owner, container) && !zone_packed(d, zone);
}

bool zone_packed(const struct znsd *d, uint32_t zone)
{
	return zone_live(d, zone) && zns_store_zone_packed(d->store, zone) == zone_live(d, zone);
}

bool zone_parked_pack(const struct znsd *d, uint32_t zone, uint32_t min_room)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_parked(d, zone) && zone_packed(d, zone) && !z->going &&
	       !d->groups[z->group].io &&
	       z->z.wp + zns_max((uint64_t)min_room, ZNSD_UNIT_MIN) <= z->z.capacity;
}

bool zone_garbage(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	if (!zone_usable(z) || z->z.state == ZNS_ZONE_EMPTY || z->writer || z->readers ||
	    z->finishing || z->going)
		return false;
	if (z->old && !d->readers_clear)
		return false;
	/* Programs that do normal I/O write to their zones without telling the broker. */
	if (d->groups[z->group].io && !z->ours)
		return false;
	return !zone_live(d, zone);
}

/* Marks zones that dumps have written. Even if their group becomes reserved for normal I/O, the
 * broker must reset them. */
void zones_note_ours(struct znsd *d, const ZnsPb__Checkpoint *k)
{
	size_t i;

	for (i = 0; i < k->n_zones; i++)
		if (k->zones[i]->zone < d->nr_zones)
			d->zones[k->zones[i]->zone].ours = true;
}

uint32_t zones_active(const struct znsd *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];

		if (z->meta || d->groups[z->group].io)
			continue;
		/* An empty zone that has been granted becomes active with its first write, so it
		 * counts. */
		n += zns_zone_is_active(z->z.state) || (z->writer && z->z.state == ZNS_ZONE_EMPTY);
	}
	return n;
}

uint32_t zones_idle_active(const struct znsd *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];

		n += !z->meta && !z->writer && zns_zone_is_active(z->z.state) &&
		     !d->groups[z->group].io;
	}
	return n;
}

uint32_t zones_parked(const struct znsd *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->nr_zones; i++)
		n += zone_parked(d, i);
	return n;
}

uint64_t tail_min(const struct znsd *d)
{
	return zns_max((uint64_t)ZNSD_UNIT_MIN, (uint64_t)zns_stripe_unit(&d->dev->geo));
}
