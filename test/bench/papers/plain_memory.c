/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The control of the experiment `paging`: a broker whose memory contexts give way to nobody, and
 * whose groups dumps take as if they were idle. It is the bench's alone, linked with --wrap
 * (test/bench/bench.mk).
 */
#include "../../../zns/broker/policy/policy.h"

bool __real_group_at_work(const struct znsd *d, uint32_t group, enum lease_kind for_whom);
bool __wrap_group_at_work(const struct znsd *d, uint32_t group, enum lease_kind for_whom);
void __real_groups_state(const struct znsd *d, const char *container, const struct lease *self,
			 struct zns_group_state *gs);
void __wrap_groups_state(const struct znsd *d, const char *container, const struct lease *self,
			 struct zns_group_state *gs);

bool __wrap_group_at_work(const struct znsd *d, uint32_t group, enum lease_kind for_whom)
{
	return for_whom != LEASE_YIELDING && __real_group_at_work(d, group, for_whom);
}

void __wrap_groups_state(const struct znsd *d, const char *container, const struct lease *self,
			 struct zns_group_state *gs)
{
	__real_groups_state(d, container, self, gs);
	for (const struct lease *l = d->leases; l; l = l->next)
		for (uint32_t k = 0; l != self && l->kind == LEASE_YIELDING && k < l->nr_groups;
		     k++) {
			gs[l->groups[k]].nr_leases--;
			gs[l->groups[k]].nr_reservations--;
		}
}
