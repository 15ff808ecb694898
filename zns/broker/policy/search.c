/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds the next zone for a dump or a compaction: a partly filled zone that its data may continue,
 * else an empty one. The requested group is searched before others. */
#include <string.h>
#include "policy.h"

/* added to the reservations of a slow group so that it ranks behind all others */
#define SLOW (1u << 24)
#define BAD_DIE 2 /* if this many zones of one dump fail in a group, the whole die may be bad */

/* Does the lease write a zone of this group now? Two lanes on one die would get half the rate
 * each. */
bool dump_writes_in(const struct znsd *d, const struct lease *l, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[l->zones[i].zone];

		if (z->group == group && z->z.state != ZNS_ZONE_FULL && !l->zones[i].done &&
		    !l->zones[i].bad)
			return true;
	}
	return false;
}

uint32_t dump_failed_in(const struct znsd *d, const struct lease *l, uint32_t group)
{
	uint32_t i, n = 0;

	for (i = 0; i < l->nr_zones; i++)
		n += l->zones[i].bad && d->zones[l->zones[i].zone].group == group;
	return n;
}

static bool listed(const struct wish *w, uint32_t zone)
{
	size_t i;

	for (i = 0; i < w->nr_not; i++)
		if (w->not_zones[i] == zone)
			return true;
	return false;
}

bool zone_excluded(const struct znsd *d, const struct wish *w, uint32_t zone)
{
	const struct lease_zone *lz = lease_zone_find(w->l, zone);

	return (w->below && zone >= w->below) || (lz && (lz->bad || lz->done)) ||
	       (d->zones[zone].suspect && !w->suspects) || listed(w, zone);
}

/* May the lease continue this zone: is it the container's own parked zone, or a pack zone? */
static bool may_continue(const struct znsd *d, const struct lease *l, uint32_t zone)
{
	uint32_t least = lease_admitted(l) ? l->dump.min_room : 0;

	return l->packed ? zone_parked_pack(d, zone, least) :
			   zone_parked_for(d, zone, l->container, least);
}

/*
 * Finds a partly filled zone. A dump gets the one with the most room. A compaction gets the fullest
 * one, so that the others keep their room for dumps.
 */
static uint32_t find_parked(const struct znsd *d, const struct wish *w, const struct zn_group *g)
{
	uint64_t best_room = w->need ? UINT64_MAX : 0;
	uint32_t best = ZNSD_NONE, i;

	if (on_disk(d) && !w->l->packed && !w->need)
		return best;
	/* a yielding lease writes each of its zones only once, and shares none */
	if (w->l->kind == LEASE_YIELDING)
		return best;
	for (i = 0; i < g->nr_zones; i++) {
		const struct zns_zone *z = &d->zones[g->zones[i]].z;
		uint64_t room = z->capacity - zns_min(z->wp, z->capacity);

		if (room < w->need || !may_continue(d, w->l, g->zones[i]) ||
		    zone_excluded(d, w, g->zones[i]))
			continue;
		if (w->need ? room < best_room : room > best_room) {
			best_room = room;
			best = g->zones[i];
		}
	}
	return best;
}

static uint32_t find_empty(const struct znsd *d, const struct wish *w, struct zn_group *g)
{
	uint32_t i, k;

	for (i = 0; i < g->nr_zones; i++) {
		k = (g->next + i) % g->nr_zones;
		if (zone_empty(d, g->zones[k]) && d->zones[g->zones[k]].z.capacity >= w->need &&
		    !zone_excluded(d, w, g->zones[k])) {
			g->next = (k + 1) % g->nr_zones;
			return g->zones[k];
		}
	}
	return ZNSD_NONE;
}

static uint32_t reset_garbage(struct znsd *d, const struct zn_group *g)
{
	uint32_t batch[ZNSD_RESET_BATCH], n = 0, i;

	for (i = 0; i < g->nr_zones && n < ZNSD_RESET_BATCH; i++)
		if (zone_garbage(d, g->zones[i]))
			batch[n++] = g->zones[i];
	return zones_reset(d, batch, n, NULL);
}

/* How many bytes the dump will write to zones that it does not have yet; 0: none. */
static uint64_t rest_of(const struct znsd *d, const struct lease *l)
{
	uint64_t room = 0, all = lease_admitted(l) ? l->dump.expected : 0;

	for (uint32_t i = 0; i < l->nr_zones; i++)
		room += l->zones[i].end - l->zones[i].start;
	return all > room ? all - room : 0;
}

/* Finds room for a small dump on a disk: the place of a removed checkpoint if it has room for all
 * that is left of the dump; else an empty zone; in a full store any place. */
