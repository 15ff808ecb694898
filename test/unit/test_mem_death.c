/* SPDX-License-Identifier: GPL-2.0-only */
/* A pager that is killed: a successor with copies of its descriptors continues, and no page is
 * wrong. Also a store that is full, or fails. What happens without the rules: test_mem_rules.c. */
#include "mem_death.h"

static void killed_at(const char *at)
{
	struct scene s;

	begin(&s, "ZNS_MEM_KILL", at);
	assert_true(dies(&s));
	next_pager(&s, NULL, NULL);
	assert_true(moves(&s, 300));
	assert_true(all_done(&s));
	if (s.r->wrong)
		fail_msg("killed at %s: %lu pages are wrong", at, (unsigned long)s.r->wrong);
	s.desk->detach = 1;
	for (int k = 0; k < 1000 && !s.desk->detached; k++)
		usleep(10000);
	assert_true(s.desk->detached && !s.desk->failed);
	assert_int_equal(s.shelves.s->held, 0);
	end(&s);
}

/* The pager is killed when a unit reaches a state, at several moments. */
static void killed_in_state(void **state)
{
	static const char *const at[] = { "1@20", "2@40", "3@30", "4@50", "5@3", "5@90",
					  "6@1",  "6@90", "7@1",  "7@60", "8@1", "8@70" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
		killed_at(at[i]);
}

/* The pager is killed when it has read the event of a fork, when the child has its table, or when it has its
 * slot. @lost: how many children may be killed with it. */
static void killed_in_a_fork_at(const char *at, unsigned int lost)
{
	struct scene s;

	forks = true;
	begin(&s, "ZNS_MEM_KILL", at);
	forks = false;
	assert_true(dies(&s));
	next_pager(&s, NULL, NULL);
	assert_true(moves(&s, 500));
	assert_true(all_done(&s));
	if (s.r->wrong)
		fail_msg("killed at %s: %lu pages are wrong", at, (unsigned long)s.r->wrong);
	assert_true(s.r->killed <= lost);
	end(&s);
}

static void killed_in_a_fork(void **state)
{
	static const char *const read_at[] = { "21@1", "21@5", "21@9", "28@1", "28@5", "28@9" },
				 *const born_at[] = {
					 "26@1", "26@4", "26@9", "22@1", "22@4", "22@8"
				 };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(read_at); i++)
		killed_in_a_fork_at(read_at[i], 1);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(born_at); i++)
		killed_in_a_fork_at(born_at[i], 0);
}

/* The next pager does not move pages: dropped pages are reported to it. */
static void drops(bool on)
{
	mem_control("ZNS_MEM_REFUSED", on ? "6" : NULL);
}

static bool is_event(int state)
{
	return state >= REACHED_EVENT && state <= REACHED_SMALL;
}

/*
 * The pager is killed wherever a unit, a fork or an event may be, while children are forked all the
 * time and check all pages; ZNS_TEST_MEM_KILLS times (make memory-kills), in an order chosen by
 * ZNS_TEST_MEM_SEED. A child that was just being forked may be killed.
 */
static void killed_beside_forks(void **state)
{
	static const struct {
		/* most: the state occurs this often within a second or so */
		unsigned int state, most;
	} at[] = { { 1, 90 },  { 2, 90 },  { 3, 90 },  { 4, 90 },  { 5, 90 },  { 6, 90 },
		   { 7, 90 },  { 8, 70 },  { 21, 12 }, { 22, 12 }, { 23, 90 }, { 24, 150 },
		   { 25, 20 }, { 26, 12 }, { 28, 12 }, { 33, 90 }, { 34, 90 }, { 35, 90 } };
	const char *kills = getenv("ZNS_TEST_MEM_KILLS"), *from = getenv("ZNS_TEST_MEM_SEED");
	uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
	unsigned int nr = kills ? (unsigned int)atoi(kills) : 10;

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int which = roll(&seed) % ZNS_ARRAY_SIZE(at);
		char text[32];

		snprintf(text, sizeof(text), "%u@%u", at[which].state,
			 1 + roll(&seed) % at[which].most);
		drops(i % 2 || is_event(at[which].state));
		killed_in_a_fork_at(text, 1);
	}
	drops(false);
	print_message("%u kills\n", nr);
}

/* The pager is killed after it has read the event of a removal, by the program or by itself, and before it
 * has noted all of it. */
static void killed_in_an_event(void **state)
{
	static const char *const at[] = { "23@1",  "23@9",   "23@40", "23@90", "24@1", "24@30",
					  "24@80", "24@150", "25@1",  "25@8",  "25@20" };

	drops(true);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
		killed_at(at[i]);
	drops(false);
}

