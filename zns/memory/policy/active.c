/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads units ahead when an idle context becomes active. The memory of such a context was evicted
 * without a hibernation. The units that its last activations touched (record.c) are read ahead
 * then: after all faults, and while the budget has room. Without room, reading continues at a later
 * fault. A successor does not know whether an activation was in progress, and takes its first
 * faults for the start of one.
 */
#include "hiber.h"

#define IDLE_NS 1000000000ULL /* ns; an activation ends after this long without a fault */
/* this many faults in a row begin an activation: more than a timer of the program causes */
#define BEGIN_UNITS 8U
#define SOME 16U /* units read between two checks for waiting faults */
#define READERS 2U

void active_touch(struct zns_mem *m)
{
	struct hiber *h = &m->hiber;
	uint64_t now = zns_mono_ns();

	/* another thread may have stored a later time, so the difference may be negative */
	if (now <= atomic_exchange(&h->touch_ns, now) + IDLE_NS)
		return;
	h->burst = 0;
	if (atomic_exchange(&h->active, false)) {
		h->until = 0;
		record_turn(m);
	}
}

static bool may_read(struct zns_mem *m)
{
	return m->hiber.next < m->hiber.until && m->room >= (int64_t)UNIT &&
	       hiber_goes_on(m, HIBER_AWAKE);
}

void active_touched(struct proc *p)
{
	struct zns_mem *m = p->m;
	struct hiber *h = &m->hiber;
	uint32_t none = 0;

	if (m->sh->no_predict)
		return;
	if (!h->active && ++h->burst >= BEGIN_UNITS && !atomic_exchange(&h->active, true)) {
		h->next = 0;
		h->until = record_nr(m);
		h->activations++;
	}
	if (!may_read(m) || !atomic_compare_exchange_strong(&h->reading, &none, READERS))
		return;
	for (unsigned int i = 0; i < READERS; i++)
		fault_push(&m->queue, p, 0, FETCH_RECORD);
}

void active_fetch(struct proc *p, uint8_t *buf)
{
	struct zns_mem *m = p->m;

	replay_some(m, SOME, buf);
	if (may_read(m))
		fault_push(&m->queue, p, 0, FETCH_RECORD);
	else
		m->hiber.reading--;
}

void active_ended(struct zns_mem *m)
{
	m->hiber.active = false;
	m->hiber.burst = 0;
	m->hiber.until = 0;
	record_turn(m);
}

void active_began(struct zns_mem *m)
{
	m->hiber.until = 0;
	m->hiber.touch_ns = zns_mono_ns();
	m->hiber.active = true;
}
