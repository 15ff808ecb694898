/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that uses all of its memory all the time, so that its pager is never at rest.
 *
 *   pageload MIB THREADS WRITES_PCT GAP_US LOG
 *
 * Each thread touches pages at random, each at once after the one before and GAP_US, and writes
 * WRITES_PCT of them. It compares each page with what it wrote there last. Lines on stdin, an
 * answer on stdout for each: run AT_NS MS    from that CLOCK_MONOTONIC on, for so long: "run
 * TOUCHES WAITED". LOG has two words of 64 bits for each touch that waited: when it began, and for
 * how long, ns check           all pages: "check WRONG" In model time a touch of what is in memory
 * takes no time at all. A thread of its own sleeps again and again: what the kernel does for the
 * pager (a ring's thread) is nothing that the virtual clock knows of, and without that thread it
 * might jump far ahead meanwhile.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define THREADS_MAX 32
#define TICK_US 100
#define STACK 65536u
#define WAITS 1024u /* of one thread, until they are written down */

static uint8_t *mem;
static uint32_t *version; /* version of each page; this array is not paged */
static uint64_t pages, threads, writes, gap_us, wrong;
static const char *log_path;
static int log_fd;

struct toucher {
	pthread_t id;
	uint64_t nr, at_ns, end_ns, touches, seed;
	uint64_t waits;
	struct wait {
		uint64_t begin_ns, ns;
	} * wait;
};

static struct toucher toucher[THREADS_MAX];
static pthread_attr_t small; /* all stacks are locked */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t word_of(uint64_t page)
{
	uint64_t x = (page + 1) * 0x9e3779b97f4a7c15u + version[page];

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 31);
}

/* Pages of zeroes would not be stored. */
static void write_page(uint64_t page)
{
	uint64_t *w = (uint64_t *)(mem + page * PAGE);

	version[page]++;
	w[0] = word_of(page);
	w[PAGE / 16] = ~w[0];
}

static bool right(uint64_t page)
{
	const volatile uint64_t *w = (const uint64_t *)(mem + page * PAGE);

	return w[0] == word_of(page) && w[PAGE / 16] == ~word_of(page);
}

static uint32_t roll(struct toucher *t)
{
	t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(t->seed >> 33);
}

/* The last ones. */
static void write_down(const struct toucher *t)
{
	size_t len = ((t->waits - 1) % WAITS + 1) * sizeof(*t->wait);

	if (write(log_fd, t->wait, len) != (ssize_t)len)
		exit(1);
}

static void touch(struct toucher *t)
{
	/* its own part of the pages, which no other thread writes */
	uint64_t page = roll(t) % (pages / threads) * threads + t->nr, begin = now_ns(), took;
	bool write = roll(t) % 100 < writes;

	if (!right(page))
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	if (write)
		write_page(page);
	took = now_ns() - begin;
	t->touches++;
	if (!took)
		return;
	t->wait[t->waits++ % WAITS] = (struct wait){ begin, took };
	if (t->waits % WAITS == 0)
		write_down(t);
}

static void *touch_all_the_time(void *arg)
{
	struct toucher *t = arg;
	struct timespec at = { .tv_sec = (time_t)(t->at_ns / 1000000000),
			       .tv_nsec = (long)(t->at_ns % 1000000000) };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	while (now_ns() < t->end_ns) {
		touch(t);
		usleep((useconds_t)gap_us);
	}
	if (t->waits % WAITS)
		write_down(t);
	return NULL;
}

static int run(uint64_t at_ns, uint64_t ms)
{
	uint64_t touches = 0, waits = 0;

	log_fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd < 0)
		return 1;
	for (uint64_t i = 0; i < threads; i++) {
		struct toucher *t = &toucher[i];

		t->nr = i;
		t->at_ns = at_ns;
		t->end_ns = at_ns + ms * 1000000;
		t->seed += i + 1;
		t->touches = t->waits = 0;
		if (pthread_create(&t->id, &small, touch_all_the_time, t))
			return 1;
	}
	for (uint64_t i = 0; i < threads; i++) {
		struct toucher *t = &toucher[i];

		pthread_join(t->id, NULL);
		touches += t->touches;
		waits += t->waits;
	}
	close(log_fd);
	printf("run %llu %llu\n", (unsigned long long)touches, (unsigned long long)waits);
	return 0;
}

static void check(void)
{
	for (uint64_t i = 0; i < pages; i++)
		wrong += !right(i);
	printf("check %llu\n", (unsigned long long)wrong);
}

static void *tick(void *arg)
{
	for (;;)
		usleep(TICK_US);
	return arg;
}

/* Memory that is not paged, because of mlock(). */
static void *take(uint64_t bytes, bool locked)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || (locked && mlock(p, bytes))) {
		perror("pageload");
		exit(1);
	}
	return p;
}

int main(int argc, char **argv)
{
	unsigned long long at, ms;
	pthread_t ticker;
	char line[128];

	if (argc != 6)
		return 2;
	pages = strtoull(argv[1], NULL, 10) << 8;
	threads = strtoull(argv[2], NULL, 10);
	writes = strtoull(argv[3], NULL, 10);
	gap_us = strtoull(argv[4], NULL, 10);
	log_path = argv[5];
	if (!pages || !threads || threads > THREADS_MAX)
		return 2;
	/* as madvise(), but the kernel would put memory and a thread's stack into one area then,
	 * and stacks are not paged */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	version = take(pages * sizeof(*version), true);
	for (uint64_t i = 0; i < threads; i++)
		toucher[i].wait = take(WAITS * sizeof(struct wait), true);
	/* all but the memory itself: no thread must wait for its pager before the clock runs */
	mem = take(pages * PAGE, false);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) || munlock(mem, pages * PAGE)) {
		perror("pageload");
		return 1;
	}
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK);
	for (uint64_t i = 0; i < pages; i++)
		write_page(i);
	if (pthread_create(&ticker, &small, tick, NULL))
		return 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "run %llu %llu", &at, &ms) == 2) {
			if (run(at, ms))
				return 1;
		} else if (!strcmp(line, "check\n")) {
			check();
		} else {
			return 2;
		}
	}
	return 0;
}
