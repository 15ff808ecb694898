/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The states of hibernation. They are in memory that a successor gets, so it continues where the
 * last pager was killed: each step may be done twice.
 */
#include "family.h"
#include "hiber.h"

#define LATER_MS 100 /* ms until the next try after the store was busy */
#define REST_MS 2000 /* ms between two checks while the context is hibernated */
#define AGAIN_UNITS 64U /* evict again when this many units have come back */

static void enter(struct zns_mem *m, enum hiber_state state)
{
	m->sh->hiber.since_ns = zns_now_ns();
	m->sh->hiber.state = state;
}

static void begin_rest(struct zns_mem *m)
{
	m->hiber.rest_ms = m->hiber.window_ms = now_ms();
	m->hiber.touched = 0;
	m->hiber.read_units = m->sh->read_units;
	enter(m, HIBER_REST);
}

static void go_down(struct zns_mem *m, long *ms)
{
	m->sh->hiber.again = 0;
	family_look(m); /* processes whose stop was postponed may be tried again */
	switch (hiber_down(m)) {
	case DOWN_DONE:
		begin_rest(m);
		*ms = 0;
		break;
	case DOWN_LATER:
		*ms = LATER_MS;
		break;
	case DOWN_STOPPED:
		*ms = m->sh->hiber.wanted == HIBER_REST ? LATER_MS : 0;
	}
}

static uint64_t resident(struct zns_mem *m)
{
	struct proc *list[PROCS_MAX];
	uint64_t sum = 0;
	unsigned int nr;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		list[i]->resident = proc_resident(list[i]);
		sum += list[i]->resident;
		proc_put(list[i]);
	}
	return sum;
}

static bool is_idle(const struct zns_mem *m)
{
	uint64_t ms = m->sh->hiber.idle_ms;

	return ms && activity_idle_ms(m) >= ms;
}

static void rest(struct zns_mem *m, long *ms)
{
	family_look(m);
	/*
	 * new memory, which was never on zones, raises no fault, so nothing else notices that the
	 * context has grown
	 */
	if (resident(m) > m->sh->dram)
		m->sh->hiber.wanted = HIBER_AWAKE;
	else if (m->sh->hiber.again ||
		 (is_idle(m) && m->sh->read_units - m->hiber.read_units >= AGAIN_UNITS))
		enter(m, HIBER_DOWN);
	*ms = m->sh->hiber.state == HIBER_REST ? REST_MS : 0;
}

static void go_up(struct zns_mem *m)
{
	m->sh->hiber.again = 0;
	hiber_replay(m);
	active_began(m);
	m->sh->hiber.wakes++;
	activity_seen(m);
	enter(m, HIBER_AWAKE);
}

bool hiber_turn(struct zns_mem *m, long *ms)
{
	struct shared_hiber *h = &m->sh->hiber;

	if (h->state == HIBER_AWAKE) {
		activity_look(m);
		if (is_idle(m))
			h->wanted = HIBER_REST;
		if (h->wanted == HIBER_AWAKE)
			return false;
		active_ended(m);
		enter(m, HIBER_DOWN);
	}
	if (h->state != HIBER_UP && h->wanted == HIBER_AWAKE)
		enter(m, HIBER_UP);
	if (h->state == HIBER_UP) {
		go_up(m);
		*ms = 0;
	} else if (h->state == HIBER_DOWN) {
		go_down(m, ms);
	} else {
		rest(m, ms);
	}
	return true;
}
