/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hibernation's way down: evicts everything that can go. First come the record's units in the
 * record's order, so that a wake finds them side by side on the zones; then the rest. Memory that
 * is used meanwhile stays.
 */
#include <errno.h>
#include <string.h>

#include "../policy/hiber.h"

#define TRIES 3

struct walk {
	struct proc *p;
	const struct place *area; /* of the victims in v */
	struct victim v[BATCH];
	unsigned int nr;
	uint32_t since_ms; /* what was used after that stays */
	uint64_t last; /* unit that was looked at last */
	int error;
	bool stop;
	struct zns_err err;
};

static void flush(struct walk *w)
{
	unsigned int out = 0;
	int ret = w->nr ? evict(w->p, w->v, w->nr, w->area, &out, &w->err) : 0;

	w->nr = 0;
	if (ret)
		w->error = ret;
	w->stop = ret || !hiber_goes_on(w->p->m, HIBER_REST);
}

static bool is_young(const struct unit *u, uint32_t since_ms)
{
	return u->stamp && (int32_t)(u->stamp - since_ms) > 0;
}

static void add(struct walk *w, uint64_t base)
{
	struct unit *u = unit_at(w->p, base);

	if ((STATE(u->word) != U_RES && STATE(u->word) != U_CLEAN) || is_young(u, w->since_ms))
		return;
	w->v[w->nr++] = (struct victim){ .u = u,
					 .base = base,
					 .start = zns_max(base, w->area->start),
					 .end = zns_min(base + UNIT, w->area->end) };
	if (w->nr == BATCH)
		flush(w);
}

static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct walk *w = arg;

	for (uint64_t base = start / UNIT * UNIT; base < end && !w->stop; base += UNIT) {
		if (base == w->last)
			continue;
		w->last = base;
		add(w, base);
	}
	return w->stop;
}

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
	for (uint32_t i = 0; !w->stop && record_at(w->p->m, i, &slot, &base); i++) {
		const struct place *a;

		if (slot != ours)
			continue;
		a = w->area && base >= w->area->start && base < w->area->end ? w->area :
									       place_of(l, base);
		if (!a)
			continue;
		if (a != w->area)
			flush(w);
		w->area = a;
		add(w, base);
	}
	flush(w);
}

static void by_address(struct walk *w, const struct places *l)
{
	for (size_t i = 0; i < l->nr && !w->stop; i++) {
		w->area = &l->a[i];
		w->last = UINT64_MAX;
		if (present_scan(w->p, w->area->start, w->area->end, found, w) < 0) {
			w->error = -ESRCH;
			w->stop = true;
		}
		flush(w);
	}
}

/* 0, or -errno: the store's. */
static int one(struct zns_mem *m, struct proc *p, uint32_t since_ms)
{
	struct walk w = { .p = p, .since_ms = since_ms, .last = UINT64_MAX };
	struct places l = { 0 };
	const char *pinned;

	if (!mem_places_read(p, &l)) {
		guards_leave(p, &l);
		pinned = mem_places_pinned(p, &l);
		proc_why(p, "%s", pinned ? pinned : "");
		if (!pinned) {
			by_record(&w, &l);
			by_address(&w, &l);
		}
	}
	mem_places_free(&l);
	if (w.error == -ESRCH)
		return 0;
	if (w.error)
		mem_warn(m, "not all of it is on zones: %s", w.err.msg);
	return w.error;
}

/* Whose threads do not stop in time, on a busy machine, is asked again at once. */
static int one_at_last(struct zns_mem *m, struct proc *p, uint32_t since_ms)
{
	int ret = 0;

	for (int i = 0; i < TRIES && !ret && hiber_goes_on(m, HIBER_REST); i++) {
		if (p->again_ns && !p->rest) { /* it was put off */
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
	return ret == -EAGAIN ? DOWN_LATER : DOWN_DONE; /* what cannot be written stays */
}
