/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes a userfaultfd for a running process. A process can make one only for its own memory, so one
 * of its threads makes the system call while all its threads are stopped. The pager copies the
 * descriptor, and the process closes its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../policy/lend.h"
#include "mem.h"

/* bytes of memory for the arguments of system calls; it is unmapped afterwards */
#define SCRATCH 8192
#define LIMIT_MS 1000
/*
 * UFFD_USER_MODE_ONLY is not set: faults inside the kernel, for example in read(2), must be handled
 * too.
 */
#define UFFD_OPEN (O_CLOEXEC | O_NONBLOCK)
#define DEV_NEW _IO(0xAA, 0x00) /* USERFAULTFD_IOC_NEW, Linux 6.1 */

struct job {
	pid_t pid;
	int pidfd, dev; /* dev: descriptor of /dev/userfaultfd, or -1 */
	int uffd;
	const char *what; /* name of the step that failed */
};

static long uffd_by_dev(const struct lent *l, int dev)
{
	long scratch, fd, uffd;

	scratch = LENT_CALL(l, SYS_mmap, 0, SCRATCH, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1, 0);
	if (scratch < 0 && scratch > -4096)
		return scratch;
	fd = lend_fd(l, dev, (uint64_t)scratch);
	LENT_CALL(l, SYS_munmap, (uint64_t)scratch, SCRATCH);
	if (fd < 0)
		return fd;
	mem_reached(REACHED_LENT);
	uffd = LENT_CALL(l, SYS_ioctl, (uint64_t)fd, DEV_NEW, UFFD_OPEN);
	lend_close(l, fd);
	return uffd;
}

static int make_uffd(const struct lent *l, struct job *j)
{
	long fd = LENT_CALL(l, SYS_userfaultfd, UFFD_OPEN);

	if (fd == -EPERM && j->dev >= 0)
		fd = uffd_by_dev(l, j->dev);
	if (fd < 0)
		return (int)fd;
	j->uffd = zns_fetch_fd(j->pidfd, fd, "anon_inode:[userfaultfd]");
	lend_close(l, fd);
	return zns_min(j->uffd, 0);
}

static int in_guest(struct zns_guest *g, void *arg)
{
	struct job *j = arg;
	struct lent l = { .g = g, .pid = j->pid, .pidfd = j->pidfd };
	int ret = lend_begin(&l);

	j->what = "userfaultfd";
	if (!ret)
		ret = make_uffd(&l, j);
	lend_end(&l);
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
	if (ret == -EPERM && j->dev < 0)
		return zns_fail(
			err, ret,
			"process %d may not use userfaultfd, and there is no /dev/userfaultfd (Linux 6.1)",
			j->pid);
	if (ret == -EPERM)
		return zns_fail(
			err, ret,
			"process %d may not use userfaultfd, and /dev/userfaultfd is not lent to who "
			"shares memory or descriptors with another process, or is in a user namespace "
			"where others may trace it",
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
