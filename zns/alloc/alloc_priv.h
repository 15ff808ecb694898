/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_ALLOC_PRIV_H
#define ZNS_ALLOC_PRIV_H
/* Sharing, inside: which dump writes where, what each has, and what each should have (spread.c,
 * gain.c). */
#include "zns/alloc.h"

struct party {
	double fair, rate; /* zones' worth; rate: with equal parts of each of its groups */
};

struct spread {
	const struct zns_group_state *groups;
	const struct zns_sharer *sharers;
	uint32_t nr_sharers;
	struct party *party;
	uint32_t *users; /* of each group */
};

bool spread_has_group(const struct zns_sharer *s, uint32_t group);
/*
 * Fill in what each dump has and should have. Returns the fair share of a newcomer that wants @want
 * (0: there is no newcomer), in zones' worth.
 */
double spread_take_stock(struct spread *s, uint32_t nr, const uint32_t *order, uint32_t found,
			 double want, double ceiling);
/* What part of its fair share the poorest of the group's users keeps if one more comes. 1e9: nobody
 * is there. */
double spread_poorest(const struct spread *s, uint32_t group);
void spread_join(struct spread *s, uint32_t group);

#endif
