/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_WEIGHTS_H
#define ZNS_WRITE_WEIGHTS_H
/* Weights of lanes that follow what their zones really take. */
#include "lock.h"
#include "zns/layout.h"
#include "zns/util.h"

struct lane;
struct wzone;

struct tuning {
	bool widened; /* lanes came that have no part of the work yet */
	bool told; /* the broker said that other writers came to a lane's group, or left it */
	/* of each lane: weights of the next segment alone, 0: leave it out … */
	uint32_t plan[ZNS_STRIPE_MAX_WIDTH];
	uint64_t plan_units; /* … which has so many units; 0: no plan */
	/* units written: so far, at the last change of weights, at the last look */
	uint64_t written, changed, looked;
};

/*
 * Note one write of a lane's unit: how long it took, without the time that the bucket made it
 * wait. @paced: the bucket has a rate.
 */
void weights_sample(struct lane *l, const struct wzone *z, uint64_t off, uint64_t len,
		    uint64_t start_ns, uint64_t ns, bool paced) NEEDS_LOCK;
/* Change them if it is time to. @more: units are waiting for places; else only what has one is
 * dealt out anew. May drop the lock. */
void weights_look(struct zns_writer *w, bool more) NEEDS_LOCK;
/* one write after the other: the zone is what it waits for */
bool weights_saturated(const struct lane *l) NEEDS_LOCK;

#endif
