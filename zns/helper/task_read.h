/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_TASK_READ_H
#define ZNS_HELPER_TASK_READ_H
/*
 * Memory of a task. One that runs may put a FUSE file in the place of what is being read, and
 * whoever then waits for that file system cannot be killed. So running tasks are read in a process
 * that may be left (zns/apart.h).
 */
#include <sys/types.h>
#include <sys/uio.h>
#include "zns/apart.h"

#define TASK_READ_IOVS 512 /* at most */

struct task_reader {
	struct zns_apart_process p;
	bool begun;
};

/*
 * Whole pages from the beginning of @v to @buf, also of areas without read permission. The bytes
 * that were read, fewer where a page is gone, or -errno.
 */
ssize_t task_read(pid_t pid, const struct iovec *v, uint32_t nr, uint8_t *buf);
/* As task_read, of a task that runs. -ETIMEDOUT: it did not answer, and the reader was left. */
ssize_t task_read_apart(struct task_reader *r, pid_t pid, const struct iovec *v, uint32_t nr,
			uint8_t *buf);
void task_reader_end(struct task_reader *r);

#endif
