/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The zones of a dump: requested from the broker, retired when they are full, and replaced when
 * they fail. A full zone is replaced by another one of the same group (design.md §5).
 */
#include <string.h>
#include "writer.h"

#define MAX_CONTINUED 64

uint64_t zones_room(const struct wzone *wz)
{
	return wz && !wz->bad ? wz->slot.capacity - wz->pos : 0;
}

/* Lists retired zones whose writes have all ended, each once. Those that failed are left out, since
 * they are reported as bad. */
static uint32_t collect_done(struct zns_writer *w, uint32_t *done, uint32_t max)
{
	struct wzone **p = &w->zones.retired;
	uint32_t nr = 0;

	while (*p && nr < max) {
		if ((*p)->bad) {
			*p = (*p)->next_retired;
		} else if ((*p)->written == (*p)->pos) {
			done[nr++] = (*p)->slot.zone;
			*p = (*p)->next_retired;
		} else {
			p = &(*p)->next_retired;
		}
	}
	return nr;
}

/* Asks the broker once. The broker may have to reset zones first; workers continue meanwhile.
 * *told: how many bad zones this request has reported. */
NEEDS_LOCK static int ask_once(struct zns_writer *w, uint32_t group, uint64_t need,
			       const uint32_t *done, uint32_t nr, struct zns_zone_slot *out,
			       uint32_t *told, struct zns_err *err)
{
	struct zns_zone_wish wish = { .group = group, .need = need, .done = done, .nr_done = nr };
	uint32_t bad[MAX_BAD];
	int ret;

	/* copied, since another zone may fail while the broker answers */
	memcpy(bad, w->zones.bad, sizeof(bad));
	wish.bad = bad;
	wish.nr_bad = *told = w->zones.nr_bad;
	writer_unlock(w);
	ret = w->zone_get(w->arg, &wish, out, err);
	writer_lock(w);
	return ret;
}

/*
 * Asks for a zone until there is one. -EBUSY means that the limits are used up, perhaps by retired
 * zones with unwritten data. Everything in these is queued, so one of them will be completed, and
 * is given back with the next request.
 */
NEEDS_LOCK static int ask(struct zns_writer *w, uint32_t group, uint64_t need,
			  struct zns_zone_slot *out, struct zns_err *err)
{
	uint32_t done[32], nr = collect_done(w, done, ZNS_ARRAY_SIZE(done)), told;
	int ret = ask_once(w, group, need, done, nr, out, &told, err);

	while (ret == -EBUSY && !w->err.code) {
		nr = collect_done(w, done, ZNS_ARRAY_SIZE(done));
		/*
		 * A zone that failed meanwhile does not count any more once the broker knows about
		 * it, so it helps as much as a completed one. During a repair nothing is written,
		 * so waiting for completed zones would never end.
		 */
		while (!nr && told == w->zones.nr_bad && w->zones.retired && !w->zones.repairing &&
		       !w->err.code) {
			writer_sleep(w, &w->idle);
			nr = collect_done(w, done, ZNS_ARRAY_SIZE(done));
		}
		if (!nr && told == w->zones.nr_bad)
			break;
		ret = ask_once(w, group, need, done, nr, out, &told, err);
	}
	return ret;
}

int zones_check_slot(const struct zns_writer *w, const struct zns_zone_slot *s, struct zns_err *err)
{
	if (s->zone >= w->dev->geo.nr_zones || s->start > s->capacity ||
	    s->capacity > w->dev->geo.zone_size || s->start % w->block || s->capacity % w->block)
		return zns_fail(err, -EPROTO,
				"granted zone %u, bytes %llu to %llu: the device has no such place",
				s->zone, (unsigned long long)s->start,
				(unsigned long long)s->capacity);
	return 0;
}

struct wzone *zones_add(struct zns_writer *w, const struct zns_zone_slot *slot)
{
	struct wzone *wz = calloc(1, sizeof(*wz));

