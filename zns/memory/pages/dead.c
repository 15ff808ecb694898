/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Chooses the zone that should be emptied next, so that a context takes little more space than its
 * live units need. The owner moves the live units elsewhere; then the zone is given back like any
 * other.
 */
#include "pages_int.h"

/* The zones may take this percentage of the space of the live units, plus one zone. */
#define HELD_PCT 130
/* if more than this number of its units are live, emptying the zone would gain too little */
#define WORTH(units) ((units) / 8 * 7)

bool zns_pages_dead(struct zns_pages *ps, uint64_t *first, uint64_t *last)
{
	uint64_t held = 0, live = 0, most = 0;
	uint32_t victim = NO_ZONE;
	bool calm = !ps->give_way;

	/*
	 * moving units means writing, so do not move while a dump or restore uses one of the dies
	 */
	for (uint32_t i = 0; i < ps->nr_lanes; i++)
		calm = calm && !ps->lanes[i].busy;
	if (!calm || !__atomic_load_n(&ps->connected, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&ps->count);
	for (uint32_t i = 0; ps->counted && i < ps->nr_zones; i++) {
		const struct pages_zone *z = &ps->zones[i];

		/* a zone with data that a checkpoint refers to stays, even without live units */
		if (!z->have || z->open || z->freeing || z->named)
			continue;
		held += z->room;
		live += zns_min(z->live, z->units);
		most = zns_max(most, (uint64_t)z->room);
		if (z->live && z->live < WORTH(z->room) &&
		    (victim == NO_ZONE || z->live < ps->zones[victim].live))
			victim = i;
	}
	if (victim != NO_ZONE && held <= live * HELD_PCT / 100 + most)
		victim = NO_ZONE;
	if (victim != NO_ZONE) {
		*first = pages_place(victim, 0);
		*last = pages_place(victim, ps->zones[victim].units - 1);
	}
	pthread_mutex_unlock(&ps->count);
	return victim != NO_ZONE;
}
