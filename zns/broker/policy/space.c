/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reuses the places that removed checkpoints left between small ones. On a disk they can be
 * overwritten, so no data must be moved to make room, and a store with small checkpoints can become
 * as full as one with large ones. A small dump gets the smallest place that has room for all of it,
 * else an empty zone, else the largest places.
 */
#include <stdlib.h>
#include "policy.h"

/*
 * Can places in this zone be reused? Only if all of its data belong to small checkpoints and it has
 * no readers, since a reader may still read what was removed.
 */
bool space_usable(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_usable(z) && !z->writer && !z->readers && !z->finishing && !z->no_reuse &&
	       !z->going && (!z->old || d->readers_clear) && !d->groups[z->group].io &&
	       zone_packed(d, zone) && zone_live(d, zone) <= z->z.wp;
}

uint64_t space_in(const struct znsd *d, uint32_t zone)
{
	return d->zones[zone].z.capacity - zone_live(d, zone);
}

static int cmp_start(const void *a, const void *b)
{
	const struct zns_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Lists the free places of a zone in order. The caller frees *out. */
static size_t places(const struct znsd *d, uint32_t zone, struct zns_range **out)
{
	size_t nr = zns_store_zone_ranges(d->store, zone, NULL, 0), n = 0, i;
	struct zns_range *r = znsd_alloc((nr + 1) * sizeof(*r));
	uint64_t at = 0, start;

	zns_store_zone_ranges(d->store, zone, r, nr);
	qsort(r, nr, sizeof(*r), cmp_start);
	r[nr] = (struct zns_range){ d->zones[zone].z.capacity, 0 };
	for (i = 0; i <= nr; i++) {
		start = r[i].start;
		uint64_t next = zns_max(at, r[i].end);

		if (start > at)
			r[n++] = (struct zns_range){ at, start };
		at = next;
	}
	*out = r;
	return n;
}

static bool better(const struct space *s, const struct space *than, uint64_t rest)
{
	uint64_t a = s->end - s->start, b = than->end - than->start;

	return a >= rest && b >= rest ? a < b : a > b;
}

bool space_find(struct znsd *d, const struct wish *w, uint64_t run, uint64_t rest,
		struct space *out)
{
	readers_check(d);
	*out = (struct space){ .zone = ZNSD_NONE };
	for (uint32_t i = 0; i < d->nr_zones; i++) {
		cleanup_free struct zns_range *r = NULL;
		size_t n;

		if (space_in(d, i) < run || !space_usable(d, i) ||
		    (w ? zone_excluded(d, w, i) : d->zones[i].suspect))
			continue;
		n = places(d, i, &r);
		for (size_t k = 0; k < n; k++) {
			struct space s = { i, r[k].start, r[k].end };

			if (s.end - s.start >= run && better(&s, out, rest))
				*out = s;
		}
	}
	return out->zone != ZNSD_NONE;
}

uint64_t space_for_small(struct znsd *d, uint64_t unit)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->nr_zones; i++) {
		cleanup_free struct zns_range *r = NULL;
		size_t n;

		if (space_in(d, i) < unit || !space_usable(d, i))
			continue;
		n = places(d, i, &r);
		for (size_t k = 0; k < n; k++)
			sum += zns_align_down(r[k].end - r[k].start, unit);
	}
	return sum;
}

/* The most bytes that one dump may get in a zone, where it can have only one place. */
static uint64_t most_of(const struct znsd *d, uint32_t zone, uint64_t unit)
{
	cleanup_free struct zns_range *r = NULL;
	uint64_t most = 0;
	size_t n;

	if (!zone_usable(&d->zones[zone]) || !zone_live(d, zone))
		return zone_usable(&d->zones[zone]) ? d->zones[zone].z.capacity : 0;
	n = zone_packed(d, zone) && space_in(d, zone) >= unit ? places(d, zone, &r) : 0;
	for (size_t k = 0; k < n; k++)
		most = zns_max(most, zns_align_down(r[k].end - r[k].start, unit));
	return most;
}

bool space_can_hold(const struct znsd *d, uint64_t bytes, uint64_t unit)
{
	/* one unit in addition, since the short last unit of an image fits where no whole unit
	 * does */
	uint64_t sum = unit;

	for (uint32_t i = 0; i < d->nr_zones && sum < bytes; i++)
		sum += most_of(d, i, unit);
	return sum >= bytes;
}

bool space_give(struct znsd *d, struct lease *l, const struct space *s)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t end, turn;
	struct lease_zone *lz;
	int ret = zns_dev_offer(d->dev, s->zone, &end, &turn, &err);

	if (ret)
		znsd_warn("zone %u: %s", s->zone, err.msg);
	if (ret || end < s->end) {
		d->zones[s->zone].no_reuse = true;
		return false;
	}
	if (d->hot)
		zns_hot_forget_zone(d->hot, s->zone);
	lease_zone_add(d, l, s->zone, s->start);
	lz = lease_zone_find(l, s->zone);
	lz->end = s->end;
	lz->turn = turn;
	return true;
}
