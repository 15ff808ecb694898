/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_ZONES_H
#define ZNS_WRITE_ZONES_H
/* The zones of a dump: asked for, left when they are full, given up when they fail. */
#include "lock.h"
#include "zns/util.h"
#include "zns/writer.h"

#define MAX_BAD 16 /* zones that may fail in one dump; more is no matter of zones */

/* One zone being written by this dump. Lives until the writer is freed: segments point at it. */
struct wzone {
	struct zns_zone_slot slot;
	uint64_t pos; /* assigned up to here */
	uint64_t written; /* on the device up to here; the order of writes hangs on it */
	pthread_cond_t turn; /* written moved on, or bad */
	bool bad; /* a write failed, or it is read-only or offline: takes no more */
	bool repaired; /* bad, and nothing waits for it any more */
	bool checked; /* bad, and what it holds was read back after a flush */
	struct wzone *next;
	struct wzone *next_retired;
};

struct zones {
	struct wzone *first; /* every zone used, newest first */
	struct wzone *retired; /* those that left their lane, until znsd is told */
	uint32_t nr;
	uint32_t bad[MAX_BAD], nr_bad;
	uint32_t nr_unrepaired; /* zones that are bad, but not repaired */
	bool repairing; /* units get new places; none is written meanwhile */
	struct zns_err bad_err; /* of the last one that failed */
};

uint64_t zones_room(const struct wzone *z) NEEDS_LOCK; /* bytes; 0 if @z is NULL or bad */
int zones_check_slot(const struct zns_writer *w, const struct zns_zone_slot *s,
		     struct zns_err *err);
/* NULL: no memory */
struct wzone *zones_add(struct zns_writer *w, const struct zns_zone_slot *slot) NEEDS_LOCK;
/*
 * A new zone of @group with room for @need bytes, on no lane and not retired yet. The lock is
 * dropped while the broker is asked. NULL: the writer's error is set; or not, and *@busy is: the
 * limits allow none, and the caller (who gave @busy) may have a way out.
 */
struct wzone *zones_new(struct zns_writer *w, uint32_t group, uint64_t need, bool *busy) NEEDS_LOCK;
void zones_retire(struct zns_writer *w, struct wzone *z) NEEDS_LOCK;
bool zones_is_fault(int code); /* an error of a write that another zone may not give */
void zones_failed(struct zns_writer *w, struct wzone *z, const struct zns_err *why) NEEDS_LOCK;

#endif
