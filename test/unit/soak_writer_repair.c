/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Zones that fail at random points of dumps, of which test_writer_repair.c makes a few.
 *
 *   soak_writer_repair [DUMPS [SEED]]
 */
int unit_main(void);

#define main unit_main
#include "test_writer_repair.c"
#undef main

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { TASK(many_at_random) };

	random_runs = argc > 1 ? strtoull(argv[1], NULL, 0) : 120;
	if (argc > 2)
		random_first = strtoull(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
