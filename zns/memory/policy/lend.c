/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lends a descriptor to a process for a moment. All threads of the process are stopped, so they
 * cannot use it. But other processes could: those that share its table of descriptors or its
 * memory, and, by pidfd_getfd(), any process of the same user. So the process must share neither,
 * and is made undumpable meanwhile. In a user namespace that another user has made, a process may
 * have capabilities that override this, so nothing is lent to processes there.
 *
 * Nothing is trusted that is read from the process's memory: any process with an open /proc/PID/mem
 * can write there. Numbers of descriptors are taken from registers.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "lend.h"
#include "zns/util.h"

#define KCMP_SAME_VM 1
#define KCMP_SAME_FILES 2
#define SYS_PTRACE_BIT 19 /* bit of CAP_SYS_PTRACE */

/* What recvmsg() needs in the process's memory to receive one descriptor. */
struct letter {
	struct msghdr m;
	struct iovec iov;
	char byte;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c;
};

long lend_call(const struct lent *l, long nr, const uint64_t arg[6])
{
	long result;
	int ret = zns_guest_call(l->g, nr, arg, &result);

	return ret ? ret : result;
}

int lend_begin(struct lent *l)
{
	long was = LENT_CALL(l, SYS_prctl, PR_GET_DUMPABLE), ret = 0;

	l->hidden = was == 1;
	if (l->hidden)
		ret = LENT_CALL(l, SYS_prctl, PR_SET_DUMPABLE, 0);
	return (int)(was < 0 ? was : ret);
}

void lend_end(struct lent *l)
{
	if (l->hidden)
		LENT_CALL(l, SYS_prctl, PR_SET_DUMPABLE, 1);
}

void lend_close(const struct lent *l, long fd)
{
	if (LENT_CALL(l, SYS_close, (uint64_t)fd))
		syscall(SYS_pidfd_send_signal, l->pidfd, SIGKILL, NULL, 0);
}

/*
 * Calls @each for the numeric entries of a directory of /proc, until it returns true. Returns
 * whether it did.
 */
static bool any(const char *path, bool (*each)(long nr, const struct lent *l), const struct lent *l)
{
	char buf[8192] __attribute__((aligned(8)));
	cleanup_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool found = false;
	long n;

	while (dir >= 0 && !found && (n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
		for (long at = 0; at < n && !found;) {
			const char *d = buf + at;
			unsigned short len;
			long nr = strtol(d + 19, NULL, 10); /* offset of d_name in linux_dirent64 */

			memcpy(&len, d + 16, sizeof(len));
			at += len;
			found = nr > 0 && each(nr, l);
		}
	return found;
}

static bool shares(long tid, const struct lent *l)
{
	static const int what[] = { KCMP_SAME_VM, KCMP_SAME_FILES };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(what); i++) {
		long ret = syscall(SYS_kcmp, l->pid, tid, what[i], 0, 0);

		/*
		 * ESRCH: it has exited; EPERM: it has more rights than we, so it gains nothing from
		 * our descriptor
		 */
		if (!ret || (ret < 0 && errno != ESRCH && errno != EPERM))
			return true;
	}
	return false;
}

static bool has_sharer(long pid, const struct lent *l)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	return pid != l->pid && any(path, shares, l);
}

/*
 * Checks all processes twice. If a process forks during a check, its child is seen, since the child
 * has a greater PID. If PIDs wrap around meanwhile, the second check finds it.
 */
static bool is_shared(const struct lent *l)
{
	bool is = any("/proc", has_sharer, l);

	return is || any("/proc", has_sharer, l);
}

