/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Eight threads with stacks of their own, thread-local data and a running computation: after
 * restore each goes on where it was, and its result must be the one of an uninterrupted run of the
 * same length. zonetest: {'flavour': 'h ns'}
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include "zt.h"

#define THREADS 8
#define STACK ZT_MB(1)

static __thread uint8_t local[3 * ZT_PAGE];
static volatile bool stop;
static volatile int running;

struct worker {
	int n;
	pthread_t thread;
	pid_t tid;
	uint8_t *stack;
	uint64_t steps, chain;
};
static struct worker workers[THREADS];

static uint64_t step(uint64_t chain, uint64_t i)
{
	chain ^= i * 0x9e3779b97f4a7c15ull;
	return (chain << 13 | chain >> 51) * 5 + 0x52dce729;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint8_t on_stack[5000];

	zt_fill(local, sizeof(local), 40 + w->n);
	zt_fill(on_stack, sizeof(on_stack), 60 + w->n);
	w->tid = syscall(SYS_gettid);
	__atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST);
	while (!stop) {
		for (int i = 0; i < 1000; i++)
			w->chain = step(w->chain, w->steps++);
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
	}
	if (w->n == 5)
		zt_flip(local + 4000);
	ZT_CHECK(w->tid == syscall(SYS_gettid), "thread %d has another tid", w->n);
	zt_check(local, sizeof(local), 40 + w->n, "thread-local data");
	zt_check(on_stack, sizeof(on_stack), 60 + w->n, "thread's stack");
	return (void *)(w->chain ^ w->steps);
}

static void start(struct worker *w, int n)
{
	pthread_attr_t attr;

	w->n = n;
	w->chain = n;
	w->stack = zt_mmap(STACK);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, w->stack, STACK);
	if (pthread_create(&w->thread, &attr, work, w))
		zt_die("pthread_create");
}

static void check(void)
{
	uint64_t steps_before = workers[0].steps;
	struct timespec tick = { .tv_nsec = 20000000 };

	for (int i = 0; i < 500 && workers[0].steps == steps_before; i++)
		nanosleep(&tick, NULL);
	ZT_CHECK(workers[0].steps != steps_before, "the threads no longer run");
	stop = true;
	for (int n = 0; n < THREADS; n++) {
		struct worker *w = workers + n;
		uint64_t chain = n;
		void *ret;

		ZT_CHECK(!pthread_join(w->thread, &ret), "thread %d cannot be joined", n);
		for (uint64_t i = 0; i < w->steps; i++)
			chain = step(chain, i);
		ZT_CHECK(chain == w->chain, "thread %d: wrong result after %lu steps", n,
			 (unsigned long)w->steps);
		ZT_CHECK(ret == (void *)(chain ^ w->steps), "thread %d: wrong return value", n);
	}
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	for (int n = 0; n < THREADS; n++)
		start(workers + n, n);
	while (running < THREADS)
		usleep(1000);
	zt_ready(NULL);
	zt_serve(check);
}
