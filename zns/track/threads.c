/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See threads.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "threads.h"
#include "zns/util.h"

#define TID_MAX (1U << 22) /* the kernel's PID_MAX_LIMIT */
#define BATCH 16 /* threads that are asked to stop before the first of them is waited for */
#define KCMP_SAME_VM 1

struct pass {
	struct tracer *t;
	uint64_t *seen; /* bitmap of the thread ids that have been handled */
	bool hold; /* the threads stay stopped until the work is done */
	int dir;
	unsigned int nr; /* number of threads that were asked to stop */
	struct {
		pid_t tid;
		uint64_t since_ns;
	} asked[BATCH];
	int (*work)(struct tracer *t, pid_t tid, void *arg);
	void *arg;
	size_t low, high; /* the words of @seen that may have bits set: low <= index < high */
};

static bool mark(struct pass *p, pid_t tid)
{
	uint64_t bit = 1ULL << (tid % 64);
	size_t at = (size_t)tid / 64;
	bool was = p->seen[at] & bit;

	p->seen[at] |= bit;
	p->low = p->high ? zns_min(p->low, at) : at;
	p->high = zns_max(p->high, at + 1);
	return was;
}

static void unmark(struct pass *p, pid_t tid)
{
	p->seen[tid / 64] &= ~(1ULL << (tid % 64));
}

static void done(struct pass *p, unsigned int i, bool stopped)
{
	if (stopped && !p->hold) {
		uint64_t ns;

		tracer_release(p->asked[i].tid);
		ns = zns_mono_ns() - p->asked[i].since_ns;
		p->t->stop_ns = zns_max(p->t->stop_ns, ns);
	}
	if (!stopped && p->hold)
		unmark(p, p->asked[i].tid); /* the thread is gone, so it needs no release */
	p->asked[i] = p->asked[--p->nr];
}

/* Waits until at most @max of the asked threads have not stopped yet. */
static int collect(struct pass *p, unsigned int max)
{
	while (p->nr > max) {
		unsigned int i;
		pid_t who;
		int status, ret = tracer_wait(p->t, -1, &who, &status);
		enum tracer_event e;

		if (ret == -EINTR) {
			for (i = p->nr; i-- > 0;)
				if (tracer_is_dead(p->asked[i].tid))
					done(p, i, false);
			continue;
		}
		if (ret)
			return ret == -ECHILD ? -ESRCH : ret;
		e = tracer_event(who, status);
		for (i = 0; i < p->nr && p->asked[i].tid != who; i++)
			;
		if (e != TRACER_OTHER && i < p->nr)
			done(p, i, e == TRACER_STOPPED);
		/* the thread has executed another program, and thereby got a new id */
		else if (e == TRACER_STOPPED)
			tracer_release(who);
	}
	return 0;
}

static int ask(struct pass *p, pid_t tid)
{
	int ret = collect(p, BATCH - 1);

	/*
	 * Skip kernel threads. Newer kernels allow stopping them, but they do not write to the
	 * process's pages by system calls, and a worker that is woken looks for work for some
	 * milliseconds.
	 */
	if (ret || tracer_is_kernels(tid))
		return ret;
	p->asked[p->nr].tid = tid;
	p->asked[p->nr].since_ns = zns_mono_ns();
	ret = tracer_seize(tid);
	if (!ret) {
		p->nr++;
	} else if (ret == -EPERM && tracer_is_kernels(tid)) {
		ret = 0;
	} else {
		if (p->hold)
			unmark(p, tid);
		if (ret == -ESRCH)
			ret = 0;
	}
	return ret;
}

