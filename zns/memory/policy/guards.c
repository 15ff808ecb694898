/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps areas with guard pages in memory. Guard pages are installed and removed without an event
 * (MADV_GUARD_INSTALL, Linux 6.13). Missing markers reveal guard pages that were installed and
 * removed (unit_set_marked()). But up to Linux 6.18 UFFDIO_COPY overwrites a guard page that the
 * program installs after the pager has read the page table. A program that has guard pages in an
 * area is likely to install more there. So such an area is not evicted, and its units on zones are
 * read back: a few in each turn of the evictor, after all faults, and beyond the budget if
 * necessary. The evictor calls all functions of this file, except guards_fetch().
 */
#include "hiber.h"
#include "zns/grow.h"

#define LOOK_NS 1000000000ULL
#define COMING_MAX 16U /* most units of a process in the queue at once */
#define LOOKED_AT 65536U /* units of a process that are checked in one turn */

static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return 1;
}

/* Does the area have guard pages? Kernels before 6.15 do not report them. */
static bool has_guard(const struct proc *p, const struct place *a)
{
	static const struct scan_query q = { .mask = IS_GUARD, .returned = IS_GUARD };

	return scan_range(p->pagemap, &q, a->start, a->end, found, NULL) == 1;
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
	}
	p->guards_at = 0;
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

/* Queues units of the area that are on zones. False: enough for this turn. */
static bool bring_back(struct proc *p, const struct place *a, unsigned int *looks)
{
	uint64_t at = table_next(p, zns_max(a->start / UNIT * UNIT, p->guards_at), a->end);

	for (; at < a->end && *looks && p->guards_coming < COMING_MAX;
	     at = table_step(p, at, a->end)) {
		--*looks;
		if (STATE(unit_at(p, at)->word) != U_ZONE)
			continue;
		p->guards_coming++;
		fault_push(&p->m->queue, p, at, FETCH_GUARDED);
	}
	p->guards_at = at;
	return at >= a->end;
}

void guards_bring(struct proc *p)
{
	unsigned int looks = LOOKED_AT;

	for (size_t i = 0; i < p->guarded.nr && bring_back(p, &p->guarded.a[i], &looks); i++)
		;
}

void guards_fetch(struct proc *p, uint64_t base, uint8_t *buf)
{
	struct unit *u = unit_at(p, base);

	p->guards_coming--;
	if (STATE(u->word) == U_ZONE && !p->m->end && hiber_goes_on(p->m, HIBER_AWAKE) &&
	    !unit_load(p, u, base, buf, true, NULL))
		p->m->sh->read_units++;
}
