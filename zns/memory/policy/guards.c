/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Guard pages come and go without an event (MADV_GUARD_INSTALL, Linux 6.13): where they did while a
 * unit was on its zone, the program would read what it had before in place of zeroes. Who has some
 * in an area is likely to do so there again, so such an area stays in memory, and what is out of it
 * comes back. By the evictor.
 */
#include "../engine/mem.h"
#include "zns/grow.h"

#define LOOK_NS 1000000000ULL

static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return 1;
}

/* Kernels before 6.15 do not tell. */
static bool has_guard(const struct proc *p, const struct place *a)
{
	static const struct scan_query q = { .mask = IS_GUARD, .returned = IS_GUARD };

	return scan_range(p->pagemap, &q, a->start, a->end, found, NULL) == 1;
}

static void bring_back(struct proc *p, const struct place *a)
{
	for (uint64_t base = a->start / UNIT * UNIT; base < a->end; base += UNIT) {
		const struct unit *u = unit_at(p, base);

		if (STATE(u->word) == U_ZONE)
			fault_push(&p->m->queue, p, base, FAULT_LOAD);
	}
}

static bool is_guarded(const struct proc *p, const struct place *a)
{
	for (size_t i = 0; i < p->guarded.nr; i++)
		if (p->guarded.a[i].start < a->end && a->start < p->guarded.a[i].end)
			return true;
	return false;
}

static void look(struct proc *p, const struct places *l)
{
	p->guarded.nr = 0;
	for (size_t i = 0; i < l->nr; i++) {
		const struct place *a = &l->a[i];

		if (!has_guard(p, a) || zns_grow(p->guarded.a, p->guarded.nr, p->guarded.max))
			continue;
		p->guarded.a[p->guarded.nr++] = *a;
		bring_back(p, a);
	}
	p->guards_ns = zns_mono_ns();
}

void guards_leave(struct proc *p, struct places *l)
{
	size_t nr = 0;

	if (zns_mono_ns() - p->guards_ns >= LOOK_NS)
		look(p, l);
	for (size_t i = 0; i < l->nr; i++)
		if (is_guarded(p, &l->a[i]))
			l->special += l->a[i].end - l->a[i].start;
		else
			l->a[nr++] = l->a[i];
	l->nr = nr;
}
