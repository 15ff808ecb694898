/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_LANES_H
#define ZNS_WRITE_LANES_H
/*
 * Decides where the next unit is written. A stripe has lanes; a lane is a group and its current
 * zone. An image is written as segments; each segment is striped over some lanes by their weights.
 */
#include "lock.h"
#include "zns/layout.h"
#include "zns/util.h"

struct job;
struct wzone;
struct zns_wimage;

struct lane {
	uint32_t group, weight;
	uint64_t load; /* bytes given to this lane so far, divided by its weight */
	struct wzone *wz; /* NULL until the lane needs a zone */
	uint64_t backlog; /* bytes that have a place but are not written yet */
	uint32_t taken; /* number of units of this lane that workers are processing */
	/* How fast the lane's zone accepts units (weights.c): running means over its last
	 * writes. */
	/*
	 * samples: number of samples so far; run: number of writes that belong to the next sample
	 */
	uint32_t samples, run;
	uint64_t run_ns, run_bytes;
	double ns_per_byte, deviation, last; /* last: the latest sample in ns per byte */
	uint64_t end_ns; /* time at which the last write ended */
	/* how many writers use the lane's group, according to the broker; 0: not known */
	uint32_t writers;
	/* one bit for each of the last writes, the lowest for the newest: did the write begin as
	 * soon as the one before it ended? */
	uint8_t row;
};

struct lanes {
	/* the lanes; there is room for the widest stripe from the start, since units have pointers
	 * to lanes */
	struct lane *v;
	uint32_t nr;
	/* the lane for images without pages, behind the other lanes; NULL: they use the lanes of
	 * pages */
	struct lane *meta;
	/* a thread is placing a unit, and may have dropped the lock to wait; others wait until it
	 * is done */
	bool placing;
};

/* The segment that is being written. */
struct current {
	struct zns_seg seg;
	/* image of the segment; NULL: there is no segment, so the next unit begins one */
	struct zns_wimage *owner;
	struct lane *lane[ZNS_STRIPE_MAX_WIDTH];
	uint64_t units, capacity;
	struct zns_wimage *img; /* image of the unit that was placed last; NULL: none */
	uint64_t run_first; /* first of the units of @img that were placed one after the other */
};

/* Gives a unit, or a run of @len bytes in one zone, a place. May drop the lock while it asks the
 * broker for a zone. 0, or the writer's error. */
int lanes_place(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;
int lanes_place_run(struct zns_writer *w, uint64_t len, struct wzone **wz, uint64_t *off)
	NEEDS_LOCK;
/* Between placing_begin() and placing_end() no other thread places a unit. placing_begin() may drop
 * the lock to wait. */
void placing_begin(struct zns_writer *w) NEEDS_LOCK;
void placing_end(struct zns_writer *w) NEEDS_LOCK;
/* like lanes_place(), for a caller between placing_begin() and placing_end() */
int lanes_place_again(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;
void lanes_end_segment(struct zns_writer *w) NEEDS_LOCK; /* the next unit begins a new segment */

#endif
