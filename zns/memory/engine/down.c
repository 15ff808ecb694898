/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The start of hibernation: evicts all that can be evicted. The units of the record are evicted
 * first and in its order, so that they lie side by side on the zones for the next wake. Memory that
 * is used meanwhile stays.
 */
#include <errno.h>
#include <string.h>

#include "../policy/hiber.h"
#include "walk.h"

#define TRIES 3

static const struct place *place_of(const struct places *l, uint64_t addr)
{
	for (size_t i = 0; i < l->nr; i++)
		if (addr + UNIT > l->a[i].start && addr < l->a[i].end)
			return &l->a[i];
	return NULL;
}

static void by_record(struct walk *w, const struct places *l)
{
	unsigned int slot, ours = (unsigned int)(w->p->sh - w->p->m->sh->proc);
	uint64_t base;

	w->area = NULL;
	for (uint32_t i = 0; !w->ends && record_at(w->p->m, i, &slot, &base); i++) {
		const struct place *a;

		if (slot != ours)
			continue;
		a = w->area && base >= w->area->start && base < w->area->end ? w->area :
									       place_of(l, base);
		if (!a)
			continue;
		if (a != w->area)
			walk_flush(w);
		w->area = a;
		walk_add(w, base);
	}
	walk_flush(w);
}

/* Evicts one process. Returns 0, or the -errno of the store. */
static int one(struct zns_mem *m, struct proc *p, uint32_t since_ms)
{
	struct walk w = { .p = p, .want = UINT64_MAX, .wanted = HIBER_REST, .since_ms = since_ms };
	struct places l = { 0 };

	if (walk_places(p, &l)) {
		by_record(&w, &l);
		walk_areas(&w, &l, 0, UINT64_MAX);
	}
	mem_places_free(&l);
	if (w.error == -ESRCH)
		return 0;
	if (w.error)
		mem_warn(m, "not all of it is on zones: %s", w.err.msg);
	return w.error;
}

/* Tries again at once if a process's threads did not stop in time, as happens on a busy machine. */
static int one_at_last(struct zns_mem *m, struct proc *p, uint32_t since_ms)
{
	int ret = 0;

	for (int i = 0; i < TRIES && !ret && hiber_goes_on(m, HIBER_REST); i++) {
		if (p->again_ns && !p->rest) { /* its stop was postponed: try it now */
			p->again_ns = 0;
			p->evicts = true;
		}
		if (p->evicts && !p->gone)
			ret = one(m, p, since_ms);
		if (p->evicts || p->gone)
			return ret;
	}
	if (*p->why)
		mem_warn(m, "process %d: %s; not all of it is on zones", p->pid, p->why);
	return ret;
}

enum down hiber_down(struct zns_mem *m)
{
	struct proc *list[PROCS_MAX];
	uint32_t since_ms = now_ms();
	unsigned int nr;
	int ret = 0;

	mem_warn(m, "%s", "");
	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		struct proc *p = list[i];

		if (!ret && !p->gone && hiber_goes_on(m, HIBER_REST))
			ret = one_at_last(m, p, since_ms);
		proc_put(p);
	}
	if (!hiber_goes_on(m, HIBER_REST))
		return DOWN_STOPPED;
	/* memory that cannot be written to zones stays in DRAM */
	return ret == -EAGAIN ? DOWN_LATER : DOWN_DONE;
}
