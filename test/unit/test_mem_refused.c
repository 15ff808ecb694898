/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other tests of memory contexts where the kernel refuses PAGEMAP_SCAN (pages are looked for in
 * pagemap) or UFFDIO_MOVE. They are programs of their own, since the library reads its controls'
 * variables when a process begins.
 */
#include <limits.h>
#include "mem_fixture.h"

#define SCAN "2"
#define MOVE "6"

static int run_with(const char *variable, const char *value, const char *program, const char *only)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 20);
	int status;
	pid_t pid;

	assert_true(n > 0);
	path[n] = '\0';
	strcpy(strrchr(path, '/') + 1, program);
	print_message("%s %s\n", program, only ? only : "");
	pid = fork();
	if (!pid) {
		setenv(variable, value, 1);
		execl(path, path, only, NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int run(const char *refused, const char *program, const char *only)
{
	return run_with("ZNS_MEM_REFUSED", refused, program, only);
}

static void no_scan(void **state)
{
	assert_int_equal(run(SCAN, "test_mem", "forking"), 0);
	assert_int_equal(run(SCAN, "test_mem", "together"), 0);
	assert_int_equal(run(SCAN, "test_mem_reach", "protecting"), 0);
}

/* What cannot be moved is dropped. */
static void no_move(void **state)
{
	assert_int_equal(run(MOVE, "test_mem", "forking"), 0);
	assert_int_equal(run(MOVE, "test_mem", "together"), 0);
	assert_int_equal(run(MOVE, "test_mem_late", "trimming"), 0);
}

/* Controls: rules whose absence test_mem_reach must see. */
static void controls(void **state)
{
	int ended = 0;

	assert_int_not_equal(run_with("ZNS_MEM_WITHOUT", "11", "test_mem_reach", "sharing"), 0);
	assert_int_not_equal(run_with("ZNS_MEM_WITHOUT", "12", "test_mem_reach", "not_copied"), 0);
	if (access("/sys/fs/cgroup/memory/memory.stat", F_OK))
		return;
	/* a machine that is busy enough may make room in time without it */
	for (int i = 0; i < 8 && !ended; i++)
		ended = run_with("ZNS_MEM_WITHOUT", "13", "test_mem_hold", "full_group");
	assert_int_not_equal(ended, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_scan),
		cmocka_unit_test(no_move),
		cmocka_unit_test(controls),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
