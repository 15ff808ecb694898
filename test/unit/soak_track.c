/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns/track against random events: threads that write, map and unmap without a pause, signals that
 * stop a process, the tracker's death. Their order is random, so this is no unit test;
 * test_track_race.c, test_track_stop.c and test_track_calls.c have what can be forced.
 *
 *   soak_track [ROUNDS [SEED]]
 */
#include <pthread.h>

#include "track_mess.h"

#define THREADS 4

static unsigned int rounds = 3, first_seed = 1;

static unsigned int seed_of(uintptr_t n)
{
	return first_seed + (unsigned int)n * 7919;
}

/* ---- memory ---- */

static void *mess(void *arg)
{
	struct mess m;

	mess_begin(&m, seed_of((uintptr_t)arg), (uintptr_t)arg);
	for (;;) {
		once(&m);
		if (!pick(&m, 8)) /* leave some pages clean */
			usleep(200);
	}
	return NULL;
}

static void *come_and_go(void *arg)
{
	pthread_t p;

	if (arg) {
		char room[3 * PAGE];

		memset(room, 1, sizeof(room));
		return (void *)(uintptr_t)room[77];
	}
	for (;;) {
		if (!pthread_create(&p, NULL, come_and_go, BASE))
			pthread_join(p, NULL);
		usleep(500);
	}
}

static void messy(const struct ends *e, void *arg)
{
	pthread_t p;

	for (uintptr_t i = 0; i < THREADS; i++)
		need(!pthread_create(&p, NULL, mess, (void *)i));
	need(!pthread_create(&p, NULL, come_and_go, NULL));
	tell(e, 'r');
	for (;;)
		pause();
}

/* Makes @nr dumps of one process, with @rounds rounds before each. */
static size_t dumps(int before, int nr)
{
	struct target c = start(messy, NULL);
	struct tracked tracked, *t = &tracked;
	size_t clean = 0;

	heard(&c);
	track(t, c);
	for (int dump = 0; dump < nr; dump++) {
		for (int i = 0; i < before; i++)
			round_of(t);
		freeze(&t->c);
		verify(t, dump < nr - 1);
		clean += t->clean;
		thaw(&t->c);
		usleep(3000);
	}
	zns_track_free(t->k);
	t->k = NULL;
	freeze(&t->c);
	assert_false(smaps_say(t->c.pid, " uw"));
	untrack(t);
	return clean;
}

static void threads_make_a_mess(void **state)
{
	bool holes = kernel.holes;
	size_t clean[3] = { 0 };

	for (unsigned int i = 0; i < rounds; i++) {
		clean[0] += dumps(3, 4);
		clean[1] += dumps(0, 20);
		kernel.holes = false;
		clean[2] += dumps(3, 4);
		kernel.holes = holes;
	}
	print_message("clean pages: %zu with rounds, %zu without, %zu by the slow scan\n", clean[0],
		      clean[1], clean[2]);
}

/* ---- a tracker beside it ---- */

/* Tracks without an end. Waits while the task is busy with a call that an earlier tracker began. */
static void track_for_ever(pid_t pid)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 };
	struct zns_track *k;
	int ret;

	for (;;) {
		ret = zns_track_new(pid, &kernel, &k, &err);
		if (ret == -EBUSY || ret == -ETIMEDOUT)
			continue;
		if (!ret)
			ret = zns_track_arm(k, &copy, &err);
		if (!ret)
			ret = zns_track_barrier(k, &err);
		if (ret && ret != -EBUSY && ret != -ETIMEDOUT) {
			print_error("%s\n", err.msg);
			_exit(1);
		}
		zns_track_free(k);
	}
}

static pid_t tracker_beside(pid_t pid)
{
	pid_t p = fork();

	assert_true(p >= 0);
	if (!p) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		track_for_ever(pid);
	}
	return p;
}

static void kill_tracker(pid_t p)
{
	int status;

	kill(p, SIGKILL);
	assert_int_equal(waitpid(p, &status, 0), p);
	assert_true(WIFSIGNALED(status));
}

static void counting(const struct ends *e, void *arg)
{
	volatile uint64_t *turns = arg;

	tell(e, 'r');
	for (;;)
		turns[0]++;
}

static void killed_tracker(void **state)
{
	volatile uint64_t *turns = shared_words();
	struct target c = start(counting, (void *)(uintptr_t)turns);
	unsigned int seed = first_seed, found = 0;

	heard(&c);
	for (unsigned int i = 0; i < 100 * rounds; i++) {
		pid_t p = tracker_beside(c.pid);
		uint64_t before;

		usleep((unsigned int)rand_r(&seed) % 8000);
		kill_tracker(p);
		found += is_traced(c.pid);
		before = turns[0];
		until(turns[0] != before);
	}
	until(!is_traced(c.pid) && !smaps_say(c.pid, " uw"));
	disturb(c.pid, 1);
	print_message("%u trackers killed, %u while the process was traced\n", 100 * rounds, found);
	end(&c);
	munmap((void *)(uintptr_t)turns, PAGE);
}

static void idle(const struct ends *e, void *arg)
{
	tell(e, 'r');
	while (await(e))
		tell(e, 'd');
}

static void stops_beside(void **state)
{
	struct target c = start(idle, NULL);
	pid_t p;

	heard(&c);
	p = tracker_beside(c.pid);
	for (unsigned int i = 0; i < 300 * rounds; i++) {
		freeze(&c);
		thaw(&c);
		ask(&c, 'x');
	}
	kill_tracker(p);
	ask(&c, 'x');
	print_message("%u stops\n", 300 * rounds);
	end(&c);
}

/* ---- threads ---- */

static void *spin(void *arg)
{
	for (volatile uint64_t n = 0;; n++)
		;
	return NULL;
}

static void *short_life(void *arg)
{
	return NULL;
}

static void *lives_beside(void *arg)
{
	pthread_t p;

	for (;;)
		if (!pthread_create(&p, NULL, short_life, NULL))
			pthread_join(p, NULL);
	return NULL;
}

static void many_threads(const struct ends *e, void *arg)
{
	pthread_t p;

	for (int i = 0; i < 40; i++)
		need(!pthread_create(&p, NULL, i % 4 ? lives_beside : spin, NULL));
	idle(e, NULL);
}

static void threads_come_and_go(void **state)
{
	struct target c = start(many_threads, NULL);

	heard(&c);
	disturb(c.pid, (int)(20 * rounds));
	ask(&c, 'x');
	print_message("%u stops of 40 threads\n", 20 * rounds);
	end(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_make_a_mess),
		cmocka_unit_test(killed_tracker),
		cmocka_unit_test(stops_beside),
		cmocka_unit_test(threads_come_and_go),
	};

	if (argc > 1)
		rounds = (unsigned int)strtoul(argv[1], NULL, 0);
	if (argc > 2)
		first_seed = (unsigned int)strtoul(argv[2], NULL, 0);
	print_message("%u rounds, seed %u\n", rounds, first_seed);
	return look_at_kernel() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
