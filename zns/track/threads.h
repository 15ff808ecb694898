/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_THREADS_H
#define TRACK_THREADS_H
/* Stops all threads of a process, either one after the other or all at once. */
#include "tracer.h"

#define THREADS_LIMIT_MS 5000

/* Returns when every thread that existed at the call has been in a ptrace stop, or is gone. */
int threads_barrier(struct tracer *t, struct zns_err *err);
/*
 * Runs @work while all threads are stopped. @tid is one of them: the first thread if it still
 * exists. Kernel threads of the process (io_uring) continue.
 */
int threads_stopped(struct tracer *t, unsigned int limit_ms,
		    int (*work)(struct tracer *t, pid_t tid, void *arg), void *arg,
		    struct zns_err *err);
/*
 * -EBUSY: a child of the process shares its memory (vfork, CLONE_VM), and still does after
 * @limit_ms.
 */
int threads_alone(pid_t pid, unsigned int limit_ms, struct zns_err *err);

#endif
