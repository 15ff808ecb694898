/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is being dropped, and by whom. A ring's thread looks for the memory at an address some time
 * after it was told. If the program unmaps it in that time, and maps new memory in its place, the
 * new pages go, and what was written to them (test_mem_late shows it in a second, where that thread
 * is starved). A process that stands still unmaps nothing. So one whose areas come and go drops its
 * pages in stops of all its threads, which take longer. We hear only of what is registered: an area
 * that is new to us, or smaller than it was, may have been here and gone many times.
 */

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

bool dropping_alone(const struct proc *p)
{
	return dropping_warily(p) && !mem_without(RULE_ALONE);
}

bool dropping_never(const struct proc *p, uint64_t base)
{
	return p->own.start < base + UNIT && p->own.end > base && dropping_in_stops(p);
}

void dropping_are(struct proc *p, const struct range *range, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		p->dropping[i] = range[i];
	p->nr_dropping = nr;
	p->ring_end = 0;
}

void dropping_by_ring(struct proc *p)
{
	p->ring_end = ring_end(&p->ring, p->nr_dropping);
}

/*
 * A removal that is told of in parts is known by its end (dropping_again()). Programs give memory
 * back up to such ends, too: up to the end of an area, or of a chunk. So the last page goes alone,
 * and what is before it ends where hardly any program's removal does.
 */
unsigned int dropping_parts(struct range *range, unsigned int nr)
{
	unsigned int n = nr;

	if (mem_without(RULE_DROPPED))
		return nr;
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t end = range[i].end;

		if (end - range[i].start == PAGE)
			continue;
		range[i].end -= PAGE;
		range[n++] = (struct range){ end - PAGE, end };
	}
	return n;
}

/*
 * What the ring has done before an event is read, that event is not of. The evictor may be late to
 * see it, and a program gives the end of its heap back at any time.
 */
void dropping_look(struct proc *p)
{
	if (p->nr_dropping && p->ring_end && ring_has_done(&p->ring, p->ring_end) &&
	    !mem_without(RULE_DROPPED))
		p->nr_dropping = 0;
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
