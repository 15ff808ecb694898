/* SPDX-License-Identifier: GPL-2.0-only */
/* Lists the running dumps in the form that zns/alloc needs, for a dump that would share with
 * them. */
#include "policy.h"

/* a dump that reported that it waits for its zones counts as waiting for this long */
#define WAITS_NS 200000000ull

struct zns_sharer *sharers_of(const struct znsd *d, const struct lease *self, uint32_t *nr,
			      uint32_t *at)
{
	uint64_t now = zns_mono_ns();
	struct zns_sharer *s;
	const struct lease *l;

	*nr = 0;
	for (l = d->leases; l; l = l->next)
		*nr += lease_admitted(l);
	s = znsd_alloc((*nr + 1) * sizeof(*s));
	*nr = 0;
	for (l = d->leases; l; l = l->next) {
		double want;

		if (!lease_admitted(l) || l->dump.promised)
			continue;
		if (l == self)
			*at = *nr;
		want = (double)l->dump.qos_mibps / d->zone_mibps;
		/* Never more than the dump can use: a small dump, or one with a limit, does not
		 * count as short of bandwidth. */
		want = zns_min(want, (double)zns_max(l->nr_groups, l->dump.most));
		if (l->dump.max_groups)
			want = zns_min(want, (double)l->dump.max_groups);
		s[(*nr)++] = (struct zns_sharer){ .groups = l->groups,
						  .nr_groups = l->nr_groups,
						  .weight = weight_of(l),
						  .grows = l->dump.grows,
						  .waits = l->dump.waits_ns &&
							   now - l->dump.waits_ns < WAITS_NS,
						  .want = zns_max(1.0, want) };
	}
	return s;
}
