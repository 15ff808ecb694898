/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writing a task's memory. See zns/task.h. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "zns/task.h"
#include "zns/util.h"

#define PAGE 4096ULL
/* the ioctls that the kernel reports for a range of ordinary pages, which are neither huge pages
 * nor pages of a file */
#define PLAIN_IOCTLS ((1ull << _UFFDIO_COPY) | (1ull << _UFFDIO_ZEROPAGE))

static bool says(const char *path, const char *const *words)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[128] = "";

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return false;
	for (; *words; words++)
		if (strstr(text, *words))
			return true;
	return false;
}

#define THP "/sys/kernel/mm/transparent_hugepage/"

bool zns_task_huge_pages(void)
{
	return says(THP "enabled", (const char *const[]){ "[always]", NULL }) ||
	       says(THP "shmem_enabled",
		    (const char *const[]){ "[always]", "[within_size]", "[force]", NULL });
}

static void uncover(int uffd, uint64_t base, uint64_t len)
{
	struct uffdio_range r = { .start = base, .len = len };

	/* an error is ignored: if the range stays registered, the write that follows fails */
	ioctl(uffd, UFFDIO_UNREGISTER, &r);
}

/* Writes to two pages of the task, so that they exist. Works on every kernel. */
static bool touch(pid_t pid, uint64_t one, uint64_t other)
{
	struct iovec local = { (char[2]){ 0 }, 2 };
	struct iovec remote[] = { { (void *)(uintptr_t)one, 1 }, { (void *)(uintptr_t)other, 1 } };

	return process_vm_writev(pid, &local, 1, remote, 2, 0) == 2;
}

/*
 * Registers a range of the task with a userfaultfd, so that it can be filled fast. The kernel
 * splits the memory area at both ends of the range. Later it merges the parts only if they share an
 * anon_vma, which an area gets with its first page. So the first and last page are written before
 * the split, and are not registered. A range without these pages never fits an area of huge pages,
 * which therefore is not registered (its parts would not be merged).
 */
bool zns_task_cover(struct zns_task task, const void *base, size_t len)
{
	uint64_t start = (uintptr_t)base + PAGE, end = (uintptr_t)base + len - PAGE;
	struct uffdio_register r = { .range = { .start = start, .len = end - start },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };

	if (len <= 2 * PAGE || !touch(task.pid, start - PAGE, end) ||
	    ioctl(task.uffd, UFFDIO_REGISTER, &r))
		return false;
	if ((r.ioctls & PLAIN_IOCTLS) == PLAIN_IOCTLS)
		return true;
	uncover(task.uffd, start, end - start);
	return false;
}

static int write_plainly(pid_t pid, uint64_t to, const void *from, size_t len)
{
	struct iovec local = { (void *)from, len }, remote = { (void *)(uintptr_t)to, len };
	ssize_t n = process_vm_writev(pid, &local, 1, &remote, 1, 0);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EFAULT;
}

/* Copies with UFFDIO_COPY. *done: how many bytes were copied, from the start. -EEXIST: the first
 * page exists already. -ENOENT: no userfaultfd covers it, or the range spans two areas. */
static int copy(int uffd, uint64_t to, const void *from, size_t len, size_t *done)
{
	struct uffdio_copy c = {
		.dst = to, .src = (uintptr_t)from, .len = len, .mode = UFFDIO_COPY_MODE_DONTWAKE
	};

	if (!ioctl(uffd, UFFDIO_COPY, &c))
		*done = len;
	else if (errno != EAGAIN || c.copy <= 0)
		return -errno;
	else
		*done = (size_t)c.copy;
	return 0;
}

