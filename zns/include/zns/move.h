/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MOVE_H
#define ZNS_MOVE_H
/*
 * Moves a checkpoint's data from some zones to others: lease, copy, flush, new record. One struct
 * moves one checkpoint. Its lease has the lowest priority: the mover waits while dumps or restores
 * use the same groups, and gives up when a dump needs its zone. Until zns_move_commit the old
 * places are valid. Single-threaded.
 */
#include "zns/mover.h"
#include "zns/session.h"

struct zns_move {
	/* Set by the caller, who keeps owning what the pointers refer to. */
	/* connected with ZNS_WRITES; the session need not have opened the device */
	struct zns_session *s;
	struct zns_dev *dev; /* the device, open for writing */
	struct zns_bucket *bucket; /* NULL: no rate limit, and no sharing by weight */
	/* the highest rate of the bucket in MiB/s, for reads and writes together; 0: no limit */
	uint32_t rate_mibps;
	/* share groups by weight instead of waiting for dumps and restores */
	bool charged;
	/* if @charged: its own weight; 0: the weight of the checkpoint's container */
	uint32_t weight;
	const uint32_t *victims; /* zones from which this checkpoint's data shall be moved away */
	uint32_t nr_victims;
	uint32_t below; /* move only to zones below this one; 0: to any zone */
	/* for each of @victims the only group to move to; NULL: data stay in their groups, if
	 * possible */
	const uint32_t *to_group;
	const uint32_t *zone_group; /* the group of every zone */
	bool *written; /* by zone: set to true if data were moved to it; NULL: not needed */
	uint64_t total; /* number of bytes to be moved, to show the progress */
	bool rude; /* do not wait for dumps and restores that use the same groups */
	bool defer; /* return -EAGAIN instead of waiting, as long as no data were moved */
	/* called with the number of bytes moved so far, and from time to time during a wait. NULL:
	 * not called */
	void (*tell)(void *arg, uint64_t bytes);
	void *arg;
	/* Results of the functions below. */
	/* moved so far; after zns_move_copy: all that was written, including the manifest */
	uint64_t bytes;
	uint64_t waited_ns;
	ZnsPb__Response *answer; /* contains the checkpoint's present record */
	ZnsPb__Checkpoint *next; /* the new record */
};

/*
 * Takes a lease on @id and copies its data. -EBUSY, -ENOSPC, -ECANCELED: not possible now;
 * -ENODATA: it has no data in the victims; -ESTALE, -ENOENT: it was removed; -EBADMSG: damaged;
 * -EAGAIN: see @defer.
 */
int zns_move_copy(struct zns_move *m, const uint8_t id[ZNS_UUID_LEN], struct zns_err *err);
/* Flushes what was copied. A device that can only be flushed as a whole is flushed when no dump
 * runs, or after a limited wait. */
int zns_move_durable(struct zns_move *m, struct zns_err *err);
int zns_move_commit(struct zns_move *m, struct zns_err *err);
/* To be called after a failure: promises the broker that no writes are under way, so that it can
 * release the new zones at once. */
void zns_move_abort(struct zns_move *m);
void zns_move_end(struct zns_move *m); /* the session stays open */

#endif