	if (!wz)
		return NULL;
	wz->slot = *slot;
	wz->pos = wz->written = slot->start;
	pthread_cond_init(&wz->turn, NULL);
	wz->next = w->zones.first;
	w->zones.first = wz;
	w->zones.nr++;
	return wz;
}

NEEDS_LOCK static struct wzone *get_zone(struct zns_writer *w, uint32_t group, uint64_t need,
					 bool *busy)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_zone_slot slot;
	struct wzone *wz = NULL;
	int ret = ask(w, group, need, &slot, &err);

	if (!ret)
		ret = zones_check_slot(w, &slot, &err);
	for (uint32_t i = 0; i < w->zones.nr_bad && !ret; i++)
		if (w->zones.bad[i] == slot.zone)
			ret = zns_fail(&err, -EPROTO,
				       "granted zone %u again, which failed in this dump",
				       slot.zone);
	if (!ret) {
		wz = zones_add(w, &slot);
		if (!wz)
			ret = zns_fail(&err, -ENOMEM, "no memory for a zone");
	}
	if (!ret)
		return wz;
	if (busy && ret == -EBUSY) {
		*busy = true;
		return NULL;
	}
	if (!err.code)
		zns_fail(&err, ret, "the broker granted no zone of group %u", group);
	if (w->zones.nr_bad)
		zns_fail(&err, ret, "%s; %u zone%s failed before: %s", err.msg, w->zones.nr_bad,
			 w->zones.nr_bad > 1 ? "s" : "", w->zones.bad_err.msg);
	writer_set_error(w, &err);
	return NULL;
}

void zones_retire(struct zns_writer *w, struct wzone *z)
{
	z->next_retired = w->zones.retired;
	w->zones.retired = z;
}

/* Gets a zone with room for @need bytes. The broker may grant a zone that an earlier checkpoint has
 * partly filled; if it has not enough room, the next one is requested, until an empty one comes. */
struct wzone *zones_new(struct zns_writer *w, uint32_t group, uint64_t need, bool *busy)
{
	uint64_t capacity = 0;
	struct zns_err err;

	for (int tries = 0; tries < MAX_CONTINUED; tries++) {
		struct wzone *z = get_zone(w, group, need, busy);

		if (!z || zones_room(z) >= need)
			return z;
		capacity = z->slot.capacity;
		zones_retire(w, z);
		if (need > capacity)
			break; /* even an empty zone would be too small */
	}
	/* only a manifest can be longer than a unit: it has a checksum for each unit */
	zns_fail(&err, -EFBIG,
		 "%llu bytes in one run do not fit into a zone of %llu; use a %s --zns-stripe",
		 (unsigned long long)need, (unsigned long long)capacity,
		 need > w->unit ? "larger" : "smaller");
	writer_set_error(w, &err);
	return NULL;
}

bool zones_is_fault(int code)
{
	switch (code) {
	case -EINVAL: /* a mistake in this program */
	case -EBADF:
	case -ENOMEM:
	case -EBADE: /* another host has reserved the device */
	/* the file system that holds the store is full, or the store's file was replaced */
	case -EDQUOT:
	case -ESTALE:
	case -ETOOMANYREFS: /* the device's limits are reached, so another zone would not help */
	case -EOVERFLOW:
		return false;
	default:
		return code < 0;
	}
}

void zones_failed(struct zns_writer *w, struct wzone *z, const struct zns_err *why)
{
	struct zns_err err = *why;

	if (z->bad)
		return;
	z->bad = true;
	pthread_cond_broadcast(&z->turn);
	writer_wake(w);
	w->zones.bad_err = err;
	if (w->zones.nr_bad == MAX_BAD) {
		zns_wrap(&err, "%u zones failed during this dump, the last one", MAX_BAD + 1);
		writer_set_error(w, &err);
		return;
	}
	w->zones.bad[w->zones.nr_bad++] = z->slot.zone;
	w->zones.nr_unrepaired++;
}
