/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_LIVE_H__
#define __CR_ZNS_LIVE_H__
/* The part of live dumps that criu decides (Documentation/inside/live.md). */
#include <stdbool.h>

struct zw_reply;

/* Refuses what a live dump cannot be combined with. 0, or -1 with one line. */
extern int zns_live_check(bool pre_dump);
/* If the user did not say whether the dump is live, the helper decides: this tells it what criu
 * knows. */
extern void zns_live_offer(bool pre_dump);
/* Takes the helper's decision from the answer to ZW_DUMP_BEGIN. */
extern void zns_live_decided(const struct zw_reply *r);
/* Copies memory while the tasks run. 0: now freeze them; -1: printed. */
extern int zns_live_rounds(bool pre_dump);
/* True if a pages image is opened only for its name: then parents are not opened, and nothing is
 * sealed. */
extern bool zns_live_names_pages(void);
/*
 * ZW_LIVE_FINAL: lists the areas of a frozen task for the helper, unless zns_live_ahead() has, and
 * waits for the answer. 0, or -1: printed.
 */
struct pstree_item;
struct vm_area_list;
extern int zns_live_final(struct pstree_item *item, struct vm_area_list *vmas, struct zw_reply *r);
/* Tells that the helper has lines and flags of smaps. */
extern void zns_live_has_smaps(void);
/* Does the commit follow the thaw? */
extern bool zns_live_commits_late(void);

#endif
