/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The watcher: removes the lock of the network if criu is killed while the lock is in place. See
 * include/zns-netlock.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "util.h"
#include "zns-alone.h"
#include "zns-netlock.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

static volatile bool *held; /* in memory shared with the watcher: the lock is in place */
static int to_watcher = -1;

/*
 * Receives a byte, and a socket with it, which is kept open. A byte without a socket means that
 * criu does not need the watcher any more (*over).
 */
static bool take(int sk, bool *over)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	ssize_t n = recvmsg(sk, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*over = n == 1 && !CMSG_FIRSTHDR(&m);
	return n == 1 && !*over;
}

/*
 * Ends the repair mode of the sockets. Their descriptors are consecutive from @first on, since none
 * was closed.
 */
static void repair_off(int first)
{
	int off = 0, fd;

	for (fd = first; fcntl(fd, F_GETFD) >= 0; fd++)
		setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof(off));
}

enum { AT_CRIU = ZNS_ALONE_FD, AT_NETNS, AT_SOCKET, AT_TAKEN };

/* The main function of the watcher's process, which runs beside criu. */
static void watch(int criu, int netns, int sk, void (*lift)(void))
{
	struct pollfd p[] = { { .fd = AT_CRIU, .events = POLLIN },
			      { .fd = AT_SOCKET, .events = POLLIN } };
	bool over = false;

	prctl(PR_SET_NAME, "zns-netlock");
	if (zns_alone((int[]){ criu, netns, sk }, 3, true) || chdir("/"))
		_exit(1);
	do {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			_exit(1);
		while (take(AT_SOCKET, &over))
			;
	} while (!over && !(p[0].revents & POLLIN));
	if (!over && *held) {
		/*
		 * End repair mode before the lock is removed: the sockets must be ready when the
		 * next packet arrives.
		 */
		repair_off(AT_TAKEN);
		if (!setns(AT_NETNS, CLONE_NEWNET))
			lift();
	}
	_exit(0);
}

int zns_netwatch_start(int netns, void (*lift)(void))
{
	int criu = syscall(SYS_pidfd_open, getpid(), 0), status, ret = -1;
	int sk[2] = { -1, -1 };
	void *mem = mmap(NULL, sizeof(*held), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	pid_t pid;

	if (criu >= 0 && mem != MAP_FAILED &&
	    !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sk)) {
		held = mem;
		/*
		 * Forks twice, as for the helper's guard, so that no process here has to reap the
		 * watcher.
		 */
		pid = fork();
		if (pid == 0) {
			pid = fork();
			if (pid == 0)
				watch(criu, netns, sk[1], lift);
			_exit(pid < 0);
		}
		if (pid > 0 && waitpid(pid, &status, 0) == pid && !status)
			ret = 0;
	}
	close_safe(&criu);
	close_safe(&sk[1]);
	if (ret)
		close_safe(&sk[0]);
	to_watcher = sk[0];
	if (ret)
		pr_perror("Can't watch the lock of the network");
	return ret;
}

void zns_netwatch_held(bool now)
{
	if (held)
		*held = now;
}

static int send_byte(int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { .buf = { 0 } };
	struct iovec iov = { "", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	ssize_t n;

	if (fd >= 0) {
		m.msg_control = u.buf;
		m.msg_controllen = sizeof(u.buf);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do {
		n = sendmsg(to_watcher, &m, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -1;
}

void zns_netwatch_repairs(int socket)
{
	if (to_watcher >= 0 && send_byte(socket))
		pr_warn("A socket would stay in repair mode if criu were killed\n");
}

void zns_netwatch_end(void)
{
	if (to_watcher < 0)
		return;
	send_byte(-1);
	close_safe(&to_watcher);
}