static int install(struct zns_task task, const struct iovec *remote, const char *from)
{
	uint64_t to = (uintptr_t)remote->iov_base;
	size_t left = remote->iov_len, len = left, done = 0;

	for (; left; to += done, from += done, left -= done) {
		int ret = copy(task.uffd, to, from, len, &done);

		if (ret) {
			done = zns_min(left, PAGE);
			ret = write_plainly(task.pid, to, from, done) ? ret : 0;
		}
		if (ret == -ENOENT && len > PAGE) {
			len = zns_max(zns_align_down(len / 2, PAGE), PAGE);
			done = 0;
			continue;
		}
		if (ret) { /* the range does not consist of whole pages */
			uncover(task.uffd, to, left);
			return write_plainly(task.pid, to, from, left);
		}
		len = left - done;
	}
	return 0;
}

/* ---- a task that runs ---- */

/* most bytes of one copy, since an event of the task has to wait for one copy */
#define AT_ONCE KIB(64)

/* Copies to a running task. *done: how many bytes were copied, from the start. -ESTALE: the task or
 * the area no longer exists. */
static int place(struct zns_task task, uint64_t to, const char *from, size_t len, size_t *done)
{
	struct uffdio_copy c = { .dst = to, .src = (uintptr_t)from, .len = len };
	int ret;

	*done = 0;
	if (!task.running->enter(task.running))
		return -ESTALE;
	ret = ioctl(task.uffd, UFFDIO_COPY, &c) ? -errno : 0;
	task.running->leave(task.running);
	if (!ret)
		*done = len;
	else if (ret == -EAGAIN && c.copy > 0)
		*done = (size_t)c.copy;
	return *done ? 0 : ret;
}

static void wake(int uffd, uint64_t page)
{
	struct uffdio_range r = { .start = page, .len = PAGE };

	ioctl(uffd, UFFDIO_WAKE, &r);
}

static int place_range(struct zns_task task, const struct iovec *remote, const char *from)
{
	struct zns_running *r = task.running;
	uint64_t to = (uintptr_t)remote->iov_base;
	size_t left = remote->iov_len, most = AT_ONCE, done;

	for (; left; to += done, from += done, left -= done) {
		size_t len = zns_min(left, most);
		int ret = place(task, to, from, len, &done);

		/* the range spans two areas: copy page by page */
		if (ret == -ENOENT && len > PAGE) {
			most = PAGE;
		} else if (ret == -ENOENT || ret == -EEXIST) {
			if (ret == -ENOENT)
				r->lacks = true;
			wake(task.uffd, to);
			done = PAGE;
		} else if (ret == -EAGAIN || ret == -ESTALE) {
			r->lacks = true;
			return 0;
		} else if (ret == -ESRCH || ret == -ENOSPC) {
			r->gone = true;
			return 0;
		} else if (ret) {
			return ret;
		}
	}
	return 0;
}

/* ---- all ranges ---- */

typedef int put_range(struct zns_task task, const struct iovec *remote, const char *from);

/* The system call accepts several local ranges only if there are as many remote ranges with the
 * same lengths. */
static int put_all(put_range *put, struct zns_task task, const struct iovec *local,
		   uint32_t nr_local, const struct iovec *remote, uint32_t nr)
{
	const char *from = local[0].iov_base;
	int ret = 0;

	for (uint32_t n = 0; n < nr && !ret; n++) {
		if (nr_local > 1)
			from = local[n].iov_base;
		ret = put(task, &remote[n], from);
		from += remote[n].iov_len;
	}
	return ret;
}

int zns_task_write(struct zns_task task, const struct iovec *local, uint32_t nr_local,
		   const struct iovec *remote, uint32_t nr_remote, size_t sum, struct zns_err *err)
{
	ssize_t n;
	int ret;

	if (task.running) {
		ret = put_all(place_range, task, local, nr_local, remote, nr_remote);
	} else if (task.uffd >= 0) {
		ret = put_all(install, task, local, nr_local, remote, nr_remote);
	} else {
		n = process_vm_writev(task.pid, local, nr_local, remote, nr_remote, 0);
		ret = n == (ssize_t)sum ? 0 : n < 0 ? -errno : -EFAULT;
	}
	return ret ? zns_fail_sys(err, ret, "cannot write the memory of task %d at %p", task.pid,
				  remote[0].iov_base) :
		     0;
}
