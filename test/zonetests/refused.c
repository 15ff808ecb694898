/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that a dump refuses before it stops anybody (guard.py): the file DIR/mode says why.
 * When the file DIR/release is there, a check ends what stands in the way.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/landlock.h>
#include <linux/perf_event.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "zt.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define LEN ZT_MB(4)
#define SEED 78

static const char *const ns_name[] = { "time", "uts", "ipc", "net", "mnt" };
static const int ns_flag[] = { CLONE_NEWTIME, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET,
			       CLONE_NEWNS };

static uint8_t *area;
static int held = -1; /* a descriptor that stands in the way */
static pid_t helper; /* a process that does */
static int vfork_end = -1; /* the child ends when this is closed */

static int ns_of(const char *name)
{
	for (size_t i = 0; i < sizeof(ns_flag) / sizeof(*ns_flag); i++)
		if (!strcmp(ns_name[i], name))
			return (int)i;
	return -1;
}

static int open_ns(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return (int)ZT_SYS(open(path, O_RDONLY | O_CLOEXEC));
}

static void enter_new(int ns)
{
	int fd;

	ZT_SYS(unshare(ns_flag[ns]));
	if (ns_flag[ns] != CLONE_NEWTIME)
		return;
	fd = open_ns("time_for_children");
	ZT_SYS(setns(fd, CLONE_NEWTIME));
	close(fd);
}

/* A child that is where its parent is not: in the namespace that @old has, or (-1) a new one. */
static void child_elsewhere(int ns, int old)
{
	int fds[2];
	char byte;

	ZT_SYS(pipe2(fds, O_CLOEXEC));
	helper = ZT_SYS(fork());
	if (!helper) {
		if (old < 0)
			enter_new(ns);
		else
			ZT_SYS(setns(old, ns_flag[ns]));
		zt_write_all(fds[1], "x", 1);
		close(old);
		close(fds[0]);
		close(fds[1]);
		for (;;)
			pause();
	}
	zt_read_all(fds[0], &byte, 1, "child");
	close(fds[0]);
	close(fds[1]);
}

static void outside(int ns)
{
	int old = open_ns(ns_name[ns]);

	enter_new(ns);
	child_elsewhere(ns, old);
	close(old);
}

/* By a process that is none of the tree. */
static void traced(const char *by)
{
	pid_t us = getpid(), child;
	int fds[2];

	ZT_SYS(pipe2(fds, O_CLOEXEC));
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	child = ZT_SYS(fork());
	if (!child) {
		pid_t tracer = ZT_SYS(fork());

		if (!tracer) {
			ZT_SYS(setsid());
			prctl(PR_SET_NAME, by);
			ZT_SYS(ptrace(PTRACE_SEIZE, us, NULL, NULL));
			tracer = getpid();
			zt_write_all(fds[1], &tracer, sizeof(tracer));
			for (;;) {
				int status, sig = 0;

				if (waitpid(us, &status, __WALL) != us)
					_exit(0);
				if (WIFSTOPPED(status) && !(status >> 16))
					sig = WSTOPSIG(status);
				ptrace(PTRACE_CONT, us, NULL, sig);
			}
		}
		_exit(0);
	}
	ZT_SYS(waitpid(child, NULL, 0));
	zt_read_all(fds[0], &helper, sizeof(helper), "tracer");
	close(fds[0]);
	close(fds[1]);
}

/* A child whose vfork() does not return, since its own child waits. */
static void in_vfork(void)
{
	int fds[2], ready[2];
	char byte;

	ZT_SYS(pipe(fds));
	ZT_SYS(pipe(ready));
	helper = ZT_SYS(fork());
	if (!helper) {
		close(fds[1]);
		if (!vfork()) {
			syscall(SYS_write, ready[1], "x", 1);
			syscall(SYS_read, fds[0], &byte, 1);
			_exit(0);
		}
		close(fds[0]);
		for (;;)
			pause();
	}
	zt_read_all(ready[0], &byte, 1, "child");
	close(ready[0]);
	close(ready[1]);
	close(fds[0]);
	vfork_end = fds[1];
}

static int queue(void)
{
	struct mq_attr attr = { .mq_maxmsg = 2, .mq_msgsize = 16 };
	int fd = mq_open("/zns-refused", O_CREAT | O_RDWR, 0600, &attr);

	mq_unlink("/zns-refused");
	return fd;
}

static int deleted(void)
{
	char path[256];
	int fd;

	zt_path(path, "deleted");
	fd = (int)ZT_SYS(open(path, O_CREAT | O_RDWR, 0600));
	zt_write_all(fd, area, LEN);
	ZT_SYS(unlink(path));
	return fd;
}

static int open_held(const char *mode)
{
	if (!strcmp(mode, "perf")) {
		struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
						.size = sizeof(attr),
						.config = PERF_COUNT_SW_TASK_CLOCK };

		return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	}
	if (!strcmp(mode, "bpf")) {
		union bpf_attr attr = { .map_type = BPF_MAP_TYPE_RINGBUF, .max_entries = 4096 };

		return (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
	}
	if (!strcmp(mode, "ring")) {
		struct io_uring_params p = { 0 };

		return (int)syscall(SYS_io_uring_setup, 4, &p);
	}
	if (!strcmp(mode, "ruleset")) {
		struct landlock_ruleset_attr attr = { .handled_access_fs =
							      LANDLOCK_ACCESS_FS_MAKE_SOCK };

		return (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	}
	if (!strcmp(mode, "uffd"))
		return (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (!strcmp(mode, "secret"))
		return (int)syscall(SYS_memfd_secret, 0);
	if (!strcmp(mode, "fuse"))
		return open("/dev/fuse", O_RDWR);
	if (!strcmp(mode, "queue"))
		return queue();
	return deleted();
}

static void set_up(const char *mode)
{
	const char *dash = strchr(mode, '-');

	if (!strncmp(mode, "outside-", 8)) {
		outside(ns_of(dash + 1));
	} else if (!strncmp(mode, "inside-", 7)) {
		child_elsewhere(ns_of(dash + 1), -1);
	} else if (!strcmp(mode, "traced")) {
		traced("refused");
	} else if (!strcmp(mode, "paged")) {
		traced("zns-mem");
	} else if (!strcmp(mode, "vfork")) {
		in_vfork();
	} else {
		held = open_held(mode);
		if (held < 0)
			zt_skip("%s: %s", mode, strerror(errno));
	}
}

static void check(void)
{
	char path[256];

	zt_check(area, LEN, SEED, "area");
	zt_path(path, "release");
	if (unlink(path))
		return;
	close(held);
	close(vfork_end);
	if (helper)
		kill(helper, SIGKILL);
	waitpid(helper, NULL, 0);
}

int main(int argc, char **argv)
{
	char path[256], mode[32];
	FILE *f;

	zt_init(argc, argv);
	zt_path(path, "mode");
	f = fopen(path, "re");
	if (!f || fscanf(f, "%31s", mode) != 1)
		zt_die("%s: no mode", path);
	fclose(f);
	area = zt_mmap(LEN);
	zt_fill(area, LEN, SEED);
	set_up(mode);
	zt_ready(NULL);
	zt_serve(check);
}
