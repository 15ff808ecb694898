/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is being dropped. The kernel looks for the memory at an address when it is told to drop it.
 * If the program unmapped it a moment before, and mapped new memory in its place, the new pages
 * would go, and what was written to them. A program whose threads all stand still unmaps nothing,
 * so pages are dropped only then.
 */

#include <errno.h>

#include "mem.h"

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
	if (!ret)
		known_add(p, area);
	pthread_rwlock_unlock(&p->ev);
	return ret;
}

bool dropping_never(const struct proc *p, uint64_t base)
{
	return p->own.start < base + UNIT && p->own.end > base;
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
}

void dropping_end(struct proc *p)
{
	p->telling = false;
}

/*
 * Nobody else removes anything while ours are told of. The kernel tells of each area, and the range
 * may have been split before the stop.
 */
void dropping_note(struct proc *p, uint64_t start, uint64_t end)
{
	struct drops *d = p->drops;

	for (unsigned int i = 0; i < d->nr && p->telling; i++)
		if (start == d->told[i] && end <= d->range[i].end)
			d->told[i] = end;
}

/*
 * A page that the kernel told of once was removed by us, or by the program, while our own removal
 * had not come to it. Of ours we know how far they were.
 */
uint32_t dropping_left(const struct proc *p, const struct unit *u, uint64_t base)
{
	const struct drops *d = p->drops;
	uint32_t pages = u->pages, told = 0;

	for (unsigned int i = 0; i < d->nr; i++)
		told |= pages_of(base, d->range[i].start, d->told[i]);
	return pages & 0xffff & (told | pages >> 16);
}
