/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A child's table is its parent's at the fork. Areas that the kernel did not copy (MADV_DONTFORK)
 * have nothing on zones in the child. They are not registered there, and what the child maps in
 * their place is its own: it must not be filled from the parent's units when it is registered.
 */
#include <errno.h>

#include "../engine/mem.h"

static int probe(struct proc *child, void *arg)
{
	const struct place *at = arg;

	return mem_uffd_protect(child->uffd, at->start, at->end, false);
}

static int prune_unit(struct proc *child, struct unit *u, uint64_t base, void *arg)
{
	struct place all = { base, base + UNIT };
	uint32_t mask = u->pages & 0xffff, gone = 0;

	if (STATE(u->word) != U_ZONE || fault_repeat(child, probe, &all) != -ENOENT)
		return 0;
	for (unsigned int i = 0; i < UNIT_PAGES; i++) {
		struct place at = { base + i * PAGE, base + (i + 1) * PAGE };

		if (mask & 1U << i && fault_repeat(child, probe, &at) == -ENOENT)
			gone |= 1U << i;
	}
	if (!gone)
		return 0;
	pthread_rwlock_wrlock(&child->ev);
	unit_forget(child, u, gone);
	pthread_rwlock_unlock(&child->ev);
	return 0;
}

/* Its first page alone: protection of a page in memory costs a message, no more. */
static int probe_first(struct proc *child, void *arg)
{
	const struct place *at = arg;

	return mem_uffd_protect(child->uffd, at->start, at->start + PAGE, true);
}

static bool nth_known(struct proc *child, size_t i, struct place *at)
{
	bool is;

	pthread_rwlock_rdlock(&child->ev);
	is = i < child->known.nr;
	if (is)
		*at = child->known.a[i];
	pthread_rwlock_unlock(&child->ev);
	return is;
}

/* Else memory that comes there would seem to come to where other memory is (order.c). */
static void prune_known(struct proc *child)
{
	struct place at;

	for (size_t i = 0; nth_known(child, i, &at);) {
		if (fault_repeat(child, probe_first, &at) != -ENOENT) {
			i++;
			continue;
		}
		pthread_rwlock_wrlock(&child->ev);
		known_gone(child, at.start, at.end);
		pthread_rwlock_unlock(&child->ev);
	}
}

void fork_prune(struct proc *child)
{
	if (mem_without(RULE_OWN_AREAS))
		return;
	table_each(child, prune_unit, NULL);
	prune_known(child);
}
