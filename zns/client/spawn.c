/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Starts znsd: double-forked, in a session of its own. Its only descriptor of ours is the pipe on
 * which it reports "ready" or its error.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "spawn.h"
#include "zns/broker.h"
#include "zns/process.h"

/* znsd itself waits up to 10 s for the helpers of a dead broker to end. */
#define READY_MS 20000
#define LOG_MAX MIB(1)
#define READY_FD 3

/*
 * The broker does not keep its first user's environment: LD_PRELOAD, a fault to be injected, a
 * secret that would stay in /proc/PID/environ.
 */
static bool keeps(const char *var)
{
	static const char *const names[] = { "ZNS_CONFIG", "ZNS_RUN", "ZNSD_IDLE_S" };
	size_t len = strcspn(var, "=");

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(names); i++)
		if (len == strlen(names[i]) && !memcmp(var, names[i], len))
			return true;
	return zns_spawn_keeps_more(var, len);
}

/* Points to strings of our own environment; NULL: no memory. */
static char **broker_env(void)
{
	size_t n = 0, at = 0;
	char **env;

	while (environ[n])
		n++;
	env = calloc(n + 1, sizeof(*env));
	for (size_t i = 0; env && i < n; i++)
		if (keeps(environ[i]))
			env[at++] = environ[i];
	return env;
}

/* Runs in the child: only calls that are safe after a fork of a process with threads. */
static void __attribute__((noreturn))
child(char *const argv[], char *const env[], int ready, int log, int null)
{
	pid_t pid;

	setsid();
	pid = fork();
	if (pid)
		_exit(pid < 0);
	/* First move all above 0 … 3, whatever numbers were free. */
	ready = fcntl(ready, F_DUPFD, 16);
	log = fcntl(log, F_DUPFD, 16);
	null = fcntl(null, F_DUPFD, 16);
	if (ready < 0 || log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
	    dup2(log, 2) < 0 || dup2(ready, READY_FD) < 0)
		_exit(1);
	zns_close_from(READY_FD + 1);
	/* znsd does so too, but limits like the stack's must hold before the exec */
	zns_process_shed();
	execve(argv[0], argv, env);
	_exit(127);
}

/* The daemon's answer: "ready\n", or "CODE LINE\n" with a negative errno. */
static int wait_ready(int fd, const char *log_path, struct zns_err *err)
{
	char buf[ZNS_ERR_MAX + 32];
	size_t len = 0;
	uint64_t end = zns_mono_ns() + READY_MS * 1000000ull;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = zns_mono_ns();
		ssize_t n;
		int code, skip;

		if (now >= end)
			return zns_fail(err, -ETIMEDOUT, "znsd was not ready after %d s (see %s)",
					READY_MS / 1000, log_path);
		n = poll(&p, 1, (int)((end - now) / 1000000) + 1);
		if (n <= 0)
			continue;
		n = read(fd, buf + len, sizeof(buf) - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return zns_fail_sys(err, -errno, "reading from znsd");
		len += n;
		buf[len] = 0;
		if (n && !strchr(buf, '\n') && len < sizeof(buf) - 1)
			continue;
		buf[strcspn(buf, "\n")] = 0;
		if (!strcmp(buf, "ready"))
			return 0;
		if (sscanf(buf, "%d %n", &code, &skip) == 1 && code < 0)
			return zns_fail(err, code, "%s", buf + skip);
		return zns_fail(err, -EIO, "znsd died while starting (see %s)", log_path);
	}
}

int zns_broker_spawn(const struct zns_registered *dev, struct zns_err *err)
{
	cleanup_close int rd = -1, log = -1, null = -1;
	char prog[4096], log_path[4096], id[ZNS_UUID_STR], fd_arg[16];
	char *argv[] = { prog, id, "--ready-fd", fd_arg, NULL };
	cleanup_free char **env = broker_env();
	int p[2], ret;
	struct stat st;
	pid_t pid;

	if (!env)
		return zns_fail(err, -ENOMEM, "no memory to start znsd");
	ret = zns_find_program("znsd", prog, sizeof(prog));
	if (ret)
		return zns_fail(err, ret,
				"znsd, the broker's program, is not installed beside this one");
	zns_uuid_format(dev->uuid, id);
	snprintf(fd_arg, sizeof(fd_arg), "%d", READY_FD);
	ret = zns_broker_path(dev->uuid, "log", log_path, sizeof(log_path));
	if (ret)
		return zns_fail_sys(err, ret, "%s", zns_run_dir());
	log = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (log < 0)
		return zns_fail_sys(err, -errno, "%s", log_path);
	/* No broker runs now, so nobody else writes here. */
	if (!fstat(log, &st) && st.st_size > (off_t)LOG_MAX && ftruncate(log, 0) < 0)
		return zns_fail_sys(err, -errno, "%s", log_path);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		return zns_fail_sys(err, -errno, "/dev/null");
	if (pipe2(p, O_CLOEXEC) < 0)
		return zns_fail_sys(err, -errno, "pipe");
	rd = p[0];
	pid = fork();
	if (!pid)
		child(argv, env, p[1], log, null);
	ret = pid < 0 ? -errno : 0;
	close(p[1]);
	if (ret)
		return zns_fail_sys(err, ret, "cannot fork znsd");
	/* The caller's SIGCHLD handler may have been faster: then ECHILD is fine. */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return wait_ready(rd, log_path, err);
}
