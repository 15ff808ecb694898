/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See tracer.h. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "restart.h"
#include "tracer.h"
#include "zns/util.h"

#define STACK (256U << 10) /* bytes */
#define TICK_US 10000 /* us; interval at which a blocked wait wakes up to check the time */
#define OPTION_NO_SECCOMP (1 << 21) /* PTRACE_O_SUSPEND_SECCOMP */

struct run {
	struct tracer *t;
	int (*work)(struct tracer *t, void *arg);
	void *arg;
	int ret;
};

static void on_tick(int sig)
{
}

/*
 * Makes blocking calls of the child return with EINTR regularly. Only SIGALRM is unblocked: a
 * signal from the terminal must not end the child in the middle of its work.
 */
static void start_ticks(void)
{
	struct itimerval tick = { .it_interval = { .tv_usec = TICK_US },
				  .it_value = { .tv_usec = TICK_US } };
	struct sigaction sa = { .sa_handler = on_tick };
	sigset_t set;

	sigaction(SIGALRM, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	setitimer(ITIMER_REAL, &tick, NULL);
}

static int child(void *arg)
{
	struct run *r = arg;

	start_ticks();
	r->ret = r->work(r->t, r->arg);
	return 0; /* when this child exits, the kernel detaches all threads that it still traces */
}

int tracer_run(struct tracer *t, unsigned int limit_ms, int (*work)(struct tracer *t, void *arg),
	       void *arg)
{
	struct run r = { .t = t, .work = work, .arg = arg, .ret = -EINTR };
	sigset_t all, old;
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	int pid, ret;

	if (stack == MAP_FAILED)
		return -ENOMEM;
	t->deadline_ns = zns_mono_ns() + limit_ms * 1000000ULL;
	t->stop_ns = 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/*
	 * a child without an exit signal, so that a waitpid(-1) elsewhere in our process does not
	 * reap it
	 */
	pid = clone(child, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_FS, &r);
	ret = pid < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	while (pid > 0 && waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		;
	munmap(stack, STACK);
	return ret ? ret : r.ret;
}

int tracer_proc(pid_t tid, const char *file, char *buf, size_t len)
{
	cleanup_close int fd = -1;
	char path[48];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, buf, len - 1);
	if (n <= 0)
		return -ESRCH;
	buf[n] = '\0';
	return 0;
}

/* Reads State and TracerPid of a thread. */
static int look(pid_t tid, char *state, long *tracer)
{
	char buf[1024], *p;

	if (tracer_proc(tid, "status", buf, sizeof(buf)))
		return -ESRCH;
	p = strstr(buf, "\nState:\t");
	*state = p ? p[8] : '?';
	p = strstr(buf, "\nTracerPid:\t");
	*tracer = p ? strtol(p + 12, NULL, 10) : 0;
	return 0;
}

bool tracer_is_dead(pid_t tid)
{
	char state;
	long by;

	return look(tid, &state, &by) || state == 'Z' || state == 'X';
}

/*
 * Reads the flags, the 9th field of /proc/PID/stat. The name in the 2nd field may contain any
 * character.
 */
bool tracer_is_kernels(pid_t tid)
{
	/* PF_IO_WORKER and PF_USER_WORKER of linux/sched.h */
	const unsigned long io_worker = 0x10, user_worker = 0x4000;
	unsigned long flags = 0;
	char buf[512], *p;

	if (tracer_proc(tid, "stat", buf, sizeof(buf)))
		return false;
	p = strrchr(buf, ')');
	return p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 &&
	       flags & (io_worker | user_worker);
}

int tracer_no_seccomp(pid_t tid, bool on)
{
	long options = PTRACE_O_TRACESYSGOOD | (on ? OPTION_NO_SECCOMP : 0);

	return ptrace(PTRACE_SETOPTIONS, tid, NULL, options) ? -errno : 0;
}

int tracer_seize(pid_t tid)
{
	long by;
	char state;
	int ret;

	do {
		ret = ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_TRACESYSGOOD) ? -errno : 0;
	} while (ret == -EINTR);
	if (!ret)
		return ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ? -errno : 0;
	if (ret != -EPERM)
		return ret;
	if (look(tid, &state, &by) || state == 'Z' || state == 'X')
		return -ESRCH;
	return by ? -EBUSY : -EPERM;
}

int tracer_wait(struct tracer *t, pid_t tid, pid_t *who, int *status)
{
	pid_t got = waitpid(tid, status, __WALL);

	if (got > 0) {
		*who = got;
		return 0;
	}
	if (errno != EINTR)
		return -errno;
	if (t->tick)
		t->tick(t->tick_arg);
	/* waitpid() does not report a thread group leader that ends before its other threads */
	if (tid > 0 && tracer_is_dead(tid))
		return -ESRCH;
	return zns_mono_ns() < t->deadline_ns ? -EINTR : -ETIMEDOUT;
}

enum tracer_event tracer_event(pid_t tid, int status)
{
	if (!WIFSTOPPED(status))
		return TRACER_GONE;
	if (status >> 16 == PTRACE_EVENT_STOP)
		return TRACER_STOPPED;
	/* another signal arrived first: deliver it, and wait on, since the stop is still pending */
	ptrace(PTRACE_CONT, tid, NULL, (long)(status >> 16 ? 0 : WSTOPSIG(status)));
	return TRACER_OTHER;
}

int tracer_wait_stop(struct tracer *t, pid_t tid)
{
	pid_t who;
	int status, ret;

	for (;;) {
		ret = tracer_wait(t, tid, &who, &status);
		if (ret == -EINTR)
			continue;
		if (ret)
			return ret == -ECHILD ? -ESRCH : ret;
		switch (tracer_event(tid, status)) {
		case TRACER_STOPPED:
			return 0;
		case TRACER_GONE:
			return -ESRCH;
		case TRACER_OTHER:
			break;
		}
	}
}

void tracer_release(pid_t tid)
{
	restart_mend(tid);
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
}

int tracer_fail(int code, pid_t pid, struct zns_err *err)
{
	switch (code) {
	case -ESRCH:
		return zns_fail(err, code, "process %d is gone", pid);
	case -EBUSY:
		return zns_fail(err, code, "process %d is traced by another one", pid);
	case -EPERM:
		return zns_fail(
			err, code,
			"process %d may not be traced: CAP_SYS_PTRACE is missing, or kernel.yama.ptrace_scope forbids it",
			pid);
	case -ETIMEDOUT:
		return zns_fail(
			err, code,
			"a thread of process %d does not stop: it may wait for a disk or a server, try again",
			pid);
	}
	return zns_fail_sys(err, code, "cannot stop process %d", pid);
}
