/* SPDX-License-Identifier: GPL-2.0-only */
/* How long a restore keeps CPUs awake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "../../zns/helper/awake.c"

#define MS UINT64_C(1000000)

/* If the process may not ask for it, the restore works without it. */
static void ends_by_itself(void **state)
{
	bool may = !access("/dev/cpu_dma_latency", W_OK);
	const uint64_t begun = 5 * MS;

	assert_int_equal(awake_timeout(begun), -1);
	awake_begin(begun);
	assert_int_equal(awake >= 0, may);
	assert_int_equal(awake_timeout(begun + 9900 * MS), may ? 101 : -1);
	assert_int_equal(awake >= 0, may);
	assert_int_equal(awake_timeout(begun + 10000 * MS), -1);
	assert_int_equal(awake, -1);
}

static void ends_when_told(void **state)
{
	awake_begin(0);
	awake_end();
	assert_int_equal(awake, -1);
	assert_int_equal(awake_timeout(MS), -1);
	awake_end(); /* a second call does nothing */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_by_itself),
		cmocka_unit_test(ends_when_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
