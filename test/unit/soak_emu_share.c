/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that use an emulated device are killed at any moment. When is up to chance:
 * test_emu_share.c kills them at their system calls.
 *
 *   soak_emu_share [TIMES [SEED]]
 */
#include "emu_kill.h"
#include "until.h"

static unsigned seed = 1;
static int times = 30;

static void at_once(void)
{
}

static void kill_some_time(int nr)
{
	struct timespec nap = { .tv_nsec = 1000000 + rand_r(&seed) % 8000000 };
	uint32_t start = told->rounds;
	pid_t pid = fork();
	int st;

	if (!pid)
		_exit(child_until_killed(seed, at_once));
	assert_true(pid > 0);
	until(*(volatile uint32_t *)&told->rounds >= start + 3);
	nanosleep(&nap, NULL);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	if (!WIFSIGNALED(st))
		fail_msg("the child ended by itself with %d", WEXITSTATUS(st));
}

static void killed(void **state)
{
	killed_in_the_middle(times, kill_some_time);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { T(killed) };

	if (argc > 1)
		times = atoi(argv[1]);
	if (argc > 2)
		seed = (unsigned)strtoul(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
