/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ALLOC_PRIV_H
#define ZNS_ALLOC_PRIV_H
/* Internals of sharing: which groups each dump writes, its rate and its fair share (spread.c,
 * gain.c). */
#include "zns/alloc.h"

struct party {
	/* fair: the dump's fair share, in units of a zone's rate; rate: the sum of what it gets
	 * from its groups now, by weight */
	double fair, rate;
};

struct spread {
	const struct zns_group_state *groups;
	const struct zns_sharer *sharers;
	uint32_t nr_sharers;
	struct party *party;
	uint32_t *users; /* number of dumps that write each group */
	double *heavy; /* for each group, the sum of the weights of these dumps */
};

static inline double spread_weight(const struct zns_sharer *s)
{
	return s->weight > 0 ? s->weight : 1;
}

bool spread_has_group(const struct zns_sharer *s, uint32_t group);
/*
 * Computes the rate and the fair share of each dump. Returns the fair share, in units of a zone's
 * rate, of a new dump of weight @weight that wants @want (0: there is no new dump).
 */
double spread_take_stock(struct spread *s, uint32_t nr, const uint32_t *order, uint32_t found,
			 double want, double weight, double ceiling);
/* If another dump of @weight joins the group: the lowest rate that one of its present dumps then
 * has, relative to its fair share. 1e9: no dump writes the group. */
double spread_poorest(const struct spread *s, uint32_t group, double weight);
void spread_join(struct spread *s, uint32_t group, double weight);

#endif
