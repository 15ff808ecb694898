/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_QUEUE_H
#define ZNS_WRITE_QUEUE_H
/* Units between the threads that feed images and the workers. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"
#include "../transform.h"
#include "zns/util.h"
#include "zns/writer.h"

struct lane;
struct wzone;

/* A unit of work: bytes, or where they are, and their place. */
struct job {
	struct zns_wimage *img; /* NULL: a pack unit */
	uint64_t k; /* unit of the image */
	uint32_t len;
	struct wzone *wz;
	struct lane *lane; /* that it was placed on; NULL: by itself (a pack unit) */
	uint64_t off; /* in the zone */
	uint8_t *data; /* owned; or NULL and the memory of a task: */
	bool counted; /* in nr_data */
	bool ready; /* its bytes are as they shall be on the device, which is what these are of: */
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
	uint32_t nr_running; /* in workers' hands */
	uint32_t nr_data, max_data; /* units with bytes of their own, queued or being written */
	uint32_t nr_ahead; /* units in workers' hands whose lane has an older one there */
	struct job *orphans; /* units placed on bad zones, in no order */
};

struct job *job_new(struct zns_wimage *img); /* NULL: no memory */
void job_free(struct zns_writer *w, struct job *j) NEEDS_LOCK; /* NULL is fine */
/* behind all others; wakes a worker if there is something to do for one */
void queue_push(struct zns_writer *w, struct job *j) NEEDS_LOCK;
/*
 * The next unit for a worker; NULL: there is none now. The worker calls queue_done when it has
 * finished the unit, with the lane that the unit had when it was taken.
 */
struct job *queue_take(struct zns_writer *w) NEEDS_LOCK;
/* a worker has taken one: wakes who waits for room, for several units at once */
void queue_tell_room(struct zns_writer *w) NEEDS_LOCK;
void queue_done(struct zns_writer *w, struct lane *l) NEEDS_LOCK;

#endif
