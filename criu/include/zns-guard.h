/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_GUARD_H__
#define __CR_ZNS_GUARD_H__
/*
 * Refuses tasks that CRIU would dump without their memory, or wait for without end, whether images
 * go to zones or not. Each returns 0, or -1 with one line.
 */
#include <stdbool.h>
#include <sys/types.h>

/* Before anything is frozen: all processes of the tree. A pager's rings in them are closed by then.
 */
extern int zns_guard_tree(pid_t root);
/* Before a thread is stopped. */
extern int zns_guard_thread(pid_t pid, pid_t tid);
/* An area of a frozen task; @flags: behind "VmFlags: " in smaps. */
extern int zns_guard_area(pid_t pid, unsigned long start, unsigned long end, const char *flags);

/* zns-mem.c: will a pager of ours give this dump the pages that are missing in an area? */
extern bool zns_mem_answers(pid_t pid, unsigned long start, unsigned long end);

#endif
