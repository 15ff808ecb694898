/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_DIRECT_H
#define MEM_DIRECT_H
#include "mem.h"

/* --- mounts.c --- */
#define MOUNTS_SEEN 64U /* different ones of a process; who has more may have any */
struct mount_ids {
	long id[MOUNTS_SEEN];
	unsigned int nr;
};
/* Is one of them of a file system that may read past the page cache by itself? Uses up @ids. */
bool mounts_past_cache(pid_t pid, struct mount_ids *ids);
#endif
