/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process whose first touches of its memory are timed, for lazy restores.
 *   faults MEBIBYTES SEED ANSWERS
 * It appends "ready 0" to the file ANSWERS. At SIGUSR2 it reads a word of each of TOUCHES pages, in
 * an order without a pattern, and appends "touched FAULTS MEDIAN P99 MAX": how many took longer
 * than FAULT_NS, the median of those, and of all touches the 99th percentile and the longest, in
 * nanoseconds. At SIGUSR1 it checks all of its memory and appends "same N" or "differs N", N words
 * being wrong.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TOUCHES 1000
#define PAGE_WORDS 512
#define FAULT_NS 5000 /* the read of a page that is present never takes this long */

static uint64_t *mem, words, seed;

static uint64_t word_at(uint64_t i)
{
	uint64_t x = (seed << 40) + (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 31);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void answer(const char *path, const char *line)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || dprintf(fd, "%s\n", line) < 0)
		exit(1);
	close(fd);
}

static int cmp(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void touch(const char *path)
{
	static uint64_t took[TOUCHES];
	uint64_t pages = words / PAGE_WORDS, at = 12345, start;
	volatile uint64_t *m = mem;
	unsigned there = 0;
	char line[128];

	for (unsigned i = 0; i < TOUCHES; i++) {
		at = at * 6364136223846793005u + 1442695040888963407u;
		start = now_ns();
		(void)m[(at >> 33) % pages * PAGE_WORDS];
		took[i] = now_ns() - start;
	}
	qsort(took, TOUCHES, sizeof(took[0]), cmp);
	while (there < TOUCHES && took[there] < FAULT_NS)
		there++;
	snprintf(line, sizeof(line), "touched %u %llu %llu %llu", TOUCHES - there,
		 (unsigned long long)(there < TOUCHES ? took[there + (TOUCHES - there) / 2] : 0),
		 (unsigned long long)took[TOUCHES * 99 / 100],
		 (unsigned long long)took[TOUCHES - 1]);
	answer(path, line);
}

int main(int argc, char **argv)
{
	sigset_t set;
	int sig;

	if (argc != 4)
		return 2;
	words = strtoull(argv[1], NULL, 10) << 17;
	seed = strtoull(argv[2], NULL, 10);
	mem = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return 1;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (uint64_t i = 0; i < words; i++)
		mem[i] = word_at(i);
	answer(argv[3], "ready 0");
	for (;;) {
		uint64_t wrong = 0;
		char line[64];

		if (sigwait(&set, &sig))
			return 1;
		if (sig == SIGUSR2) {
			touch(argv[3]);
			continue;
		}
		for (uint64_t i = 0; i < words; i++)
			wrong += mem[i] != word_at(i);
		snprintf(line, sizeof(line), "%s %llu", wrong ? "differs" : "same",
			 (unsigned long long)wrong);
		answer(argv[3], line);
	}
}
