/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registers areas with the userfaultfd before units of them are dropped. */
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
