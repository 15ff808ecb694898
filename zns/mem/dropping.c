/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is being dropped, and by whom. A ring's thread looks for the memory at an address some time
 * after it was told. If the program unmaps it in that time, and maps new memory in its place, the
 * new pages go, and what was written to them (test_mem_late shows it in a second, where that thread
 * is starved). A process that stands still unmaps nothing. So one whose areas come and go drops its
 * pages in stops of all its threads, which take longer. We hear only of what is registered: an area
 * that is new to us, or smaller than it was, may have been here and gone many times.
 */

#include <errno.h>

#include "mem.h"

#define WARY_NS 60000000000ULL

/*
 * It may have moved since it was looked at, and have been heard of: then the call would register
 * what lies within by now, once more. As an area it would stay among those that are known, and
 * memory that comes there later would seem to come to where other memory is.
 */
static bool is_there(const struct proc *p, struct place area)
{
	struct areas all = { 0 };
	struct place now;
	bool same = known_exactly(p, area) || mem_without(RULE_THERE) ||
		    (!place_read(p, area.start, &all, &now) && now.start == area.start &&
		     now.end == area.end);

	areas_free(&all);
	return same;
}

/* Its event would take what is noted now for what left, and forget it. */
static bool is_vague(const struct proc *p, struct place area)
{
	return (!mem_without(RULE_THERE) || known_within(p, area.start, area.end)) &&
	       mem_uffd_changes(p->uffd);
}

/*
 * No event is read between the look at it and its note, so who moves away after that look has not
 * been heard of, and will be. Who moves away right behind the registration may be heard of after
 * whoever comes to that place.
 */
int dropping_from(struct proc *p, struct place area)
{
	int ret;

	pthread_rwlock_wrlock(&p->ev);
	ret = !is_there(p, area) ? -ESTALE : is_vague(p, area) ? -EAGAIN : 0;
	if (!ret)
		ret = mem_uffd_register(p->uffd, area.start, area.end);
	if (!ret && !known_add(p, area))
		p->changed_ns = zns_mono_ns();
	pthread_rwlock_unlock(&p->ev);
	return ret;
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

/* A kill finds none of them, or all. */
void dropping_are(struct proc *p, const struct range *range, unsigned int nr)
{
	struct drops *d = p->drops;

	d->nr = 0;
	for (unsigned int i = 0; i < nr; i++) {
		d->range[i] = range[i];
		d->told[i] = range[i].start;
	}
	d->nr = nr;
	p->telling = nr;
	p->ring_end = 0;
}

void dropping_end(struct proc *p)
{
	p->telling = false;
}

void dropping_by_ring(struct proc *p)
{
	p->ring_end = ring_end(&p->ring, p->drops->nr);
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
	if (p->telling && p->ring_end && ring_has_done(&p->ring, p->ring_end) &&
	    !mem_without(RULE_DROPPED))
		dropping_end(p);
}

/* Does the area at @addr end at @end, or before? @unknown: where the kernel does not say. */
static bool is_split(const struct proc *p, uint64_t addr, uint64_t end, bool unknown)
{
	struct place a = { .end = UINT64_MAX }; /* stays so on older kernels */

	if (place_now(p, addr, &a) || a.end == UINT64_MAX)
		return unknown;
	return a.end <= end;
}

/*
 * Ours are known by their end, and end before it where the area was split. A program's removal
 * hardly ends there (dropping_parts()).
 */
void dropping_note(struct proc *p, uint64_t start, uint64_t end)
{
	struct drops *d = p->drops;

	for (unsigned int i = 0; i < d->nr && p->telling; i++) {
		const struct range *r = &d->range[i];

		if (start < r->start || end > r->end)
			continue;
		if (end == r->end || (start == d->told[i] && is_split(p, start, end, true)))
			d->told[i] = end;
	}
}

/*
 * A page that the kernel told of once was removed by us, or by the program, while our own removal
 * had not come to it. Of ours we know how far they were.
 */
uint32_t dropping_left(const struct proc *p, const struct unit *u, uint64_t base)
{
	const struct drops *d = p->drops;
	uint32_t pages = u->pages, told = 0;

	if (mem_without(RULE_TOLD)) /* of all of a unit, or of nothing */
		return pages & 0xffff & (pages >> 16 ? pages >> 16 : 0xffff);
	for (unsigned int i = 0; i < d->nr; i++)
		told |= pages_of(base, d->range[i].start, d->told[i]);
	return pages & 0xffff & (told | pages >> 16);
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
	for (unsigned int i = 0; i < p->drops->nr && p->telling; i++) {
		const struct range *r = &p->drops->range[i];

		if (start <= r->start || end > r->end || mem_without(RULE_SPLIT))
			continue;
		/* the split may be gone again */
		return end == r->end || is_split(p, r->start, start, false);
	}
	return false;
}
