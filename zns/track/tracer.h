/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_TRACER_H
#define TRACK_TRACER_H
/*
 * ptrace, in a child that shares our memory and descriptors and nothing else. The end of a tracer
 * is the only thing that lets go of a thread which does not stop, such as one in uninterruptible
 * sleep. And if we are killed, the child still finishes what it has begun: a thread with our
 * registers would crash. So its wait statuses and signals do not come to us, either.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct tracer {
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	uint64_t stop_ns; /* longest stop of a thread */
	pid_t pid; /* the process */
	void (*tick)(void *arg); /* NULL, or called now and then in a wait */
	void *tick_arg;
};

/*
 * Runs @work(arg) in the child and returns its result; -EINTR if the child was killed. Meanwhile
 * the caller's thread waits. @work does not allocate memory (the child may be killed with the
 * lock).
 */
int tracer_run(struct tracer *t, unsigned int limit_ms, int (*work)(struct tracer *t, void *arg),
	       void *arg);

/* All below is for @work alone. */

/* Begin to trace a thread, and ask it to stop. -ESRCH: gone, -EBUSY: traced, -EPERM. */
int tracer_seize(pid_t tid);
/* Waits until the thread is at a place where a signal could be delivered, with none pending.
 * -ESRCH, -ETIMEDOUT. */
int tracer_wait_stop(struct tracer *t, pid_t tid);
/* The status of any thread or, if @tid is not -1, of that one. -ESRCH: it has ended, and will not
 * be reported before its other threads are. -ETIMEDOUT, -EINTR (look around, and ask again). */
int tracer_wait(struct tracer *t, pid_t tid, pid_t *who, int *status);
/* What a status means for a thread that is to stop. */
enum tracer_event { TRACER_STOPPED, TRACER_GONE, TRACER_OTHER };
/* TRACER_OTHER: another signal came first; it was delivered, wait again. */
enum tracer_event tracer_event(pid_t tid, int status);
/* Lets the thread continue as if nothing had happened. */
void tracer_release(pid_t tid);
/* The beginning of /proc/@tid/@file as text, without memory of the heap. -ESRCH: it cannot be read.
 */
int tracer_proc(pid_t tid, const char *file, char *buf, size_t len);
bool tracer_is_dead(pid_t tid); /* a zombie, or gone */
/* Is it a thread of the kernel, as of an io_uring, which never runs the program's code? */
bool tracer_is_kernels(pid_t tid);
/* For a stopped thread: its seccomp filter is suspended while @on. -EPERM: CAP_SYS_ADMIN is
 * missing. */
int tracer_no_seccomp(pid_t tid, bool on);

/* Makes the error text for a failed call of this file on a process. */
int tracer_fail(int code, pid_t pid, struct zns_err *err);

#endif
