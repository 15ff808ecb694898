/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The places of units: which zone a place refers to, and how many counts each zone has. */
#include <string.h>
#include "zns/writer.h"
#include "pages_int.h"

#define UNIT_BITS 24 /* a zone of 2^24 units has 1 TiB */

uint64_t pages_place(uint32_t zone, uint32_t unit)
{
	return ((uint64_t)zone + 1) << UNIT_BITS | unit;
}

bool pages_where(const struct zns_pages *ps, uint64_t place, uint32_t *zone, uint32_t *unit)
{
	uint64_t z = place >> UNIT_BITS;

	if (!z || z > ps->nr_zones)
		return false;
	*zone = (uint32_t)z - 1;
	*unit = place & ((1u << UNIT_BITS) - 1);
	return true;
}

int zns_pages_where(const struct zns_pages *ps, uint64_t place, uint32_t *zone, uint64_t *off)
{
	uint32_t unit;

	if (!pages_where(ps, place, zone, &unit))
		return -EINVAL;
	*off = (uint64_t)unit * ZNS_PAGES_UNIT;
	return 0;
}

void zns_pages_id(const struct zns_pages *ps, uint8_t context[16], uint8_t device[16])
{
	memcpy(context, ps->context.id, ZNS_UUID_LEN);
	memcpy(device, ps->context.device, ZNS_UUID_LEN);
}

void pages_wake(struct zns_pages *ps)
{
	uint64_t one = 1;

	if (write(ps->wake, &one, sizeof(one)) < 0)
		return; /* the thread is awake already */
}

/* May the zone be given back? Call with `count` held. */
static bool is_free(const struct zns_pages *ps, const struct pages_zone *z)
{
	return ps->counted && z->have && !z->open && !z->live && !z->pins && !z->freeing;
}

static void look_free(struct zns_pages *ps, const struct pages_zone *z)
{
	if (!is_free(ps, z) || ps->some_free)
		return;
	ps->some_free = true;
	pages_wake(ps);
}

void pages_named(struct zns_pages *ps, const uint32_t *zones, size_t nr)
{
	pthread_mutex_lock(&ps->count);
	for (uint32_t i = 0; i < ps->nr_zones; i++)
		ps->zones[i].named = false;
	for (size_t i = 0; i < nr; i++)
		if (zones[i] < ps->nr_zones)
			ps->zones[zones[i]].named = true;
	pthread_mutex_unlock(&ps->count);
}

void pages_got_zone(struct zns_pages *ps, const struct zns_zone_slot *slot, uint64_t wp, bool open)
{
	struct pages_zone *z = &ps->zones[slot->zone];

	pthread_mutex_lock(&ps->count);
	if (!z->have) {
		*z = (struct pages_zone){ .have = true, .units = (uint32_t)(wp / ZNS_PAGES_UNIT) };
		ps->nr_have++;
	}
	z->group = slot->group;
	z->room = (uint32_t)(slot->capacity / ZNS_PAGES_UNIT);
	z->open = open;
	pthread_mutex_unlock(&ps->count);
}

void pages_close_zone(struct zns_pages *ps, uint32_t zone)
{
	pthread_mutex_lock(&ps->count);
	ps->zones[zone].open = false;
	look_free(ps, &ps->zones[zone]);
	pthread_mutex_unlock(&ps->count);
}

void pages_written(struct zns_pages *ps, uint32_t zone, uint32_t units)
{
	pthread_mutex_lock(&ps->count);
	ps->zones[zone].units += units;
	ps->zones[zone].live += units;
	pthread_mutex_unlock(&ps->count);
	ps->written += (uint64_t)units * ZNS_PAGES_UNIT;
}

uint32_t pages_pin(struct zns_pages *ps, uint32_t zone, uint32_t unit, int *ret)
{
	struct pages_zone *z = &ps->zones[zone];
	uint32_t group;

	pthread_mutex_lock(&ps->count);
	*ret = !z->have || z->freeing ? -ENOENT : unit >= z->units ? -EINVAL : 0;
	if (!*ret)
		z->pins++;
	group = z->group;
	pthread_mutex_unlock(&ps->count);
	return group;
}

