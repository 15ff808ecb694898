/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See process.h. The first user's command starts the broker, which serves all users, so that user's
 * limits must not apply to it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "zns/process.h"
#include "zns/util.h"

/* a pager holds some thousands of descriptors; its keeper holds those of all pagers */
#define DESCRIPTORS 16384
#define TREE_DEPTH_MAX 64 /* generations of processes */
/* the stack limit is set before the exec, because it also decides the size of thread stacks */
#define STACK_BYTES MIB(8)

static const struct {
	int which;
	const char *what, *ulimit;
	rlim_t least; /* lowest value that a broker works with */
} limits[] = {
	{ RLIMIT_FSIZE, "size of files", "-f", RLIM_INFINITY },
	{ RLIMIT_CPU, "processor time", "-t", RLIM_INFINITY },
	{ RLIMIT_AS, "address space", "-v", GIB(4) },
	{ RLIMIT_DATA, "data", "-d", GIB(1) },
	{ RLIMIT_NOFILE, "descriptors", "-n", 256 },
	/* The limit on processes does not apply to root. If a thread cannot be started, that gives
	 * an error of its own. */
	{ RLIMIT_NPROC, "processes", "-u", 0 },
	{ RLIMIT_MEMLOCK, "locked memory", "-l", 0 },
};

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		errno = 0; /* no permission to change it: leave it as it is */
	close(fd);
}

void zns_process_raise_limits(void)
{
	struct rlimit r;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(limits); i++) {
		if (getrlimit(limits[i].which, &r))
			continue;
		r.rlim_cur = r.rlim_max;
		setrlimit(limits[i].which, &r);
	}
}

static void reset_limits(void)
{
	const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	struct rlimit r;

	zns_process_raise_limits();
	/* With CAP_SYS_RESOURCE, hard limits are raised too. For RLIMIT_NOFILE the kernel has an
	 * upper bound, but that is high enough. */
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(limits); i++)
		if (limits[i].least == RLIM_INFINITY || limits[i].which == RLIMIT_AS ||
		    limits[i].which == RLIMIT_DATA)
			setrlimit(limits[i].which, &none);
	if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_max < DESCRIPTORS) {
		r.rlim_cur = r.rlim_max = DESCRIPTORS;
		setrlimit(RLIMIT_NOFILE, &r);
	}
	if (!getrlimit(RLIMIT_STACK, &r)) {
		r.rlim_cur = zns_min(r.rlim_max, (rlim_t)STACK_BYTES);
		setrlimit(RLIMIT_STACK, &r);
	}
}

/* The C library reserves two signals, and sigaction() refuses them. But a process can inherit them
 * as ignored, so this uses the system call. */
static void reset_hidden_signal(int s)
{
	struct {
		void (*handler)(int);
		unsigned long flags, restorer, mask[2];
	} now = { 0 }, usual = { 0 };
	size_t mask_bytes = 8; /* size of the kernel's signal mask */

	if (!syscall(SYS_rt_sigaction, s, NULL, &now, mask_bytes) && now.handler == SIG_IGN)
		syscall(SYS_rt_sigaction, s, &usual, NULL, mask_bytes);
}

void zns_process_signals(void)
{
	struct sigaction sa;
	sigset_t none;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = SIG_DFL;
	for (int s = 1; s < NSIG; s++)
		if (sigaction(s, &sa, NULL) && s != SIGKILL && s != SIGSTOP)
			reset_hidden_signal(s);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void zns_process_shed(void)
{
	const struct sched_param usual = { 0 };
	cpu_set_t all;

	zns_process_signals();
	reset_limits();
	sched_setscheduler(0, SCHED_OTHER, &usual);
	setpriority(PRIO_PROCESS, 0, 0);
#ifdef SYS_ioprio_set
	/* removes this process's own I/O priority, so that its nice value applies */
	syscall(SYS_ioprio_set, 1, 0, 0);
#endif
	memset(&all, 0xff, sizeof(all));
	sched_setaffinity(0, sizeof(all), &all);
	write_file("/proc/self/oom_score_adj", "0");
}

uint64_t zns_process_stat(pid_t pid, enum zns_process_field field)
{
	unsigned long long value = 0;
	char path[32], line[1024];
	cleanup_close int fd = -1;
	const char *p;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	if (n <= 0)
		return 0;
	line[n] = 0;
	p = strrchr(line, ')'); /* the program's name in front of the ')' may contain anything */
	for (int at = 2; p && at < (int)field; at++)
		p = strchr(p + 1, ' ');
	return p && sscanf(p, " %llu", &value) == 1 ? value : 0;
}

static uint64_t tree(pid_t pid, enum zns_process_field field, unsigned int depth)
{
	uint64_t sum = zns_process_stat(pid, field);
	cleanup_file FILE *c = NULL;
	char path[64];
	int child;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	c = depth < TREE_DEPTH_MAX ? fopen(path, "re") : NULL;
	while (c && fscanf(c, "%d", &child) == 1)
		sum += tree(child, field, depth + 1);
	return sum;
}

uint64_t zns_process_tree(pid_t pid, enum zns_process_field field)
{
	return tree(pid, field, 1);
}

uint64_t zns_process_began(pid_t pid)
{
	return zns_process_stat(pid, ZNS_PROCESS_BEGAN);
}

void zns_close_from(int first)
{
	int fd, max;

#ifdef SYS_close_range
	if (!syscall(SYS_close_range, first, ~0u, 0))
		return;
#endif
	max = (int)sysconf(_SC_OPEN_MAX);
	for (fd = first; fd < max; fd++)
		close(fd);
}

static int check(size_t i, rlim_t least, const char *remedy, struct zns_err *err)
{
	struct rlimit r;

	if (getrlimit(limits[i].which, &r) || r.rlim_cur >= least)
		return 0;
	return zns_fail(err, -EPERM,
			"the limit of %s (ulimit %s) is %llu and cannot be raised here; %s",
			limits[i].what, limits[i].ulimit, (unsigned long long)r.rlim_cur, remedy);
}

int zns_process_limits(struct zns_err *err)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < ZNS_ARRAY_SIZE(limits); i++)
		ret = check(
			i, limits[i].least,
			"a broker serves everybody: start it from a session without that limit (`znsd DEV`)",
			err);
	return ret;
}

int zns_process_file_limit(uint64_t need, struct zns_err *err)
{
	return check(0, need, "the device is a file: dump from a session without that limit", err);
}

int zns_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = -pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}
