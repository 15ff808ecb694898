/* SPDX-License-Identifier: GPL-2.0-only */
/* Daemons and helpers leave the control groups of whoever started them. */
#include <mntent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "zns/cgroup_io.h"
#include "zns/daemon.h"
#include "zns/process.h"
#include "zns/util.h"

/* A new group in the first hierarchy of that type in which we can make one. */
static bool make_group(const char *type, char *path, size_t len)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	struct mntent *m;
	bool made = false;

	while (f && !made && (m = getmntent(f))) {
		if (strcmp(m->mnt_type, type) ||
		    (!strcmp(type, "cgroup") && !hasmntopt(m, "freezer")))
			continue;
		snprintf(path, len, "%s/zns-test-%d", m->mnt_dir, (int)getpid());
		made = !mkdir(path, 0755);
	}
	if (f)
		endmntent(f);
	return made;
}

static void enter(const char *group)
{
	char procs[4096];
	FILE *f;

	snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
	f = fopen(procs, "w");
	if (!f || fputs("0", f) < 0 || fclose(f))
		_exit(2);
}

/* Is that group's name in the file? */
static bool names(const char *file, const char *group)
{
	char line[4096];
	FILE *f = fopen(file, "r");
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, strrchr(group, '/')) != NULL;
	if (f)
		fclose(f);
	return found;
}

/* Runs @body in a child that is a member of @group. */
static void in_group(const char *group, int (*body)(const char *group))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		enter(group);
		_exit(names("/proc/self/cgroup", group) ? body(group) : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(rmdir(group), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static bool keeps_nothing(const char *var, size_t len)
{
	return false;
}

/* The daemon reports the cgroup in which it starts. */
static int start_daemon(const char *group)
{
	char file[64], script[160], *argv[] = { "/bin/sh", "-c", script, NULL };
	const struct zns_daemon d = { .name = "sh",
				      .argv = argv,
				      .log = "/dev/null",
				      .ready_ms = 60000,
				      .keeps = keeps_nothing };
	struct zns_err err = ZNS_ERR_INIT;
	int ret;

	snprintf(file, sizeof(file), "/tmp/zns-test-group-%d", (int)getpid());
	snprintf(script, sizeof(script),
		 "while read -r l; do echo \"$l\"; done < /proc/$$/cgroup > %s; echo ready >&3",
		 file);
	ret = zns_daemon_start(&d, &err) ? 4 : names(file, group) ? 5 : 0;
	unlink(file);
	return ret;
}

static void born_in_the_root_group(void **state)
{
	char group[4096];

	if (!make_group("cgroup2", group, sizeof(group))) {
		print_message("no cgroup v2 here\n");
		skip();
	}
	in_group(group, start_daemon);
}

static int leave(const char *group)
{
	zns_cgroup_escape();
	return names("/proc/self/cgroup", group) ? 6 : 0;
}

static pthread_barrier_t both;
static pid_t other_tid;

static void *wait_for_end(void *arg)
{
	other_tid = gettid();
	pthread_barrier_wait(&both);
	pthread_barrier_wait(&both);
	return NULL;
}

/* Another thread is moved as well. */
static int leave_with_a_thread(const char *group)
{
	pthread_t other;
	char file[64];
	int ret;

	pthread_barrier_init(&both, NULL, 2);
	if (pthread_create(&other, NULL, wait_for_end, NULL))
		return 7;
	pthread_barrier_wait(&both);
	ret = leave(group);
	snprintf(file, sizeof(file), "/proc/self/task/%d/cgroup", (int)other_tid);
	ret = ret ? ret : names(file, group) ? 8 : 0;
	pthread_barrier_wait(&both);
	pthread_join(other, NULL);
	return ret;
}

static void escapes(void **state)
{
	static const char *const type[] = { "cgroup", "cgroup2" };
	static int (*const body[])(const char *group) = { leave, leave_with_a_thread };
	char group[4096];

	for (size_t t = 0; t < ZNS_ARRAY_SIZE(type); t++)
		for (size_t b = 0; b < ZNS_ARRAY_SIZE(body); b++)
			if (make_group(type[t], group, sizeof(group)))
				in_group(group, body[b]);
}

/* Zombies are in no list of members, even if /proc names a group for them. */
static void named_but_no_member(void **state)
{
	struct zns_cgroup_io c;
	struct zns_err err = ZNS_ERR_INIT;
	siginfo_t info;
	pid_t pid = fork();

	if (!pid) {
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
	if (zns_cgroup_io_find(&c, pid, &err)) {
		print_message("%s\n", err.msg);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		skip();
	}
	zns_cgroup_io_close(&c);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(zns_cgroup_io_find(&c, pid, &err), -ESRCH);
	assert_int_equal(c.there, -1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(named_but_no_member),
		cmocka_unit_test(born_in_the_root_group),
		cmocka_unit_test(escapes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
