/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writing a task's memory. See zns/task.h. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "zns/task.h"
#include "zns/util.h"

/* What the kernel says of a range that is neither of huge pages nor of something else. */
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

	ioctl(uffd, UFFDIO_UNREGISTER, &r); /* if it fails, the write will */
}

bool zns_task_cover(int uffd, const void *base, size_t len)
{
	struct uffdio_register r = { .range = { .start = (uintptr_t)base, .len = len },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };

	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		return false;
	if ((r.ioctls & PLAIN_IOCTLS) == PLAIN_IOCTLS)
		return true;
	uncover(uffd, r.range.start, len);
	return false;
}

/* From the front; *@done: how much of it got there. */
static int install(int uffd, const struct iovec *remote, const void *from, size_t *done)
{
	*done = 0;
	while (*done < remote->iov_len) {
		struct uffdio_copy c = { .dst = (uintptr_t)remote->iov_base + *done,
					 .src = (uintptr_t)from + *done,
					 .len = remote->iov_len - *done,
					 .mode = UFFDIO_COPY_MODE_DONTWAKE };

		if (!ioctl(uffd, UFFDIO_COPY, &c))
			return 0;
		if (errno != EAGAIN || c.copy <= 0)
			return -errno;
		*done += (size_t)c.copy;
	}
	return 0;
}

/* A page is there already, or the place is not covered, reaches over two areas, or is of another
 * kind than it seemed. */
static int write_rest(struct zns_task task, const struct iovec *remote, const void *from,
		      size_t done)
{
	struct iovec local = { (char *)from + done, remote->iov_len - done };
	struct iovec rest = { (char *)remote->iov_base + done, local.iov_len };
	ssize_t n;

	uncover(task.uffd, (uintptr_t)rest.iov_base, rest.iov_len);
	n = process_vm_writev(task.pid, &local, 1, &rest, 1, 0);
	return n == (ssize_t)rest.iov_len ? 0 : n < 0 ? -errno : -EFAULT;
}

/* Several local ranges: only together with as many remote ones of the same lengths. */
static int install_all(struct zns_task task, const struct iovec *local, uint32_t nr_local,
		       const struct iovec *remote, uint32_t nr)
{
	const char *from = local[0].iov_base;
	int ret = 0;

	for (uint32_t n = 0; n < nr && !ret; n++) {
		size_t done;

		if (nr_local > 1)
			from = local[n].iov_base;
		ret = install(task.uffd, &remote[n], from, &done);
		if (ret)
			ret = write_rest(task, &remote[n], from, done);
		from += remote[n].iov_len;
	}
	return ret;
}

int zns_task_write(struct zns_task task, const struct iovec *local, uint32_t nr_local,
		   const struct iovec *remote, uint32_t nr_remote, size_t sum, struct zns_err *err)
{
	ssize_t n;
	int ret;

	if (task.uffd >= 0) {
		ret = install_all(task, local, nr_local, remote, nr_remote);
	} else {
		n = process_vm_writev(task.pid, local, nr_local, remote, nr_remote, 0);
		ret = n == (ssize_t)sum ? 0 : n < 0 ? -errno : -EFAULT;
	}
	return ret ? zns_fail_sys(err, ret, "cannot write the memory of task %d at %p", task.pid,
				  remote[0].iov_base) :
		     0;
}
