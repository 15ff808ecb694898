/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The processes whose freeze is measured, from inside.
 *   gap MEBIBYTES WRITES_PER_S PROCESSES FILE
 * Private anonymous memory full of numbers, shared out among PROCESSES processes. In each, one
 * thread writes to random pages at its part of the rate, and one wakes every 100 us (1 ms if there
 * are several processes) and keeps the longest time between two looks at CLOCK_MONOTONIC. FILE is
 * mapped by all of them: struct shared below. Whoever measures sets the gaps to 0, and reads them.
 *
 * The clock's thread sleeps instead of spinning, so that it takes no processor from what is
 * measured; it is a real-time one if that is allowed, so that other work does not look like a
 * freeze. The gap is never too short, and too long by one period at most.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096
#define MAX_PROCESSES 64
#define NS_PER_S 1000000000ull
#define WRITER_PERIOD_NS 1000000

struct shared {
	_Atomic uint64_t nr_ready; /* number of processes whose memory is filled */
	_Atomic uint64_t nr_written; /* pages written by all processes */
	_Atomic uint64_t nr_realtime; /* processes whose clock's thread is a real-time one */
	_Atomic uint64_t gap_ns[MAX_PROCESSES];
};

static struct shared *shared;
static uint64_t *mem;
static uint64_t nr_pages; /* pages of this process */
static uint64_t writes_per_s; /* rate of this process */
static uint64_t period_ns;
static int self; /* which of the processes this is */

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { 0, ns };

	nanosleep(&t, NULL);
}

static void *watch_clock(void *unused)
{
	struct sched_param param = { .sched_priority = 1 };
	uint64_t last, now;

	(void)unused;
	prctl(PR_SET_TIMERSLACK, 1);
	if (!pthread_setschedparam(pthread_self(), SCHED_FIFO, &param))
		shared->nr_realtime++;
	shared->nr_ready++;
	for (last = now_ns();; last = now) {
		sleep_ns(period_ns);
		now = now_ns();
		if (now - last > shared->gap_ns[self])
			shared->gap_ns[self] = now - last;
	}
	return NULL;
}

/* Writes at the given rate, even if it wakes up late; writes that a freeze prevented are not
 * made up for. */
static void write_pages(void)
{
	uint64_t x = 88172645463325252ull + self, start = now_ns(), nr = 0;

	for (;;) {
		uint64_t due, now;

		sleep_ns(WRITER_PERIOD_NS);
		now = now_ns();
		due = (now - start) * writes_per_s / NS_PER_S;
		if (due - nr > writes_per_s / 50) {
			start = now;
			nr = 0;
			continue;
		}
		shared->nr_written += due - nr;
		for (; nr < due; nr++)
			mem[next_random(&x) % nr_pages * (PAGE_BYTES / sizeof(*mem))]++;
	}
}

static void run(void)
{
	uint64_t x = 0x9e3779b97f4a7c15ull * (self + 1);
	pthread_t thread;

	mem = mmap(NULL, nr_pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	if (mem == MAP_FAILED)
		exit(1);
	for (uint64_t i = 0; i < nr_pages * PAGE_BYTES / sizeof(*mem); i++)
		mem[i] = next_random(&x);
	if (pthread_create(&thread, NULL, watch_clock, NULL))
		exit(1);
	if (writes_per_s)
		write_pages();
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	int nr, fd;

	if (argc != 5)
		return 2;
	nr = atoi(argv[3]);
	if (nr < 1 || nr > MAX_PROCESSES)
		return 2;
	nr_pages = strtoull(argv[1], NULL, 10) * ((1 << 20) / PAGE_BYTES) / nr;
	writes_per_s = strtoull(argv[2], NULL, 10) / nr;
	period_ns = nr == 1 ? 100000 : 1000000;
	fd = open(argv[4], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*shared)))
		return 1;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (shared == MAP_FAILED)
		return 1;
	for (self = nr - 1; self > 0; self--) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, 9);
			break;
		}
	}
	run();
}
