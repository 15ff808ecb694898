/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The queue of work for the threads that serve processes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "mem.h"

/*
 * Compare a new fault with this many of the last ones: so many threads may repeat a fault at once.
 */
#define LOOKED_AT 64U

static void grow(struct circle *c)
{
	size_t max = c->max ? c->max * 2 : 1024;
	struct fault *f = calloc(max, sizeof(*f));

	/* without memory try again: if a fault were dropped, its thread would wait for ever */
	while (!f) {
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
		f = calloc(max, sizeof(*f));
	}
	for (size_t i = 0; i < c->nr; i++)
		f[i] = c->f[(c->head + i) % c->max];
	free(c->f);
	c->f = f;
	c->head = 0;
	c->max = max;
}

/*
 * Is this fault in the queue already? A thread in the kernel that has a pending signal or io_uring
 * work does not wait for the answer: it raises the fault again and again, faster than we answer.
 * One answer wakes all threads that wait for that page.
 */
static bool is_queued(const struct circle *c, const struct proc *p, uint64_t addr,
		      enum fault_kind kind)
{
	for (size_t i = 0; i < c->nr && i < LOOKED_AT; i++) {
		const struct fault *f = &c->f[(c->head + c->nr - 1 - i) % c->max];

		if (f->p == p && f->addr == addr && f->kind == kind)
			return true;
	}
	return false;
}

void fault_push(struct queue *q, struct proc *p, uint64_t addr, enum fault_kind kind)
{
	struct circle *c = kind >= FETCH ? &q->ahead : &q->faults;

	pthread_mutex_lock(&q->lock);
	if (kind < FETCH && is_queued(c, p, addr, kind)) {
		pthread_mutex_unlock(&q->lock);
		return;
	}
	if (c->nr == c->max)
		grow(c);
	c->f[(c->head + c->nr++) % c->max] = (struct fault){
		.p = proc_get(p), .addr = addr, .kind = kind, .since_ns = zns_mono_ns()
	};
	pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
}

/* Beside the reader of events, one thread is always kept free for faults of waiting threads. */
static struct circle *next_circle(struct queue *q)
{
	if (q->faults.nr)
		return &q->faults;
	return q->ahead.nr && q->fetching < SERVERS - 2 ? &q->ahead : NULL;
}

enum task queue_next(struct queue *q, struct fault *f)
{
	enum task task = ENDED;
	struct circle *c;

	pthread_mutex_lock(&q->lock);
	while (!(c = next_circle(q)) && q->led && !q->end) {
		q->idle++;
		pthread_cond_wait(&q->more, &q->lock);
		q->idle--;
	}
	/* reading events comes first, since answers may depend on an event */
	if (!q->led && !q->end) {
		q->led = true;
		task = READ_EVENTS;
	} else if (c) {
		*f = c->f[c->head];
		c->head = (c->head + 1) % c->max;
		c->nr--;
		q->fetching += c == &q->ahead;
		task = ANSWER;
	}
	pthread_mutex_unlock(&q->lock);
	return task;
}

bool reader_hand_on(struct queue *q)
{
	bool free;

	pthread_mutex_lock(&q->lock);
	free = q->idle && !q->faults.nr && !q->end;
	if (free) {
		q->led = false;
		pthread_cond_signal(&q->more);
	}
	pthread_mutex_unlock(&q->lock);
	return free;
}

void queue_answered(struct queue *q, const struct fault *f)
{
	if (f->kind < FETCH)
		return;
	pthread_mutex_lock(&q->lock);
	q->fetching--;
	if (q->ahead.nr)
		pthread_cond_signal(&q->more);
	pthread_mutex_unlock(&q->lock);
}
