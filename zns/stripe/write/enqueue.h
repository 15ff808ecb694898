/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_ENQUEUE_H
#define ZNS_WRITE_ENQUEUE_H
/* What a thread that feeds an image does with a unit: wait for room, place it, queue it. All may
 * drop the lock. */
#include "lock.h"
#include "zns/util.h"

struct job;

/* Until something changed; repairs zones and looks at the weights meanwhile. @more: as
 * weights_look. */
void feeder_wait(struct zns_writer *w, bool more) NEEDS_LOCK;
/* Until one more job may be queued; @data: one that brings its bytes along. */
void feeder_wait_room(struct zns_writer *w, bool data) NEEDS_LOCK;
/* Takes @j. 0, or the writer's error. */
int enqueue(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;

#endif
