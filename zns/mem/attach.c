/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a process has to make itself, because it belongs to its memory: a userfaultfd. Its threads
 * stand still for it; the descriptor is taken out and closed there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "mem.h"
#include "zns/inject.h"

#define SCRATCH 8192 /* bytes, for arguments; gone again afterwards */
#define LIMIT_MS 1000
#define UFFD_OPEN (O_CLOEXEC | O_NONBLOCK) /* also for faults of the kernel: read(2) into it */
#define DEV_NEW _IO(0xAA, 0x00) /* USERFAULTFD_IOC_NEW, Linux 6.1 */

struct job {
	pid_t pid;
	int pidfd, dev; /* dev: /dev/userfaultfd, or -1 */
	int uffd;
	const char *what; /* what failed */
};

/* What the kernel wants in the process's memory for SCM_RIGHTS of one descriptor. */
struct letter {
	struct msghdr m;
	struct iovec iov;
	int sv[2];
	char byte;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c;
};

static int move(pid_t pid, uint64_t there, void *here, size_t len, bool write)
{
	struct iovec l = { here, len }, r = { (void *)(uintptr_t)there, len };
	ssize_t n = write ? process_vm_writev(pid, &l, 1, &r, 1, 0) :
			    process_vm_readv(pid, &l, 1, &r, 1, 0);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

#define CALL(g, nr, ...) guest_call(g, nr, (uint64_t[6]){ __VA_ARGS__ })
static long guest_call(struct zns_guest *g, long nr, const uint64_t arg[6])
{
	long result;
	int ret = zns_guest_call(g, nr, arg, &result);

	return ret ? ret : result;
}

static int send_fd(int sk, int fd)
{
	struct letter l = { .byte = 1 };
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
	return sendmsg(sk, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* /dev/userfaultfd, in the process: sent through a socket that it makes. */
static long receive_dev(struct zns_guest *g, struct job *j, uint64_t scratch, const int sv[2])
{
	struct letter l = { .byte = 0 };
	int mine = zns_fetch_fd(j->pidfd, sv[0], "socket:["), fd;
	long ret = mine < 0 ? mine : send_fd(mine, j->dev);

	if (mine >= 0)
		close(mine);
	if (ret)
		return ret;
	l.iov.iov_base = (void *)(uintptr_t)(scratch + offsetof(struct letter, byte));
	l.iov.iov_len = 1;
	l.m.msg_iov = (void *)(uintptr_t)(scratch + offsetof(struct letter, iov));
	l.m.msg_iovlen = 1;
	l.m.msg_control = (void *)(uintptr_t)(scratch + offsetof(struct letter, c));
	l.m.msg_controllen = sizeof(l.c.buf);
	ret = move(j->pid, scratch, &l, sizeof(l), true);
	if (!ret)
		ret = CALL(g, SYS_recvmsg, (uint64_t)sv[1], scratch,
			   MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (ret >= 0)
		ret = move(j->pid, scratch, &l, sizeof(l), false);
	if (ret)
		return ret;
	if (l.c.align.cmsg_type != SCM_RIGHTS || l.c.align.cmsg_len != CMSG_LEN(sizeof(int)))
		return -EPROTO;
	memcpy(&fd, CMSG_DATA(&l.c.align), sizeof(fd));
	return fd;
}

static long uffd_by_dev(struct zns_guest *g, struct job *j, uint64_t scratch)
{
	int sv[2];
	long fd, uffd,
		ret = CALL(g, SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, scratch);

	if (!ret)
		ret = move(j->pid, scratch, sv, sizeof(sv), false);
	if (ret)
		return ret;
	fd = receive_dev(g, j, scratch, sv);
	CALL(g, SYS_close, (uint64_t)sv[0]);
	CALL(g, SYS_close, (uint64_t)sv[1]);
	if (fd < 0)
		return fd;
	uffd = CALL(g, SYS_ioctl, (uint64_t)fd, DEV_NEW, UFFD_OPEN);
	CALL(g, SYS_close, (uint64_t)fd);
	return uffd;
}

static int make_uffd(struct zns_guest *g, struct job *j, uint64_t scratch)
{
	long fd = CALL(g, SYS_userfaultfd, UFFD_OPEN);

	j->what = "userfaultfd";
	if (fd == -EPERM && j->dev >= 0)
		fd = uffd_by_dev(g, j, scratch);
	if (fd < 0)
		return (int)fd;
	j->uffd = zns_fetch_fd(j->pidfd, fd, "anon_inode:[userfaultfd]");
	CALL(g, SYS_close, (uint64_t)fd);
	return zns_min(j->uffd, 0);
}

static int in_guest(struct zns_guest *g, void *arg)
{
	struct job *j = arg;
	long scratch;
	int ret;

	j->what = "mmap";
	scratch = CALL(g, SYS_mmap, 0, SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       (uint64_t)-1, 0);
	if (scratch < 0 && scratch > -4096)
		return (int)scratch;
	ret = make_uffd(g, j, (uint64_t)scratch);
	CALL(g, SYS_munmap, (uint64_t)scratch, SCRATCH);
	return ret;
}

static int explain(const struct job *j, int ret, struct zns_err *err)
{
	if (ret == -EMFILE || ret == -ENFILE)
		return zns_fail(err, ret, "process %d has no descriptor left", j->pid);
	if (ret == -ETIMEDOUT)
		return zns_fail(err, ret, "process %d stands still: is its cgroup frozen?", j->pid);
	if (ret == -ESRCH)
		return zns_fail(err, ret, "process %d is gone", j->pid);
	if (ret == -EPERM)
		return zns_fail(
			err, ret,
			"process %d may not use userfaultfd, and there is no /dev/userfaultfd (Linux 6.1)",
			j->pid);
	return zns_fail_sys(err, ret, "process %d: %s failed", j->pid, j->what);
}

int proc_equip(struct proc *p, struct zns_err *err)
{
	cleanup_close int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	struct job j = { .pid = p->pid, .pidfd = p->pidfd, .dev = dev, .uffd = -1 };
	uint64_t stop_ns = 0;
	int ret = zns_inject(p->pid, p->maps, LIMIT_MS, in_guest, &j, &stop_ns, err);

	p->m->stop_ns = zns_max(p->m->stop_ns, stop_ns);
	p->uffd = j.uffd;
	if (ret)
		return j.what ? explain(&j, ret, err) : ret;
	ret = mem_uffd_begin(p->uffd);
	return ret ? zns_fail_sys(err, ret, "the userfaultfd of process %d cannot be used",
				  p->pid) :
		     0;
}
