/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_ZONES_H
#define ZNS_WRITE_ZONES_H
/* The zones of a dump: asked for, left when they are full, given up when they fail. */
#include "lock.h"
#include "zns/util.h"
#include "zns/writer.h"

/* most zones that may fail in one dump; when more fail, zones are not the cause */
#define MAX_BAD 16

/* One zone being written by this dump. Lives until the writer is freed: segments point at it. */
struct wzone {
	struct zns_zone_slot slot;
	uint64_t pos; /* bytes that have a place, from the zone's start */
	/* bytes on the device, from the zone's start; writes follow one another by it */
	uint64_t written;
	pthread_cond_t turn; /* signalled when `written` has grown or the zone has failed */
	/* a write failed, or the zone is read-only or offline: nothing more is placed in it */
	bool bad;
	bool repaired; /* the zone failed, and nothing waits for it any more */
	bool checked; /* the zone failed, and its content was read back after a flush */
	struct wzone *next;
	struct wzone *next_retired;
};

struct zones {
	struct wzone *first; /* every zone that was used, newest first */
	/* zones that left their lane and of which the broker does not know that yet */
	struct wzone *retired;
	uint32_t nr;
	uint32_t bad[MAX_BAD], nr_bad;
	uint32_t nr_unrepaired; /* zones that failed and are not repaired */
	bool repairing; /* units are getting new places; nothing is written meanwhile */
	struct zns_err bad_err; /* error of the zone that failed last */
};

uint64_t zones_room(const struct wzone *z) NEEDS_LOCK; /* bytes; 0 if @z is NULL or bad */
int zones_check_slot(const struct zns_writer *w, const struct zns_zone_slot *s,
		     struct zns_err *err);
/* NULL: no memory */
struct wzone *zones_add(struct zns_writer *w, const struct zns_zone_slot *slot) NEEDS_LOCK;
/*
 * Gets a new zone of @group with room for @need bytes; it is on no lane and not retired. Drops
 * the lock while it asks the broker. NULL: the writer's error is set, or *@busy is: the device's
 * limits allow none now. Only a caller that gives @busy is told that, since it may know a way
 * out.
 */
struct wzone *zones_new(struct zns_writer *w, uint32_t group, uint64_t need, bool *busy) NEEDS_LOCK;
void zones_retire(struct zns_writer *w, struct wzone *z) NEEDS_LOCK;
bool zones_is_fault(int code); /* Is this error of a write one that another zone may not have? */
void zones_failed(struct zns_writer *w, struct wzone *z, const struct zns_err *why) NEEDS_LOCK;

#endif
