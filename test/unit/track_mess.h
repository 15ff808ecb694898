/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRACK_MESS_H
#define TRACK_MESS_H
/* What a process does to its memory by a seed: it writes, maps, moves, discards, forks. */
#include <sched.h>

#include "track_fixture.h"

#define BASE ((char *)0x200000000000UL)
#define SLOT (4UL << 20)
#define SLOTS_EACH 4

#define need(ok)                                                                     \
	do {                                                                         \
		if (!(ok)) {                                                         \
			fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)); \
			_exit(3);                                                    \
		}                                                                    \
	} while (0)

struct mess {
	unsigned int seed;
	char *base; /* SLOTS_EACH slots, and one more that is free */
	size_t spare;
};

static inline unsigned int pick(struct mess *m, unsigned int n)
{
	return (unsigned int)rand_r(&m->seed) % n;
}

static inline char *slot_at(struct mess *m, size_t i)
{
	return m->base + i * SLOT;
}

static inline void map_slot(struct mess *m, size_t i)
{
	char *at = slot_at(m, i);

	need(mmap(at, SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		  0) == at);
	madvise(at, SLOT, pick(m, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* A part of a slot, or all of it. */
static inline size_t some(struct mess *m, size_t *len)
{
	size_t from = pick(m, 4) ? pick(m, SLOT / PAGE) : 0, want = 1 + pick(m, 40);

	*len = from ? zns_min(SLOT / PAGE - from, want) : SLOT / PAGE;
	return from;
}

static inline void scribble(struct mess *m, char *at, unsigned int times)
{
	for (unsigned int i = 0; i < times; i++) {
		char *page = at + pick(m, SLOT / PAGE) * PAGE;

		*(volatile uint64_t *)(page + 8 * pick(m, PAGE / 8)) = ((uint64_t)m->seed << 20) +
								       i;
	}
}

static inline void in_child(struct mess *m, char *at)
{
	pid_t p = fork();

	if (!p) {
		scribble(m, at, 50);
		_exit(0);
	}
	need(p > 0);
	scribble(m, at, 50);
	while (waitpid(p, NULL, 0) < 0)
		need(errno == EINTR);
}

static inline void once(struct mess *m)
{
	size_t i = pick(m, SLOTS_EACH + 1), len, from = some(m, &len);
	char *at;

	if (i == m->spare)
		i = (i + 1) % (SLOTS_EACH + 1);
	at = slot_at(m, i);
	switch (pick(m, 40)) {
	case 0:
		need(!munmap(at, SLOT));
		map_slot(m, i);
		break;
	case 1: /* moved to the free place, which the old one becomes */
		if (mremap(at, SLOT, SLOT, MREMAP_MAYMOVE | MREMAP_FIXED, slot_at(m, m->spare)) ==
		    MAP_FAILED) { /* it consists of several areas by now */
			map_slot(m, i);
			map_slot(m, m->spare);
			need(!munmap(slot_at(m, m->spare), SLOT));
		} else {
			m->spare = i;
		}
		break;
	case 2:
		need(!munmap(at + from * PAGE, len * PAGE));
		need(mmap(at + from * PAGE, len * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
		break;
	case 3:
	case 4:
		need(!madvise(at + from * PAGE, len * PAGE, MADV_DONTNEED));
		break;
	case 5:
		need(!mprotect(at + from * PAGE, len * PAGE, PROT_NONE));
		sched_yield();
		need(!mprotect(at + from * PAGE, len * PAGE, PROT_READ | PROT_WRITE));
		break;
	case 6:
		if (!pick(m, 4))
			in_child(m, at);
		break;
	case 7: /* reads alone */
		for (size_t p = 0; p < len; p++)
			(void)*(volatile char *)(at + (from + p) * PAGE);
		break;
	case 8:
		madvise(at + from * PAGE, len * PAGE, MADV_FREE);
		break;
	default:
		scribble(m, at, 200);
	}
}

/* Half of the slots have something. */
static inline void mess_begin(struct mess *m, unsigned int seed, uintptr_t which)
{
	*m = (struct mess){ .seed = seed, .base = BASE + which * (1UL << 32), .spare = SLOTS_EACH };
	for (size_t i = 0; i < SLOTS_EACH; i++) {
		map_slot(m, i);
		if (i & 1)
			scribble(m, slot_at(m, i), 2000);
	}
}

#endif
