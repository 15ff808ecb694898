/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_LIVE_H__
#define __CR_ZNS_LIVE_H__
/* The decisions about a live dump that criu makes (Documentation/inside/live.md). */
#include <stdbool.h>

struct zw_reply;

/*
 * Refuses options that cannot be combined with a live dump. Returns 0, or -1 after an error
 * message.
 */
extern int zns_live_check(bool pre_dump);
/*
 * If the user did not say whether the dump is live, the helper decides. This tells the helper what
 * criu knows.
 */
extern void zns_live_offer(bool pre_dump);
/* Reads the helper's decision from the answer to ZW_DUMP_BEGIN. */
extern void zns_live_decided(const struct zw_reply *r);
/* Copies memory while the tasks run. 0: freeze them now; -1: an error was printed. */
extern int zns_live_rounds(bool pre_dump);
/*
 * Is a pages image opened only to write its name? Then parents are not opened, and nothing is
 * sealed.
 */
extern bool zns_live_names_pages(void);
/*
 * Sends ZW_LIVE_FINAL with the areas of a frozen task, unless zns_live_ahead() has sent it, and
 * waits for the answer. Returns 0, or -1 after an error message.
 */
struct pstree_item;
struct vm_area_list;
extern int zns_live_final(struct pstree_item *item, struct vm_area_list *vmas, struct zw_reply *r);
/* Notes that the helper has read lines and flags of smaps. */
extern void zns_live_has_smaps(void);
/* Does the commit follow the thaw? */
extern bool zns_live_commits_late(void);

#endif
