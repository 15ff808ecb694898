/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program that does nothing until it is asked. idler MIB THREADS CHILDREN: fills its memory,
 * begins so many threads that wait, and so many children with a child each, which write some of it
 * anew. Each line on its input is a share in percent: it looks at so much of its memory from the
 * beginning, writes every seventh page of that, has its threads and children do the same, and says
 * "ok", or "bad N". With "0" nobody but the main thread answers.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#define PAGE 4096UL
#define MANY 16

static uint64_t *mem;
static uint32_t *seq, pages, percent, nr_threads;
static uint64_t wrong;
static sem_t go[MANY], done;
static struct {
	int to, from;
} child[MANY];

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

static void look(uint32_t first, uint32_t step)
{
	uint32_t end = (uint32_t)((uint64_t)pages * percent / 100);

	for (uint32_t nr = first; nr < end; nr += step) {
		for (size_t i = 0; i < PAGE / 8; i++)
			if (mem[nr * (PAGE / 8) + i] != word(nr, i)) {
				__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
				fprintf(stderr, "pid %d: page %u is wrong\n", getpid(), nr);
				break;
			}
		if (nr % 7 == 0)
			put(nr);
	}
}

static void *thread(void *arg)
{
	uint32_t self = (uint32_t)(uintptr_t)arg;

	for (;;) {
		sem_wait(&go[self]);
		look(self + 1, nr_threads + 1);
		sem_post(&done);
	}
	return NULL;
}

static void serve(int from, int to, int below_to, int below_from)
{
	for (;;) {
		uint8_t ask, good = 1, theirs;

		if (read(from, &ask, 1) != 1)
			_exit(0);
		percent = ask;
		wrong = 0;
		look(0, 1);
		if (below_to >= 0 &&
		    (write(below_to, &ask, 1) != 1 || read(below_from, &theirs, 1) != 1))
			_exit(1);
		if (below_to >= 0)
			good = theirs;
		if (wrong)
			good = 0;
		if (write(to, &good, 1) != 1)
			_exit(1);
	}
}

static void tree(int n)
{
	int down[2], up[2], down2[2], up2[2];

	if (pipe(down) || pipe(up) || pipe(down2) || pipe(up2))
		exit(2);
	child[n].to = down[1];
	child[n].from = up[0];
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t nr = (uint32_t)n; nr < pages; nr += 10)
		put(nr);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (uint32_t nr = 5; nr < pages; nr += 20)
			put(nr);
		serve(down2[0], up2[1], -1, -1);
	}
	serve(down[0], up[1], down2[1], up2[0]);
}

int main(int argc, char **argv)
{
	size_t len = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20;
	uint32_t children = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
	char line[64];

	nr_threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
	pages = (uint32_t)(len / PAGE);
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	seq = calloc(pages, sizeof(*seq));
	if (mem == MAP_FAILED || !seq || nr_threads > MANY || children > MANY)
		return 2;
	for (uint32_t nr = 0; nr < pages; nr++)
		put(nr);
	for (uint32_t i = 0; i < children; i++)
		tree((int)i);
	for (uint32_t i = 0; i < children; i++) {
		uint8_t nothing = 0;

		if (write(child[i].to, &nothing, 1) != 1 || read(child[i].from, &nothing, 1) != 1)
			return 2;
	}
	sem_init(&done, 0, 0);
	for (uint32_t i = 0; i < nr_threads; i++) {
		pthread_t t;

		sem_init(&go[i], 0, 0);
		if (pthread_create(&t, NULL, thread, (void *)(uintptr_t)i))
			return 2;
	}
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		uint8_t ask = (uint8_t)atoi(line), good;

		percent = ask;
		wrong = 0;
		for (uint32_t i = 0; ask && i < nr_threads; i++)
			sem_post(&go[i]);
		look(0, ask ? nr_threads + 1 : 1);
		for (uint32_t i = 0; ask && i < nr_threads; i++)
			sem_wait(&done);
		for (uint32_t i = 0; ask && i < children; i++)
			if (write(child[i].to, &ask, 1) != 1 ||
			    read(child[i].from, &good, 1) != 1 || !good)
				wrong++;
		if (wrong)
			printf("bad %lu\n", (unsigned long)wrong);
		else
			printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
