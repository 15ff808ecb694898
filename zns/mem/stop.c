/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where io_uring is forbidden: one thread of the process stands still for a moment and drops the
 * pages for us. The units are protected, copied and on their places before that, so no other thread
 * has to stop: who writes is caught by the protection, as with a ring. The thread is stopped before
 * the units are committed to the drop. After that, it might wait for one of them, and never stop.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "mem.h"
#include "zns/inject.h"

#define LIMIT_MS 100 /* for a thread to stop */
#define THREADS_TRIED 4U
#define END_MS 10000

struct job {
	struct proc *p;
	stop_commit commit;
	void *arg;
	bool begun;
	bool alone; /* nobody else may run meanwhile */
};

bool stop_orphaned(const struct proc *p)
{
	return getppid() != p->m->pid;
}

/*
 * A successor that may begin at any time waits for who has said so before its pager died. True: it
 * may have looked already, and nothing is begun.
 */
static bool too_late(struct shared_proc *sh, const struct proc *p)
{
	/* not getpid(): a child that shares our memory */
	int32_t self = (int32_t)syscall(SYS_getpid);

	if (stop_orphaned(p))
		return true;
	sh->tracer = self;
	return stop_orphaned(p) && (atomic_compare_exchange_strong(&sh->tracer, &self, 0), true);
}

static int in_guest(struct zns_guest *g, void *arg)
{
	struct job *j = arg;
	struct range range[BATCH], own;
	unsigned int nr;
	int first = 0;

	if (!same_memory(j->p)) /* while it stands still, it stays so */
		return -ESRCH;
	if (j->p->sh && too_late(j->p->sh, j->p))
		return -ESRCH;
	j->begun = true;
	mem_reached(REACHED_STOP);
	zns_guest_rseq(g, &own.start, &own.end);
	nr = j->commit(j->arg, &own, range);
	for (unsigned int i = 0; i < nr; i++) {
		const uint64_t arg6[6] = { range[i].start, range[i].end - range[i].start,
					   MADV_DONTNEED };
		long result;
		int ret = zns_guest_call(g, SYS_madvise, arg6, &result);

		j->p->m->stops_bytes += range[i].end - range[i].start;
		if (ret) /* it has ended */
			return ret;
		if (result && !first)
			first = (int)result;
	}
	return first;
}

static int with(struct job *j, pid_t tid, struct zns_err *err)
{
	struct zns_mem *m = j->p->m;
	uint64_t stop_ns = 0;
	int ret = zns_inject(tid, j->p->maps, LIMIT_MS, j->alone, in_guest, j, &stop_ns, err);

	if (j->p->sh)
		j->p->sh->tracer = 0;
	if (!j->begun)
		return ret;
	m->stops++;
	m->stops_ns += stop_ns;
	m->stop_ns = zns_max(m->stop_ns, stop_ns);
	return ret;
}

/* Others than the first one: that may wait for a disk, or have ended before the rest. */
static int with_others(struct job *j, struct zns_err *err)
{
	char path[40];
	struct dirent *d;
	unsigned int tried = 0;
	int ret = -ESRCH;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", j->p->pid);
	dir = opendir(path);
	while (dir && !j->begun && tried < THREADS_TRIED && (d = readdir(dir))) {
		pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);

		if (tid <= 0 || tid == j->p->pid)
			continue;
		tried++;
		ret = with(j, tid, err);
	}
	if (dir)
		closedir(dir);
	return ret;
}

int stop_drop(struct proc *p, stop_commit commit, void *arg, bool *begun, struct zns_err *err)
{
	struct job j = { .p = p,
			 .commit = commit,
			 .arg = arg,
			 .alone = dropping_warily(p) && !mem_without(RULE_ALONE) };
	struct zns_err other = ZNS_ERR_INIT;
	int ret = with(&j, p->pid, err);

	if (!j.begun && (ret == -ETIMEDOUT || ret == -ESRCH || ret == -EAGAIN)) {
		int then = with_others(&j, &other);

		ret = j.begun ? then : ret;
	}
	*begun = j.begun;
	return ret;
}

void stop_await_end(struct proc *p, uint64_t since_ns)
{
	cleanup_close int tracer = p->sh->tracer > 0 ?
					   (int)syscall(SYS_pidfd_open, p->sh->tracer, 0) :
					   -1;
	struct pollfd f = { .fd = tracer, .events = POLLIN };
	int64_t left_ms = END_MS - (int64_t)((zns_mono_ns() - since_ns) / 1000000);

	/* it is a process of the dead pager's, which goes on to its end; it is never reaped late */
	if (tracer >= 0 && poll(&f, 1, (int)zns_max(left_ms, (int64_t)0)) == 0)
		mem_warn(p->m, "process %d: the stop of the dead pager does not end", p->pid);
	p->sh->tracer = 0;
}
