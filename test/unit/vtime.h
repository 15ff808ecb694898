/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_VTIME_H
#define TEST_VTIME_H
/*
 * Real threads in virtual time. Between vt_begin and vt_end exactly one thread runs at any moment;
 * it hands over where it would block (a condition, a join, vt_sleep_until). When nobody can run,
 * the clock jumps to the next sleeper. So a program with threads is a simulation of discrete
 * events: the same run every time, and no wall time passes in it.
 *
 * The program is linked with --wrap for the functions named __wrap_ below (VTIME_WRAP in the
 * Makefile). A mutex must not be held where its thread blocks.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define VT_NEVER UINT64_MAX

enum vt_state { VT_READY, VT_RUNNING, VT_BLOCKED, VT_DONE };

struct vthread {
	struct vthread *next; /* of all, in order of creation */
	pthread_t id;
	sem_t go;
	enum vt_state state;
	const void *on; /* BLOCKED: a condition, or the thread to join; NULL: asleep only */
	uint64_t wake_ns; /* BLOCKED: VT_NEVER, or when at the latest */
	uint64_t since; /* order of becoming ready, or of blocking */
	bool timed_out;
	void *(*fn)(void *);
	void *arg;
};

static struct {
	bool on;
	uint64_t now_ns, tick, switches;
	struct vthread *all, **tail;
	uint64_t ns_per_mib; /* what a checksum costs its thread */
} vt;
static __thread struct vthread *vt_self;

uint64_t __real_zns_mono_ns(void);
uint64_t __wrap_zns_mono_ns(void);
uint64_t __real_zns_hash(const void *data, size_t len);
uint64_t __wrap_zns_hash(const void *data, size_t len);
uint64_t __real_zns_hash_pieces(const void *data, size_t len, size_t piece, uint64_t *out);
uint64_t __wrap_zns_hash_pieces(const void *data, size_t len, size_t piece, uint64_t *out);
int __real_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg);
int __real_pthread_join(pthread_t id, void **out);
int __wrap_pthread_join(pthread_t id, void **out);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id,
				  const struct timespec *ts);
int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id,
				  const struct timespec *ts);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);

static inline void vt_ready(struct vthread *t)
{
	t->state = VT_READY;
	t->since = vt.tick++;
}

/* The thread that has been ready longest; if there is none, the clock advances. */
static inline struct vthread *vt_pick(void)
{
	for (;;) {
		struct vthread *best = NULL, *sleeper = NULL;

		for (struct vthread *t = vt.all; t; t = t->next) {
			if (t->state == VT_READY && (!best || t->since < best->since))
				best = t;
			if (t->state == VT_BLOCKED && t->wake_ns != VT_NEVER &&
			    (!sleeper || t->wake_ns < sleeper->wake_ns ||
			     (t->wake_ns == sleeper->wake_ns && t->since < sleeper->since)))
				sleeper = t;
		}
		if (best)
			return best;
		if (!sleeper) {
			fprintf(stderr, "virtual time: every thread waits for another one\n");
			abort();
		}
		if (sleeper->wake_ns > vt.now_ns)
			vt.now_ns = sleeper->wake_ns;
		sleeper->timed_out = true;
		vt_ready(sleeper);
	}
}

static inline void vt_switch(void)
{
	struct vthread *me = vt_self, *to = vt_pick();

	vt.switches++;
	to->state = VT_RUNNING;
	if (to == me)
		return;
	sem_post(&to->go);
	if (me->state != VT_DONE)
		while (sem_wait(&me->go))
			;
}

static inline bool vt_block(const void *on, uint64_t wake_ns)
{
	vt_self->state = VT_BLOCKED;
	vt_self->on = on;
	vt_self->wake_ns = wake_ns;
	vt_self->since = vt.tick++;
	vt_self->timed_out = false;
	vt_switch();
	return vt_self->timed_out;
}

static inline void vt_sleep_until(uint64_t ns)
{
	if (vt_self)
		vt_block(NULL, ns);
}

