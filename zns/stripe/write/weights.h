/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_WEIGHTS_H
#define ZNS_WRITE_WEIGHTS_H
/* Changes the weights of lanes according to the speeds of their zones. */
#include "lock.h"
#include "zns/layout.h"
#include "zns/util.h"

struct lane;
struct wzone;

struct tuning {
	bool widened; /* lanes were added that have no units yet */
	bool told; /* the broker reported that other writers joined or left a lane's group */
	/* weights of the lanes for the next segment only; 0: the lane is left out */
	uint32_t plan[ZNS_STRIPE_MAX_WIDTH];
	uint64_t plan_units; /* number of units in that segment; 0: there is no plan */
	/* how many units were written so far, when the weights last changed, and when they were
	 * last checked */
	uint64_t written, changed, looked;
};

/* Records how long one write of a lane's unit took, excluding the wait for the token bucket.
 * @paced: the bucket has a limit. */
void weights_sample(struct lane *l, const struct wzone *z, uint64_t off, uint64_t len,
		    uint64_t start_ns, uint64_t ns, bool paced) NEEDS_LOCK;
/* Changes the weights if that is worthwhile. @more: further units are waiting to be placed;
 * otherwise only units that have a place are distributed again. May drop the lock. */
void weights_look(struct zns_writer *w, bool more) NEEDS_LOCK;
/* Does the lane write without a pause, so that only its zone limits it? */
bool weights_saturated(const struct lane *l) NEEDS_LOCK;

#endif
