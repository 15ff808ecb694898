/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Removes units from a child's table that the child does not have. The table begins as a copy of
 * its parent's table at the fork. Areas that the kernel did not copy (MADV_DONTFORK) have nothing
 * on zones in the child. What the child maps in their place is new memory, and must not be filled
 * from the parent's units.
 */
#include <errno.h>
#include <time.h>

#include "../engine/mem.h"

static int probe(struct proc *child, void *arg)
{
	const struct place *at = arg;

	return mem_uffd_has(child->uffd, at->start, at->end);
}

/*
 * Calls @once with the lock held, so that no memory is moved to these addresses before the result
 * is stored.
 */
static int repeat_locked(struct proc *child, int (*once)(struct proc *child, void *arg), void *arg)
{
	int ret;

	for (;;) {
		pthread_rwlock_wrlock(&child->ev);
		ret = child->gone ? -ESRCH : once(child, arg);
		pthread_rwlock_unlock(&child->ev);
		if (ret != -EAGAIN)
			return ret;
		/* wait until the reader has read the event that causes -EAGAIN */
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
	}
}

struct unit_there {
	struct unit *u;
	uint64_t base;
};

static int prune_pages(struct proc *child, void *arg)
{
	const struct unit_there *t = arg;
	struct unit *u = t->u;
	uint32_t gone = 0;

	/* the slot of a stray may have been reused */
	if (STATE(u->word) != U_ZONE || (u->addr && u->addr != t->base))
		return 0;
	for (unsigned int i = 0; i < UNIT_PAGES; i++) {
		struct place at = { t->base + i * PAGE, t->base + (i + 1) * PAGE };
		int ret = u->pages & 1U << i ? probe(child, &at) : 0;

		if (ret == -EAGAIN)
			return ret;
		gone |= ret == -ENOENT ? 1U << i : 0;
	}
	if (gone)
		unit_forget(child, u, gone);
	return 0;
}

static int prune_unit(struct proc *child, struct unit *u, uint64_t base, void *arg)
{
	struct place all = { base, base + UNIT };
	struct unit_there t = { u, base };

	if (STATE(u->word) == U_ZONE && fault_repeat(child, probe, &all) == -ENOENT)
		repeat_locked(child, prune_pages, &t);
	return 0;
}

/*
 * Gets the first part of a registered area at or above @from. False: there is none. Call with the
 * lock held.
 */
static bool next_known(const struct proc *child, uint64_t from, struct place *at)
{
	*at = (struct place){ UINT64_MAX, 0 };
	for (size_t i = 0; i < child->known.nr; i++) {
		const struct place *k = &child->known.a[i];

		if (k->end > from && zns_max(k->start, from) < at->start)
			*at = (struct place){ zns_max(k->start, from), k->end };
	}
	return at->end != 0;
}

/*
 * Shortens *@at to end where an area or a hole ends: each of these is registered as a whole or not
 * at all.
 */
static void cut(const struct areas *all, size_t *i, struct place *at)
{
	while (*i < all->nr && all->a[*i].end <= at->start)
		++*i;
	if (*i == all->nr)
		return;
	at->end = zns_min(at->end,
			  all->a[*i].start > at->start ? all->a[*i].start : all->a[*i].end);
}

struct known_at {
	const struct areas *all;
	size_t i;
	uint64_t from;
};

/* Checks the next part of the registered areas by one of its pages. 1: there are no more. */
static int prune_part(struct proc *child, void *arg)
{
	struct known_at *k = arg;
	struct place at;
	int ret;

	if (!next_known(child, k->from, &at))
		return 1;
	cut(k->all, &k->i, &at);
	ret = mem_uffd_has(child->uffd, at.start, at.start + PAGE);
	if (ret == -EAGAIN)
		return ret;
	if (ret == -ENOENT)
		known_gone(child, at.start, at.end);
	k->from = at.end;
	return 0;
}

/* Otherwise order.c would take memory that is moved there later for an inconsistency. */
static void prune_known(struct proc *child, const struct areas *all)
{
	struct known_at k = { .all = all };

	while (!repeat_locked(child, prune_part, &k))
		;
}

void fork_prune(struct proc *child, const struct proc *as)
{
	struct areas all = { 0 };

	if (mem_without(RULE_OWN_AREAS))
		return;
	table_each(child, prune_unit, NULL);
	if (!areas_read(as->maps, &all, NULL))
		prune_known(child, &all);
	areas_free(&all);
}
