/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_MOVE_H
#define ZNS_MOVE_H
/*
 * Moves a checkpoint's data from some zones to others: lease, copy, flush, the new record. One
 * session moves one checkpoint. Its lease has the lowest priority: the mover waits while dumps or
 * restores use the same groups, and gives up when a dump needs its zone. Until zns_move_commit the
 * old places count. Single-threaded.
 */
#include "zns/mover.h"
#include "zns/session.h"

struct zns_move {
	/* Set by the caller, who keeps owning what these point to. */
	struct zns_session *s; /* connected with ZNS_WRITES; it need not have the device open */
	struct zns_dev *dev; /* open for writing */
	struct zns_bucket *bucket; /* NULL: no limit, and no sharing by weight */
	/* the highest rate of the bucket, MiB/s; 0: no limit. Reads and writes both count */
	uint32_t rate_mibps;
	/* share groups by weight instead of waiting for dumps and restores */
	bool charged;
	/* if @charged: its own weight; 0: the weight of the checkpoint's container */
	uint32_t weight;
	const uint32_t *victims; /* zones to be emptied of this checkpoint's data */
	uint32_t nr_victims;
	uint32_t below; /* move only to zones below this one; 0: to any zone */
	const uint32_t *to_group; /* see zns/mover.h; NULL: data stay in their groups */
	const uint32_t *zone_group; /* the group of every zone */
	bool *written; /* by zone: set to true if data were moved to it; NULL: not needed */
	uint64_t total; /* bytes to be moved, to show the progress */
	bool rude; /* do not wait for dumps and restores */
	bool defer; /* return -EAGAIN instead of waiting, as long as nothing was moved */
	/* called with the bytes moved so far, also from time to time during a wait. NULL: not
	 * called */
	void (*tell)(void *arg, uint64_t bytes);
	void *arg;
	/* Results. */
	uint64_t bytes; /* moved so far; after zns_move_copy: written, with the manifest */
	uint64_t waited_ns;
	ZnsPb__Response *answer; /* contains the record as it is now */
	ZnsPb__Checkpoint *next; /* the new one */
};

/*
 * Takes a lease on @id and copies. -EBUSY, -ENOSPC, -ECANCELED: not possible now; -ENODATA: it has
 * no data in the victims; -ESTALE, -ENOENT: it was removed; -EBADMSG: damaged; -EAGAIN: see @defer.
 */
int zns_move_copy(struct zns_move *m, const uint8_t id[ZNS_UUID_LEN], struct zns_err *err);
/* A device that can only be flushed whole is flushed when nobody dumps, but not never. */
int zns_move_durable(struct zns_move *m, struct zns_err *err);
int zns_move_commit(struct zns_move *m, struct zns_err *err);
/* To be called after a failure: no more writes are under way, so the new zones may be released at
 * once. */
void zns_move_abort(struct zns_move *m);
void zns_move_end(struct zns_move *m); /* the session stays */

#endif
