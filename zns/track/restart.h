/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_RESTART_H
#define TRACK_RESTART_H
#include <sys/types.h>

/*
 * The kernel itself restarts most system calls that a stop interrupts. But some of them fail with
 * EINTR instead (signal(7), "Interruption of system calls by stop signals"). For a stopped thread:
 * makes the kernel restart those as well whose only effect is to wait.
 */
void restart_mend(pid_t tid);

#endif
