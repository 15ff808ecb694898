/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stripe that becomes wider while it is written: other dumps have ended, and the broker gives this one groups more.
 * A new lane begins with the rate that is expected of it; weights.c deals out anew what no worker has begun with.
 */
#include "writer.h"

#define AHEAD 2		/* units of each lane must be queued: less is over before a new lane is of use */

/* Each lane has a worker of its own, and one is left to read ahead. */
static uint32_t room(const struct zns_writer *w)
{
	uint32_t most = zns_min(w->max_threads - 1, (uint32_t)ZNS_STRIPE_MAX_WIDTH);

	return most > w->nr_lanes ? most - w->nr_lanes : 0;
}

uint32_t zns_writer_wants(struct zns_writer *w, bool *waits)
{
	uint32_t busy = 0, n;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->nr_lanes; i++)
		busy += weights_saturated(&w->lane[i]) && w->lane[i].ns_per_byte > 0;
	*waits = !w->err.code && !w->ending && w->nr_queued >= AHEAD * w->nr_lanes && 2 * busy >= w->nr_lanes;
	n = *waits && !w->widened && !w->nr_unrepaired ? room(w) : 0;
	pthread_mutex_unlock(&w->lock);
	return n;
}

static int check(const struct zns_writer *w, const struct zns_zone_slot *slot, uint32_t writers, struct zns_err *err)
{
	if (!room(w))
		return zns_fail(err, -ENOSPC, "the stripe is as wide as it can be");
	for (uint32_t i = 0; i < w->nr_lanes; i++)
		if (w->lane[i].group == slot->group)
			return zns_fail(err, -EEXIST, "group %u is written already", slot->group);
	for (const struct wzone *z = w->zones; z; z = z->next)
		if (z->slot.zone == slot->zone)
			return zns_fail(err, -EEXIST, "zone %u was granted before", slot->zone);
	if (!writers || !w->zone_mibps || (slot->capacity - slot->start) / w->unit < 1)
		return zns_fail(err, -EINVAL, "zone %u is of no use to the stripe", slot->zone);
	return 0;
}

/* Until its own writes say more. */
static void expect(const struct zns_writer *w, struct lane *l, uint32_t writers)
{
	l->writers = writers;
	l->ns_per_byte = 1e9 * writers / (double)MIB(w->zone_mibps);
	l->deviation = 0;
	l->samples = l->run = 0;
	l->row = 0xff;
}

int zns_writer_gain(struct zns_writer *w, const struct zns_zone_slot *slot, uint32_t writers, struct zns_err *err)
{
	struct lane *l;
	uint32_t more;
	int ret;

	pthread_mutex_lock(&w->lock);
	l = &w->lane[w->nr_lanes];
	ret = w->err.code || w->stop ? zns_fail(err, -ECANCELED, "the dump has ended") : writer_check_slot(w, slot, err);
	if (!ret)
		ret = check(w, slot, writers, err);
	if (!ret) {
		*l = (struct lane){ .group = slot->group, .weight = 1 };
		expect(w, l, writers);
		for (uint32_t i = 0; i < w->nr_lanes; i++)
			l->load = zns_max(l->load, w->lane[i].load);
		l->wz = writer_add_zone(w, slot);
		if (!l->wz)
			ret = zns_fail(err, -ENOMEM, "no memory for a zone");
	}
	if (!ret) {
		w->nr_lanes++;
		w->widened = true;
		w->stats.nr_gained++;
		more = zns_min(writer_wanted_workers(w->nr_lanes), w->max_threads);
		if (more > w->nr_threads)
			writer_start_workers(w, more - w->nr_threads, NULL);	/* without them it is only slower */
		else
			writer_set_depth(w);
		pthread_cond_broadcast(&w->idle);	/* who waits for room looks at the weights */
	}
	pthread_mutex_unlock(&w->lock);
	return ret;
}

void zns_writer_told(struct zns_writer *w, uint32_t group, uint32_t writers)
{
	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->nr_lanes && w->zone_mibps; i++) {
		struct lane *l = &w->lane[i];

		if (l->group != group || l->writers == writers)
			continue;
		/* What it was told first is nothing new if it has measured since. */
		if (l->writers || !l->samples)
			expect(w, l, zns_max(writers, 1u));
		l->writers = writers;
		w->told = true;
	}
	if (w->told)
		pthread_cond_broadcast(&w->idle);
	pthread_mutex_unlock(&w->lock);
}

void zns_writer_crowded(struct zns_writer *w, bool crowded)
{
	w->crowded = crowded;
}
