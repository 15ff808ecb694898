/* SPDX-License-Identifier: GPL-2.0-only */
/* What the preloaded library and the conductor share: lock, futexes, waking. */
#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vtime.h"

void vt_futex_wait(uint32_t *f, uint32_t value, uint64_t real_timeout_ns)
{
	struct timespec ts = { .tv_sec = real_timeout_ns / 1000000000,
			       .tv_nsec = real_timeout_ns % 1000000000 };

	syscall(SYS_futex, f, FUTEX_WAIT, value, real_timeout_ns ? &ts : NULL, NULL, 0);
}

void vt_futex_wake(uint32_t *f)
{
	syscall(SYS_futex, f, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void vt_init(struct vt_shared *v, uint64_t now_ns)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&v->lock, &a);
	v->now_ns = now_ns;
	v->magic = VT_MAGIC;
}

void vt_lock(struct vt_shared *v)
{
	if (pthread_mutex_lock(&v->lock) != EOWNERDEAD)
		return;
	/* all fields that it may have left inconsistent */
	v->nr_awake = 0;
	for (uint32_t i = 0; i < v->high; i++)
		v->nr_awake += v->slot[i].state == VT_AWAKE;
	v->changes++;
	pthread_mutex_consistent(&v->lock);
}

void vt_unlock(struct vt_shared *v)
{
	pthread_mutex_unlock(&v->lock);
}

void vt_kick(struct vt_shared *v)
{
	__atomic_add_fetch(&v->kick, 1, __ATOMIC_RELEASE);
	vt_futex_wake(&v->kick);
}

void vt_wake(struct vt_shared *v, struct vt_slot *s)
{
	if (s->state != VT_ASLEEP)
		return;
	s->state = VT_AWAKE;
	v->nr_awake++;
	v->changes++;
	__atomic_store_n(&s->futex, 1, __ATOMIC_RELEASE);
	vt_futex_wake(&s->futex);
}

struct vt_slot *vt_earliest(struct vt_shared *v)
{
	struct vt_slot *best = NULL;

	for (uint32_t i = 0; i < v->high; i++) {
		struct vt_slot *s = &v->slot[i];

		if (s->state != VT_ASLEEP || s->wake_ns == VT_NEVER)
			continue;
		if (!best || s->wake_ns < best->wake_ns ||
		    (s->wake_ns == best->wake_ns && s->turn < best->turn))
			best = s;
	}
	return best;
}