static long nr_threads(int dir)
{
	char buf[2048], *p;
	cleanup_close int fd = openat(dir, "../status", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (n <= 0)
		return 0;
	buf[n] = '\0';
	p = strstr(buf, "\nThreads:\t");
	return p ? strtol(p + 10, NULL, 10) : 0;
}

/*
 * Reads the list of threads once. It may miss threads if others exit meanwhile. *@more: read it
 * again.
 */
static int read_list(struct pass *p, bool *more)
{
	char buf[16384] __attribute__((aligned(8)));
	long want = nr_threads(p->dir), found = 0, n;
	int ret = 0;

	*more = false;
	if (lseek(p->dir, 0, SEEK_SET))
		return -errno;
	while (!ret && (n = syscall(SYS_getdents64, p->dir, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n && !ret;) {
			struct dirent64 *d = (void *)(buf + at);
			long tid = strtol(d->d_name, NULL, 10);

			at += d->d_reclen;
			if (tid <= 0 || tid >= (long)TID_MAX)
				continue;
			found++;
			if (mark(p, (pid_t)tid))
				continue;
			*more = true;
			ret = ask(p, (pid_t)tid);
		}
	}
	if (!ret && n < 0 && errno != ENOENT && errno != ESRCH)
		ret = -errno;
	*more |= found < want;
	return ret;
}

static pid_t one_of(const struct pass *p)
{
	pid_t pid = p->t->pid;

	if (p->seen[pid / 64] >> (pid % 64) & 1)
		return pid;
	for (size_t i = p->low; i < p->high; i++)
		if (p->seen[i])
			return (pid_t)(i * 64 + (size_t)__builtin_ctzll(p->seen[i]));
	return 0;
}

static void release_all(struct pass *p)
{
	for (size_t i = p->low; i < p->high; i++)
		for (uint64_t left = p->seen[i]; left; left &= left - 1)
			tracer_release((pid_t)(i * 64 + (size_t)__builtin_ctzll(left)));
}

static int run(struct tracer *t, void *arg)
{
	struct pass *p = arg;
	uint64_t begin = zns_mono_ns();
	bool more = true;
	int ret = 0;

	p->t = t;
	while (more && !ret) {
		ret = read_list(p, &more);
		if (!ret)
			ret = collect(p, 0);
		if (!ret && zns_mono_ns() > t->deadline_ns)
			ret = -ETIMEDOUT;
	}
	if (p->hold) {
		if (!ret)
			ret = p->work(t, one_of(p), p->arg);
		release_all(p);
		t->stop_ns = zns_mono_ns() - begin;
	}
	return ret;
}

static int begin(struct pass *p, struct tracer *t, unsigned int limit_ms, struct zns_err *err)
{
	cleanup_free uint64_t *seen = calloc(TID_MAX / 64, sizeof(*seen));
	char path[40];
	int ret;

	if (!seen)
		return zns_fail(err, -ENOMEM, "no memory for a list of threads");
	snprintf(path, sizeof(path), "/proc/%d/task", t->pid);
	p->seen = seen;
	p->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dir < 0)
		return tracer_fail(errno == ENOENT ? -ESRCH : -errno, t->pid, err);
	ret = tracer_run(t, limit_ms, run, p);
	close(p->dir);
	return ret ? tracer_fail(ret, t->pid, err) : 0;
}

int threads_barrier(struct tracer *t, struct zns_err *err)
{
	struct pass p = { .hold = false };

	return begin(&p, t, THREADS_LIMIT_MS, err);
}

int threads_stopped(struct tracer *t, unsigned int limit_ms,
		    int (*work)(struct tracer *t, pid_t tid, void *arg), void *arg,
		    struct zns_err *err)
{
	struct pass p = { .hold = true, .work = work, .arg = arg };

	return begin(&p, t, limit_ms, err);
}

/* Does one of the child processes in this list share the memory? */
static bool shares(pid_t pid, int task, const char *tid)
{
	cleanup_free uint8_t *text = NULL;
	char path[300];
	size_t len;
	char *p, *end;

	snprintf(path, sizeof(path), "%s/children", tid);
	if (zns_read_file(task, path, 1 << 24, &text, &len))
		return false;
	for (p = (char *)text;; p = end) {
		long child = strtol(p, &end, 10);

		if (end == p)
			return false;
		if (!syscall(SYS_kcmp, pid, child, KCMP_SAME_VM, 0, 0))
			return true;
	}
}

static bool alone(pid_t pid)
{
	char path[40];
	struct dirent *d;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && !found && (d = readdir(dir)))
		found = d->d_name[0] != '.' && shares(pid, dirfd(dir), d->d_name);
	if (dir)
		closedir(dir);
	return !found;
}

int threads_alone(pid_t pid, unsigned int limit_ms, struct zns_err *err)
{
	for (unsigned int ms = 0; !alone(pid); ms++) {
		if (ms >= limit_ms)
			return zns_fail(err, -EBUSY,
					"another process shares the memory of process %d", pid);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return 0;
}
