/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See apart.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "zns/apart.h"
#include "zns/process.h"
#include "zns/util.h"

enum { ITS_FD, ITS_PIPE, FIRST_OTHER };

struct apart {
	pid_t pid;
	int ret;
	uint8_t out[] __attribute__((aligned(16)));
};

static void move(int *fd, int to)
{
	if (*fd >= 0 && *fd != to)
		*fd = dup2(*fd, to);
}

/* The caller's descriptors would be held for as long as this hangs. */
static void run(struct apart *a, int fd, int end, zns_apart_work work, void *arg)
{
	int pipe = fcntl(end, F_DUPFD, FIRST_OTHER);

	move(&fd, ITS_FD);
	move(&pipe, ITS_PIPE);
	zns_close_from(FIRST_OTHER);
	zns_process_signals();
	a->pid = getpid();
	a->ret = work(fd, arg, a->out);
	if (write(ITS_PIPE, "", 1) != 1)
		_exit(1);
	_exit(0);
}

/* It is nobody's child of ours: who waits for children does not meet it. */
static int start(struct apart *a, int fd, const int pipe[2], zns_apart_work work, void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (!pid) {
		pid = fork();
		if (!pid)
			run(a, fd, pipe[1], work, arg);
		_exit(pid < 0);
	}
	while (waitpid(pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return 0; /* SIGCHLD is ignored: the pipe tells */
	return status ? -EAGAIN : 0;
}

static int wait_for(const struct apart *a, int fd, uint32_t limit_ms)
{
	uint64_t until = zns_mono_ns() + limit_ms * 1000000ULL, now;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char done;
	int n = 0;

	while (n <= 0) {
		now = zns_mono_ns();
		if (now >= until) {
			if (a->pid)
				kill(a->pid, SIGKILL);
			return -ETIMEDOUT;
		}
		n = poll(&p, 1, (int)((until - now) / 1000000) + 1);
	}
	return read(fd, &done, 1) == 1 ? a->ret : -EIO;
}

int zns_apart(zns_apart_work work, int fd, void *arg, void *out, size_t len, uint32_t limit_ms)
{
	size_t size = sizeof(struct apart) + len;
	struct apart *a = mmap(NULL, size, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int pipe[2], ret;

	if (a == MAP_FAILED)
		return -ENOMEM;
	ret = pipe2(pipe, O_CLOEXEC) ? -errno : 0;
	if (!ret) {
		ret = start(a, fd, pipe, work, arg);
		close(pipe[1]);
		if (!ret)
			ret = wait_for(a, pipe[0], limit_ms);
		close(pipe[0]);
	}
	if (ret != -ETIMEDOUT && out)
		memcpy(out, a->out, len);
	munmap(a, size);
	return ret;
}
