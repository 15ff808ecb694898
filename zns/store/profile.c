/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Computes rates from a profile. One slow die must not lower the rate that is promised on all
 * others. */
#include <stdlib.h>
#include "zns/store.h"
#include "zns/util.h"

static bool known(const ZnsPb__Profile *p, size_t group)
{
	return !p->has_unknown_group || p->unknown_group != group;
}

uint32_t zns_profile_group_mibps(const ZnsPb__Profile *p, uint32_t group)
{
	if (!known(p, group))
		return 0;
	if (group < p->n_group_write_mibps && p->group_write_mibps[group])
		return p->group_write_mibps[group];
	return p->zone_write_mibps;
}

static int highest_first(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x < y) - (x > y);
}

uint32_t zns_profile_promise(const ZnsPb__Profile *p, uint32_t *groups)
{
	cleanup_free uint32_t *rate = calloc(p->n_groups + 1, sizeof(*rate));
	uint32_t best = p->zone_write_mibps, n = 0;

	for (size_t i = 0; i < p->n_groups; i++) {
		if (rate && known(p, i))
			rate[n] = zns_profile_group_mibps(p, (uint32_t)i);
		n += known(p, i);
	}
	*groups = n;
	if (!rate || !p->n_group_write_mibps)
		return best;
	qsort(rate, n, sizeof(*rate), highest_first);
	/* start with the rate that more than half of the groups reach, so that a single group that
	 * was measured too fast does not decide */
	for (uint32_t i = n / 2, first = i; i < n; i++)
		if (i == first || (uint64_t)rate[i] * (i + 1) >= (uint64_t)best * *groups) {
			best = rate[i];
			*groups = i + 1;
		}
	return best;
}
