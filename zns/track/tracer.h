/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_TRACER_H
#define TRACK_TRACER_H
/*
 * ptrace in a child process that shares our memory and descriptors, but not our PID or signals. It
 * is a process of its own for three reasons. Only the exit of a tracer releases a thread that does
 * not stop, such as one in uninterruptible sleep. If our process is killed, the child still
 * restores the threads: a thread with our registers would crash. And wait statuses and signals of
 * the traced threads do not reach our process.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct tracer {
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	uint64_t stop_ns; /* ns; the longest time for which a thread was stopped */
	pid_t pid; /* the traced process */
	void (*tick)(void *arg); /* called regularly during a wait; NULL: nothing is called */
	void *tick_arg;
};

/*
 * Runs @work(arg) in the child and returns its result; -EINTR: the child was killed. The calling
 * thread waits meanwhile. @work must not allocate memory: if the child is killed while it holds the
 * heap's lock, our process hangs.
 */
int tracer_run(struct tracer *t, unsigned int limit_ms, int (*work)(struct tracer *t, void *arg),
	       void *arg);

/* All functions below are for use in @work only. */

/*
 * Begins to trace a thread, and asks it to stop. -ESRCH: it is gone; -EBUSY: another process traces
 * it; -EPERM: no permission.
 */
int tracer_seize(pid_t tid);
/*
 * Waits until the thread is stopped where the kernel delivers signals, and no signal is pending.
 * -ESRCH, -ETIMEDOUT.
 */
int tracer_wait_stop(struct tracer *t, pid_t tid);
/*
 * Waits for a status of thread @tid, or of any thread if @tid is -1. -ESRCH: the thread has ended
 * (for a group leader, the kernel reports that only after its other threads have ended).
 * -ETIMEDOUT: the deadline is over. -EINTR: check for changes, and call again.
 */
int tracer_wait(struct tracer *t, pid_t tid, pid_t *who, int *status);
/* What a wait status means for a thread that was asked to stop. */
enum tracer_event { TRACER_STOPPED, TRACER_GONE, TRACER_OTHER };
/* TRACER_OTHER: another signal came first and was delivered: wait again. */
enum tracer_event tracer_event(pid_t tid, int status);
/* Lets the thread continue as if nothing had happened. */
void tracer_release(pid_t tid);
/*
 * Reads the beginning of /proc/@tid/@file as text, without using the heap. -ESRCH: it cannot be
 * read.
 */
int tracer_proc(pid_t tid, const char *file, char *buf, size_t len);
bool tracer_is_dead(pid_t tid); /* a zombie, or gone */
/* Is this a kernel thread, such as a worker of an io_uring, which never runs the program's code? */
bool tracer_is_kernels(pid_t tid);
/*
 * Suspends (@on) or resumes the seccomp filter of a stopped thread. -EPERM: CAP_SYS_ADMIN is
 * missing.
 */
int tracer_no_seccomp(pid_t tid, bool on);

/* Fills @err for a failed call of a function of this file on process @pid. */
int tracer_fail(int code, pid_t pid, struct zns_err *err);

#endif
