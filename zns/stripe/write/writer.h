/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_WRITER_H
#define ZNS_WRITE_WRITER_H
/*
 * Internals of the striping writer. Each file is a part with a struct of its own. Parts only call
 * parts on the lines below theirs (`make lint` checks that):
 *
 *   feed, compose, named, as_is  called from outside: feed bytes, compose images of others
 *   finish, widen                end of the dump; a stripe that becomes wider
 *   pack, enqueue, workers       a unit waits for room, gets a place, is queued, read, hashed,
 *                                written
 *   audit, repair, weights       change the places of units
 *   lanes, rescue                places of units; bytes that a failed zone held
 *   zones, image, queue          zones from the broker; segments and checksums; waiting units
 *   io, pool, state              transfers; buffers; the lock and the first error
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
	const struct zns_crypt *crypt; /* NULL: units are not encrypted, or come encrypted */
	/* the manifest of a checkpoint from elsewhere whose units are written unchanged; NULL: a
	 * new checkpoint */
	const ZnsPb__Manifest *sealed;
	const struct zns_crypt *proof;
	uint32_t unit, block;
	uint32_t zone_mibps; /* rate of one zone that is written alone, MiB/s; 0: not known */
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			struct zns_err *err);
	void *arg;

	/* the manifest's seal, once it is written; only used by zns_writer_finish */
	uint8_t seal[ZNS_TAG_BYTES];
	_Atomic bool crowded; /* use short commands, see zns_writer_crowded */
	pthread_mutex_t lock; /* only taken by writer_lock() */
	pthread_cond_t work; /* signalled when the queue is not empty, or workers shall stop */
	/* signalled when there is room for units, or weights may have to change; the threads that
	 * feed images wait for it */
	pthread_cond_t room;
	/* signalled when a job has ended; settle() and zns_writer_finish() wait for it */
	pthread_cond_t idle;

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

/* ---- lock.c ---- */
/* Wakes every thread that waits for room or for the end of a job. */
void writer_wake(struct zns_writer *w) NEEDS_LOCK;
/* Sets the writer's error unless it has one, and wakes every thread. */
void writer_set_error(struct zns_writer *w, const struct zns_err *e) NEEDS_LOCK;
/* Like writer_set_error(), and returns the writer's error. */
int writer_fail(struct zns_writer *w, const struct zns_err *e) NEEDS_LOCK;
/* fails with "no memory WHAT" */
int writer_fail_nomem(struct zns_writer *w, const char *what) NEEDS_LOCK;
/* Returns @ret. If that is an error, copies the writer's error to *err. */
int writer_tell(struct zns_writer *w, int ret, struct zns_err *err) NEEDS_LOCK;

#endif