static uint32_t find_on_disk(struct znsd *d, const struct wish *w, struct zn_group *g)
{
	uint64_t run = zns_max(w->run, (uint64_t)d->dev->geo.block_size),
		 rest = zns_max(rest_of(d, w->l), run);
	uint32_t zone = ZNSD_NONE;
	struct space s;
	bool found = w->space && space_find(d, w, run, rest, &s);

	if (!found || s.end - s.start < rest)
		zone = find_empty(d, w, g);
	if (zone == ZNSD_NONE && (!found || s.end - s.start < rest) && reset_garbage(d, g))
		zone = find_empty(d, w, g);
	if (zone != ZNSD_NONE || !found)
		return zone;
	*w->space = s;
	return s.zone;
}

/* Are there more empty zones than the running dumps need? They need room for the bytes that they
 * announced, and one zone for each stream that they write. */
static bool empty_to_spare(const struct znsd *d)
{
	const uint64_t each = zns_max(d->dev->geo.zone_capacity, UINT64_C(1));
	const struct lease *l;
	uint64_t n = 0, keep = 0;
	uint32_t i;

	for (i = 0; i < d->nr_zones; i++)
		n += zone_empty(d, i) && !d->groups[d->zones[i].group].io;
	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l))
			keep += zns_max((uint64_t)l->dump.width, (rest_of(d, l) + each - 1) / each);
	return n > keep;
}

uint32_t zone_search_in(struct znsd *d, const struct wish *w, uint32_t group)
{
	struct zn_group *g = &d->groups[group];
	uint32_t zone = ZNSD_NONE;

	if (!g->nr_zones || g->io)
		return ZNSD_NONE;
	if (on_disk(d) && w->l->packed && !w->need)
		return find_on_disk(d, w, g);
	/* This small dump was admitted without a pack zone, because none had room for it, so it
	 * gets an empty zone. */
	if (!w->need && w->l->packed && !w->l->nr_zones)
		zone = find_empty(d, w, g);
	if (zone == ZNSD_NONE)
		zone = find_parked(d, w, g);
	if (zone == ZNSD_NONE && (!w->spares || empty_to_spare(d)))
		zone = find_empty(d, w, g);
	if (zone == ZNSD_NONE && !w->need && reset_garbage(d, g) &&
	    (!w->spares || empty_to_spare(d)))
		zone = find_empty(d, w, g);
	return zone;
}

/*
 * May this group be used instead of the requested one, in the first or the second round? A dump
 * prefers groups that it does not write yet. A compaction prefers the container's own groups, then
 * groups where no lease is working.
 */
static bool suits(const struct znsd *d, const struct wish *w, const struct zns_group_state *g,
		  int second)
{
	if (!w->need)
		return dump_writes_in(d, w->l, g->id) == second;
	return second ? !g->nr_reservations && !g->nr_leases :
			reserved_by(zns_store_find_reservation(d->store, w->l->container), g->id);
}

/* Searches other groups in the order of their reservations, but none that is promised to another
 * dump. */
static uint32_t search_elsewhere(struct znsd *d, const struct wish *w, uint32_t group)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	cleanup_free uint32_t *order = znsd_alloc(d->nr_groups * sizeof(*order));
	uint32_t zone = ZNSD_NONE, n, i;

	groups_state(d, w->l->container, w->l, gs);
	/* a small dump may continue zones of other containers */
	for (i = 0; w->l->packed && i < d->nr_zones; i++)
		gs[d->zones[i].group].free_zones += may_continue(d, w->l, i);
	/* a slow group cannot keep a promise, so it comes last */
	for (i = 0; lease_promised(w->l) && i < d->nr_groups; i++)
		gs[i].nr_reservations += group_slow(d, i) ? SLOW : 0;
	n = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, order);
	for (int second = 0; second < 2; second++)
		for (i = 0; i < n && zone == ZNSD_NONE; i++)
			if (order[i] != group && suits(d, w, &gs[order[i]], second))
				zone = zone_search_in(d, w, order[i]);
	return zone;
}

static uint32_t search(struct znsd *d, const struct wish *w, uint32_t group)
{
	bool sick = dump_failed_in(d, w->l, group) >= BAD_DIE;
	uint32_t zone = sick ? ZNSD_NONE : zone_search_in(d, w, group);

	if (zone == ZNSD_NONE)
		zone = search_elsewhere(d, w, group);
	return zone == ZNSD_NONE && sick ? zone_search_in(d, w, group) : zone;
}

uint32_t zone_search(struct znsd *d, struct wish *w, uint32_t group)
{
	uint32_t zone = search(d, w, group);

	if (zone == ZNSD_NONE && readers_check(d))
		zone = search(d, w, group);
	w->suspects = true;
	return zone == ZNSD_NONE ? search(d, w, group) : zone;
}
