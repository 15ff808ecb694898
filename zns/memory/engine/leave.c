/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles children for which the context has no regular slot. Such a child is served like any
 * other, but nothing of it is evicted: all its memory on zones is read back, and then its
 * userfaultfd is closed. Until then it has one of the slots for leaving children, so that a
 * successor finds it and continues. If these slots are all in use as well, the child waits without
 * one, and only events of leaving children are read, so further forks wait too. A child's
 * userfaultfd must never be closed before all its memory is back, since the child would read
 * zeroes.
 */
#include <time.h>

#include "mem.h"

static unsigned int most(void)
{
	return mem_refused(REFUSED_PLACES) ? FEW_LEAVERS : LEAVERS_MAX;
}

/* Call with the lock held. */
static void count(struct zns_mem *m)
{
	unsigned int used = 0;

	for (unsigned int i = PLACES_MAX; i < PROCS_MAX; i++)
		used += m->proc[i] != NULL;
	m->crowded = m->waiting || used > most() / 2;
}

bool leave_crowded(const struct zns_mem *m)
{
	return m->leading && m->crowded;
}

bool leave_waiting(struct zns_mem *m)
{
	bool some;

	pthread_mutex_lock(&m->lock);
	some = m->waiting != NULL;
	pthread_mutex_unlock(&m->lock);
	return some;
}

void leave_wait(struct zns_mem *m, struct proc *child)
{
	struct proc **last = &m->waiting;

	pthread_mutex_lock(&m->lock);
	while (*last)
		last = &(*last)->next_waiting;
	*last = child;
	count(m);
	pthread_mutex_unlock(&m->lock);
}

void leave_begin(struct proc *child)
{
	struct zns_mem *m = child->m;

	child->leaves = true;
	mem_warn(m, "a context has at most %u processes: a child is read back, and leaves it",
		 PLACES_MAX);
	if (leave_waiting(m) || proc_add(m, child))
		leave_wait(m, child);
	else
		child_serve(child);
	pthread_mutex_lock(&m->lock);
	count(m);
	pthread_cond_signal(&m->leavers);
	pthread_mutex_unlock(&m->lock);
}

/* Gives the child a regular slot if one is free now, else one for leaving children. */
static int add(struct zns_mem *m, struct proc *child)
{
	child->leaves = false;
	if (!proc_add(m, child))
		return 0;
	child->leaves = true;
	return proc_add(m, child);
}

/* Gives a free slot to the child that has waited longest. Only one thread calls this. */
static void admit(struct zns_mem *m)
{
	struct proc *child;

	for (;;) {
		pthread_mutex_lock(&m->lock);
		child = m->waiting;
		pthread_mutex_unlock(&m->lock);
		if (!child || add(m, child))
			break;
		pthread_mutex_lock(&m->lock);
		m->waiting = child->next_waiting;
		pthread_mutex_unlock(&m->lock);
		child_serve(child);
	}
	pthread_mutex_lock(&m->lock);
	count(m);
	pthread_mutex_unlock(&m->lock);
}

static int bring(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	if (STATE(u->word) != U_RES && !unit_unkeep(p, u, U_RES))
		unit_load(p, u, base, arg, false, NULL);
	return p->m->end;
}

static int is_out(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	return STATE(u->word) > U_BUSY;
}

/* Reads back a child's units. True: it has left the context, or has ended. */
static bool lead_out(struct proc *p, uint8_t *buf)
{
	bool out;

	if (!mem_uffd_dead(p->uffd)) {
		if (!mem_without(RULE_LEAVE))
			table_each(p, bring, buf);
		/* hold the lock, so that no unit can move to addresses that were checked already */
		pthread_rwlock_wrlock(&p->ev);
		out = table_each(p, is_out, NULL) && !mem_without(RULE_LEAVE);
		pthread_rwlock_unlock(&p->ev);
		if (out)
			return false;
		mem_reached(REACHED_LEAVES);
		p->m->sh->left++;
	}
	proc_forget(p);
	return true;
}

/*
 * Returns the next leaving child, in turns, since one of them may be stopped for long. NULL: the
 * context ends.
 */
static struct proc *next_leaver(struct zns_mem *m, unsigned int *hand)
{
	struct proc *p = NULL;

	pthread_mutex_lock(&m->lock);
	while (!m->end && !p) {
		for (unsigned int i = 0; i < LEAVERS_MAX && !p; i++) {
			p = m->proc[PLACES_MAX + (*hand)++ % LEAVERS_MAX];
			if (p && p->sh->doomed)
				p = NULL;
		}
		if (!p)
			pthread_cond_wait(&m->leavers, &m->lock);
	}
	if (p)
		proc_get(p);
	pthread_mutex_unlock(&m->lock);
	return p;
}

static void *leaver(void *arg)
{
	struct zns_mem *m = arg;
	uint8_t *buf = aligned_alloc(PAGE, UNIT);
	unsigned int hand = 0;
	struct proc *p;

	admit(m); /* first admit children that were waiting when the last pager died */
	while (buf && (p = next_leaver(m, &hand))) {
		if (!lead_out(p, buf))
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		proc_put(p);
		admit(m);
	}
	free(buf);
	return NULL;
}

int leave_start(struct zns_mem *m)
{
	int ret = -pthread_create(&m->leaver, NULL, leaver, m);

	m->leading = !ret;
	return ret;
}

void leave_end(struct zns_mem *m)
{
	pthread_mutex_lock(&m->lock);
	pthread_cond_broadcast(&m->leavers);
	pthread_mutex_unlock(&m->lock);
	if (m->leading)
		pthread_join(m->leaver, NULL);
	m->leading = false;
}

void leave_free(struct zns_mem *m)
{
	while (m->waiting) {
		struct proc *p = m->waiting;

		m->waiting = p->next_waiting;
		proc_put(p);
	}
}
