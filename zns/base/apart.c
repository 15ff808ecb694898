/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See apart.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "zns/apart.h"
#include "zns/process.h"
#include "zns/util.h"

enum { ITS_FD, ITS_SOCKET, FIRST_OTHER };

struct zns_apart_memory {
	pid_t pid;
	int ret;
	uint8_t shared[] __attribute__((aligned(16)));
};

static void move(int *fd, int to)
{
	if (*fd >= 0 && *fd != to)
		*fd = dup2(*fd, to);
}

/* Keeps only @fd and @end open: the caller's other descriptors would stay open as long as @work
 * hangs. */
static void run(struct zns_apart_memory *m, int fd, int end, zns_apart_work work, void *arg)
{
	int sk = fcntl(end, F_DUPFD, FIRST_OTHER);
	char c;

	if (fd < 0)
		close(ITS_FD);
	move(&fd, ITS_FD);
	move(&sk, ITS_SOCKET);
	zns_close_from(FIRST_OTHER);
	zns_process_signals();
	m->pid = getpid();
	while (read(ITS_SOCKET, &c, 1) == 1) {
		m->ret = work(fd, arg, m->shared);
		if (write(ITS_SOCKET, &c, 1) != 1)
			break;
	}
	_exit(0);
}

/* The new process is not our child (it is forked twice), so code that waits for our children does
 * not see it. */
static int start(struct zns_apart_process *a, int fd, int end, zns_apart_work work, void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -EAGAIN;
	if (!pid) {
		pid = fork();
		if (!pid)
			run(a->m, fd, end, work, arg);
		_exit(pid < 0);
	}
	while (waitpid(pid, &status, __WALL) < 0)
		if (errno != EINTR)
			/* SIGCHLD is ignored: the socket tells that the process has ended */
			return 0;
	return status ? -EAGAIN : 0;
}

int zns_apart_begin(struct zns_apart_process *a, zns_apart_work work, int fd, void *arg, size_t len)
{
	int sk[2], ret;

	*a = (struct zns_apart_process){ .sk = -1, .size = sizeof(*a->m) + len };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sk))
		return -errno;
	a->m = mmap(NULL, a->size, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ret = a->m == MAP_FAILED ? -ENOMEM : start(a, fd, sk[1], work, arg);
	close(sk[1]);
	if (ret) {
		if (a->m != MAP_FAILED)
			munmap(a->m, a->size);
		close(sk[0]);
		return ret;
	}
	a->sk = sk[0];
	a->shared = a->m->shared;
	return 0;
}

int zns_apart_ask(struct zns_apart_process *a, uint32_t limit_ms)
{
	uint64_t until = zns_mono_ns() + limit_ms * 1000000ULL, now;
	struct pollfd p = { .fd = a->sk, .events = POLLIN };
	char c = 0;
	int n = 0;

	if (send(a->sk, &c, 1, MSG_NOSIGNAL) != 1)
		return -EIO;
	while (n <= 0) {
		now = zns_mono_ns();
		if (now >= until)
			return -ETIMEDOUT;
		n = poll(&p, 1, (int)((until - now) / 1000000) + 1);
	}
	return read(a->sk, &c, 1) == 1 ? a->m->ret : -EIO;
}

void zns_apart_end(struct zns_apart_process *a)
{
	char c;

	if (a->sk < 0)
		return;
	/* As long as its end of the socket is open, the process lives, so the PID has not been
	 * reused. */
	if (a->m->pid && recv(a->sk, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
		kill(a->m->pid, SIGKILL);
	close(a->sk);
	munmap(a->m, a->size);
	a->sk = -1;
}

int zns_apart(zns_apart_work work, int fd, void *arg, void *out, size_t len, uint32_t limit_ms)
{
	struct zns_apart_process a;
	int ret = zns_apart_begin(&a, work, fd, arg, len);

	if (ret)
		return ret;
	ret = zns_apart_ask(&a, limit_ms);
	if (ret != -ETIMEDOUT && out)
		memcpy(out, a.shared, len);
	zns_apart_end(&a);
	return ret;
}
