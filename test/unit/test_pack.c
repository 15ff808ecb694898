/* SPDX-License-Identifier: GPL-2.0-only */
/* The writer's pack unit, at states that a dump reaches by chance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../zns/stripe/write/pack.c"

/* The writer fails while pack_flush() waits for room: no zone is asked for, and the unit stays. */
static void writer_fails_meanwhile(void **state)
{
	struct zns_writer w = { .err = { .code = -EIO } };
	struct job *unit = job_new(NULL);

	assert_non_null(unit);
	pthread_mutex_init(&w.lock, NULL);
	w.pack.unit = unit;
	writer_lock(&w);
	assert_int_equal(pack_flush(&w), -EIO);
	writer_unlock(&w);
	assert_ptr_equal(w.pack.unit, unit);
	pack_fini(&w);
	pthread_mutex_destroy(&w.lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writer_fails_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
