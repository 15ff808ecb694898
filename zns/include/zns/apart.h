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

/* Runs in a process of its own. @fd is its only descriptor but one; it prints nothing. */
typedef int (*zns_apart_work)(int fd, void *arg, void *out);

/*
 * Returns what @work returns, and @out (@len bytes, zeroed before) as @work has filled it.
 * -ETIMEDOUT: the process was abandoned after @limit_ms, and ends as soon as the kernel can kill
 * it. -EIO: somebody killed it. @fd: -1 for none.
 */
int zns_apart(zns_apart_work work, int fd, void *arg, void *out, size_t len, uint32_t limit_ms);

#endif
