/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROCESS_H
#define ZNS_PROCESS_H
/* What a process that serves others must not keep of whoever happened to start it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

/* All as after boot, none blocked. Safe after a fork. */
void zns_process_signals(void);
/*
 * The same, and nice, scheduling, I/O priority, processors and oom_score_adj of a usual process;
 * limits as high as allowed. What is not allowed stays: zns_process_limits() tells. Safe after a fork.
 */
void zns_process_shed(void);
/* Only the soft limits, up to the hard ones. Likewise. */
void zns_process_raise_limits(void);
/* -EPERM: a limit stays that others would run into; the line names it. */
int zns_process_limits(struct zns_err *err);
/* The same for who writes one file of @need bytes. */
int zns_process_file_limit(uint64_t need, struct zns_err *err);

/* Every descriptor from @first on. Safe after a fork. */
void zns_close_from(int first);

/*
 * Keep of our capabilities only these, for this thread and those that it starts, and never get any again: before the first
 * thread.
 */
int zns_process_keep_caps(const int *caps, size_t nr, struct zns_err *err);
/* Into a network of our own where nothing is. Best effort; likewise before the first thread. */
void zns_process_no_network(void);

/* Into the root of every hierarchy of cgroups. False: somewhere that was not allowed. */
bool zns_cgroup_escape(void);

#endif
