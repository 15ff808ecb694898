/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts our daemons: see zns/daemon.h. */
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "zns/daemon.h"
#include "zns/process.h"
#include "zns/util.h"

#define LOG_MAX MIB(1)

static bool is(const char *var, size_t len, const char *name)
{
	return len == strlen(name) && !memcmp(var, name, len);
}

bool zns_daemon_keeps(const char *var, size_t len)
{
	return is(var, len, "ZNS_CONFIG") || is(var, len, "ZNS_RUN");
}

/*
 * Makes the daemon's environment. A daemon must not inherit its first user's: LD_PRELOAD, a fault
 * to be injected by a test, or a secret, which would stay readable in /proc/PID/environ. The result
 * points to strings of our own environment; NULL: out of memory.
 */
static char **clean_env(const struct zns_daemon *d)
{
	size_t n = 0, at = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++)
		if (d->keeps(environ[i], strcspn(environ[i], "=")))
			env[at++] = environ[i];
	return env;
}

/* Forks the child directly into @cgroup, a cgroup of version 2. Moving it there later would block
 * all forks on the machine for milliseconds. */
static pid_t fork_into(int cgroup)
{
	struct clone_args a = { .flags = CLONE_INTO_CGROUP,
				.exit_signal = SIGCHLD,
				.cgroup = (uint64_t)cgroup };
	pid_t pid = cgroup < 0 ? -1 : (pid_t)syscall(SYS_clone3, &a, sizeof(a));

	return pid < 0 ? fork() : pid;
}

/* Runs in the child. Makes only calls that are safe after a fork of a process with threads. */
static void __attribute__((noreturn))
child(char *const argv[], char *const env[], int ready, int log, int null, int cgroup)
{
	pid_t pid;

	setsid();
	pid = fork_into(cgroup);
	if (pid)
		_exit(pid < 0);
	/* First duplicate all of them to high numbers, so that none is overwritten when they get
	 * the numbers 0 to 3. */
	ready = fcntl(ready, F_DUPFD, 16);
	log = fcntl(log, F_DUPFD, 16);
	null = fcntl(null, F_DUPFD, 16);
	if (ready < 0 || log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
	    dup2(log, 2) < 0 || dup2(ready, ZNS_READY_FD) < 0)
		_exit(1);
	zns_close_from(ZNS_READY_FD + 1);
	/* the daemon calls this again, but limits like the stack's must be set before the exec */
	zns_process_shed();
	execve(argv[0], argv, env);
	_exit(127);
}

static int wait_ready(const struct zns_daemon *d, int fd, struct zns_err *err)
{
	char buf[ZNS_ERR_MAX + 32];
	size_t len = 0;
	uint64_t end = zns_mono_ns() + d->ready_ms * 1000000ull;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = zns_mono_ns();
		ssize_t n;
		int code, skip;

		if (now >= end)
			return zns_fail(err, -ETIMEDOUT, "%s was not ready after %u s (see %s)",
					d->name, d->ready_ms / 1000, d->log);
		n = poll(&p, 1, (int)((end - now) / 1000000) + 1);
		if (n <= 0)
			continue;
		n = read(fd, buf + len, sizeof(buf) - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return zns_fail_sys(err, -errno, "cannot read from %s", d->name);
		len += n;
		buf[len] = 0;
		if (n && !strchr(buf, '\n') && len < sizeof(buf) - 1)
			continue;
		buf[strcspn(buf, "\n")] = 0;
		if (!strcmp(buf, "ready"))
			return 0;
		if (sscanf(buf, "%d %n", &code, &skip) == 1 && code < 0)
			return zns_fail(err, code, "%s", buf + skip);
		return zns_fail(err, -EIO, "%s died while starting (see %s)", d->name, d->log);
	}
}

int zns_daemon_start(const struct zns_daemon *d, struct zns_err *err)
{
	cleanup_close int rd = -1, log = -1, null = -1, cgroup = zns_cgroup_root();
	cleanup_free char **env = clean_env(d);
	struct stat st;
	int p[2], ret;
	pid_t pid;

	if (!env)
		return zns_fail(err, -ENOMEM, "no memory to start %s", d->name);
	log = open(d->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (log < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", d->log);
	if (!fstat(log, &st) && st.st_size > (off_t)LOG_MAX && ftruncate(log, 0) < 0)
		return zns_fail_sys(err, -errno, "cannot empty %s", d->log);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return zns_fail_sys(err, -errno, "cannot open /dev/null");
	if (pipe2(p, O_CLOEXEC) < 0)
		return zns_fail_sys(err, -errno, "cannot make a pipe");
	rd = p[0];
	pid = fork();
	if (!pid)
		child(d->argv, env, p[1], log, null, cgroup);
	ret = pid < 0 ? -errno : 0;
	close(p[1]);
	if (ret)
		return zns_fail_sys(err, ret, "cannot fork %s", d->name);
	/* ECHILD: the caller's own SIGCHLD handler has already reaped the child. */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return wait_ready(d, rd, err);
}

void zns_daemon_ready(int fd, const struct zns_err *err)
{
	char line[ZNS_ERR_MAX + 32];

	if (fd < 0)
		return;
	if (err && err->code)
		snprintf(line, sizeof(line), "%d %s\n", err->code, err->msg);
	else
		snprintf(line, sizeof(line), "ready\n");
	zns_write_all(fd, line, strlen(line));
	close(fd);
}
