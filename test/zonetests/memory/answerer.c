/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes and threads whose every page is known, and which keep no file open, so that any of
 * their checkpoints can be restored at any time. answerer MIB THREADS CHILDREN DIR [ACTIVE]: each
 * process has all of it, its threads divide it; children have their parent's pages at first. They
 * read and write some of the first ACTIVE percent (5). At SIGUSR1 each process looks at all pages
 * and writes "WRONG ROUNDS" into DIR/PID; at SIGTERM it ends.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096UL
#define THREADS_MAX 16U

static uint64_t *mem;
static uint32_t *seq, pages, nr_threads, active;
static _Atomic uint64_t wrong, rounds;
static _Atomic uint32_t asked, answered;
static volatile sig_atomic_t ask;
static const char *dir;

static void on_usr1(int sig)
{
	(void)sig;
	ask = 1;
}

static uint64_t word(uint32_t nr, size_t i)
{
	return ((uint64_t)nr << 32 | seq[nr]) * 0x9E3779B97F4A7C15ULL + i;
}

static void put(uint32_t nr)
{
	seq[nr]++;
	for (size_t i = 0; i < PAGE / 8; i++)
		mem[nr * (PAGE / 8) + i] = word(nr, i);
}

static void check(uint32_t nr)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		if (mem[nr * (PAGE / 8) + i] != word(nr, i)) {
			wrong++;
			return;
		}
}

/* Of a process's pages a thread has those that leave a rest of @me. */
static void some(uint32_t me, uint32_t *seed)
{
	uint32_t nr;

	*seed = *seed * 1664525U + 1013904223U;
	nr = *seed / 256 % (pages / 100 * active + 1);
	nr = nr - nr % nr_threads + me;
	if (nr >= pages)
		return;
	check(nr);
	if (*seed / 65536 % 4 == 0)
		put(nr);
	rounds++;
}

static void *run(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg, seed = me, seen = 0;

	for (;;) {
		if (asked != seen) {
			seen = asked;
			for (uint32_t nr = me; nr < pages; nr += nr_threads)
				check(nr);
			answered++;
		}
		some(me, &seed);
		usleep(500);
	}
	return NULL;
}

static void answer(void)
{
	char path[512], to[512];
	FILE *f;

	answered = 0;
	asked++;
	while (answered < nr_threads)
		usleep(1000);
	snprintf(path, sizeof(path), "%s/%d.new", dir, getpid());
	snprintf(to, sizeof(to), "%s/%d", dir, getpid());
	f = fopen(path, "w");
	if (!f)
		return;
	fprintf(f, "%lu %lu\n", (unsigned long)wrong, (unsigned long)rounds);
	fclose(f);
	rename(path, to);
}

int main(int argc, char **argv)
{
	uint32_t children;
	pthread_t t;

	if (argc < 5)
		return 2;
	pages = (uint32_t)((strtoul(argv[1], NULL, 10) << 20) / PAGE);
	nr_threads = (uint32_t)strtoul(argv[2], NULL, 10);
	children = (uint32_t)strtoul(argv[3], NULL, 10);
	dir = argv[4];
	active = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 5;
	mem = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	seq = calloc(pages, sizeof(*seq));
	if (mem == MAP_FAILED || !seq || !nr_threads || nr_threads > THREADS_MAX)
		return 2;
	signal(SIGUSR1, on_usr1);
	for (uint32_t nr = 0; nr < pages; nr++)
		put(nr);
	for (uint32_t i = 0; i < children; i++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (uint32_t nr = i; nr < pages; nr += 8)
			put(nr);
		break;
	}
	for (uint32_t i = 0; i < nr_threads; i++)
		if (pthread_create(&t, NULL, run, (void *)(uintptr_t)i))
			return 2;
	for (;;) {
		usleep(10000);
		if (ask) {
			ask = 0;
			answer();
		}
	}
}
