/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROCESS_H
#define ZNS_PROCESS_H
/* What a process that serves others must not keep of whoever happened to start it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

/* Reset all signals: default actions, none blocked. Safe after a fork. */
void zns_process_signals(void);
/*
 * As zns_process_signals, and give this process the usual nice value, scheduling class, I/O
 * priority, processors and oom_score_adj; raise limits as far as allowed. What is not allowed
 * stays; zns_process_limits() tells. Safe after a fork.
 */
void zns_process_shed(void);
/* Raise the soft limits only, up to the hard ones. Safe after a fork. */
void zns_process_raise_limits(void);
/* -EPERM: a limit is left that those who are served would run into; the line names it. */
int zns_process_limits(struct zns_err *err);
/* The same for a process that writes one file of @need bytes. */
int zns_process_file_limit(uint64_t need, struct zns_err *err);

/* Close every descriptor from @first on. Safe after a fork. */
void zns_close_from(int first);

/*
 * Drop all capabilities but these, for this thread and those that it starts, and never get one
 * back. Call it before the first thread is started.
 */
int zns_process_keep_caps(const int *caps, size_t nr, struct zns_err *err);
/* Enter an empty network namespace, if that is allowed. Call it before the first thread is started.
 */
void zns_process_no_network(void);

/* Move to the root of every hierarchy of cgroups. False: one of them did not let us. */
bool zns_cgroup_escape(void);

#endif
