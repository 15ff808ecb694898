/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is being dropped, and by whom. A ring's thread looks for the memory at an address some time
 * after it was told. If the program unmaps it in that time, and maps new memory in its place, the
 * new pages go, and what was written to them (test_mem_late shows it in a second, where that thread
 * is starved). A process that stands still unmaps nothing. So one whose areas come and go drops its
 * pages in stops of all its threads, which take longer. We hear only of what is registered: an area
 * that is new to us, or smaller than it was, may have been here and gone many times.
 */
#include <string.h>

#include "mem.h"
#include "zns/grow.h"

#define WARY_NS 60000000000ULL
#define KNOWN_MAX 4096U /* areas; who has more is never known well */

void dropping_from(struct proc *p, struct place area)
{
	struct places *l = &p->known;
	size_t i;

	for (i = 0; i < l->nr; i++) {
		if (l->a[i].start >= area.end || l->a[i].end <= area.start)
			continue;
		if (l->a[i].start < area.start || l->a[i].end > area.end)
			p->changed_ns = zns_mono_ns();
		l->a[i] = area; /* it may have grown; others that it took in stay in the list */
		return;
	}
	p->changed_ns = zns_mono_ns();
	if (l->nr < KNOWN_MAX && !zns_grow(l->a, l->nr, l->max))
		l->a[l->nr++] = area;
}

bool dropping_warily(const struct proc *p)
{
	uint64_t at = p->changed_ns;

	return at && zns_mono_ns() - at < WARY_NS;
}

bool dropping_in_stops(const struct proc *p)
{
	return p->by_stops || (dropping_warily(p) && !mem_without(RULE_UNMAPPED));
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
