/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_LANES_H
#define ZNS_WRITE_LANES_H
/*
 * Where the next unit goes. A stripe has lanes; a lane is a group and its current zone. An image is
 * written as segments; a segment goes over some lanes, each by its weight.
 */
#include "lock.h"
#include "zns/layout.h"
#include "zns/util.h"

struct job;
struct wzone;
struct zns_wimage;

struct lane {
	uint32_t group, weight;
	uint64_t load; /* bytes given to it so far, over its weight */
	struct wzone *wz; /* NULL before one is needed */
	uint64_t backlog; /* bytes placed and not written */
	uint32_t taken; /* units of it in workers' hands */
	/* How fast it takes them (weights.c): running means over the last writes. */
	uint32_t samples, run; /* run: writes of the next sample */
	uint64_t run_ns, run_bytes;
	double ns_per_byte, deviation, last; /* last: sample */
	uint64_t end_ns; /* of the last write */
	uint32_t writers; /* of its group, as told; 0: not */
	/* a bit for each of the last writes, newest lowest: it followed at once on the one before
	 */
	uint8_t row;
};

struct lanes {
	struct lane *v; /* room for as many as a stripe may have: units point at them */
	uint32_t nr;
	struct lane *meta; /* behind the others; NULL: whatever is no page goes with the pages */
	bool placing; /* a placement may wait with the lock dropped: others wait for it */
};

/* The segment that is being written. */
struct current {
	struct zns_seg seg;
	struct zns_wimage *owner; /* NULL: none, the next unit begins one */
	struct lane *lane[ZNS_STRIPE_MAX_WIDTH];
	uint64_t units, capacity;
	struct zns_wimage *img; /* what was placed last is of this image; NULL: of none */
	uint64_t run_first; /* its units from this one on were placed in a row */
};

/* Place a unit, or a run of @len bytes in one zone. May drop the lock: zones come from the broker.
 * 0, or the writer's error. */
int lanes_place(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;
int lanes_place_run(struct zns_writer *w, uint64_t len, struct wzone **wz, uint64_t *off)
	NEEDS_LOCK;
/* Between begin and end nobody else places. begin drops the lock while it waits. */
void placing_begin(struct zns_writer *w) NEEDS_LOCK;
void placing_end(struct zns_writer *w) NEEDS_LOCK;
/* as lanes_place, in between */
int lanes_place_again(struct zns_writer *w, struct job *j, uint64_t hint_units) NEEDS_LOCK;
void lanes_end_segment(struct zns_writer *w) NEEDS_LOCK; /* the next unit begins a new one */

#endif
