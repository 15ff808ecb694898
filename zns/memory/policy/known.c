/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which areas of a process are registered with its userfaultfd: those from which units were
 * evicted, updated by the kernel's events since then. For a process with too many areas the list is
 * marked as unknown.
 */
#include <string.h>

#include "../engine/mem.h"
#include "zns/grow.h"

#define KNOWN_MAX 4096U

static void add(struct places *l, struct place a)
{
	if (a.start < a.end && l->nr < KNOWN_MAX && !zns_grow(l->a, l->nr, l->max))
		l->a[l->nr++] = a;
}

void known_add(struct proc *p, struct place area)
{
	struct places *l = &p->known;
	size_t i;

	for (i = 0; i < l->nr; i++) {
		struct place old = l->a[i];

		if (old.start >= area.end || old.end <= area.start)
			continue;
		l->a[i] = area; /* if the area has grown over others, these stay in the list */
		return;
	}
	add(l, area);
}

bool known_exactly(const struct proc *p, struct place area)
{
	const struct places *l = &p->known;

	for (size_t i = 0; i < l->nr; i++)
		if (l->a[i].start == area.start && l->a[i].end == area.end)
			return true;
	return false;
}

bool known_within(const struct proc *p, uint64_t start, uint64_t end)
{
	const struct places *l = &p->known;

	for (size_t i = 0; i < l->nr; i++)
		if (l->a[i].start < end && l->a[i].end > start)
			return true;
	return false;
}

void known_gone(struct proc *p, uint64_t start, uint64_t end)
{
	struct places *l = &p->known;

	for (size_t i = 0; i < l->nr; i++) {
		struct place *a = &l->a[i], behind = { end, a->end };

		if (a->start >= end || a->end <= start)
			continue;
		a->end = start;
		if (a->end <= a->start)
			*a = (struct place){ 0 };
		add(l, behind); /* add() may reallocate the list, so @a is not used after it */
	}
	for (size_t i = 0; i < l->nr;)
		if (!l->a[i].end)
			l->a[i] = l->a[--l->nr];
		else
			i++;
}

void known_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len)
{
	known_gone(p, from, from + len);
	known_gone(p, to, to + len);
	add(&p->known, (struct place){ to, to + len });
}

void known_inherit(struct proc *child, const struct proc *p)
{
	for (size_t i = 0; i < p->known.nr; i++)
		add(&child->known, p->known.a[i]);
}
