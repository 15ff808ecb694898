/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_SEND_H__
#define __CR_ZNS_SEND_H__
/*
 * The sender of a dump or pre-dump to a page server. The helper tracks the memory. See
 * Documentation/inside/migration.md, "In rounds".
 */
#include <stdbool.h>

struct pstree_item;
struct vm_area_list;

/*
 * How to ask a page server which checkpoint it writes, and with which parent. The question is a
 * PS_IOV_PARENT for images with impossible numbers. An unmodified criu answers that it has no such
 * image. Our page server answers the first question with ZNS_WHO_IS_ZNS, and each of the others
 * with a part of both ids.
 */
#define ZNS_WHO 0x5a4e5300000000UL
#define ZNS_WHO_IS_ZNS 0x5a4e5331
#define ZNS_WHO_BITS 31 /* bits in one answer: an int that is not negative */
#define ZNS_WHO_WORDS 9 /* number of answers for 2 * 128 bits */

/*
 * Called before the freeze, with a connection to the page server. Returns 0, also if the helper
 * does not track; -1: an error was printed.
 */
extern int zns_send_begin(bool pre_dump);
extern bool zns_sends(void);
/* Like zns_live_task(). */
extern bool zns_send_task(struct pstree_item *item, struct vm_area_list *vmas, int *ret);
/* Called when the page server has got everything, or the dump has failed. Returns @failed. */
extern int zns_send_end(int failed);

#endif
