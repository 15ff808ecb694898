/* SPDX-License-Identifier: GPL-2.0-only */
/* Units that cannot be read back, for want of memory or because a part of one is damaged. */
#include "mem_reach.h"

#define MANY 512U /* pages */
#define UNIT_PAGES 16U
#define BAD 5U /* page of each unit */

static void await_warning(struct play *s, const char *word)
{
	bool found = false;

	for (int i = 0; i < WAIT_S * 100 && !found; i++) {
		ZnsPb__MemoryStatus st;

		status(s->m, &st);
		found = st.warning && strstr(st.warning, word);
		zns_mem_status_free(&st);
		usleep(10000);
	}
	assert_true(found);
}

static void checks(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
}

/* A thread that touches it waits until memory is free again, and no page is lost. */
static void without_memory(void **state)
{
	static struct play s;

	play_begin(&s, checks);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	s.shelves.s->get_error = -ENOMEM;
	tell(&s, 2);
	await_warning(&s, "the test says so");
	s.shelves.s->get_error = 0;
	await_step(&s, 2);
	assert_int_equal(lost_units(&s), 0);
	play_end(&s);
}

static sigjmp_buf back;

static void jump(int sig)
{
	siglongjmp(back, 1);
}

static bool is_poisoned(const uint8_t *page)
{
	if (sigsetjmp(back, 1))
		return true;
	(void)*(const volatile uint8_t *)page;
	return false;
}

static void looks_at_each(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	uint64_t poisoned = 0;

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	signal(SIGBUS, jump);
	for (uint32_t i = 0; i < MANY; i++)
		if (!is_poisoned(mem + i * PAGE))
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, 1);
		else if (i % UNIT_PAGES == BAD)
			poisoned++;
		else
			t->wrong++;
	t->other = poisoned;
	reach(t, 2);
}

/* The other pages of its unit are right. */
static __attribute__((unused)) void one_bad_page(void **state)
{
	static struct play s;

	if (getenv("ZNS_TEST_MEM_ENCRYPT")) /* only a whole unit can be verified */
		skip();
	play_begin(&s, looks_at_each);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE / 2);
	s.shelves.s->bad_piece = BAD + 1;
	do_step(&s, 2);
	s.shelves.s->bad_piece = 0;
	assert_true(s.t->other);
	assert_true(lost_units(&s));
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_memory),
#ifndef __SANITIZE_ADDRESS__ /* whose own memory may not be poisoned */
		cmocka_unit_test(one_bad_page),
#endif
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
