/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_LAZY_H__
#define __CR_ZNS_LAZY_H__
/* Shared by the files of the lazy-pages daemon: zns-lazy.c reads pages, zns-first.c says which
 * pages are read first, zns-holder.c acts when the daemon dies, zns-lazysock.c makes its socket. */
#include <stdbool.h>

struct page_read;

/* zns-lazysock.c: makes a pair of sockets for a daemon that the restore starts. Returns the
 * daemon's end, which the daemon finds as descriptor ZNS_DAEMON_SK; zns_lazy_connect() returns
 * the other end. On failure -1 and errno. */
extern int zns_lazy_pair(void);
#define ZNS_DAEMON_SK 5

/* zns-holder.c: starts the process that kills the tasks if the daemon ends too early. 0 or -1. */
extern int zns_holder_begin(int epollfd);
/* Asks the helper for the pages that are to come first; 0 or -1. */
extern int zns_first_begin(void);
/* Are there first pages that were not requested yet: of this process, or of any? */
extern bool zns_first_left(struct page_read *pr);
extern bool zns_first_any(void);
extern void zns_first_forget(struct page_read *pr);
/* Lets the tasks run if all first pages are in place. @under_way: how many reads of first pages
 * are not answered; where a pager takes over, how many reads of any kind. */
extern void zns_first_check(unsigned int under_way);
/* For each entry of the pagemap its offset in the pages image; behind them the image's size. To
 * be freed. NULL: no memory. */
extern unsigned long *zns_entry_offsets(struct page_read *pr);
/* Milliseconds for which the recording of first touches continues; the background stands still
 * that long. 0: nothing is recorded, or not any more. */
extern int zns_first_recording_ms(void);
/* Waits for the helper's answer about the record. */
extern void zns_first_end(void);

#endif
