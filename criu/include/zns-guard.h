/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_GUARD_H__
#define __CR_ZNS_GUARD_H__
/*
 * Refuses tasks with which CRIU would go wrong, whether images go to zones or not: it would leave out
 * memory of theirs, wait for them for ever, write images that no restore can use, or notice only
 * after copying memory that they cannot be dumped. Each function returns 0, or -1 after printing one
 * line.
 */
#include <stdbool.h>
#include <sys/types.h>

/* a link in /proc/PID/fd that leads to a userfaultfd begins so */
#define UFFD_LINK "anon_inode:[userfaultfd]"
#define ZNS_HOLDER_NAME "zns-holder" /* name of the process that zns-holder.c starts */

/* Called before any task is frozen: checks the processes of the tree. It may wait some seconds for
 * one in vfork(). */
extern int zns_guard_tasks(pid_t root);
/* Called later: checks what the processes have open. A pager's rings in them are closed by then. */
extern int zns_guard_tree(pid_t root, bool pre_dump);
/* Called before a thread is stopped. */
extern int zns_guard_thread(pid_t pid, pid_t tid);
/* Checks an area of a frozen task; @flags: the text behind "VmFlags: " in smaps. */
extern int zns_guard_area(pid_t pid, unsigned long start, unsigned long end, const char *flags);

/* In zns-mem.c; called before the guard. If a pager of ours has memory of the tree, the pager is
 * paused from here on, and none of its threads works on a task. */
extern int zns_mem_begin(pid_t root);
extern bool zns_mem_begun(void); /* true if such a pager was paused */
/* Will it give this dump the pages that are missing in an area? */
extern bool zns_mem_answers(pid_t pid, unsigned long start, unsigned long end);

#endif
