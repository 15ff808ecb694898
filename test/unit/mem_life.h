/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MEM_LIFE_H
#define MEM_LIFE_H
/* For test_mem.c and test_mem_late.c: programs that check what they wrote, while they are
 * evicted. */
#include "mem_fixture.h"

#define WAIT_S 60

enum {
	WRITES = 1,
	REMOVALS = 2,
	MOVES = 4,
	FORKS = 8,
	THREADS = 16,
	MAPS = 32,
	HOLES = 64,
	BUSHY = 128
};

struct life {
	struct report *r;
	uint8_t *mem; /* PAGES pages */
	unsigned int what, self; /* self: the thread's index */
	uint64_t seed;
	uint32_t seq; /* counts */
	unsigned int alive; /* children that were not waited for */
};

static inline uint64_t *page_of(struct life *l, uint32_t nr)
{
	return (uint64_t *)(l->mem + nr * PAGE);
}

static inline void check(struct life *l, uint32_t nr)
{
	if (page_is(page_of(l, nr), nr, l->r->seq[l->self][nr]))
		return;
	if (!l->r->wrong++)
		l->r->first = (struct wrong){ nr, l->r->seq[l->self][nr], *page_of(l, nr),
					      l->r->rounds };
}

static inline void check_all(struct life *l)
{
	for (uint32_t i = 0; i < PAGES; i++)
		check(l, i);
}

static inline void begin_life(struct life *l)
{
	l->mem = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	for (uint32_t i = 0; i < PAGES; i++) {
		if (l->what & HOLES && i % 3)
			continue;
		page_write(page_of(l, i), i, 1);
		l->r->seq[l->self][i] = 1;
	}
	l->seq = 1;
}

struct scene {
	struct shelves shelves;
	struct zns_mem_store store;
	struct report *r;
	pid_t pid;
	struct zns_mem *m;
	struct zns_err err;
};

/* Returns @units, or ZNS_TEST_MEM_UNITS if that is more (make memory-soak). */
static inline uint64_t at_least(uint64_t units)
{
	const char *env = getenv("ZNS_TEST_MEM_UNITS");

	return zns_max(units, env ? strtoull(env, NULL, 10) : 0);
}

/* Waits until this many units were evicted. */
static inline void await_units(struct scene *s, uint64_t units)
{
	uint64_t last = 0, now;

	for (int i = 0; i < WAIT_S * 100 && (now = evicted_units(s->m)) < units; i++) {
		siginfo_t info = { 0 };

		if (now != last)
			i = 0;
		last = now;

		waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid)
			fail_msg("the program has ended: %d, %d", info.si_code, info.si_status);
		usleep(10000);
	}
	assert_true(evicted_units(s->m) >= units);
}

/* Kills the program once the case has shown what it must. A thread that waits for its pager is
 * killed, too. */
static inline void scene_kill(struct scene *s)
{
	pid_t got = 0;

	kill(s->pid, SIGKILL);
	for (int i = 0; i < WAIT_S * 100 && !got; i++) {
		got = waitpid(s->pid, NULL, WNOHANG);
		usleep(got ? 0 : 10000);
	}
	assert_int_equal(got, s->pid);
	zns_mem_leave(s->m);
	munmap(s->r, sizeof(*s->r));
	shelf_close(&s->shelves);
}

static inline bool has_word(pid_t pid, const char *file, const char *word)
{
	char path[64];
	cleanup_free uint8_t *text = NULL;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	assert_int_equal(zns_read_file(AT_FDCWD, path, 1 << 24, &text, &len), 0);
	return strstr((char *)text, word);
}

static inline unsigned int threads_of(pid_t pid)
{
	char path[64], line[256];
	unsigned int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "Threads: %u", &n);
	if (f)
		fclose(f);
	return n;
}

static inline void finish(struct scene *s, unsigned int threads, bool while_running)
{
	int code;

	if (while_running && zns_mem_detach(s->m, &s->err))
		fail_msg("%s", s->err.msg);
	s->r->stop = 1;
	for (int i = 0; i < WAIT_S * 100 && s->r->done < threads; i++)
		usleep(10000);
	assert_int_equal(s->r->done, threads);
	if (zns_mem_detach(s->m, &s->err))
		fail_msg("%s", s->err.msg);
	assert_int_equal(s->shelves.s->held, 0); /* no unit is left in the store */
	zns_mem_leave(s->m);
	assert_false(has_word(s->pid, "smaps", " um"));
	assert_int_equal(threads_of(s->pid), 1);
	s->r->stop = 2;
	assert_int_equal(waitpid(s->pid, &code, 0), s->pid);
	assert_int_equal(code, 0);
	print_message("%lu units out, %lu back; %lu rounds, %lu forks, %lu moves, %lu removals\n",
		      (unsigned long)s->shelves.s->put, (unsigned long)s->shelves.s->got,
		      (unsigned long)s->r->rounds, (unsigned long)s->r->forks,
		      (unsigned long)s->r->moves, (unsigned long)s->r->removals);
	if (s->r->wrong)
		print_message(
			"the first wrong one in round %lu: page %u, written as %u, begins with %lx\n",
			(unsigned long)s->r->first.round, s->r->first.nr, s->r->first.seq,
			(unsigned long)s->r->first.found);
	assert_int_equal(s->r->wrong, 0);
	munmap(s->r, sizeof(*s->r));
	shelf_close(&s->shelves);
}

#endif
