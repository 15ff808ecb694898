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

/* A unit of work: its bytes, or the addresses of the task memory to read, and its place on the
 * device. */
struct job {
	struct zns_wimage *img; /* NULL: a pack unit, which belongs to several images */
	uint64_t k; /* index of the unit in the image */
	uint32_t len;
	struct wzone *wz;
	/* the lane in whose turn it was placed; NULL: it was placed alone (a pack unit) */
	struct lane *lane;
	uint64_t off; /* offset in the zone in bytes */
	uint8_t *data; /* the bytes, owned by the job; NULL: they are in the memory of a task */
	bool counted; /* the job is included in nr_data */
	/* the bytes are already as they will be written; checksum and tag below belong to them */
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
	uint32_t nr_running; /* number of units that workers have taken */
	/* number of units with a buffer of their own that are queued or being written */
	uint32_t nr_data, max_data;
	/* number of taken units that cannot be written yet, because an older unit of their lane is
	 * taken too */
	uint32_t nr_ahead;
	/* units that were placed in zones which then failed; in no particular order */
	struct job *orphans;
};

struct job *job_new(struct zns_wimage *img); /* NULL: out of memory */
void job_free(struct zns_writer *w, struct job *j) NEEDS_LOCK; /* @j may be NULL */
/* Appends @j, and wakes a worker if one can take it. */
void queue_push(struct zns_writer *w, struct job *j) NEEDS_LOCK;
/* Returns the next unit for a worker; NULL: there is none now. When the worker is done with the
 * unit, it calls queue_done() with the lane that the unit had when it was taken. */
struct job *queue_take(struct zns_writer *w) NEEDS_LOCK;
/* To be called when a worker has taken a unit: wakes the threads that wait for room, but only once
 * for several units. */
void queue_tell_room(struct zns_writer *w) NEEDS_LOCK;
void queue_done(struct zns_writer *w, struct lane *l) NEEDS_LOCK;

#endif
