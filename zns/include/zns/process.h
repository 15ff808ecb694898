/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PROCESS_H
#define ZNS_PROCESS_H
/*
 * The settings of a process: signals, limits, capabilities and the like. The first user's command
 * starts the broker, which then serves all users, so it must not keep that user's settings.
 */
#include <stdint.h>
#include <sys/types.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

/* Gives every signal its default action and blocks none. Safe after a fork. */
void zns_process_signals(void);
/*
 * Calls zns_process_signals, raises the limits, and sets nice value, scheduling class, I/O
 * priority, CPU affinity and oom_score_adj to their defaults. What it has no permission to change
 * stays as it is; zns_process_limits tells whether a limit is still too low. Safe after a fork.
 */
void zns_process_shed(void);
/* Raises each soft limit to its hard limit. Safe after a fork. */
void zns_process_raise_limits(void);
/* Checks that every limit is high enough for a broker. -EPERM: the message names the limit that is
 * too low. */
int zns_process_limits(struct zns_err *err);
/* Checks that this process may write a file of @need bytes. -EPERM: it may not. */
int zns_process_file_limit(uint64_t need, struct zns_err *err);

/* Starts a thread with all signals blocked, so that other threads get them. 0 or -errno. */
int zns_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

/* Closes every descriptor from @first upwards. Safe after a fork. */
void zns_close_from(int first);

/*
 * Drops all capabilities but these @nr for ever: neither this thread nor those that it starts can
 * get one back. To be called before the first thread is started.
 */
int zns_process_keep_caps(const int *caps, size_t nr, struct zns_err *err);
/* Enters an empty network namespace. Has no effect if that is not allowed. To be called before the
 * first thread is started. */
void zns_process_no_network(void);

/* Returns a number from /proc/PID/stat by its position (proc(5)); 0: the process does not exist. */
enum zns_process_field {
	ZNS_PROCESS_PARENT = 4,
	ZNS_PROCESS_USER_TICKS = 14,
	ZNS_PROCESS_SYSTEM_TICKS = 15,
	ZNS_PROCESS_BEGAN = 22,
	ZNS_PROCESS_PAGES = 24, /* pages of the process that are in DRAM */
};
uint64_t zns_process_stat(pid_t pid, enum zns_process_field field);
/* Returns the sum over a process and its descendants, down to 64 generations, since each generation
 * keeps a file open. */
uint64_t zns_process_tree(pid_t pid, enum zns_process_field field);
/* Returns when a process was started, in clock ticks since boot; 0: it does not exist. PID and
 * start time together identify a process, since the PID alone may be reused. */
uint64_t zns_process_began(pid_t pid);

/* Moves this process to the root of every cgroup hierarchy. False: it is still in a non-root group
 * of at least one of them. To be called before a second thread exists: later it takes
 * milliseconds. */
bool zns_cgroup_escape(void);
/* Returns a descriptor of the root group of cgroup version 2, for CLONE_INTO_CGROUP. -1: this
 * process is in the root group already, or there is no version 2. */
int zns_cgroup_root(void);

#endif
