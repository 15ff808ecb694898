/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Registers areas with the userfaultfd before their units are dropped. */
#include <errno.h>

#include "mem.h"

/*
 * Is @area still one area with these bounds? If it has moved and that event was read, the call
 * would register the area that is at these addresses now, but known.c would keep the wrong bounds.
 * order.c would then take memory that is moved there later for an inconsistency.
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

/*
 * Is the process changing its memory at this moment? Then the event of this change would be applied
 * to the area that is being noted, and would remove it from the list.
 */
static bool is_vague(const struct proc *p, struct place area)
{
	return (!mem_without(RULE_THERE) || known_within(p, area.start, area.end)) &&
	       mem_uffd_changes(p->uffd);
}

/*
 * The lock keeps the reader from reading events between the check of the area and its entry in
 * known.c. So if the area moves after the check, its event is read after the entry. Only for a move
 * right after the registration, the event may be reported later than that of a second move to its
 * old addresses; order.c handles this.
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
