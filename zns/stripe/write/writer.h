/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_WRITER_H
#define ZNS_WRITE_WRITER_H
/*
 * Inside of the striping writer. Each file is a part with a struct of its own; calls go one way
 * (`make lint` checks it):
 *
 *   feed, compose, named, sealed  what callers do: bytes enter, images are made of others
 *   finish, widen           the dump ends, the stripe gets wider
 *   pack, enqueue, workers  a unit waits for room, gets a place, is queued, read, hashed, written
 *   audit, repair, weights  what moves units that have a place already
 *   lanes, rescue           places; copies of what a failed zone held
 *   zones, image, queue     zones from the broker; segments and checksums; units that wait
 *   io, pool, state         bytes in and out; buffers; the lock and the first error
 */
#include "enqueue.h"
#include "image.h"
#include "lanes.h"
#include "lock.h"
#include "parts.h"
#include "pool.h"
#include "queue.h"
#include "rescue.h"
#include "unsteady.h"
#include "weights.h"
#include "zns/grow.h"
#include "zns/layout.h"
#include "zns/util.h"
#include "zns/writer.h"
#include "zones.h"

struct zns_writer {
	/* Fixed when it is made. */
	struct zns_dev *dev;
	struct zns_bucket *bucket;
	const struct zns_crypt *crypt; /* NULL: plain, or sealed already */
	const ZnsPb__Manifest *sealed; /* NULL: the checkpoint is made here */
	const struct zns_crypt *proof;
	uint32_t unit, block;
	uint32_t zone_mibps; /* of one zone alone; 0: not known */
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			struct zns_err *err);
	void *arg;

	/* of the manifest, once that is written; zns_writer_finish alone */
	uint8_t seal[ZNS_TAG_BYTES];
	_Atomic bool crowded; /* short commands, see zns_writer_crowded */
	pthread_mutex_t lock; /* taken by writer_lock alone */
	pthread_cond_t work; /* queue not empty, or stop */
	pthread_cond_t room; /* for units, or weights may have to change: who feeds images waits */
	pthread_cond_t idle; /* a job ended: settle, finish */

	struct zns_err err GUARDED; /* the first one stays */
	bool stop GUARDED;
	bool ending GUARDED; /* no more units will come */
	struct pool pool GUARDED;
	struct zones zones GUARDED;
	struct lanes lanes GUARDED;
	struct current cur GUARDED;
	struct tuning tune GUARDED;
	struct images images GUARDED;
	struct packer pack GUARDED;
	struct kept kept GUARDED;
	struct unsteady unsteady GUARDED;
	struct queue queue GUARDED;
	struct crew crew GUARDED;
	struct zns_writer_stats stats GUARDED;
};

/* lock.c */
/* whoever waits for room or for the end of something looks again */
void writer_wake(struct zns_writer *w) NEEDS_LOCK;
/* the first one stays; everybody wakes */
void writer_set_error(struct zns_writer *w, const struct zns_err *e) NEEDS_LOCK;
/* the same; returns the first error */
int writer_fail(struct zns_writer *w, const struct zns_err *e) NEEDS_LOCK;
int writer_fail_nomem(struct zns_writer *w, const char *what) NEEDS_LOCK; /* "no memory WHAT" */
/* @ret; if it is an error, the writer's own goes to @err. */
int writer_tell(struct zns_writer *w, int ret, struct zns_err *err) NEEDS_LOCK;

#endif
