/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_ZONES_H
#define ZNS_WRITE_ZONES_H
/* The zones of a dump: requested from the broker, retired when they are full, replaced when they
 * fail. */
#include "lock.h"
#include "zns/util.h"
#include "zns/writer.h"

/* most zones that may fail in one dump; if more fail, the cause is something else */
#define MAX_BAD 16

/* One zone written by this dump. It exists until the writer is freed, because segments point to
 * it. */
struct wzone {
	struct zns_zone_slot slot;
	uint64_t pos; /* end of what was placed in the zone, in bytes from its start */
	/* end of what was written, in bytes from the zone's start; the next unit is the one that
	 * begins here */
	uint64_t written;
	pthread_cond_t turn; /* signalled when `written` has grown or the zone has failed */
	/* a write failed, or the zone is read-only or offline: nothing more is placed in it */
	bool bad;
	bool repaired; /* the zone failed, and no unit waits for it any more */
	bool checked; /* the zone failed, and its contents were read back after a flush */
	struct wzone *next;
	struct wzone *next_retired;
};

struct zones {
	struct wzone *first; /* all zones that were used, newest first */
	/* zones that left their lane, which the broker has not been told yet */
	struct wzone *retired;
	uint32_t nr;
	uint32_t bad[MAX_BAD], nr_bad;
	uint32_t nr_unrepaired; /* number of zones that failed and are not repaired yet */
	bool repairing; /* units are getting new places; nothing is written meanwhile */
	struct zns_err bad_err; /* error of the zone that failed last */
};

/* bytes that can still be placed; 0 if @z is NULL or bad */
uint64_t zones_room(const struct wzone *z) NEEDS_LOCK;
int zones_check_slot(const struct zns_writer *w, const struct zns_zone_slot *s,
		     struct zns_err *err);
/* NULL: out of memory */
struct wzone *zones_add(struct zns_writer *w, const struct zns_zone_slot *slot) NEEDS_LOCK;
/*
 * Gets a new zone of @group with room for @need bytes; it is not on a lane and not retired. Drops
 * the lock while it asks the broker. NULL: the writer has failed, or *busy is set: the device's
 * limits allow no zone now. With @busy NULL that is an error of the writer.
 */
struct wzone *zones_new(struct zns_writer *w, uint32_t group, uint64_t need, bool *busy) NEEDS_LOCK;
void zones_retire(struct zns_writer *w, struct wzone *z) NEEDS_LOCK;
bool zones_is_fault(int code); /* Is this write error one that would not occur in another zone? */
void zones_failed(struct zns_writer *w, struct wzone *z, const struct zns_err *why) NEEDS_LOCK;

#endif
