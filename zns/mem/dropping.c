/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is being dropped, and by whom. A ring's thread looks for the memory at an address some time
 * after it was told. If the program unmaps it in that time, and maps new memory in its place, the
 * new pages go, and what was written to them (`splitting` in test_mem shows it in a second, where
 * that thread is starved). A thread that stands still unmaps nothing. So a process that has
 * unmapped anything of ours lately drops its pages in stops, which take longer. Other threads of it
 * can still come between, in the few microseconds of a stop.
 */
#include <string.h>

#include "mem.h"

#define WARY_NS 60000000000ULL

bool dropping_in_stops(const struct proc *p)
{
	uint64_t at = p->unmapped_ns;

	return p->by_stops ||
	       (at && zns_mono_ns() - at < WARY_NS && !mem_without(RULE_UNMAPPED));
}

void dropping_are(struct proc *p, const struct range *range, unsigned int nr)
{
	memcpy(p->dropping, range, nr * sizeof(*range));
	p->nr_dropping = nr;
}

/*
 * The kernel lets go of the memory's lock while it tells of a removal. If the area was split
 * meanwhile, it removes up to the split, goes on behind it, and tells of the rest once more (from
 * 6.17 on; before, the rest stays). That is not the program's removal, and its pages are on their
 * places. Splits are rare, and looked for only where a removal of ours is told of a second time.
 */
bool dropping_again(struct proc *p, uint64_t start, uint64_t end)
{
	const struct unit *u = unit_at(p, start);

	if (STATE(u->word) != U_DROP || u->pages >> 16 & pages_of(start / UNIT * UNIT, start, end))
		return false;
	for (unsigned int i = 0; i < p->nr_dropping; i++) {
		const struct range *r = &p->dropping[i];
		struct place first = { .end = UINT64_MAX }; /* stays so on older kernels */

		if (start <= r->start || end > r->end || mem_without(RULE_SPLIT))
			continue;
		/* the split may be gone again */
		return end == r->end || (!place_now(p, r->start, &first) && first.end <= start);
	}
	return false;
}
