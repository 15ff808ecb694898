/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_RESTART_H
#define TRACK_RESTART_H
#include <sys/types.h>

/*
 * The kernel itself restarts most system calls that a stop interrupts. For a stopped thread: make
 * it do that also for those that would fail with EINTR (signal(7), "Interruption of system calls by
 * stop signals") though waiting once more is the same.
 */
void restart_mend(pid_t tid);

#endif
