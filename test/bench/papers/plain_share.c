/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The control of the experiment `demand`: how groups are shared without the rules of
 * zns/alloc/{spread,gain}.c. A broker of the bench is linked with this file in their place; the
 * shipped broker has none of it (test/bench/bench.mk).
 *
 * PLAIN_CHOICE   a newcomer takes groups in the order of zns_alloc_pick, whoever writes them: as
 * many as its rate needs (1), or until equal parts of them sum to its rate (2). PLAIN_STAY     who
 * runs keeps the groups of its admission, and is never told to go slower.
 */
#include "zns/alloc.h"
#include "zns/util.h"

#ifdef PLAIN_CHOICE
static uint32_t writers(const struct zns_sharer *s, uint32_t nr, uint32_t group)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < s[i].nr_groups; k++)
			n += s[i].groups[k] == group;
	return n;
}

uint32_t zns_alloc_spread(const struct zns_group_state *groups, uint32_t nr,
			  const struct zns_sharer *sharers, uint32_t nr_sharers, double want,
			  double weight, uint32_t least, uint32_t most, uint32_t first,
			  double ceiling, uint32_t *order, uint32_t found)
{
	uint32_t n = zns_min(least, zns_min(most, found));
	double parts = 0;

	if (PLAIN_CHOICE == 1)
		return n;
	for (n = 0; n < zns_min(most, found) && (n < least || parts < 0.998 * want); n++)
		parts += 1.0 / (1 + writers(sharers, nr_sharers, order[n]));
	return n;
}
#endif

#ifdef PLAIN_STAY
uint32_t zns_alloc_gain(const struct zns_group_state *groups, uint32_t nr,
			const struct zns_sharer *sharers, uint32_t nr_sharers, uint32_t self,
			uint32_t most, double ceiling, uint32_t *order, uint32_t found,
			double *limit)
{
	*limit = 0;
	return 0;
}
#endif