static bool same_file(int a, int b)
{
	struct stat one, other;

	return !fstat(a, &one) && !fstat(b, &other) && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/*
 * Could another user trace processes in its user namespace? Not in our own namespace, where only
 * root can.
 */
static bool is_anybodys(pid_t pid)
{
	char path[48], text[4096], *p;
	cleanup_close int ours = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), its = -1,
			  parent = -1, status = -1;
	uid_t owner = 1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	its = open(path, O_RDONLY | O_CLOEXEC);
	if (ours < 0 || its < 0)
		/* the kernel has no user namespaces */
		return errno != ENOENT || access("/proc/self/ns/pid", F_OK);
	if (same_file(ours, its))
		return false;
	parent = ioctl(its, NS_GET_PARENT);
	if (parent < 0 || !same_file(ours, parent) || ioctl(its, NS_GET_OWNER_UID, &owner) || owner)
		return true;
	/*
	 * if root has made the namespace, no process in it can have more capabilities than this
	 * one's bounding set
	 */
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = open(path, O_RDONLY | O_CLOEXEC);
	n = status < 0 ? -1 : read(status, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	p = strstr(text, "\nCapBnd:\t");
	return !p || strtoull(p + 9, NULL, 16) >> SYS_PTRACE_BIT & 1;
}

/* Sends the descriptor to the process's socket, through our own copy of this socket. */
static int post(int sk, int fd)
{
	struct letter l = { .byte = 1 };
	struct sockaddr_un self = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(self);
	struct iovec iov = { &l.byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = l.c.buf,
			    .msg_controllen = sizeof(l.c.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	/*
	 * the socket is bound to a name that the kernel chooses, and connected to itself: it
	 * accepts messages from nobody else
	 */
	if (bind(sk, (struct sockaddr *)&self, sizeof(self.sun_family)) ||
	    getsockname(sk, (struct sockaddr *)&self, &len) ||
	    connect(sk, (struct sockaddr *)&self, len) ||
	    sendmsg(sk, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	return 0;
}

static int prepare(const struct lent *l, uint64_t scratch)
{
	struct letter letter = { .byte = 0 };
	struct iovec here = { &letter, sizeof(letter) },
		     there = { (void *)(uintptr_t)scratch, sizeof(letter) };

	letter.iov.iov_base = (void *)(uintptr_t)(scratch + offsetof(struct letter, byte));
	letter.iov.iov_len = 1;
	letter.m.msg_iov = (void *)(uintptr_t)(scratch + offsetof(struct letter, iov));
	letter.m.msg_iovlen = 1;
	letter.m.msg_control = (void *)(uintptr_t)(scratch + offsetof(struct letter, c));
	letter.m.msg_controllen = sizeof(letter.c.buf);
	return process_vm_writev(l->pid, &here, 1, &there, 1, 0) == sizeof(letter) ? 0 : -EFAULT;
}

/*
 * Returns the number that the next new descriptor will get. It stays valid, since nobody else uses
 * this table.
 */
static long next_number(const struct lent *l, long sk)
{
	long next = LENT_CALL(l, SYS_fcntl, (uint64_t)sk, F_DUPFD_CLOEXEC, 0);

	if (next >= 0)
		lend_close(l, next);
	return next;
}

static long receive(const struct lent *l, long sk, int fd, uint64_t scratch)
{
	cleanup_close int mine = zns_fetch_fd(l->pidfd, sk, "socket:["), got = -1;
	long next = mine < 0 ? mine : next_number(l, sk);
	int ret = next < 0 ? (int)next : prepare(l, scratch);

	if (!ret)
		ret = post(mine, fd);
	if (ret)
		return ret;
	LENT_CALL(l, SYS_recvmsg, (uint64_t)sk, scratch, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	got = (int)syscall(SYS_pidfd_getfd, l->pidfd, (int)next, 0);
	return got >= 0 && same_file(got, fd) ? next : -EPROTO;
}

long lend_fd(const struct lent *l, int fd, uint64_t scratch)
{
	long sk, ret;

	if (is_anybodys(l->pid) || is_shared(l))
		return -EPERM;
	sk = LENT_CALL(l, SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sk < 0)
		return sk;
	ret = receive(l, sk, fd, scratch);
	lend_close(l, sk);
	return ret;
}