void pages_unpin(struct zns_pages *ps, uint32_t zone)
{
	pthread_mutex_lock(&ps->count);
	ps->zones[zone].pins--;
	look_free(ps, &ps->zones[zone]);
	pthread_mutex_unlock(&ps->count);
}

int zns_pages_hold(struct zns_pages *ps, struct zns_pages_ref ref)
{
	struct pages_zone *z;
	uint32_t zone, unit;
	int ret = 0;

	if (!pages_where(ps, ref.place, &zone, &unit))
		return -EINVAL;
	z = &ps->zones[zone];
	pthread_mutex_lock(&ps->count);
	if (!z->have || z->freeing || (ps->counted && !z->live))
		ret = -ENOENT;
	else if (unit >= z->units)
		ret = -EINVAL;
	else
		z->live++;
	pthread_mutex_unlock(&ps->count);
	return ret;
}

int zns_pages_drop(struct zns_pages *ps, struct zns_pages_ref ref)
{
	struct pages_zone *z;
	uint32_t zone, unit;
	int ret = 0;

	if (!pages_where(ps, ref.place, &zone, &unit))
		return -EINVAL;
	z = &ps->zones[zone];
	pthread_mutex_lock(&ps->count);
	if (!z->have || !z->live)
		ret = -ENOENT;
	else if (unit >= z->units)
		ret = -EINVAL;
	else if (!--z->live)
		look_free(ps, z);
	pthread_mutex_unlock(&ps->count);
	return ret;
}

void zns_pages_recounted(struct zns_pages *ps)
{
	pthread_mutex_lock(&ps->count);
	ps->counted = ps->some_free = true;
	pthread_mutex_unlock(&ps->count);
	pages_wake(ps);
}

uint32_t pages_take_free(struct zns_pages *ps, uint32_t *zones, uint32_t max)
{
	uint32_t n = 0, i;

	pthread_mutex_lock(&ps->count);
	for (i = 0; ps->some_free && i < ps->nr_zones && n < max; i++) {
		if (!is_free(ps, &ps->zones[i]))
			continue;
		ps->zones[i].freeing = true;
		zones[n++] = i;
	}
	ps->some_free = ps->some_free && n == max;
	pthread_mutex_unlock(&ps->count);
	return n;
}

void pages_gave_back(struct zns_pages *ps, const uint32_t *zones, uint32_t nr, bool gone)
{
	uint32_t i;

	pthread_mutex_lock(&ps->count);
	for (i = 0; i < nr; i++) {
		struct pages_zone *z = &ps->zones[zones[i]];

		z->freeing = false;
		if (!gone)
			continue;
		*z = (struct pages_zone){ 0 };
		ps->nr_have--;
	}
	ps->some_free |= !gone;
	pthread_mutex_unlock(&ps->count);
}

void zns_pages_stat(struct zns_pages *ps, struct zns_pages_stat *out)
{
	uint64_t live = 0, dead = 0;
	uint32_t i;

	pthread_mutex_lock(&ps->count);
	for (i = 0; i < ps->nr_zones; i++) {
		const struct pages_zone *z = &ps->zones[i];

		if (!z->have)
			continue;
		live += z->live;
		dead += z->units > z->live ? z->units - z->live : 0;
	}
	*out = (struct zns_pages_stat){ .live_bytes = live * ZNS_PAGES_UNIT,
					.dead_bytes = dead * ZNS_PAGES_UNIT,
					.written_bytes = ps->written,
					.read_bytes = ps->read,
					.rate = ps->rate,
					.qos_mibps = ps->qos_mibps,
					.zones = ps->nr_have,
					.groups = ps->nr_lanes,
					.failed_zones = ps->failed };
	pthread_mutex_unlock(&ps->count);
	/* read without `ask`, so that the caller does not wait for the broker */
	out->broker = __atomic_load_n(&ps->connected, __ATOMIC_RELAXED);
}
