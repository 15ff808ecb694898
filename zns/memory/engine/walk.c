/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the units of a process that are in memory and were not used lately, and evicts them in
 * batches: see walk.h.
 */
#include <errno.h>

#include "../policy/hiber.h"
#include "walk.h"

bool walk_places(struct proc *p, struct places *l)
{
	const char *pinned;

	if (mem_places_read(p, l))
		return false;
	guards_leave(p, l);
	pinned = mem_places_pinned(p, l);
	proc_why(p, "%s", pinned ? pinned : "");
	return !pinned;
}

void walk_flush(struct walk *w)
{
	unsigned int out = 0;
	int ret;

	if (!w->nr)
		return;
	ret = evict(w->p, w->v, w->nr, w->area, &out, &w->err);
	if (ret)
		w->error = ret;
	w->nr = 0;
	w->got += out * UNIT;
	w->ends |= ret || w->got >= w->want || !hiber_goes_on(w->p->m, w->wanted);
}

void walk_add(struct walk *w, uint64_t base)
{
	struct unit *u = unit_at(w->p, base);
	/*
	 * read the stamp before the clock, so that it is never later; the clock wraps, so only the
	 * difference is used
	 */
	uint32_t stamp = u->stamp, now = now_ms();

	w->p->hand = base + UNIT;
	if ((STATE(u->word) != U_RES && STATE(u->word) != U_CLEAN) ||
	    (stamp && now - stamp < now - w->since_ms) || dropping_never(w->p, base))
		return;
	w->v[w->nr++] = (struct victim){ .u = u,
					 .base = base,
					 .start = zns_max(base, w->area->start),
					 .end = zns_min(base + UNIT, w->area->end) };
	if (w->nr == BATCH || w->got + w->nr * UNIT >= w->want)
		walk_flush(w);
}

static void add_heat(const struct walk *w, uint64_t base)
{
	uint32_t stamp = unit_at(w->p, base)->stamp;

	w->heat->bytes[stamp ? heat_bucket(now_ms() - stamp) : HEAT_BUCKETS - 1] += UNIT;
}

/* Called for each run of present pages. */
static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct walk *w = arg;

	for (uint64_t base = start / UNIT * UNIT; base < end && !w->ends; base += UNIT) {
		if (base == w->last)
			continue;
		w->last = base;
		if (w->heat)
			add_heat(w, base);
		else
			walk_add(w, base);
	}
	return w->ends;
}

void walk_areas(struct walk *w, const struct places *l, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < l->nr && !w->ends; i++) {
		uint64_t start = zns_max(from, l->a[i].start), end = zns_min(to, l->a[i].end);
		int ret;

		if (start >= end)
			continue;
		w->area = &l->a[i];
		w->last = UINT64_MAX;
		ret = present_scan(w->p, start, end, found, w);
		walk_flush(w);
		w->ends |= !w->heat && !hiber_goes_on(w->p->m, w->wanted);
		if (ret < 0) {
			w->error = -ESRCH;
			w->ends = true;
		}
	}
}
