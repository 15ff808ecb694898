/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_ENQUEUE_H
#define ZNS_WRITE_ENQUEUE_H
/* What a thread that feeds an image does with a unit: waits for room in the queue, places the unit,
 * and queues it. All functions may drop the lock. */
#include "lock.h"
#include "zns/util.h"

struct job;

/* Waits until something changes, and repairs zones and checks the weights meanwhile. @more: see
 * weights_look(). */
void feeder_wait(struct zns_writer *w, bool more) NEEDS_LOCK;
/* Waits until one more job may be queued. @data: the job has its bytes in a buffer. */
void feeder_wait_room(struct zns_writer *w, bool data) NEEDS_LOCK;
/* Takes ownership of @j. Returns 0 or the writer's error. */
int enqueue(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;

#endif
