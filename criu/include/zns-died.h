/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_DIED_H__
#define __CR_ZNS_DIED_H__
/*
 * Adds a line with cause and remedy to a failed restore where criu's own line ("File exists",
 * "signal 9") does not name the cause, or where it has none.
 */
#include <sys/types.h>
#include "common/lock.h"

/* Called before the first task is created. */
void zns_died_begin(void);

/* Waits until all tasks have passed a stage in which criu gets no signal of a death. 0; -1: a task
 * has died and its line is printed, or the stage was aborted. */
int zns_wait_stage(futex_t *left);
/* A task was killed by @sig. In a signal's handler. */
void zns_killed(pid_t pid, int sig);
/* Task @pid cannot be created; errno has the reason, and is preserved. */
void zns_not_forked(pid_t pid);
/* All tasks are gone. The restorer, which runs without criu's memory, saw its socket close and no
 * more. */
void zns_restore_failed(void);

#endif
