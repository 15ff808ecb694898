/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns/track against processes that write, map and unmap without a pause: in each final scan all
 * pages are compared with what the copies of the rounds say.
 */
#include <pthread.h>
#include <sched.h>

#include "track_fixture.h"

#define BASE ((char *)0x200000000000UL)
#define SLOT (4UL << 20)
#define SLOTS_EACH 4
#define THREADS 4

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

static unsigned int pick(struct mess *m, unsigned int n)
{
	return (unsigned int)rand_r(&m->seed) % n;
}

static char *slot_at(struct mess *m, size_t i)
{
	return m->base + i * SLOT;
}

static void map_slot(struct mess *m, size_t i)
{
	char *at = slot_at(m, i);

	need(mmap(at, SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		  0) == at);
	madvise(at, SLOT, pick(m, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* A part of a slot, or all of it. */
static size_t some(struct mess *m, size_t *len)
{
	size_t from = pick(m, 4) ? pick(m, SLOT / PAGE) : 0, want = 1 + pick(m, 40);

	*len = from ? zns_min(SLOT / PAGE - from, want) : SLOT / PAGE;
	return from;
}

static void scribble(struct mess *m, char *at, unsigned int times)
{
	for (unsigned int i = 0; i < times; i++) {
		char *page = at + pick(m, SLOT / PAGE) * PAGE;

		*(volatile uint64_t *)(page + 8 * pick(m, PAGE / 8)) = ((uint64_t)m->seed << 20) +
								       i;
	}
}

static void in_child(struct mess *m, char *at)
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

static void once(struct mess *m)
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

static void *mess(void *arg)
{
	struct mess m = { .seed = (unsigned int)(uintptr_t)arg * 7919 + 1,
			  .base = BASE + (uintptr_t)arg * (1UL << 32),
			  .spare = SLOTS_EACH };

	for (size_t i = 0; i < SLOTS_EACH; i++) {
		map_slot(&m, i);
		if (i & 1)
			scribble(&m, slot_at(&m, i), 2000);
	}
	for (;;) {
		once(&m);
		if (!pick(&m, 8)) /* leave some pages clean */
			usleep(200);
	}
	return NULL;
}

static void *come_and_go(void *arg)
{
	pthread_t p;

	if (arg) {
		char room[3 * PAGE];

		memset(room, 1, sizeof(room));
		return (void *)(uintptr_t)room[77];
	}
	for (;;) {
		if (!pthread_create(&p, NULL, come_and_go, BASE))
			pthread_join(p, NULL);
		usleep(500);
	}
}

static void messy(const struct ends *e, void *arg)
{
	pthread_t p;

	for (uintptr_t i = 0; i < THREADS; i++)
		need(!pthread_create(&p, NULL, mess, (void *)i));
	need(!pthread_create(&p, NULL, come_and_go, NULL));
	tell(e, 'r');
	for (;;)
		pause();
}

static void rounds_of_a_mess(void **state)
{
	size_t clean = 0;

	for (int run = 0; run < TIMES(3); run++) {
		struct target c = start(messy, NULL);
		struct tracked tracked, *t = &tracked;

		heard(&c);
		track(t, c);
		usleep(20000);
		for (int dump = 0; dump < 4; dump++) {
			for (int i = 0; i < 3; i++)
				round_of(t);
			freeze(&t->c);
			verify(t, dump < 3);
			clean += t->clean;
			thaw(&t->c);
		}
		zns_track_free(t->k);
		t->k = NULL;
		freeze(&t->c);
		assert_false(smaps_say(t->c.pid, " uw"));
		untrack(t);
	}
	/* else there was nothing to be wrong about */
	assert_true(clean > (kernel.tracker == ZNS_TRACKER_UFFD ? 1000 : 0));
}

/* Incremental dumps: a tracker stays between them, without a round. */
static void no_rounds(void **state)
{
	struct target c = start(messy, NULL);
	struct tracked tracked, *t = &tracked;
	size_t clean = 0;

	heard(&c);
	track(t, c);
	for (int dump = 0; dump < TIMES(20); dump++) {
		freeze(&t->c);
		verify(t, true);
		clean += t->clean;
		thaw(&t->c);
		usleep(3000);
	}
	assert_true(clean > (kernel.tracker == ZNS_TRACKER_UFFD ? 1000 : 0));
	untrack(t);
}

static void slow_scan(void **state)
{
	bool holes = kernel.holes;

	kernel.holes = false;
	rounds_of_a_mess(state);
	kernel.holes = holes;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_of_a_mess),
		cmocka_unit_test(no_rounds),
		cmocka_unit_test(slow_scan),
	};

	return look_at_kernel() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
