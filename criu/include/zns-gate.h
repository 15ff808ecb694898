/* SPDX-License-Identifier: MIT */
#ifndef __CR_ZNS_GATE_H__
#define __CR_ZNS_GATE_H__
/*
 * Memory that the lazy-pages daemon shares with its helper. The helper copies pages into tasks that
 * run. Only the daemon hears what they unmap, move and discard, and as soon as it has heard it, the
 * task goes on. So it shuts the gate before it reads an event, and waits for those inside; before
 * it opens the gate, it marks the reads whose places are no longer what they were.
 */
#include <linux/futex.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ZW_LAZY_READS 112 /* most reads under way at once */

struct zw_gate {
	uint32_t shut; /* 1: no thread may begin to copy */
	uint32_t inside; /* copies under way */
	/* index: number of the read; 1: the helper must not copy for this read any more */
	uint32_t stale[ZW_LAZY_READS];
};

static inline void zw_gate_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* Returns when *word may have changed. False: the process at the other end of @sk has exited. */
static inline bool zw_gate_wait(uint32_t *word, uint32_t value, int sk)
{
	const struct timespec look = { .tv_nsec = 100000000 };
	struct pollfd p = { .fd = sk };

	syscall(SYS_futex, word, FUTEX_WAIT, value, &look, NULL, 0);
	return poll(&p, 1, 0) <= 0 || !(p.revents & POLLHUP);
}

/* Called by the daemon. False: the helper has ended. */
static inline bool zw_gate_shut(struct zw_gate *g, int sk)
{
	uint32_t inside;

	__atomic_store_n(&g->shut, 1, __ATOMIC_SEQ_CST);
	while ((inside = __atomic_load_n(&g->inside, __ATOMIC_SEQ_CST)))
		if (!zw_gate_wait(&g->inside, inside, sk))
			return false;
	return true;
}

static inline void zw_gate_open(struct zw_gate *g)
{
	__atomic_store_n(&g->shut, 0, __ATOMIC_SEQ_CST);
	zw_gate_wake(&g->shut);
}

static inline void zw_gate_leave(struct zw_gate *g)
{
	if (!__atomic_sub_fetch(&g->inside, 1, __ATOMIC_SEQ_CST) &&
	    __atomic_load_n(&g->shut, __ATOMIC_SEQ_CST))
		zw_gate_wake(&g->inside);
}

/* The helper; a copy of read @n may begin, and ends with zw_gate_leave(). False: it may not, for
 * the read is stale or the daemon has ended. */
static inline bool zw_gate_enter(struct zw_gate *g, uint32_t n, int sk)
{
	for (;;) {
		__atomic_add_fetch(&g->inside, 1, __ATOMIC_SEQ_CST);
		if (!__atomic_load_n(&g->shut, __ATOMIC_SEQ_CST))
			break;
		zw_gate_leave(g);
		while (__atomic_load_n(&g->shut, __ATOMIC_SEQ_CST))
			if (!zw_gate_wait(&g->shut, 1, sk))
				return false;
	}
	if (!__atomic_load_n(&g->stale[n], __ATOMIC_SEQ_CST))
		return true;
	zw_gate_leave(g);
	return false;
}

#endif
