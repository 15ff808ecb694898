/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ALLOC_H
#define ZNS_ALLOC_H
/*
 * Chooses the groups that a dump gets (design.md §5, §10). Pure functions on a table of groups: no
 * device, no I/O, so that the rules can be tested alone. A group is a set of zones that share a
 * die.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

struct zns_group_state {
	uint32_t id;
	int32_t channel; /* -1: not known */
	/* number of containers that have reserved the group, without the one that asks */
	uint32_t nr_reservations;
	uint32_t nr_leases; /* number of leases of dumps and restores on the group */
	/* number of zones that could be granted now: empty ones, and parked zones of the one that
	 * asks */
	uint32_t free_zones;
	bool metadata; /* the group has a metadata zone, so it is chosen last */
	bool reserved_io; /* reserved for normal I/O: never given to a dump */
	/* a dump that was admitted without sharing writes there: never given to another dump */
	bool promised;
	/* the rate of the group relative to other groups; 0 counts as 1. A group below 1 is chosen
	 * after all others that are equally free */
	double worth;
};

static inline double zns_group_worth(const struct zns_group_state *g)
{
	return g->worth > 0 ? g->worth : 1;
}

/* The number of zones that a rate needs: ceil(qos / zone bandwidth), at least 1 (design.md §5). */
uint32_t zns_alloc_width(uint32_t qos_mibps, uint32_t zone_mibps);

/*
 * Selects @width groups. The criteria, in this order: fewest reservations, no lease, not slow, on a
 * channel without groups for normal I/O (whose reads a neighbour on the channel delays), on a
 * channel that was not selected yet, no metadata, on a channel with fewer reservations, lowest id.
 * Groups without a free zone are skipped.
 * @out gets indices into @groups. Returns how many were found (may be < width).
 */
uint32_t zns_alloc_pick(const struct zns_group_state *groups, uint32_t nr, uint32_t width,
			uint32_t *out);

/* A running dump whose groups other dumps may come to share. */
struct zns_sharer {
	const uint32_t *groups; /* indices into the table of groups; borrowed */
	uint32_t nr_groups;
	double want; /* the rate that it asked for, in units of a zone's rate */
	double weight; /* weight relative to other dumps; 0 counts as 1, the default */
	bool grows; /* the dump can gain groups; otherwise it only keeps those that it has */
	bool waits; /* the dump's bottleneck is its groups, not its tasks' memory or a processor */
};

/* Returns the level of max-min fair shares: each dump gets what it wants, but no more than this
 * level times its weight (@weights NULL: 1 each). A level above all of @wants means that the
 * capacity is enough for all. */
double zns_alloc_fair(const double *wants, const double *weights, uint32_t nr, double capacity);

/*
 * Sharing, for a new dump of weight @weight that wants the rate of @want zones
 * (Documentation/inside/sharing.md). @order has @found groups, best first, from zns_alloc_pick.
 * Moves the groups that the dump should take to the front of @order. Returns how many: at most
 * @most, and at least @least, unless more would only hurt others. The first @first of @order
 * already belong to the dump and stay at the front.
 *
 * Free groups come first. Others are taken where the writers keep their max-min fair shares, spread
 * over several dumps, until the new dump has its own share. @ceiling: the rate that all groups
 * together can give, in units of a zone's rate; 0: the sum of the groups. @sharers are the running
 * dumps; each writes all of its groups and gets the share of its weight in each.
 */
uint32_t zns_alloc_spread(const struct zns_group_state *groups, uint32_t nr,
			  const struct zns_sharer *sharers, uint32_t nr_sharers, double want,
			  double weight, uint32_t least, uint32_t most, uint32_t first,
			  double ceiling, uint32_t *order, uint32_t found);

/*
 * Sharing, for the running dump @sharers[@self]. It may have less than its max-min fair share since
 * others came, or it could have more since others ended. Moves the groups that it should write in
 * addition to the front of @order, which has the @found groups that it does not have (from
 * zns_alloc_pick). Returns how many, at most @most; 0: it has its share.
 *
 * Groups without writers come first. Any other group is gained only if none of its writers is then
 * poorer than @self. Groups where a restore reads are never gained. *limit: the highest rate that
 * the dump may have, in units of a zone's rate, because others have less than their share; 0: no
 * limit.
 */
uint32_t zns_alloc_gain(const struct zns_group_state *groups, uint32_t nr,
			const struct zns_sharer *sharers, uint32_t nr_sharers, uint32_t self,
			uint32_t most, double ceiling, uint32_t *order, uint32_t found,
			double *limit);

/*
 * A reader or writer, and what it costs each resource (a group): @cost[k] seconds of @res[k] for
 * each MiB. A reader must read its bytes where they are, so it is one item with the costs of all
 * its groups. A writer can choose, so it is one item for each of its groups.
 */
struct zns_weighed {
	const uint32_t *res;
	const double *cost;
	uint32_t nr;
	double weight; /* more than 0 */
	double most; /* MiB/s that it can use at most; 0: no limit */
	double rate; /* the result, MiB/s */
};

/*
 * Distributes the time of resources in proportion to weights. The part that an item gets of its
 * most expensive resource grows in proportion to its weight, until a resource is full or the item
 * has all it can use. What an item does not need goes to the others. So items that have the same
 * full resource as their most expensive one share its time by weight. @capacity: for each resource,
 * where 1 is all of its time. -ENOMEM. No state; may be called from any thread.
 */
int zns_alloc_weigh(struct zns_weighed *v, uint32_t nr, const double *capacity, uint32_t nr_res);

enum zns_apart {
	ZNS_APART_NONE, /* there is only one group */
	ZNS_APART_DIE,
	ZNS_APART_CHANNEL,
};

/*
 * Splits the groups of @order (@found of them, best first, from zns_alloc_pick): *meta is for
 * images without pages, and @out gets up to @width groups for images with pages. *meta is on a
 * channel of its own if that does not cost more sharing, else on a die of its own. *nr_out is 1 or
 * more.
 */
enum zns_apart zns_alloc_apart(const struct zns_group_state *groups, const uint32_t *order,
			       uint32_t found, uint32_t width, uint32_t *out, uint32_t *nr_out,
			       uint32_t *meta);

/*
 * Computes the number of units per turn for each selected group: in proportion to its fair share,
 * which is its worth / (1 + other reservations), as small whole numbers (1 to 16).
 */
void zns_alloc_weights(const struct zns_group_state *groups, const uint32_t *picked, uint32_t nr,
		       uint32_t *weights);

/* The largest rate that the device can promise: min(groups, open and active limits) * zone
 * bandwidth. */
uint32_t zns_alloc_max_qos(uint32_t nr_groups, uint32_t max_open, uint32_t max_active,
			   uint32_t zone_mibps);

#endif
