/* SPDX-License-Identifier: GPL-2.0-only */
/* Runs programs that are installed with this one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest.h"
#include "zns/safeopen.h"

extern char **environ;

static _Atomic pid_t running;

void st_run_kill(void)
{
	pid_t pid = running;

	if (pid > 0)
		kill(pid, SIGKILL);
}

static void read_all(int fd, char *out, size_t len)
{
	size_t have = 0;
	char more[4096];
	ssize_t n;

	while ((n = read(fd, more, sizeof(more))) > 0 || (n < 0 && errno == EINTR)) {
		size_t keep = n > 0 ? zns_min((size_t)n, len - 1 - have) : 0;

		memcpy(out + have, more, keep);
		have += keep;
	}
	out[have] = '\0';
}

/*
 * Finds a program. znsctl is in PREFIX/bin if this program is in PREFIX/libexec/zns-criu. The
 * environment is ignored, since it must not choose a program that root runs.
 */
static int find(const char *program, char *path, size_t len)
{
	int ret = zns_own_program(program, path, len);
	char self[PATH_MAX], *slash;
	ssize_t n;

	if (!ret || strcmp(program, "znsctl"))
		return ret;
	if (zns_read_link(AT_FDCWD, "/proc/self/exe", self, sizeof(self)) <= 0)
		return -ENOENT;
	slash = strrchr(self, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	n = snprintf(path, len, "%s/../../bin/%s", self, program);
	return n < 0 || (size_t)n >= len || access(path, X_OK) ? -ENOENT : 0;
}

/* Gets the last line that is not empty. */
static void last_line(int fd, char why[ST_WHY])
{
	char text[4096], *nl;
	off_t size = lseek(fd, 0, SEEK_END);
	ssize_t n = pread(fd, text, sizeof(text) - 1,
			  zns_max(size - (off_t)sizeof(text) + 1, (off_t)0));

	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	nl = strrchr(text, '\n');
	snprintf(why, ST_WHY, "%.*s", ST_WHY - 1, nl ? nl + 1 : text);
}

static int spawn(const char *path, char *const argv[], int out, int err, pid_t *pid)
{
	posix_spawn_file_actions_t fa;
	int ret;

	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, out, 1);
	posix_spawn_file_actions_adddup2(&fa, err, 2);
	ret = -posix_spawn(pid, path, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return ret;
}

int st_run(const char *program, char *const argv[], char *out, size_t len, char why[ST_WHY])
{
	char path[PATH_MAX];
	int fd[2], status = 0, ret = find(program, path, sizeof(path));
	cleanup_close int err = -1;
	pid_t pid;

	*out = *why = '\0';
	if (ret) {
		snprintf(why, ST_WHY, "%s is not installed beside this program", program);
		return ret;
	}
	err = memfd_create("stderr", MFD_CLOEXEC);
	if (err < 0 || pipe2(fd, O_CLOEXEC))
		return -errno;
	ret = spawn(path, argv, fd[1], err, &pid);
	close(fd[1]);
	running = ret ? 0 : pid;
	if (!ret)
		read_all(fd[0], out, len);
	close(fd[0]);
	while (!ret && waitpid(pid, &status, 0) < 0)
		ret = errno == EINTR ? 0 : -errno;
	running = 0;
	last_line(err, why);
	if (ret)
		return ret;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
