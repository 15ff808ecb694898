/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_QUEUE_H
#define ZNS_WRITE_QUEUE_H
/* The queue of units between the threads that feed images and the workers. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"
#include "../transform.h"
#include "zns/util.h"
#include "zns/writer.h"

struct lane;
struct wzone;

/* A unit of work: its bytes, or the addresses where they are, and its place on the device. */
struct job {
	struct zns_wimage *img; /* NULL: a pack unit, which belongs to several images */
	uint64_t k; /* index of the unit in the image */
	uint32_t len;
	struct wzone *wz;
	/* the lane on which it was placed; NULL: it was placed alone (a pack unit) */
	struct lane *lane;
	uint64_t off; /* byte offset in the zone */
	uint8_t *data; /* the bytes, owned; NULL: they are in the memory of a task */
	bool counted; /* it is counted in nr_data */
	/* the bytes are in the form in which they go to the device; checksum and tag below
	 * are of that form */
	bool ready;
	uint64_t csum;
	uint8_t tag[ZNS_TAG_BYTES];
	pid_t pid;
	struct iovec *iov;
	uint32_t nr_iov, max_iov;
	struct job *next;
};

struct queue {
	struct job *first, **tail;
	uint32_t nr, max;
	uint32_t nr_running; /* units that workers have taken */
	uint32_t nr_data, max_data; /* units with bytes of their own, queued or being written */
	/* taken units that cannot be written yet, because an older unit of their lane is
	 * taken too */
	uint32_t nr_ahead;
	struct job *orphans; /* units that were placed on zones which then failed, in no order */
};

struct job *job_new(struct zns_wimage *img); /* NULL: no memory */
void job_free(struct zns_writer *w, struct job *j) NEEDS_LOCK; /* @j may be NULL */
/* Appends @j, and wakes a worker if one can take it. */
void queue_push(struct zns_writer *w, struct job *j) NEEDS_LOCK;
/* Returns the next unit for a worker; NULL: there is none now. When the worker has finished the
 * unit, it calls queue_done() with the lane that the unit had when it was taken. */
struct job *queue_take(struct zns_writer *w) NEEDS_LOCK;
/* A worker has taken a unit. Wakes the threads that wait for room, once for several units. */
void queue_tell_room(struct zns_writer *w) NEEDS_LOCK;
void queue_done(struct zns_writer *w, struct lane *l) NEEDS_LOCK;

#endif
