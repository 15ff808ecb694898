/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_APART_H
#define ZNS_APART_H
/*
 * What may hang for ever, and no signal ends it: a read from a file system or of a process's memory
 * where somebody else has to answer (FUSE, NFS). It is done in a process that may be left there. It
 * holds nothing of ours but @fd.
 */
#include <stddef.h>
#include <stdint.h>

/* Runs in a process of its own. @fd is its only descriptor but one; it prints nothing. */
typedef int (*zns_apart_work)(int fd, void *arg, void *out);

/*
 * What @work returns, and @out (@len bytes, zero before) as it left it. -ETIMEDOUT: it was left; it
 * is killed as soon as the kernel can. -EIO: it was killed. @fd: -1: none.
 */
int zns_apart(zns_apart_work work, int fd, void *arg, void *out, size_t len, uint32_t limit_ms);

#endif
