/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The evictor: keeps resident memory within the budget by evicting the oldest units. It notices the
 * use of a unit in two ways: by a fault that reads the unit back, or by a write that ends its
 * eviction or makes it give up its place. So a unit in use is evicted once, is copied back at once
 * from DRAM, and then stays longer. Now and then the evictor counts the ages of all units (heat.h)
 * to find the age above which units are evicted. It then walks over all areas and evicts those.
 */
#include <string.h>
#include <time.h>

#include "../engine/walk.h"
#include "family.h"
#include "hiber.h"

#define AGE_MIN_MS 100U
#define HEAT_NS 1000000000ULL /* ns between two counts of all ages */
/* ns between two counts if the last one did not find enough old units */
#define HEAT_MIN_NS 50000000ULL
/* ms between two turns while the budget is nearly used up, and messages arrive or memory changes */
#define TICK_MS 10
/* ms between two turns while messages arrive and the budget is not nearly used up */
#define TICK_BUSY_MS 40
/* ms until the next turn after a first one without messages; doubled at each further quiet turn */
#define TICK_IDLE_MS 200
#define TICK_MAX_MS 2000 /* most ms between two turns */
#define LOOK_MS 200 /* ms between two checks for new and ended processes */
#define PAUSE_MS 1000 /* ms until the next try when the store had no room */
/* ms until the next try when nothing could be evicted, and no messages arrive */
#define DRY_MS 5000
#define NEAR_PCT 80 /* percent of the budget that count as nearly used up */
#define AGE_PART 16U /* 1/16 of the resident memory counts as the oldest */

/* Walks once through a process, from where the last walk ended. */
static void shrink(struct proc *p, struct walk *w)
{
	struct places l = { 0 };
	uint64_t hand = p->hand;

	if (walk_places(p, &l)) {
		walk_areas(w, &l, hand, UINT64_MAX);
		if (!w->ends) {
			p->hand = 0;
			walk_areas(w, &l, 0, hand);
		}
	}
	p->m->locked += l.locked;
	p->m->shared += l.shared;
	p->m->file += l.file;
	p->m->special += l.special;
	mem_places_free(&l);
}

void look_at_ages(struct zns_mem *m, struct proc *const *list, unsigned int nr)
{
	m->heat = (struct heat){ 0 };
	for (unsigned int i = 0; i < nr; i++) {
		struct walk w = { .p = list[i], .heat = &m->heat };
		struct places l = { 0 };

		if (!list[i]->evicts || list[i]->gone)
			continue;
		if (!mem_places_read(list[i], &l))
			walk_areas(&w, &l, 0, UINT64_MAX);
		mem_places_free(&l);
	}
	m->heat_ns = zns_mono_ns();
}

static int unkeep(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	unit_unkeep(p, u, U_RES);
	return 0;
}

static void explain(struct zns_mem *m, struct walk *w)
{
	if (w->error == -ENOSPC) /* memory that is resident needs no room in the store */
		table_each(w->p, unkeep, NULL);
	if (w->error != -EAGAIN && w->error != -ESRCH)
		mem_warn(m, "eviction stands still: %s", w->err.msg);
	if (w->error != -ESRCH)
		m->pause_until_ns = zns_mono_ns() + PAUSE_MS * 1000000ULL;
}

/* Evicts from all processes, most from the one with most resident memory. Returns bytes. */
static uint64_t evict_some(struct zns_mem *m, struct proc *const *list, unsigned int nr,
			   uint64_t resident, uint64_t want)
{
	uint64_t got = 0, since = zns_mono_ns() - m->heat_ns;
	struct walk w;

	if (!m->heat_ns || since > (m->heat_short ? HEAT_MIN_NS : HEAT_NS)) {
		look_at_ages(m, list, nr);
		m->age_ms = zns_max(heat_cut(&m->heat, zns_max(want, resident / AGE_PART)),
				    AGE_MIN_MS);
	}
	m->locked = m->shared = m->file = m->special = 0;
	for (unsigned int i = 0; i < nr && hiber_goes_on(m, HIBER_AWAKE); i++) {
		struct proc *p = list[i];
		uint64_t part = resident ? (uint64_t)((double)want * (double)p->resident /
						      (double)resident) +
						   UNIT :
					   0;

		if (!p->evicts || p->gone || !p->resident)
			continue;
		w = (struct walk){ .p = p,
				   .want = part,
				   .wanted = HIBER_AWAKE,
				   .since_ms = now_ms() - m->age_ms };
		shrink(p, &w);
		got += w.got;
		if (w.error) {
			explain(m, &w);
			if (w.error != -ESRCH)
				return got;
		}
	}
	/* a walk that was stopped does not show that there is nothing to evict */
	if (!hiber_goes_on(m, HIBER_AWAKE))
		return got;
	m->heat_short = got < want;
	if (got >= want)
		mem_warn(m, "%s", "");
	else if (m->age_ms == AGE_MIN_MS && got < want / 8)
		mem_warn(m,
			 "the budget is below what cannot be evicted, or is in use all the time");
	return got;
}

/* One turn of the evictor. Returns the ms until the next one. */
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
	/* while all memory is in use, nothing is read ahead */
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
		/*
		 * a thread that sets no_evict or sealed waits until evict_idle is true, which it
		 * checks after setting them
		 */
		m->evict_idle = false;
		if (m->no_evict || m->sealed) {
			m->evict_idle = true;
		} else if (!hiber_turn(m, &ms)) {
			if (now - looked_ns > LOOK_MS * 1000000ULL) {
				family_look(m);
				looked_ns = now;
			}
			m->tick_ms = ms = step(m);
			/*
			 * set `slow` before reading `messages`: a thread that counts a message does
			 * it in the other order
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
