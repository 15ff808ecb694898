/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits how many zones each memory context may have open. There may be more contexts than zones
 * that can be open. All contexts together get at most half of the device's open limit. As long as
 * there are enough, a context takes as many as it can use, else an equal share. If a context finds
 * no zone, another one must give back its zones: one that has more than its share, or has not
 * written for a while.
 *
 * All contexts together also get at most half of the data zones, so that a label of a container
 * cannot take the device away from dumps.
 */
#include "memory.h"

#define IDLE_NS 2000000000ull /* ns; a context without writes for this long is idle */
#define WANTS_NS 2000000000ull /* ns for which a context that has found no zone counts as waiting */

/* when a context last found no zone to open; 0: not since a zone was given back */
static uint64_t wanted_ns;

bool memory_has_its_part(const struct znsd *d)
{
	uint32_t data = 0;

	for (uint32_t i = 0; i < d->nr_zones; i++)
		data += !d->zones[i].meta;
	return yielding_zones(d) >= zns_max(1u, data / 2);
}

/* Most data zones that all contexts may write at once; UINT32_MAX: no limit. */
static uint32_t most(struct znsd *d)
{
	uint32_t total = budget_total(d);

	return total == UINT32_MAX ? total : (total + 1) / 2;
}

static uint32_t share(struct znsd *d)
{
	const struct lease *l;
	uint32_t contexts = 0;

	for (l = d->leases; l; l = l->next)
		contexts += memory_is(l);
	return zns_max(1u, most(d) / zns_max(1u, contexts));
}

static uint32_t room_left(struct znsd *d)
{
	uint32_t total = budget_total(d), used = budget_used(d), writing = 0;
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (memory_is(l))
			writing += lease_unfull(d, l);
	if (used >= total || writing >= most(d))
		return 0;
	return zns_min(total - used, most(d) - writing);
}

bool memory_room(struct znsd *d, const struct lease *l)
{
	uint32_t has = lease_unfull(d, l), left;

	if (most(d) == UINT32_MAX)
		return true;
	left = room_left(d);
	if (left)
		return has < share(d) || left > most(d) / 4;
	if (!has)
		wanted_ns = zns_mono_ns();
	return false;
}

/* Each time a context finds no zone, one other context gives back its zones. */
bool memory_gives_back(struct znsd *d, const struct lease *l)
{
	uint64_t now = zns_mono_ns();
	uint32_t has = lease_unfull(d, l);

	if (!wanted_ns || now - wanted_ns > WANTS_NS || !has ||
	    (has <= share(d) && now - memory_of(l)->wrote_ns < IDLE_NS))
		return false;
	wanted_ns = 0;
	return true;
}
