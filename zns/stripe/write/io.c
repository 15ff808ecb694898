/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads the memory of frozen tasks, and writes to zones. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>
#include "../transfer.h"
#include "writer.h"

/* longest command while other writers wait for the die: what a die programs at once */
#define SHORT KIB(128)

/* Reads through /proc/PID/mem, which also reads mappings without read permission, while
 * process_vm_readv(2) refuses them. */
static int gather_slow(pid_t pid, const struct iovec *iov, uint32_t nr, size_t skip, uint8_t *buf,
		       struct zns_err *err)
{
	cleanup_close int fd = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open the memory of task %d", pid);
	for (uint32_t i = 0; i < nr; i++) {
		size_t from = zns_min(skip, iov[i].iov_len);
		int ret;

		skip -= from;
		ret = zns_pread_all(fd, buf + from, iov[i].iov_len - from,
				    (off_t)((uintptr_t)iov[i].iov_base + from));
		if (ret)
			return zns_fail_sys(err, ret, "cannot read memory of task %d at %p", pid,
					    iov[i].iov_base);
		buf += iov[i].iov_len;
	}
	return 0;
}

int io_gather(pid_t pid, const struct iovec *iov, uint32_t nr_iov, uint8_t *buf,
	      struct zns_err *err)
{
	for (uint32_t first = 0, nr; first < nr_iov; first += nr) {
		struct iovec local = { .iov_base = buf };
		ssize_t n;
		int ret;

		nr = zns_min(nr_iov - first, (uint32_t)IOV_MAX);
		for (uint32_t i = 0; i < nr; i++)
			local.iov_len += iov[first + i].iov_len;
		buf += local.iov_len;
		n = process_vm_readv(pid, &local, 1, iov + first, nr, 0);
		if (n == (ssize_t)local.iov_len)
			continue;
		if (n < 0 && errno != EFAULT)
			return zns_fail_sys(err, -errno, "cannot read the memory of task %d", pid);
		ret = gather_slow(pid, iov + first, nr, n < 0 ? 0 : (size_t)n, local.iov_base, err);
		if (ret)
			return ret;
	}
	return 0;
}

int io_write(struct zns_writer *w, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len,
	     uint64_t *ns, struct zns_err *err)
{
	return transfer_write(w->dev, w->bucket, w->crowded ? SHORT : 0, zone, off, buf, len, ns,
			      err);
}
