/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Moves pages out of a program with UFFDIO_MOVE, which refuses a page that somebody holds: a
 * device, or another process that writes to it (process_vm_writev). Only a thread of the program
 * can call it, and only for a destination that is registered with a userfaultfd of its own. Both
 * this userfaultfd and the destination, the scratch area, are made while all threads are stopped,
 * and removed before they continue. The userfaultfd is for user mode only, so other processes that
 * can take the program's descriptors get nothing that they could not make themselves. The arguments
 * lie in the program's memory, where others may write, so the result is read from the page tables
 * instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "going.h"

#define LENGTH (BATCH * UNIT)
#define USER_MODE 1U /* UFFD_USER_MODE_ONLY, Linux 5.11 */

/* UFFDIO_MOVE, Linux 6.8; the names are our own */
struct move_arg {
	__u64 dst, src, len, mode;
	__s64 moved;
};
#define MOVE_IOCTL _IOWR(UFFDIO, 0x05, struct move_arg)
#define MOVE_NO_WAKE 1U
#define MOVE_HOLES 2U /* UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES: holes are skipped */
#define MOVE_FEATURE (1U << 16)

#define CALL(guest, nr, ...) move_call(guest, nr, (uint64_t[6]){ __VA_ARGS__ })

long move_call(struct zns_guest *guest, long nr, const uint64_t arg[6])
{
	long result;
	int ret;

	do {
		ret = zns_guest_call(guest, nr, arg, &result);
	} while (ret == -ETIMEDOUT);
	return ret ? ret : result;
}

bool move_can(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	cleanup_close int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE);

	return fd >= 0 && !ioctl(fd, UFFDIO_API, &api) && api.features & MOVE_FEATURE &&
	       !mem_refused(REFUSED_MOVE);
}

static bool failed(long result)
{
	return result < 0 && result > -4096;
}

/*
 * Registers the scratch area through our own copy of the descriptor, since no answer of the process
 * is trusted.
 */
static int enlist(const struct scratch *s)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .range = { .start = s->at, .len = LENGTH },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };
	cleanup_close int fd = zns_fetch_fd(s->p->pidfd, s->fd, "anon_inode:[userfaultfd]");

	if (fd < 0)
		return fd;
	return ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

int move_begin(struct scratch *s, struct proc *p, struct zns_guest *guest)
{
	const uint64_t map[6] = { 0,
				  PAGE + LENGTH,
				  PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				  (uint64_t)-1,
				  0 };
	long at;
	int ret = zns_guest_call(guest, SYS_mmap, map, &at); /* a frozen process is not touched */

	if (ret || failed(at))
		return ret ? ret : (int)at;
	*s = (struct scratch){ .p = p, .guest = guest, .arg = (uint64_t)at };
	s->at = s->arg + PAGE;
	s->fd = CALL(guest, SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE);
	ret = s->fd < 0 ? (int)s->fd : enlist(s);
	if (ret)
		move_end(s);
	return ret;
}

static int move_once(struct scratch *s, const struct range *r, uint64_t to)
{
	struct move_arg a = { .dst = s->at + to,
			      .src = r->start,
			      .len = r->end - r->start,
			      .mode = MOVE_NO_WAKE | MOVE_HOLES };
	struct iovec here = { &a, sizeof(a) }, there = { (void *)(uintptr_t)s->arg, sizeof(a) };

	if (process_vm_writev(s->p->pid, &here, 1, &there, 1, 0) != sizeof(a))
		return -EFAULT;
	return (int)CALL(s->guest, SYS_ioctl, (uint64_t)s->fd, MOVE_IOCTL, s->arg);
}

int move_pages(struct scratch *s, const struct range *r, uint64_t to)
{
	int ret = move_once(s, r, to);

	if (ret != -EINVAL || s->exec)
		return ret;
	s->exec = true; /* source and destination must have the same permissions */
	CALL(s->guest, SYS_mprotect, s->at, LENGTH, PROT_READ | PROT_WRITE | PROT_EXEC);
	return move_once(s, r, to);
}

void move_end(struct scratch *s)
{
	CALL(s->guest, SYS_munmap, s->arg, PAGE + LENGTH);
	if (s->fd >= 0)
		CALL(s->guest, SYS_close, (uint64_t)s->fd);
}
