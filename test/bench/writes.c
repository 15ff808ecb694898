/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process that writes to its memory, and knows what must be in it, for migration in rounds.
 *   writes MEBIBYTES WRITES_PER_S ANSWERS
 * It appends "ready 0" to the file ANSWERS, then writes to random pages at this rate. At SIGUSR2 it
 * writes to every hundredth page at once, and appends "wrote N". At SIGUSR1 it checks all of its
 * memory and appends "same N" or "differs N", N words being wrong.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE_WORDS 512
#define PERIOD_NS 1000000
#define NS_PER_S 1000000000ull

static uint64_t *mem, pages;
static uint32_t *written; /* how often, by page */

static uint64_t word_at(uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 31);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void answer(const char *path, const char *what, uint64_t nr)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || dprintf(fd, "%s %llu\n", what, (unsigned long long)nr) < 0)
		exit(1);
	close(fd);
}

static void write_page(uint64_t n)
{
	mem[n * PAGE_WORDS + n % PAGE_WORDS]++;
	written[n]++;
}

static void check(const char *path)
{
	uint64_t wrong = 0;

	for (uint64_t n = 0; n < pages; n++)
		for (uint64_t i = 0; i < PAGE_WORDS; i++)
			wrong += mem[n * PAGE_WORDS + i] !=
				 word_at(n * PAGE_WORDS + i) +
					 (i == n % PAGE_WORDS ? written[n] : 0);
	answer(path, wrong ? "differs" : "same", wrong);
}

/* Writes at the rate, however late it wakes up; missed writes are not made up for. */
static void write_due(uint64_t rate)
{
	static uint64_t start, nr, x = 88172645463325252ull;
	uint64_t now = now_ns(), due = (now - start) * rate / NS_PER_S;

	if (!start || due - nr > rate / 50) {
		start = now;
		nr = 0;
		return;
	}
	for (; nr < due; nr++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		write_page(x % pages);
	}
}

int main(int argc, char **argv)
{
	const struct timespec period = { 0, PERIOD_NS }, hour = { 3600, 0 };
	uint64_t rate;
	sigset_t set;

	if (argc != 4)
		return 2;
	pages = strtoull(argv[1], NULL, 10) << 8;
	rate = strtoull(argv[2], NULL, 10);
	mem = mmap(NULL, pages * PAGE_WORDS * 8, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	written = calloc(pages, sizeof(*written));
	if (mem == MAP_FAILED || !written)
		return 1;
	madvise(mem, pages * PAGE_WORDS * 8, MADV_NOHUGEPAGE);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (uint64_t i = 0; i < pages * PAGE_WORDS; i++)
		mem[i] = word_at(i);
	answer(argv[3], "ready", 0);
	for (;;) {
		switch (sigtimedwait(&set, NULL, rate ? &period : &hour)) {
		case SIGUSR1:
			check(argv[3]);
			break;
		case SIGUSR2:
			for (uint64_t n = 0; n < pages; n += 100)
				write_page(n);
			answer(argv[3], "wrote", pages / 100);
			break;
		default:
			if (rate)
				write_due(rate);
		}
	}
}
