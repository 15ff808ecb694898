/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_EXTEND_H__
#define __CR_ZNS_EXTEND_H__
/*
 * --zns-memory: a restore into a memory context (Documentation/inside/memory.md). `criu restore` starts a
 * lazy-pages daemon for itself; that starts the pager, zns-mem, serves faults while the tasks are
 * restored, and gives all to the pager before they run.
 */
#include <stdbool.h>

struct page_read;

extern bool zns_extends(void); /* --zns-memory was given */

/* --- criu restore --- */
/* Starts the daemon, and returns when it listens. */
extern int zns_extend_begin(void);
/* Called when all tasks are restored. @sk: connected to the daemon. Returns 0 when the pager has
 * them; otherwise they must not run. */
extern int zns_extend_wait(int sk);

/* --- its daemon --- */
/* Starts the pager. It is ready some time later. @give calls zns_extend_give() and _given() for all
 * processes, now or later. */
extern int zns_extend_start(int (*give)(bool now));
/* Hears at the other end of @sk, the restore, which processes there are. */
extern int zns_extend_listen(int sk);
/* No read is under way: the pager gets all. */
extern int zns_extend_hand(void);
/*
 * Memory that is still missing: @len bytes at @start, which were at @img_start when it was dumped.
 */
struct zns_lack {
	unsigned long start, img_start, len;
};
extern int zns_extend_give(int pid, int uffd, struct page_read *pr, const struct zns_lack *v,
			   unsigned long nr);
extern int zns_extend_given(void); /* returns when the pager serves them all */
/* The restore hears that its tasks may run, or why not. */
extern void zns_extend_tell(bool ok);

#endif
