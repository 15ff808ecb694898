/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task for being dumped and having its dumper killed: threads that never sleep, each counting in
 * a file that others can read, and memory that is checked all the time. Whatever is wrong with it
 * kills it. spinner COUNTERS THREADS MIB
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORDS 512ul /* words of a page */

static volatile uint64_t *counters; /* one for each thread */
static uint64_t *mem, pages;

static uint64_t word(uint64_t page, uint64_t round, uint64_t i)
{
	uint64_t x = (page * WORDS + i) * 0x9e3779b97f4a7c15ull + round;

	return x ^ x >> 29;
}

/* The first word of a page says which round it is in; every other one follows. */
static void turn(uint64_t page)
{
	uint64_t *p = mem + page * WORDS, round = p[0];

	for (uint64_t i = 1; i < WORDS; i++)
		if (p[i] != word(page, round, i))
			abort();
	p[0] = round + 1;
	for (uint64_t i = 1; i < WORDS; i++)
		p[i] = word(page, round + 1, i);
}

/* Pages are split among the threads, which never wait for each other. */
static void *spin(void *arg)
{
	uint64_t n = (uintptr_t)arg & 0xff, threads = (uintptr_t)arg >> 8, page = n;

	for (;;) {
		if (page < pages)
			turn(page);
		page = page + threads < pages ? page + threads : n;
		counters[n]++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads = argc == 4 ? (unsigned)atoi(argv[2]) : 0;
	pthread_t t;
	int fd;

	if (!threads || threads > 64) {
		fprintf(stderr, "usage: spinner COUNTERS THREADS MIB\n");
		return 2;
	}
	pages = strtoull(argv[3], NULL, 10) << 8;
	fd = open(argv[1], O_RDWR);
	counters = fd < 0 ? MAP_FAILED :
			    mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	mem = mmap(NULL, (pages + 1) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	if (counters == MAP_FAILED || mem == MAP_FAILED)
		return 1;
	close(fd);
	for (uint64_t p = 0; p < pages; p++)
		for (uint64_t i = 1; i < WORDS; i++)
			mem[p * WORDS + i] = word(p, 0, i);
	if (nice(10) < 0)
		return 1;
	for (uintptr_t n = 1; n < threads; n++)
		if (pthread_create(&t, NULL, spin, (void *)(n | (uintptr_t)threads << 8)))
			return 1;
	spin((void *)((uintptr_t)threads << 8));
}
