/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_APART_H
#define ZNS_APART_H
/*
 * Runs work that may hang for ever, uninterruptible by a signal: for example a read of a file or of
 * a process's memory that another process or host must answer (FUSE, NFS). The work runs in a
 * process of its own, which can be abandoned. That process has none of our descriptors but @fd.
 */
#include <stddef.h>
#include <stdint.h>

/* The work. It is called in the separate process, where only @fd and the descriptor for the result
 * are open. It must not print anything. */
typedef int (*zns_apart_work)(int fd, void *arg, void *out);

/*
 * Returns what @work returned, with @out (@len bytes, zeroed before the call) as @work filled it.
 * Errors: -ETIMEDOUT: @work took longer than @limit_ms and its process was abandoned; the process
 * ends as soon as the kernel can kill it. -EIO: somebody killed the process. @fd: -1 if @work needs
 * no descriptor.
 */
int zns_apart(zns_apart_work work, int fd, void *arg, void *out, size_t len, uint32_t limit_ms);

/*
 * Like zns_apart, for many requests to one process. The process is started once, with a copy of our
 * memory of that moment. Requests and answers are exchanged through @shared (@len bytes, zero at
 * first), which @work gets as @out.
 */
struct zns_apart_process {
	int sk;
	size_t size;
	struct zns_apart_memory *m;
	void *shared;
};

/* Starts the process. 0, or -errno if it could not be started. */
int zns_apart_begin(struct zns_apart_process *a, zns_apart_work work, int fd, void *arg,
		    size_t len);
/* Runs @work once in the process, with the same results as zns_apart. After -ETIMEDOUT or -EIO only
 * zns_apart_end() may be called. */
int zns_apart_ask(struct zns_apart_process *a, uint32_t limit_ms);
void zns_apart_end(struct zns_apart_process *a);

#endif
