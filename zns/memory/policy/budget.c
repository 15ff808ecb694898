/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The evictor: keeps resident memory under the budget by evicting the oldest units. A use of a unit
 * is noticed in two ways: a fault brings the unit back, or a write ends its eviction or its kept
 * place. So a unit in use goes out once, comes back at once from a copy in DRAM, and then stays
 * longer. A look at all ages now and then (heat.h) finds the age above which units go; a hand that
 * walks over all areas evicts those.
 */
#include <string.h>
#include <time.h>

#include "family.h"
#include "hiber.h"

#define AGE_MIN_MS 100U
#define HEAT_NS 1000000000ULL /* between two looks at all ages */
#define HEAT_MIN_NS 50000000ULL /* if the first did not give enough */
#define TICK_MS 10 /* while something happens and the budget is near */
#define TICK_BUSY_MS 40 /* while there are faults, and it is not */
#define TICK_IDLE_MS 200 /* while something else happens */
#define TICK_MAX_MS 2000 /* while nothing does */
#define LOOK_MS 200 /* between two looks at the family */
#define PAUSE_MS 1000 /* after the store had no room */
#define DRY_MS 5000 /* after a look that found nothing to evict, while nothing happens */
#define NEAR_PCT 80 /* of the budget */
#define AGE_PART 16U /* of what is resident, 1 / AGE_PART is taken for the oldest */

struct round {
	struct proc *p;
	const struct place *area;
	struct victim v[BATCH];
	unsigned int nr;
	uint64_t want, got; /* bytes */
	uint64_t last; /* unit that was looked at last */
	int error;
	struct zns_err err;
	struct heat *heat; /* only look */
};

static bool is_old(const struct unit *u, uint32_t age_ms)
{
	return !u->stamp || now_ms() - u->stamp >= age_ms;
}

static void flush(struct round *r)
{
	unsigned int out = 0;
	int ret;

	if (!r->nr)
		return;
	ret = evict(r->p, r->v, r->nr, r->area, &out, &r->err);
	r->got += out * UNIT;
	r->nr = 0;
	if (ret)
		r->error = ret;
}

static void add_heat(struct round *r, const struct unit *u)
{
	uint32_t stamp = u->stamp;

	r->heat->bytes[stamp ? heat_bucket(now_ms() - stamp) : HEAT_BUCKETS - 1] += UNIT;
}

/* Pages that are there. Their unit is a victim, unless it was used lately. */
static int found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	struct round *r = arg;
	struct zns_mem *m = r->p->m;

	for (uint64_t base = start / UNIT * UNIT; base < end; base += UNIT) {
		struct unit *u = unit_at(r->p, base);

		if (base == r->last)
			continue;
		r->last = base;
		if (r->heat) {
			add_heat(r, u);
			continue;
		}
		r->p->hand = base + UNIT;
		if ((STATE(u->word) != U_RES && STATE(u->word) != U_CLEAN) ||
		    !is_old(u, m->age_ms) || dropping_never(r->p, base))
			continue;
		r->v[r->nr++] = (struct victim){ .u = u,
						 .base = base,
						 .start = zns_max(base, r->area->start),
						 .end = zns_min(base + UNIT, r->area->end) };
		if (r->nr == BATCH || r->got + r->nr * UNIT >= r->want)
			flush(r);
		if (r->error || r->got >= r->want || m->end || m->no_evict || m->sealed)
			return 1;
	}
	return 0;
}

/* One turn of the hand through a process, from where it stood. */
static void sweep(struct round *r, const struct places *l, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < l->nr && !r->error && r->got < r->want; i++) {
		uint64_t start = zns_max(from, l->a[i].start), end = zns_min(to, l->a[i].end);
		int ret;

		if (start >= end)
			continue;
		r->area = &l->a[i];
		r->last = UINT64_MAX;
		ret = present_scan(r->p, start, end, found, r);
		if (ret < 0)
			r->error = ret;
		flush(r);
	}
}

static void shrink(struct proc *p, uint64_t want, uint64_t *got, struct round *r)
{
	struct places l = { 0 };
	uint64_t hand = p->hand;
	const char *pinned = NULL;

	*r = (struct round){ .p = p, .want = want };
	if (!mem_places_read(p, &l)) {
		guards_leave(p, &l);
		p->m->locked += l.locked;
		p->m->shared += l.shared;
		p->m->file += l.file;
		p->m->special += l.special;
		pinned = mem_places_pinned(p, &l);
		proc_why(p, "%s", pinned ? pinned : "");
		if (!pinned) {
			sweep(r, &l, hand, UINT64_MAX);
			if (!r->error && r->got < r->want) {
				p->hand = 0;
				sweep(r, &l, 0, hand);
			}
		}
	}
	mem_places_free(&l);
	*got += r->got;
}

void look_at_ages(struct zns_mem *m, struct proc *const *list, unsigned int nr)
{
	m->heat = (struct heat){ 0 };
	for (unsigned int i = 0; i < nr; i++) {
		struct round r = { .p = list[i], .want = 1, .heat = &m->heat };
		struct places l = { 0 };

		if (!list[i]->evicts || list[i]->gone)
			continue;
		if (!mem_places_read(list[i], &l))
			sweep(&r, &l, 0, UINT64_MAX);
		mem_places_free(&l);
	}
	m->heat_ns = zns_mono_ns();
}

