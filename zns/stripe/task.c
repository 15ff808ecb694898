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

bool zns_task_huge_pages(void)
{
	cleanup_close int fd = open("/sys/kernel/mm/transparent_hugepage/enabled",
				    O_RDONLY | O_CLOEXEC);
	char text[64] = "";

	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, "[always]");
}

bool zns_task_uffd_init(int uffd)
{
	/* Should somebody touch a missing page all the same, he gets a signal and does not hang. */
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };

	return !ioctl(uffd, UFFDIO_API, &api);
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

/* Returns how much of it got there, from the front. */
static size_t install(int uffd, const struct iovec *remote, const void *from)
{
	size_t done = 0;

	while (done < remote->iov_len) {
		struct uffdio_copy c = { .dst = (uintptr_t)remote->iov_base + done,
					 .src = (uintptr_t)from + done,
					 .len = remote->iov_len - done,
					 .mode = UFFDIO_COPY_MODE_DONTWAKE };

		if (!ioctl(uffd, UFFDIO_COPY, &c))
			return remote->iov_len;
		if (errno != EAGAIN || c.copy <= 0)
			break;
		done += (size_t)c.copy;
	}
	return done;
}

/* A page is there already, or the place is of another kind than it seemed. */
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

	for (uint32_t n = 0; n < nr; n++) {
		size_t done;
		int ret;

		if (nr_local > 1)
			from = local[n].iov_base;
		done = install(task.uffd, &remote[n], from);
		ret = done < remote[n].iov_len ? write_rest(task, &remote[n], from, done) : 0;
		if (ret)
			return ret;
		from += remote[n].iov_len;
	}
	return 0;
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
