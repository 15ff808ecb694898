/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ALLOC_H
#define ZNS_ALLOC_H
/*
 * Which groups a dump gets (design.md §5, §10). Pure functions on a table of groups: no device,
 * no I/O, so that the rules are tested alone. A group is a set of zones that share a die.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/err.h"

struct zns_group_state {
	uint32_t id;
	int32_t channel; /* -1 unknown */
	uint32_t nr_reservations; /* containers holding it, the asking one not counted */
	uint32_t nr_leases; /* live dumps and restores on it */
	/* zones that could be given now: empty ones, the asker's parked ones */
	uint32_t free_zones;
	bool metadata; /* holds a metadata zone: given out last */
	bool reserved_io; /* reserved for normal I/O: never given to a dump */
	/* a dump runs there that was admitted without sharing: never given to another */
	bool promised;
	/* the group's rate relative to the other groups'; 0 counts as 1. A group below 1 is chosen
	 * after all others that are equally free */
	double worth;
};

static inline double zns_group_worth(const struct zns_group_state *g)
{
	return g->worth > 0 ? g->worth : 1;
}

/* How many zones a rate needs: ceil(qos / zone bandwidth), at least 1 (design.md §5). */
uint32_t zns_alloc_width(uint32_t qos_mibps, uint32_t zone_mibps);

/*
 * Pick @width groups: fewest reservations, then no live lease, then not slow, then distinct
 * channels, then not metadata, then channels with fewer reservations, then lowest id; groups without a free zone are
 * passed over. Before distinct channels come those without groups of normal I/O: its reads feel a
 * neighbour on the channel.
 * @out gets indices into @groups. Returns how many were found (may be < width).
 */
uint32_t zns_alloc_pick(const struct zns_group_state *groups, uint32_t nr, uint32_t width,
			uint32_t *out);

/* A running dump, on groups that other dumps may come to share. */
struct zns_sharer {
	const uint32_t *groups; /* indices; borrowed */
	uint32_t nr_groups;
	double want; /* the rate that it asked for, in units of a zone's rate */
	double weight; /* relative to the others'; 0 counts as 1, the default */
	bool grows; /* it can gain groups; otherwise it keeps the groups that it has */
	bool waits; /* its bottleneck is its groups, not its tasks' memory or a processor */
};

/* The level of max-min fair shares: each dump gets what it wants, but no more than this level times
 * its weight (@weights NULL: 1 each). A level above all of @wants means that there is enough for
 * all. */
double zns_alloc_fair(const double *wants, const double *weights, uint32_t nr, double capacity);

/*
 * Sharing, for a dump of weight @weight that wants @want zones' worth (Documentation/inside/sharing.md).
 * Puts the groups that it should take to the front of @order (@found of them, best first, from
 * zns_alloc_pick). Returns how many: at most @most, and at least @least, unless more would only
 * hurt others. The first @first of @order are its own already and stay there.
 *
 * Free groups come first. Others are taken where the writers keep their max-min fair shares, one
 * here and one there, until the newcomer has its own. @ceiling: all groups together give no more
 * than so many zones' worth; 0: they do. @sharers are the dumps that run; each writes all of its
 * groups and gets its weight's part of each.
 */
uint32_t zns_alloc_spread(const struct zns_group_state *groups, uint32_t nr,
			  const struct zns_sharer *sharers, uint32_t nr_sharers, double want,
			  double weight, uint32_t least, uint32_t most, uint32_t first,
			  double ceiling, uint32_t *order, uint32_t found);

/*
 * Sharing, for the dump @sharers[@self] that runs. It may have less than its max-min fair share
 * since others came, or it could have more since others ended. Puts the groups that it should write
 * in addition to the front of @order (@found that it does not have, from zns_alloc_pick). Returns
 * how many, at most @most; 0: it has its share.
 *
 * Groups that nobody writes come first. Another one is gained only if none of its writers is poorer
 * then than @self. No group is gained where a restore reads. *@limit: it must go no faster than so
 * many zones' worth, since others have less than their share; 0: no limit.
 */
uint32_t zns_alloc_gain(const struct zns_group_state *groups, uint32_t nr,
			const struct zns_sharer *sharers, uint32_t nr_sharers, uint32_t self,
			uint32_t most, double ceiling, uint32_t *order, uint32_t found,
			double *limit);

/*
 * A reader or writer, and what it costs each resource (a group): @cost[k] seconds of @res[k] for
 * each MiB. A reader cannot choose where its bytes are, so it is one item with the costs of all
 * its groups. A writer can, so it is one item for each of its groups.
 */
struct zns_weighed {
	const uint32_t *res;
	const double *cost;
	uint32_t nr;
	double weight; /* more than 0 */
	double most; /* MiB/s that it can use; 0: no limit */
	double rate; /* the result, MiB/s */
};

/*
 * Distribute time in proportion to weights: each item's part of its most expensive resource grows
 * in proportion to its weight, until a resource is full or the item has all it can use. What an
 * item leaves goes to the others. So items whose most expensive resource is the same full one
 * share its time by weight. @capacity: of each resource, 1 is all of its time. -ENOMEM. No state;
 * any thread.
 */
int zns_alloc_weigh(struct zns_weighed *v, uint32_t nr, const double *capacity, uint32_t nr_res);

enum zns_apart {
	ZNS_APART_NONE, /* there is only one group */
	ZNS_APART_DIE,
	ZNS_APART_CHANNEL,
};

/*
 * Split the groups of @order (@found of them, best first, from zns_alloc_pick): *meta gets metadata
 * images, @out gets up to @width groups for page images. *meta is on a channel of its own if that
 * costs no further sharing, else on a die of its own. *nr_out is 1 or more.
 */
enum zns_apart zns_alloc_apart(const struct zns_group_state *groups, const uint32_t *order,
			       uint32_t found, uint32_t width, uint32_t *out, uint32_t *nr_out,
			       uint32_t *meta);

/*
 * Units per turn for each picked group: in proportion to its fair share, its worth / (1 + other
 * reservations), as small whole numbers (1 … 16).
 */
void zns_alloc_weights(const struct zns_group_state *groups, const uint32_t *picked, uint32_t nr,
		       uint32_t *weights);

/* Largest rate the device can promise: min(groups, open and active budget) * zone bandwidth. */
uint32_t zns_alloc_max_qos(uint32_t nr_groups, uint32_t max_open, uint32_t max_active,
			   uint32_t zone_mibps);

#endif
