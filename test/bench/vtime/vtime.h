/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BENCH_VTIME_H
#define BENCH_VTIME_H
/*
 * Programs in model time. A preloaded library (preload.c) puts a virtual CLOCK_MONOTONIC under
 * unchanged programs: computing takes no time, sleeping takes exactly as long as asked. Who sleeps
 * is entered here, in a file that all of them map; the conductor (conductor.c) moves the clock to
 * the earliest waking time whenever nobody can run. The emulator sleeps for as long as its timing
 * model says, so that device time is all the time there is.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define VT_MAGIC UINT64_C(0x31454d4954535a5a)
#define VT_SLOTS 1024
#define VT_NEVER UINT64_MAX

enum vt_state {
	VT_FREE,
	VT_AWAKE, /* running, or blocked in the kernel: only the kernel knows */
	VT_ASLEEP, /* in a futex wait, until wake_ns or until another thread wakes it */
};

/* A slot for one thread. The lock guards all fields but futex. */
struct vt_slot {
	uint32_t state, futex;
	int32_t pid, tid;
	uint64_t wake_ns, turn; /* of equal waking times the smaller turn is first */
	uint64_t serial; /* another number means that another thread uses the slot */
};

struct vt_shared {
	uint64_t magic;
	uint64_t now_ns;
	pthread_mutex_t lock; /* robust: a process may exit while one of its threads has it */
	uint32_t kick; /* futex of the conductor: something changed */
	uint32_t nr_awake, high; /* slots from high on were never used */
	uint32_t hold; /* the clock stands still */
	uint64_t changes, turns, serials, advances;
	struct vt_slot slot[VT_SLOTS];
};

void vt_init(struct vt_shared *v, uint64_t now_ns);
void vt_lock(struct vt_shared *v);
void vt_unlock(struct vt_shared *v);
void vt_futex_wait(uint32_t *f, uint32_t value, uint64_t real_timeout_ns); /* 0: for ever */
void vt_futex_wake(uint32_t *f);
void vt_kick(struct vt_shared *v);
/* The lock is held. */
void vt_wake(struct vt_shared *v, struct vt_slot *s);
struct vt_slot *vt_earliest(struct vt_shared *v); /* NULL: nobody has a waking time */

#endif
