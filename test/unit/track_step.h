/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRACK_STEP_H
#define TRACK_STEP_H
/*
 * A tracker in a process of its own, which is stopped at one of its system calls, or of those of
 * the tracer that it starts. So what happens to it or beside it happens at a place that is known.
 */
#include <sys/ptrace.h>

#include "track_fixture.h"

#define POINTS 48 /* that a case looks at, spread over all system calls */

struct stepped {
	pid_t pid, at; /* pid: the tracker; at: the thread that is stopped at the system call */
	bool tracers; /* only system calls of the tracer that it starts count */
	int status; /* when it has ended */
};

static inline void track_once(pid_t pid)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 };
	struct zns_track *k;
	int ret;

	PATIENT(ret, zns_track_new(pid, &kernel, &k, &err));
	if (ret || zns_track_arm(k, &copy, &err)) {
		print_error("%s\n", err.msg);
		_exit(1);
	}
	PATIENT(ret, zns_track_barrier(k, &err));
	if (ret) {
		print_error("%s\n", err.msg);
		_exit(1);
	}
	zns_track_free(k);
	_exit(0);
}

/* On to the @n-th stop at a system call; how many there were. Less: it has ended. */
static inline unsigned int step(struct stepped *s, unsigned int n)
{
	unsigned int nr = 0;

	for (;;) {
		int status, sig;
		pid_t who = waitpid(-1, &status, __WALL);

		assert_true(who > 0);
		if (!WIFSTOPPED(status)) {
			if (who != s->pid)
				continue;
			s->status = status;
			return nr;
		}
		s->at = who;
		sig = WSTOPSIG(status);
		if (sig == (SIGTRAP | 0x80)) {
			nr += !s->tracers || who != s->pid;
			if (nr == n && (!s->tracers || who != s->pid))
				return nr;
			sig = 0;
		} else if (status >> 16 || sig == SIGSTOP) { /* it begins */
			sig = 0;
		}
		ptrace(PTRACE_SYSCALL, who, NULL, (long)sig);
	}
}

/* A tracker of @pid that has come to its @n-th stop. */
static inline unsigned int tracker_at(struct stepped *s, pid_t pid, unsigned int n)
{
	int status;

	s->pid = fork();
	assert_true(s->pid >= 0);
	if (!s->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		track_once(pid);
	}
	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, s->pid, NULL,
				PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK |
					PTRACE_O_TRACEFORK),
			 0);
	ptrace(PTRACE_SYSCALL, s->pid, NULL, NULL);
	return step(s, n);
}

/* To its end. */
static inline void tracker_goes_on(struct stepped *s)
{
	ptrace(PTRACE_SYSCALL, s->at, NULL, NULL);
	step(s, UINT32_MAX);
	assert_true(WIFEXITED(s->status) && !WEXITSTATUS(s->status));
}

/* The processes that it has started continue without it. */
static inline void tracker_is_killed(struct stepped *s)
{
	int status;

	kill(s->pid, SIGKILL);
	if (s->at != s->pid)
		ptrace(PTRACE_DETACH, s->at, NULL, NULL);
	assert_int_equal(waitpid(s->pid, &status, __WALL), s->pid);
	assert_true(WIFSIGNALED(status));
}

/* How many stops there are. */
static inline unsigned int tracker_stops(pid_t pid, bool tracers)
{
	struct stepped s = { .tracers = tracers };
	unsigned int nr = tracker_at(&s, pid, UINT32_MAX);

	assert_true(WIFEXITED(s.status) && !WEXITSTATUS(s.status));
	return nr;
}

#endif
