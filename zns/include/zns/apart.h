/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_APART_H
#define ZNS_APART_H
/*
 * Work that may hang for ever without a signal ending it: a read of a file or of a process's memory
 * that another process or host must answer (FUSE, NFS). It runs in a process of its own, which can
 * be abandoned, and which has no descriptor of ours but @fd.
 */
#include <stddef.h>
#include <stdint.h>

/* Runs in a process of its own. It has no descriptor but @fd and the one for its result, and prints
 * nothing. */
typedef int (*zns_apart_work)(int fd, void *arg, void *out);

/*
 * Returns what @work returns, and @out (@len bytes, zeroed before) as @work has filled it.
 * -ETIMEDOUT: the process was abandoned after @limit_ms, and ends as soon as the kernel can kill
 * it. -EIO: somebody killed it. @fd: -1 for none.
 */
int zns_apart(zns_apart_work work, int fd, void *arg, void *out, size_t len, uint32_t limit_ms);

/*
 * The same for many questions. The process is made once and has our memory as it was then. A
 * question and its answer are in @shared (@len bytes, zero at first), which is @work's @out.
 */
struct zns_apart_process {
	int sk;
	size_t size;
	struct zns_apart_memory *m;
	void *shared;
};

/* 0, or -errno: no process was started. */
int zns_apart_begin(struct zns_apart_process *a, zns_apart_work work, int fd, void *arg,
		    size_t len);
/* Like zns_apart. After -ETIMEDOUT or -EIO only zns_apart_end() may be called. */
int zns_apart_ask(struct zns_apart_process *a, uint32_t limit_ms);
void zns_apart_end(struct zns_apart_process *a);

#endif