static int unkeep(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	unit_unkeep(p, u, U_RES);
	return 0;
}

static void explain(struct zns_mem *m, struct round *r)
{
	if (r->error == -ENOSPC) /* what is in memory needs no place */
		table_each(r->p, unkeep, NULL);
	if (r->error != -EAGAIN && r->error != -ESRCH)
		mem_warn(m, "eviction stands still: %s", r->err.msg);
	if (r->error != -ESRCH)
		m->pause_until_ns = zns_mono_ns() + PAUSE_MS * 1000000ULL;
}

/* Where most is resident, most is taken. Returns bytes. */
static uint64_t evict_some(struct zns_mem *m, struct proc *const *list, unsigned int nr,
			   uint64_t resident, uint64_t want)
{
	uint64_t got = 0, since = zns_mono_ns() - m->heat_ns;
	struct round r;

	if (!m->heat_ns || since > (m->heat_short ? HEAT_MIN_NS : HEAT_NS)) {
		look_at_ages(m, list, nr);
		m->age_ms = zns_max(heat_cut(&m->heat, zns_max(want, resident / AGE_PART)),
				    AGE_MIN_MS);
	}
	m->locked = m->shared = m->file = m->special = 0;
	for (unsigned int i = 0; i < nr && !m->end && !m->no_evict && !m->sealed; i++) {
		struct proc *p = list[i];
		uint64_t part = resident ? (uint64_t)((double)want * (double)p->resident /
						      (double)resident) +
						   UNIT :
					   0;

		if (!p->evicts || p->gone || !p->resident)
			continue;
		shrink(p, part, &got, &r);
		if (r.error) {
			explain(m, &r);
			if (r.error != -ESRCH)
				return got;
		}
	}
	m->heat_short = got < want;
	if (got >= want)
		mem_warn(m, "%s", "");
	else if (m->age_ms == AGE_MIN_MS && got < want / 8)
		mem_warn(m,
			 "the budget is below what cannot be evicted, or is in use all the time");
	return got;
}

/* How many ms there are until the next one. */
static long step(struct zns_mem *m)
{
	uint64_t dram = m->sh->dram - zns_min(spare_bytes(m), m->sh->dram / 2);
	uint64_t margin = zns_max(dram / 32, MIB(1)), resident = 0;
	uint64_t low = dram > 2 * margin ? dram - 2 * margin : 0, now = zns_mono_ns();
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	bool near, still, messages;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		list[i]->resident = proc_resident(list[i]);
		resident += list[i]->resident;
	}
	near = resident > dram / 100 * NEAR_PCT;
	still = resident == m->resident;
	m->resident = resident;
	/* while everything is in use, nothing is fetched */
	m->room = resident + margin <= dram || m->age_ms > AGE_MIN_MS ?
			  (int64_t)dram - (int64_t)resident :
			  0;
	if (!still || m->messages || dram != m->dry_dram)
		m->dry_until_ns = 0;
	m->dry_dram = dram;
	if (resident + margin > dram && now >= m->pause_until_ns && now >= m->dry_until_ns) {
		if (evict_some(m, list, nr, resident, resident - zns_min(low, resident)))
			still = false;
		else if (m->tick_ms == TICK_MAX_MS)
			m->dry_until_ns = now + DRY_MS * 1000000ULL;
	}
	for (unsigned int i = 0; i < nr; i++) {
		guards_bring(list[i]);
		proc_put(list[i]);
	}
	messages = atomic_exchange(&m->messages, false);
	if (!still || messages)
		return near ? TICK_MS : messages ? TICK_BUSY_MS : TICK_IDLE_MS;
	return zns_max(zns_min(m->tick_ms * 2, (long)TICK_MAX_MS), (long)TICK_IDLE_MS);
}

void *evictor_run(void *arg)
{
	struct zns_mem *m = arg;
	uint64_t looked_ns = 0;

	m->tick_ms = TICK_IDLE_MS;
	while (!m->end) {
		uint64_t now = zns_mono_ns();
		long ms = TICK_IDLE_MS;

		share_turn(m);
		/* who sets no_evict or sealed waits until this is true, and looks after it has set
		 * it */
		m->evict_idle = false;
		if (m->no_evict || m->sealed) {
			m->evict_idle = true;
		} else if (!hiber_turn(m, &ms)) {
			if (now - looked_ns > LOOK_MS * 1000000ULL) {
				family_look(m);
				looked_ns = now;
			}
			m->tick_ms = ms = step(m);
			/* a message is a sign of life; who sees one looks at `slow` after it says
			 * so
			 */
			m->slow = ms > TICK_BUSY_MS;
			if (clean_some(m) || (m->slow && m->messages))
				ms = TICK_MS;
		}
		hiber_wait(m, ms);
	}
	m->evict_idle = true;
	return NULL;
}
