/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_ATONCE_H__
#define __CR_ZNS_ATONCE_H__
/*
 * Fewer switches between criu and a frozen task, for dumps into zones. Each one costs 30 to 60 µs,
 * and criu makes two dozen for a task. What the parasite is asked of every task is asked by one
 * command, sent before the parasite says that it is there. criu's own functions then find the
 * answers here.
 */
struct infect_ctx;
struct parasite_ctl;
struct vm_area_list;

/* Called before compel_infect(). @vmas: the task's areas. */
void zns_atonce_prepare(struct infect_ctx *ictx, const struct vm_area_list *vmas);
/* Called after it: waits for the answers. 0, or -1 after printing an error. */
int zns_atonce_take(struct parasite_ctl *ctl);
/* Replaces compel_rpc_call_sync(): returns an answer that was fetched already, or asks the
 * parasite. */
int zns_atonce(unsigned int cmd, struct parasite_ctl *ctl);

#endif
