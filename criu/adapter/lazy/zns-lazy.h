/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_LAZY_H__
#define __CR_ZNS_LAZY_H__
/* Shared by the files of the lazy-pages daemon: zns-lazy.c reads, zns-first.c says what comes
 * first, zns-holder.c sees to the daemon's end, zns-lazysock.c makes its socket. */
#include <stdbool.h>

struct page_read;

/* zns-lazysock.c: a pair of sockets for a daemon that the restore starts. The result is the
 * daemon's end, which it finds at ZNS_DAEMON_SK; zns_lazy_connect() takes the other one. -1 and
 * errno. */
extern int zns_lazy_pair(void);
#define ZNS_DAEMON_SK 5

/* zns-holder.c: starts the process that kills the tasks if the daemon ends too early. 0 or -1. */
extern int zns_holder_begin(int epollfd);
/* Asks the helper for the pages that are to come first; 0 or -1. */
extern int zns_first_begin(void);
/* Ranges of this process, or of any, that were not asked for yet. */
extern bool zns_first_left(struct page_read *pr);
extern bool zns_first_any(void);
extern void zns_first_forget(struct page_read *pr);
/* Lets the tasks run if all of these are in place. @under_way: reads of them; of anything, if the
 * rest is given to a pager then. */
extern void zns_first_check(unsigned int under_way);
/* Offset of each entry of the pagemap in the pages image, and the image's size; NULL: no memory. */
extern unsigned long *zns_entry_offsets(struct page_read *pr);
/* Milliseconds until the end of the recording, in which the background stands still. 0: none, or it
 * has ended. */
extern int zns_first_hold(void);
/* Collects the helper's answer about the record. */
extern void zns_first_end(void);

#endif
