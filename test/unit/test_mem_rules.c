/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A pager without one of the rules (zns/memory/engine/rules.h), or without a keeper: each must show
 * wrong pages or a hang. Not built with a sanitizer, since one wrong page is enough.
 */
#include "mem_death.h"

/* A case needs two threads at the same place at the same time: on a busy machine that may not
 * happen in each scene. */
#define SCENES 60

/* No process keeps the descriptors, so the kernel lets the program read zeroes. The control of
 * test_mem_death.c. */
static void nobody_keeps(void **state)
{
	struct scene s;

	begin(&s, "ZNS_MEM_KILL", "6@200");
	for (uint32_t i = 0; i < s.have.nr; i++)
		close(s.have.fd[i]);
	s.have.nr = 0;
	assert_true(dies(&s));
	/* a sanitizer's own memory would be lost, too */
	assert_true(!all_done(&s) || s.r->wrong);
	end(&s);
}

static bool shows_without(const char *rule, bool hangs, bool wrong)
{
	struct scene s;
	bool hung, shown;
	int times = 0;

	begin(&s, "ZNS_MEM_WITHOUT", rule);
	/* delays of a device, so that everything has time to go wrong */
	s.shelves.s->put_us = 3000;
	s.shelves.s->clean = strcmp(rule, "14") ? 0 : SLOTS;
	do {
		hung = !moves_within(&s, 2000, hangs ? CONTROL_S : PATIENCE_S);
	} while (!hung && !s.r->wrong && times++ < 30);
	hung = hung || !all_done(&s);
	print_message("without rule %s: %s, %lu wrong, %lu units out\n", rule,
		      hung ? "hangs" : "runs", (unsigned long)s.r->wrong,
		      (unsigned long)s.desk->evicted);
	shown = (hangs && hung) || (wrong && s.r->wrong);
	end(&s);
	return shown;
}

static void without(const char *rule, bool hangs, bool wrong)
{
	int k = 0;

	while (k < SCENES && !shows_without(rule, hangs, wrong))
		k++;
	assert_true(k < SCENES);
}

static void without_own_removals(void **state)
{
	mem_control("ZNS_MEM_REFUSED", "6"); /* moves are not reported */
	without("1", false, true);
	mem_control("ZNS_MEM_REFUSED", NULL);
}

static void without_free_reader(void **state)
{
	without("2", true, false);
}

/* The pager is killed when a child has its table, and so is its successor: is a page wrong? */
static bool wrong_after_birth(const char *first, const char *next, bool stale)
{
	struct scene s;
	bool wrong;

	forks = true;
	if (first)
		mem_control("ZNS_MEM_WITHOUT", first);
	begin(&s, "ZNS_MEM_KILL", "22@6");
	mem_control("ZNS_MEM_WITHOUT", NULL);
	forks = false;
	if (stale)
		keep_stale(&s);
	assert_true(dies(&s));
	next_pager(&s, next ? "ZNS_MEM_WITHOUT" : NULL, next);
	moves_within(&s, 300, CONTROL_S);
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

/* No process has a copy of a child's descriptors: the child reads zeroes. */
static void without_births(void **state)
{
	int k = 0;

	while (k < SCENES && !wrong_after_birth("15", NULL, false))
		k++;
	assert_true(k < SCENES);
}

/* The child's own descriptors are lost. */
static void without_serials(void **state)
{
	int k = 0;

	while (k < SCENES && !wrong_after_birth(NULL, "17", true))
		k++;
	assert_true(k < SCENES);
}

/* A child's userfaultfd was read, and no other process has it. */
static bool wrong_without_hold(unsigned int nr)
{
	struct scene s;
	char at[16];
	bool wrong;

	snprintf(at, sizeof(at), "28@%u", nr);
	forks = true;
	mem_control("ZNS_MEM_WITHOUT", "21");
	begin(&s, "ZNS_MEM_KILL", at);
	mem_control("ZNS_MEM_WITHOUT", NULL);
	forks = false;
	assert_true(dies(&s));
	next_pager(&s, NULL, NULL);
	moves_within(&s, 300, CONTROL_S);
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

static void without_hold(void **state)
{
	unsigned int k = 0;

	while (k < SCENES && !wrong_without_hold(3 + k % 6))
		k++;
	assert_true(k < SCENES);
}

static bool wrong_without_owner(const char *rules, int times)
{
	struct scene s;
	bool wrong;

	forks = true;
	begin(&s, "ZNS_MEM_WITHOUT", rules);
	forks = false;
	for (int k = 0; k < times && !s.r->wrong; k++)
		assert_true(moves(&s, 1000));
	wrong = s.r->wrong;
	end(&s);
	return wrong;
}

/* A child that has a userfaultfd by its fork is attached anew. That alone evicts nothing of it. */
static void without_owner(void **state)
{
	int k = 0;

	assert_false(wrong_without_owner("19", 3));
	while (k < SCENES && !wrong_without_owner("18,19", 10))
		k++;
	assert_true(k < SCENES);
}

static void without_exchange(void **state)
{
	without("14", true, true);
}

static void without_protected_copies(void **state)
{
	without("9", false, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_keeps),
		cmocka_unit_test(without_own_removals),
		cmocka_unit_test(without_free_reader),
		cmocka_unit_test(without_births),
		cmocka_unit_test(without_serials),
		cmocka_unit_test(without_hold),
		cmocka_unit_test(without_owner),
		cmocka_unit_test(without_exchange),
		cmocka_unit_test(without_protected_copies),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
