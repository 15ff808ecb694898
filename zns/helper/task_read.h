/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HELPER_TASK_READ_H
#define ZNS_HELPER_TASK_READ_H
/*
 * Reads memory of a task. A running task may map a file of a FUSE file system over the memory that
 * is being read, and a reader that waits for that file system cannot be killed. So running tasks
 * are read in a child process, which the helper can abandon (zns/apart.h).
 */
#include <sys/types.h>
#include <sys/uio.h>
#include "zns/apart.h"

#define TASK_READ_IOVS 512 /* most ranges of one call */

struct task_reader {
	struct zns_apart_process p;
	bool begun;
};

/*
 * Reads whole pages from the beginning of @v into @buf, also of areas without read permission.
 * Returns the number of bytes read, fewer where a page is gone, or -errno.
 */
ssize_t task_read(pid_t pid, const struct iovec *v, uint32_t nr, uint8_t *buf);
/* Like task_read(), for a running task. -ETIMEDOUT: a page did not arrive, and the child process
 * was abandoned. */
ssize_t task_read_apart(struct task_reader *r, pid_t pid, const struct iovec *v, uint32_t nr,
			uint8_t *buf);
void task_reader_end(struct task_reader *r);

#endif
