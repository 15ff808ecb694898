/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_WRITER_H
#define ZNS_WRITE_WRITER_H
/*
 * Inside of the striping writer. Each file is a part with a struct of its own; calls go one way
 * (`make lint` checks it):
 *
 *   feed, compose, named, as_is  what callers do: bytes enter, images are made of others
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
	/* These do not change while the writer exists. */
	struct zns_dev *dev;
	struct zns_bucket *bucket;
	const struct zns_crypt *crypt; /* NULL: units are not encrypted, or they come encrypted */
	/* the manifest of an encrypted checkpoint whose units are written as they are; NULL:
	 * this is a new checkpoint */
	const ZnsPb__Manifest *sealed;
	const struct zns_crypt *proof;
	uint32_t unit, block;
	uint32_t zone_mibps; /* rate of one zone that is written alone; 0: not known */
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			struct zns_err *err);
	void *arg;

	/* the manifest's tag, once it is written; only zns_writer_finish uses it */
	uint8_t seal[ZNS_TAG_BYTES];
	_Atomic bool crowded; /* use short commands, see zns_writer_crowded */
	pthread_mutex_t lock; /* only writer_lock() takes it */
	pthread_cond_t work; /* the queue is not empty, or workers shall stop */
	/* there is room for units, or weights may have to change: threads that feed images
	 * wait for it */
	pthread_cond_t room;
	pthread_cond_t idle; /* a job ended: settle() and zns_writer_finish() wait for it */

	struct zns_err err GUARDED; /* the first error; later ones do not replace it */
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
/* Wakes every thread that waits for room or for the end of a job. */
void writer_wake(struct zns_writer *w) NEEDS_LOCK;
/* Sets the writer's error unless it has one, and wakes every thread. */
void writer_set_error(struct zns_writer *w, const struct zns_err *e) NEEDS_LOCK;
/* As writer_set_error(), and returns the writer's error. */
int writer_fail(struct zns_writer *w, const struct zns_err *e) NEEDS_LOCK;
int writer_fail_nomem(struct zns_writer *w, const char *what) NEEDS_LOCK; /* "no memory WHAT" */
/* Returns @ret. If that is an error, *err gets the writer's own. */
int writer_tell(struct zns_writer *w, int ret, struct zns_err *err) NEEDS_LOCK;

#endif
