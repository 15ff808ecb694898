/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_ENQUEUE_H
#define ZNS_WRITE_ENQUEUE_H
/* What a thread that feeds an image does with a unit: wait for room in the queue, place the
 * unit, queue it. All functions may drop the lock. */
#include "lock.h"
#include "zns/util.h"

struct job;

/* Waits until something changed; meanwhile repairs zones and looks at the weights. @more: see
 * weights_look(). */
void feeder_wait(struct zns_writer *w, bool more) NEEDS_LOCK;
/* Waits until one more job may be queued. @data: a job that brings its bytes along. */
void feeder_wait_room(struct zns_writer *w, bool data) NEEDS_LOCK;
/* Takes ownership of @j. Returns 0 or the writer's error. */
int enqueue(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;

#endif
