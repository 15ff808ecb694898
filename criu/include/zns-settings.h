/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_SETTINGS_H__
#define __CR_ZNS_SETTINGS_H__
/*
 * What CRIU loses of a task: which CPUs a thread may use, memory that is locked only once it is
 * there (MLOCK_ONFAULT), PR_SET_MDWE and PR_SET_MEMORY_MERGE. Fields of our own in its images keep
 * them; stock CRIU passes over those.
 */
#include <sys/types.h>
#include "images/core.pb-c.h"
#include "images/vma.pb-c.h"

/* longs in a CPU mask; on a machine with more CPUs masks are not stored */
#define ZNS_CPUS_LONGS 32

struct rst_sched_param;

/* Called before the freeze: finds the CPUs of a thread that has not set its affinity. */
void zns_affinity_begin(pid_t root);
/* Stores the mask only of a thread that has set one: another machine has other CPUs. */
int zns_dump_affinity(pid_t tid, ThreadCoreEntry *tc);
void zns_prepare_affinity(struct rst_sched_param *sp, const ThreadCoreEntry *tc);
/* @flags: behind "VmFlags: " in smaps. Before criu looks at them: it would lock, and so read, the
 * whole area. */
void zns_area_flags(char *flags, VmaEntry *e);

#endif
