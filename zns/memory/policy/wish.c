/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests to a context to hibernate or to wake. They come from its users, and from its own
 * processes: if these touch more units than timers would, the context wakes. A few touches are
 * served and change nothing. The evictor sleeps here until there is a request.
 */
#include <time.h>

#include "hiber.h"

#define WINDOW_MS 1000U
#define WAKE_UNITS 16U /* this many units touched within a window wake the context */
/*
 * For this long after the start of hibernation, timers of programs touch the units that they need,
 * so more touches are allowed.
 */
#define SETTLE_MS 3000U
#define SETTLE_UNITS 128U

int hiber_make(struct zns_mem *m)
{
	struct hiber *h = &m->hiber;
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&h->lock, NULL);
	pthread_mutex_init(&h->record, NULL);
	pthread_cond_init(&h->more, &attr);
	h->made = true;
	h->rest_ms = now_ms();
	return record_make(m);
}

void hiber_free(struct zns_mem *m)
{
	if (!m->hiber.made)
		return;
	record_free(m);
	pthread_cond_destroy(&m->hiber.more);
	pthread_mutex_destroy(&m->hiber.lock);
	pthread_mutex_destroy(&m->hiber.record);
}

void hiber_rouse(struct zns_mem *m)
{
	pthread_mutex_lock(&m->hiber.lock);
	m->hiber.roused = true;
	pthread_cond_signal(&m->hiber.more);
	pthread_mutex_unlock(&m->hiber.lock);
}

void evictor_rouse(struct zns_mem *m)
{
	if (m->slow && atomic_exchange(&m->slow, false))
		hiber_rouse(m);
}

void hiber_wait(struct zns_mem *m, long ms)
{
	struct timespec end;
	int ret = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += ms % 1000 * 1000000;
	end.tv_sec += ms / 1000 + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	/* the evictor holds nothing while it sleeps, so a thread that pauses it need not wait */
	m->evict_idle = true;
	pthread_mutex_lock(&m->hiber.lock);
	while (!m->hiber.roused && !ret)
		ret = pthread_cond_timedwait(&m->hiber.more, &m->hiber.lock, &end);
	m->hiber.roused = false;
	pthread_mutex_unlock(&m->hiber.lock);
}

static void want(struct zns_mem *m, enum hiber_state state)
{
	m->sh->hiber.wanted = state;
	hiber_rouse(m);
}

void hiber_touched(struct proc *p, uint64_t base)
{
	struct zns_mem *m = p->m;
	struct hiber *h = &m->hiber;
	uint32_t now = now_ms(), n;

	if (m->sh->hiber.state == HIBER_AWAKE)
		active_touch(m);
	record_touch(p, base);
	if (m->sh->hiber.state == HIBER_AWAKE)
		active_touched(p);
	if (m->sh->hiber.state != HIBER_REST)
		return;
	activity_seen(m);
	if (now - h->window_ms > WINDOW_MS) {
		h->window_ms = now;
		h->touched = 0;
	}
	n = ++h->touched;
	if (n >= (now - h->rest_ms < SETTLE_MS ? SETTLE_UNITS : WAKE_UNITS))
		want(m, HIBER_AWAKE);
}

void zns_mem_hibernate(struct zns_mem *m)
{
	m->sh->hiber.again = 1;
	want(m, HIBER_REST);
}

void zns_mem_wake(struct zns_mem *m)
{
	activity_seen(m);
	want(m, HIBER_AWAKE);
}

void zns_mem_idle(struct zns_mem *m, uint64_t ms)
{
	m->sh->hiber.idle_ms = ms;
	activity_seen(m);
	hiber_rouse(m);
}
