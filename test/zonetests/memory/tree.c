/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A tree of processes with threads, whose every page is known. tree MIB: each of four processes has
 * so much, partly its parent's, and two threads that read and write it. Prints "ready"; at SIGUSR1
 * each ends one thread and begins another; at SIGTERM each looks at all, in order, and the root
 * prints "end WRONG".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define THREADS 2
#define CHILDREN 3

static uint64_t *mem, me;
static uint32_t pages;
static _Atomic uint64_t wrong;
static volatile sig_atomic_t stop, swap;

static void on_signal(int sig)
{
	if (sig == SIGTERM)
		stop = 1;
	else
		swap = 1;
}

/* Value of word @nr. The first half of the words were written by the root process, the others by us. */
static uint64_t word(uint32_t nr)
{
	return (nr < pages / 2 ? 0 : me) << 40 | ((uint64_t)nr + 1) * 0x9E3779B1u;
}

static void fill(uint32_t from)
{
	for (uint32_t nr = from; nr < pages; nr++)
		for (size_t i = 0; i < PAGE / 8; i++)
			mem[nr * (PAGE / 8) + i] = word(nr) + i;
}

static void check(uint32_t nr)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		if (mem[nr * (PAGE / 8) + i] != word(nr) + i) {
			fprintf(stderr, "pid %d page %u: %016lx\n", getpid(), nr,
				(unsigned long)mem[nr * (PAGE / 8) + i]);
			wrong++;
			return;
		}
}

static _Atomic int end_one;

static void *work(void *arg)
{
	uint64_t seed = (uintptr_t)arg + me, deep[512];
	int one = 1;

	for (size_t i = 0; i < 512; i++)
		deep[i] = i ^ seed;
	while (!stop && !(end_one && atomic_compare_exchange_strong(&end_one, &one, 0))) {
		uint32_t nr;

		one = 1;
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		nr = (uint32_t)(seed >> 33) % (pages / 8);
		check(nr);
		mem[nr * (PAGE / 8)] = word(nr);
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
	seed = (uintptr_t)arg + me;
	for (size_t i = 0; i < 512; i++)
		wrong += deep[i] != (i ^ seed);
	return NULL;
}

static void live(void)
{
	pthread_t t[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, (void *)i);
	if (!me) {
		printf("ready\n");
		fflush(stdout);
	}
	while (!stop) {
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		if (swap && !stop) {
			uintptr_t n = 0;

			swap = 0;
			end_one = 1;
			while (end_one && !stop)
				nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
			/* finds which of the threads has ended */
			while (n < THREADS && pthread_tryjoin_np(t[n], NULL)) {
				n = (n + 1) % THREADS;
				nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
			}
			pthread_create(&t[n], NULL, work, (void *)n);
			printf("swapped\n");
			fflush(stdout);
		}
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (uint32_t nr = 0; nr < pages; nr++)
		check(nr);
}

int main(int argc, char **argv)
{
	size_t len = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) << 20;
	pid_t child[CHILDREN];
	int status;

	pages = (uint32_t)(len / PAGE);
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return 2;
	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_signal);
	fill(0);
	for (int i = 0; i < CHILDREN; i++) {
		child[i] = fork();
		if (!child[i]) {
			me = (uint64_t)i + 1;
			fill(pages / 2);
			live();
			return wrong ? 1 : 0;
		}
	}
	sleep(1);
	live();
	for (int i = 0; i < CHILDREN; i++) {
		kill(child[i], SIGTERM);
		if (waitpid(child[i], &status, 0) != child[i] || status)
			wrong++;
	}
	printf("end %lu\n", (unsigned long)wrong);
	return wrong ? 1 : 0;
}