static inline struct vthread *vt_add(void)
{
	struct vthread *t = calloc(1, sizeof(*t));

	if (!t || sem_init(&t->go, 0, 0))
		abort();
	t->wake_ns = VT_NEVER;
	*vt.tail = t;
	vt.tail = &t->next;
	return t;
}

/* The caller becomes the first thread; all it creates from here on take part. */
static inline void vt_begin(void)
{
	memset(&vt, 0, sizeof(vt));
	vt.tail = &vt.all;
	vt.now_ns = 1000000000;
	vt_self = vt_add();
	vt_self->state = VT_RUNNING;
	vt.on = true;
}

/* To be called when all other threads have ended. */
static inline void vt_end(void)
{
	vt.on = false;
	for (struct vthread *t = vt.all, *next; t; t = next) {
		next = t->next;
		if (t != vt_self && t->state != VT_DONE)
			abort();
		sem_destroy(&t->go);
		free(t);
	}
	vt.all = NULL;
	vt_self = NULL;
}

static inline void vt_wake(const void *on, bool all)
{
	struct vthread *first;

	do {
		first = NULL;
		for (struct vthread *t = vt.all; t; t = t->next)
			if (t->state == VT_BLOCKED && t->on == on &&
			    (!first || t->since < first->since))
				first = t;
		if (first)
			vt_ready(first);
	} while (first && all);
}

/* --- what the program's calls become --- */

uint64_t __wrap_zns_mono_ns(void)
{
	return vt_self ? vt.now_ns : __real_zns_mono_ns();
}

static inline void vt_hash_costs(size_t len)
{
	if (vt_self && vt.ns_per_mib && len >= 4096)
		vt_sleep_until(vt.now_ns + (vt.ns_per_mib * (uint64_t)len >> 20));
}

uint64_t __wrap_zns_hash(const void *data, size_t len)
{
	vt_hash_costs(len);
	return __real_zns_hash(data, len);
}

uint64_t __wrap_zns_hash_pieces(const void *data, size_t len, size_t piece, uint64_t *out)
{
	vt_hash_costs(len);
	return __real_zns_hash_pieces(data, len, piece, out);
}

static inline void *vt_main(void *arg)
{
	struct vthread *t = arg;
	void *ret;

	vt_self = t;
	while (sem_wait(&t->go))
		;
	ret = t->fn(t->arg);
	t->state = VT_DONE;
	vt_wake(t, true);
	vt_switch();
	return ret;
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	struct vthread *t;
	int ret;

	if (!vt_self)
		return __real_pthread_create(id, attr, fn, arg);
	t = vt_add();
	t->fn = fn;
	t->arg = arg;
	vt_ready(t);
	ret = __real_pthread_create(id, attr, vt_main, t);
	if (ret)
		abort();
	t->id = *id;
	return 0;
}

int __wrap_pthread_join(pthread_t id, void **out)
{
	struct vthread *t = vt_self ? vt.all : NULL;

	while (t && (t == vt_self || !t->fn || !pthread_equal(t->id, id)))
		t = t->next;
	while (t && t->state != VT_DONE)
		vt_block(t, VT_NEVER);
	if (t)
		t->fn = NULL; /* its id may be given to another one */
	return __real_pthread_join(id, out);
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	if (!vt_self)
		return __real_pthread_cond_wait(c, m);
	pthread_mutex_unlock(m);
	vt_block(c, VT_NEVER);
	pthread_mutex_lock(m);
	return 0;
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id,
				  const struct timespec *ts)
{
	bool late;

	if (!vt_self)
		return __real_pthread_cond_clockwait(c, m, id, ts);
	pthread_mutex_unlock(m);
	late = vt_block(c, (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec);
	pthread_mutex_lock(m);
	return late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
	if (vt_self)
		vt_wake(c, false);
	return __real_pthread_cond_signal(c);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
	if (vt_self)
		vt_wake(c, true);
	return __real_pthread_cond_broadcast(c);
}

#endif
