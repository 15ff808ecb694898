/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A program whose every page is known. keeper_of_pages MIB [SECONDS]: begins with all of it in
 * memory, then reads and writes mostly a tenth of it, and now and then any page; forks, moves and
 * discards. Prints a line per second, "rounds wrong". Ends at SIGTERM with a look at all: "end
 * ROUNDS WRONG".
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static volatile sig_atomic_t stop;
static uint64_t *mem;
static uint32_t *seq, pages;
static uint64_t seed = 1, rounds, wrong;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

static uint32_t roll(void)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33);
}

static uint64_t word(uint32_t nr, size_t i)
{
	return seq[nr] ? ((uint64_t)nr << 32 | seq[nr]) * 0x9E3779B97F4A7C15ULL + i : 0;
}

static void check(uint32_t nr)
{
	const uint64_t *p = mem + nr * (PAGE / 8);

	for (size_t i = 0; i < PAGE / 8; i++) {
		if (p[i] != word(nr, i)) {
			fprintf(stderr, "pid %d: page %u, word %zu: %016lx, not %016lx\n", getpid(),
				nr, i, (unsigned long)p[i], (unsigned long)word(nr, i));
			wrong++;
			return;
		}
	}
}

static void put(uint32_t nr)
{
	uint64_t *p = mem + nr * (PAGE / 8);

	seq[nr]++;
	for (size_t i = 0; i < PAGE / 8; i++)
		p[i] = word(nr, i);
}

static void child(void)
{
	if (!fork()) {
		wrong = 0;
		for (uint32_t nr = 0; nr < pages; nr += 3)
			check(nr);
		for (uint32_t nr = 0; nr < pages; nr += 9) {
			put(nr);
			check(nr);
		}
		_exit(wrong ? 1 : 0);
	}
}

static void reap(int options)
{
	int status;

	pid_t pid;

	while ((pid = waitpid(-1, &status, options)) > 0) {
		if (status)
			fprintf(stderr, "child %d: status %x\n", pid, status);
		wrong += status != 0;
	}
}

int main(int argc, char **argv)
{
	size_t len = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20;
	struct timespec now, last = { 0, 0 };

	pages = (uint32_t)(len / PAGE);
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	seq = calloc(pages, sizeof(*seq));
	if (mem == MAP_FAILED || !seq)
		return 2;
	signal(SIGTERM, on_term);
	for (uint32_t nr = 0; nr < pages; nr++)
		put(nr);
	while (!stop) {
		uint32_t dice = roll() % 1000, nr = roll() % (dice < 990 ? pages / 10 : pages);

		check(nr);
		if (dice % 4 == 0)
			put(nr);
		if (dice == 990) {
			madvise(mem + nr * (PAGE / 8), PAGE, MADV_DONTNEED);
			seq[nr] = 0;
		}
		if (rounds % 20000 == 10000)
			child();
		if (rounds++ % 64 == 0) {
			usleep(500);
			reap(WNOHANG);
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec != last.tv_sec) {
			printf("%lu %lu\n", (unsigned long)rounds, (unsigned long)wrong);
			fflush(stdout);
			last = now;
		}
	}
	reap(0);
	for (uint32_t nr = 0; nr < pages; nr++)
		check(nr);
	printf("end %lu %lu\n", (unsigned long)rounds, (unsigned long)wrong);
	return wrong ? 1 : 0;
}
