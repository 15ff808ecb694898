/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stops all threads of a process for a moment, while one of them makes the system calls that remove
 * pages (going.c). Before that, the units were protected, copied and written. The threads are
 * stopped before the units are set to DROP: otherwise a thread might wait for such a unit, and
 * never stop.
 *
 * A process may be frozen in the middle of this, and continues when it is thawed. So each stop has
 * a thread of its own, which waits as long as needed. The evictor does not wait.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "mem.h"
#include "zns/inject.h"

#define LIMIT_MS 100 /* ms; time for all threads to stop */
#define END_MS 10000
#define STACK (256U << 10) /* bytes */

struct stop {
	struct proc *p;
	stop_body body;
	void *arg;
	bool begun;
	bool left; /* its pager has died, and the userfaultfd was closed here */
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int ret;
	struct zns_err err;
	/* number of threads that use it: the waiting thread, and the stop's own thread */
	_Atomic int refs;
};

bool stop_orphaned(const struct proc *p)
{
	return getppid() != p->m->pid;
}

/*
 * Must the stop not begin? A successor that starts waits for every stop whose `tracer` was set
 * before its pager died. If the pager has died, the successor may have checked `tracer` before it
 * was set.
 */
static bool too_late(struct shared_proc *sh, const struct proc *p)
{
	/*
	 * by system call: this process shares our memory, so it must not change the C library's
	 * data
	 */
	int32_t self = (int32_t)syscall(SYS_getpid);

	if (stop_orphaned(p))
		return true;
	sh->tracer = self;
	return stop_orphaned(p) && (atomic_compare_exchange_strong(&sh->tracer, &self, 0), true);
}

/*
 * Does the holder have our descriptors? Then a successor will read the events, or the holder kills
 * the process.
 */
static bool is_held(const struct zns_mem *m)
{
	pid_t holder = m->sh->holder;

	return m->keeper >= 0 && holder > 0 && !kill(holder, 0);
}

bool stop_unread(const struct proc *p)
{
	return stop_orphaned(p) && !is_held(p->m);
}

/*
 * Closes the dead pager's userfaultfd if no other process has it. A thread that removes pages waits
 * until the event is read. This process shares the dead pager's descriptors, so they stay open
 * until it ends. When the last one is closed, the kernel lets the thread continue.
 */
static void let_go_of_dead(void *arg)
{
	struct stop *s = arg;

	if (s->left || !stop_unread(s->p))
		return;
	s->left = true;
	close(s->p->uffd);
}

static int in_guest(struct zns_guest *g, void *arg)
{
	struct stop *s = arg;
	struct range own;

	if (!same_memory(s->p)) /* check this while its threads are stopped */
		return -ESRCH;
	if (s->p->sh && too_late(s->p->sh, s->p))
		return -ESRCH;
	mem_reached(REACHED_STOP);
	zns_guest_tick(g, let_go_of_dead, s);
	zns_guest_rseq(g, &own.start, &own.end);
	return s->body(s->arg, g, &own, &s->begun);
}

static int with(struct stop *s, struct zns_err *err)
{
	struct zns_mem *m = s->p->m;
	uint64_t stop_ns = 0;
	int ret = zns_inject(s->p->pid, s->p->maps, LIMIT_MS, in_guest, s, &stop_ns, err);

	if (s->p->sh)
		s->p->sh->tracer = 0;
	m->stops++;
	m->stopped_ns += stop_ns;
	if (ret && !s->begun && !err->msg[0])
		zns_fail_sys(err, ret, "cannot make the scratch area in process %d", s->p->pid);
	if (!s->begun)
		return ret;
	m->stop_ns = zns_max(m->stop_ns, stop_ns);
	return ret;
}

static void put(struct stop *s)
{
	if (--s->refs)
		return;
	pthread_cond_destroy(&s->ended);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static void *run(void *arg)
{
	struct stop *s = arg;
	struct proc *p = s->p;
	struct zns_err err = ZNS_ERR_INIT;
	int ret = with(s, &err);

	proc_put(p);
	pthread_mutex_lock(&s->lock);
	s->ret = ret;
	s->err = err;
	s->done = true; /* after this the context may be freed */
	pthread_cond_signal(&s->ended);
	pthread_mutex_unlock(&s->lock);
	put(s);
	return NULL;
}

static bool start(struct stop *s)
{
	pthread_attr_t attr;
	pthread_t thread;
	int ret;

	proc_get(s->p);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	ret = pthread_create(&thread, &attr, run, s);
	pthread_attr_destroy(&attr);
	if (ret)
		proc_put(s->p);
	return !ret;
}

struct stop *stop_begin(struct proc *p, stop_body body, void *arg)
{
	struct stop *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (!s)
		return NULL;
	s->p = p;
	s->body = body;
	s->arg = arg;
	s->refs = 2;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->ended, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&s->lock, NULL);
	if (start(s))
		return s;
	s->refs = 1;
	put(s);
	return NULL;
}

int stop_end(struct stop *s, unsigned int limit_ms, bool *begun, struct zns_err *err)
{
	struct timespec until;
	bool done;
	int ret;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += limit_ms / 1000;
	until.tv_nsec += limit_ms % 1000 * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&s->lock);
	while (!s->done && !pthread_cond_timedwait(&s->ended, &s->lock, &until))
		;
	done = s->done;
	pthread_mutex_unlock(&s->lock);
	if (!done)
		return -EINPROGRESS;
	*begun = s->begun;
	ret = s->ret;
	if (ret)
		*err = s->err;
	put(s);
	return ret;
}

void stop_await_end(struct proc *p, uint64_t since_ns)
{
	cleanup_close int tracer = p->sh->tracer > 0 ?
					   (int)syscall(SYS_pidfd_open, p->sh->tracer, 0) :
					   -1;
	struct pollfd f = { .fd = tracer, .events = POLLIN };
	int64_t left_ms = END_MS - (int64_t)((zns_mono_ns() - since_ns) / 1000000);

	/* the dead pager's tracer exits by itself, and need not be reaped here */
	if (tracer >= 0 && poll(&f, 1, (int)zns_max(left_ms, (int64_t)0)) == 0)
		mem_warn(p->m, "process %d: the stop of the dead pager does not end", p->pid);
	p->sh->tracer = 0;
}