/* The pager dies while a thread stands still: the process that holds the thread completes its
 * work. */
static void killed_in_a_stop(void **state)
{
	static const char *const at[] = { "20@1", "20@7",  "20@20", "33@1", "33@9",
					  "34@1", "34@12", "35@1",  "35@15" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++)
		killed_at(at[i]);
}

/* The next pager has read an event of the stop's drops, and is slow to note it; meanwhile the
 * stop ends. What the stop dropped must not count as removed by the program. */
static void killed_in_a_stop_and_noted_late(void **state)
{
	struct scene s;

	drops(true);
	begin(&s, "ZNS_MEM_KILL", "34@3");
	assert_true(dies(&s));
	next_pager(&s, "ZNS_MEM_LATE", "23@200000");
	assert_true(moves(&s, 100));
	assert_true(all_done(&s));
	assert_int_equal(s.r->wrong, 0);
	drops(false);
	end(&s);
}

/* Units are moved all the time, and the pager is killed when a copy was written or a place was
 * changed. */
static void killed_moving(void **state)
{
	static const char *const at[] = { "60@2", "60@30", "61@1", "61@150" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++) {
		struct scene s;

		begin(&s, "ZNS_MEM_KILL", at[i]);
		s.shelves.s->clean = SLOTS;
		assert_true(dies(&s));
		next_pager(&s, NULL, NULL);
		assert_true(moves(&s, 2000));
		/* on a slow (emulated) machine the cleaning takes longer */
		for (int k = 0; s.shelves.s->cleaned <= 2 && k < 100; k++)
			assert_true(moves(&s, 1000));
		assert_true(s.shelves.s->cleaned > 2);
		assert_true(all_done(&s));
		if (s.r->wrong)
			fail_msg("killed at %s: %lu pages are wrong", at[i],
				 (unsigned long)s.r->wrong);
		s.desk->detach = 1;
		for (int k = 0; k < 1000 && !s.desk->detached; k++)
			usleep(10000);
		assert_true(s.desk->detached && !s.desk->failed);
		assert_int_equal(s.shelves.s->held, 0);
		end(&s);
	}
}

static void killed_with_stale(void **state)
{
	static const char *const at[] = { "22@2", "22@6" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++) {
		struct scene s;

		forks = true;
		begin(&s, "ZNS_MEM_KILL", at[i]);
		forks = false;
		keep_stale(&s);
		assert_true(dies(&s));
		next_pager(&s, NULL, NULL);
		assert_true(moves(&s, 500));
		assert_true(all_done(&s));
		assert_int_equal(s.r->wrong, 0);
		assert_int_equal(s.r->killed, 0);
		end(&s);
	}
}

/* The store is full, then fails writes: the program runs, and its memory stays. */
static void no_room(void **state)
{
	struct scene s;

	begin(&s, NULL, NULL);
	assert_true(moves(&s, 300));
	s.shelves.s->put_error = -ENOSPC;
	assert_true(moves(&s, 1000));
	s.shelves.s->put_error = -EIO;
	assert_true(moves(&s, 1000));
	s.shelves.s->put_error = 0;
	assert_true(moves(&s, 300));
	assert_true(all_done(&s));
	assert_int_equal(s.r->wrong, 0);
	end(&s);
}

/* Memory that cannot be read gives SIGBUS or SIGKILL, never zeroes; a detach is refused. */
static void unreadable(void **state)
{
	for (int taken = 0; taken < 2; taken++) {
		struct scene s;
		int code;

		begin(&s, "ZNS_MEM_WITHOUT", taken ? "8" : "99");
		assert_true(moves(&s, 2000));
		s.shelves.s->get_error = -EIO;
		if (taken) {
			for (int k = 0; k < 30 && !s.r->wrong; k++)
				assert_true(moves(&s, 1000));
			assert_true(s.r->wrong > 0);
		} else {
			assert_int_equal(waitpid(s.victim, &code, 0), s.victim);
			assert_true(WIFSIGNALED(code) &&
				    (WTERMSIG(code) == SIGBUS || WTERMSIG(code) == SIGKILL));
			assert_int_equal(s.r->wrong, 0);
		}
		end(&s);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_in_state),
		cmocka_unit_test(killed_moving),
		cmocka_unit_test(killed_in_a_stop),
		cmocka_unit_test(killed_in_a_stop_and_noted_late),
		cmocka_unit_test(killed_in_a_fork),
		cmocka_unit_test(killed_beside_forks),
		cmocka_unit_test(killed_with_stale),
		cmocka_unit_test(killed_in_an_event),
		cmocka_unit_test(no_room),
		cmocka_unit_test(unreadable),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
