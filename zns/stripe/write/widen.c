/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stripe that becomes wider while it is written: other dumps have ended, and the broker gives
 * this one more groups. A new lane starts with the rate that is expected of it; weights.c
 * distributes again what no worker has begun.
 */
#include "writer.h"

/* so many units of each lane must be queued; with fewer, they would be written before a new lane
 * helps */
#define AHEAD 2

/* How many lanes can be added: each needs a worker, and one worker is left for reading in
 * advance. */
NEEDS_LOCK static uint32_t room(const struct zns_writer *w)
{
	uint32_t most = zns_min(w->crew.max - 1, (uint32_t)ZNS_STRIPE_MAX_WIDTH);

	return most > w->lanes.nr ? most - w->lanes.nr : 0;
}

uint32_t zns_writer_wants(struct zns_writer *w, bool *waits)
{
	uint32_t busy = 0, n;

	writer_lock(w);
	for (uint32_t i = 0; i < w->lanes.nr; i++)
		busy += weights_saturated(&w->lanes.v[i]) && w->lanes.v[i].ns_per_byte > 0;
	*waits = !w->err.code && !w->ending && w->queue.nr >= AHEAD * w->lanes.nr &&
		 2 * busy >= w->lanes.nr;
	n = *waits && !w->tune.widened && !w->zones.nr_unrepaired ? room(w) : 0;
	writer_unlock(w);
	return n;
}

NEEDS_LOCK static int check(const struct zns_writer *w, const struct zns_zone_slot *slot,
			    uint32_t writers, struct zns_err *err)
{
	if (!room(w))
		return zns_fail(err, -ENOSPC, "the stripe has as many zones as it may have");
	for (uint32_t i = 0; i < w->lanes.nr; i++)
		if (w->lanes.v[i].group == slot->group)
			return zns_fail(err, -EEXIST, "group %u is written already", slot->group);
	for (const struct wzone *z = w->zones.first; z; z = z->next)
		if (z->slot.zone == slot->zone)
			return zns_fail(err, -EEXIST, "zone %u was granted before", slot->zone);
	if (!writers || !w->zone_mibps || (slot->capacity - slot->start) / w->unit < 1)
		return zns_fail(err, -EINVAL, "zone %u cannot become part of the stripe",
				slot->zone);
	return 0;
}

/* Assumes a rate for a new lane until its own writes are measured. */
static void expect(const struct zns_writer *w, struct lane *l, uint32_t writers)
{
	l->writers = writers;
	l->ns_per_byte = 1e9 * writers / (double)MIB(w->zone_mibps);
	l->deviation = 0;
	l->samples = l->run = 0;
	l->row = 0xff;
}

int zns_writer_gain(struct zns_writer *w, const struct zns_zone_slot *slot, uint32_t writers,
		    struct zns_err *err)
{
	struct lane *l;
	int ret;

	writer_lock(w);
	l = &w->lanes.v[w->lanes.nr];
	ret = w->err.code || w->stop ? zns_fail(err, -ECANCELED, "the dump has ended") :
				       zones_check_slot(w, slot, err);
	if (!ret)
		ret = check(w, slot, writers, err);
	if (!ret) {
		*l = (struct lane){ .group = slot->group, .weight = 1 };
		expect(w, l, writers);
		for (uint32_t i = 0; i < w->lanes.nr; i++)
			l->load = zns_max(l->load, w->lanes.v[i].load);
		l->wz = zones_add(w, slot);
		if (!l->wz)
			ret = zns_fail(err, -ENOMEM, "no memory for a zone");
	}
	if (!ret) {
		w->lanes.nr++;
		w->tune.widened = true;
		w->stats.nr_gained++;
		workers_widen(w);
		/* the threads that wait for room also check the weights */
		pthread_cond_broadcast(&w->room);
	}
	writer_unlock(w);
	return ret;
}

void zns_writer_told(struct zns_writer *w, uint32_t group, uint32_t writers)
{
	writer_lock(w);
	for (uint32_t i = 0; i < w->lanes.nr && w->zone_mibps; i++) {
		struct lane *l = &w->lanes.v[i];

		if (l->group != group || l->writers == writers)
			continue;
		/* the first report about other writers does not change a lane whose rate was
		 * already measured */
		if (l->writers || !l->samples)
			expect(w, l, zns_max(writers, 1u));
		l->writers = writers;
		w->tune.told = true;
	}
	if (w->tune.told)
		pthread_cond_broadcast(&w->room);
	writer_unlock(w);
}

void zns_writer_crowded(struct zns_writer *w, bool crowded)
{
	w->crowded = crowded;
}
