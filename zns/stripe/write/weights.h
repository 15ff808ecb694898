/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_WEIGHTS_H
#define ZNS_WRITE_WEIGHTS_H
/* Weights of lanes that follow the speed of their zones. */
#include "lock.h"
#include "zns/layout.h"
#include "zns/util.h"

struct lane;
struct wzone;

struct tuning {
	bool widened; /* lanes were added that have no share of the work yet */
	bool told; /* the broker said that other writers joined a lane's group, or left it */
	/* weights of each lane for the next segment only; 0: leave it out */
	uint32_t plan[ZNS_STRIPE_MAX_WIDTH];
	uint64_t plan_units; /* number of units in that segment; 0: there is no plan */
	/* units written: so far; when the weights last changed; when they were last looked at */
	uint64_t written, changed, looked;
};

/* Notes how long one write of a lane's unit took, without the time that the bucket waited.
 * @paced: the bucket has a rate. */
void weights_sample(struct lane *l, const struct wzone *z, uint64_t off, uint64_t len,
		    uint64_t start_ns, uint64_t ns, bool paced) NEEDS_LOCK;
/* Changes the weights if that pays. @more: units wait for places; otherwise only units that have
 * one are distributed again. May drop the lock. */
void weights_look(struct zns_writer *w, bool more) NEEDS_LOCK;
/* Does the lane write without a pause, so that only its zone limits it? */
bool weights_saturated(const struct lane *l) NEEDS_LOCK;

#endif
