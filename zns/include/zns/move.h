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
	/* The caller's; borrowed. */
	struct zns_session *s; /* connected with ZNS_WRITES; it need not have the device open */
	struct zns_dev *dev; /* open for writing */
	struct zns_bucket *bucket; /* NULL: no limit, and nothing by weight */
	uint32_t rate_mibps; /* the bucket's, at most; 0: no limit. Reads and writes count */
	/* share groups by weight instead of waiting for dumps and restores */
	bool charged;
	uint32_t weight; /* if @charged: its own weight; 0: that of the checkpoint's container */
	const uint32_t *victims; /* zones to be emptied of this checkpoint */
	uint32_t nr_victims;
	uint32_t below; /* to zones before this one; 0: to any */
	const uint32_t *to_group; /* see zns/mover.h; NULL: they stay in their groups */
	const uint32_t *zone_group; /* of every zone */
	bool *written; /* by zone: true where something was moved to; NULL: nobody asks */
	uint64_t total; /* bytes to be moved, to show the progress */
	bool rude; /* do not wait for dumps and restores */
	bool defer; /* -EAGAIN instead of waiting, as long as nothing was moved */
	/* moved so far; also now and then while it waits. NULL: nobody */
	void (*tell)(void *arg, uint64_t bytes);
	void *arg;
	/* What became of it. */
	uint64_t bytes; /* moved so far; after zns_move_copy: written, with the manifest */
	uint64_t waited_ns;
	ZnsPb__Response *answer; /* with the record as it is */
	ZnsPb__Checkpoint *next; /* the new one */
};

/*
 * Lease @id and copy. -EBUSY, -ENOSPC, -ECANCELED: not now; -ENODATA: it has nothing in the
 * victims; -ESTALE, -ENOENT: it was removed; -EBADMSG: damaged; -EAGAIN: see @defer.
 */
int zns_move_copy(struct zns_move *m, const uint8_t id[ZNS_UUID_LEN], struct zns_err *err);
/* A device that can only be flushed whole is flushed when nobody dumps, but not never. */
int zns_move_durable(struct zns_move *m, struct zns_err *err);
int zns_move_commit(struct zns_move *m, struct zns_err *err);
/* After a failure: nothing is written any more, the new zones may go back at once. */
void zns_move_abort(struct zns_move *m);
void zns_move_end(struct zns_move *m); /* the session stays */

#endif
