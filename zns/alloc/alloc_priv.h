/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ALLOC_PRIV_H
#define ZNS_ALLOC_PRIV_H
/* Internals of sharing: where each dump writes, its rate, its fair share (spread.c, gain.c). */
#include "zns/alloc.h"

struct party {
	/* fair: its fair share, in units of a zone's rate; rate: what it gets now, by weight, from
	 * each of its groups */
	double fair, rate;
};

struct spread {
	const struct zns_group_state *groups;
	const struct zns_sharer *sharers;
	uint32_t nr_sharers;
	struct party *party;
	uint32_t *users; /* number of dumps on each group */
	double *heavy; /* the sum of their weights */
};

static inline double spread_weight(const struct zns_sharer *s)
{
	return s->weight > 0 ? s->weight : 1;
}

bool spread_has_group(const struct zns_sharer *s, uint32_t group);
/*
 * Fills in the rate and the fair share of each dump. Returns the fair share of a newcomer of weight
 * @weight that wants @want (0: there is no newcomer), in zones' worth.
 */
double spread_take_stock(struct spread *s, uint32_t nr, const uint32_t *order, uint32_t found,
			 double want, double weight, double ceiling);
/* The part of its fair share that the group's poorest user keeps if one more of @weight comes. 1e9:
 * the group has no user. */
double spread_poorest(const struct spread *s, uint32_t group, double weight);
void spread_join(struct spread *s, uint32_t group, double weight);

#endif
