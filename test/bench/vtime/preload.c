/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LD_PRELOAD=…/vtime.so with ZNS_VTIME=FILE: CLOCK_MONOTONIC and everything that sleeps by it are
 * virtual (vtime.h). fio is in it only once its I/O engine calls vt_enter() in a job, because it
 * calibrates clocks before; every other program from its start. Condition variables are replaced,
 * so that it is known who waits for whom; what blocks in the kernel (sockets, locks) the conductor
 * finds out from the kernel.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vtime.h"

#define EXPORT __attribute__((visibility("default")))
#define SPINS 200 /* readings of a standing clock that are taken for a loop waiting for it */
#define BUCKETS 256

EXPORT void vt_enter(void);

static struct vt_shared *vt;
static bool entered;
static __thread struct vt_slot *self;
static __thread struct {
	uint64_t at;
	unsigned nr;
} spin;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static pid_t (*real_fork)(void);

/* A condition variable's waiters, first come first. Process-local: none of ours are shared. */
struct waiter {
	const void *cond;
	struct vt_slot *slot;
	bool woken;
	struct waiter *next;
};
static struct {
	pthread_mutex_t lock;
	struct waiter *first;
} bucket[BUCKETS];

static uint64_t now(void)
{
	return __atomic_load_n(&vt->now_ns, __ATOMIC_ACQUIRE);
}

/* ---- threads
 * ------------------------------------------------------------------------------------------- */

static void slot_take(void)
{
	int32_t pid = getpid(), tid = (int32_t)syscall(SYS_gettid);
	uint32_t i, at = VT_SLOTS;

	vt_lock(vt);
	for (i = 0; i < vt->high; i++) {
		/* before an exec it was us already */
		if (vt->slot[i].state != VT_FREE && vt->slot[i].tid == tid) {
			at = i;
			break;
		}
		if (vt->slot[i].state == VT_FREE && at == VT_SLOTS)
			at = i;
	}
	if (at == VT_SLOTS)
		at = vt->high;
	if (at == VT_SLOTS) {
		static const char full[] = "vtime: too many threads\n";

		(void)!write(2, full, sizeof(full) - 1);
		abort();
	}
	if (at == vt->high)
		vt->high++;
	self = &vt->slot[at];
	if (self->state != VT_AWAKE)
		vt->nr_awake++;
	*self = (struct vt_slot){
		.state = VT_AWAKE, .pid = pid, .tid = tid, .serial = ++vt->serials
	};
	vt->changes++;
	vt_unlock(vt);
}

struct start {
	void *(*run)(void *);
	void *arg;
	uint32_t ready;
};

static void *thread_main(void *p)
{
	struct start *s = p, own = *s;

	slot_take();
	__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
	return own.run(own.arg);
}

EXPORT int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	struct start s = { run, arg, 0 };
	int rc;

	if (!entered)
		return real_create(t, attr, run, arg);
	rc = real_create(t, attr, thread_main, &s);
	/* not blocked, or the conductor could find nobody running before the new thread has its
	 * slot, and move the clock */
	while (!rc && !__atomic_load_n(&s.ready, __ATOMIC_ACQUIRE))
		sched_yield();
	return rc;
}

static bool has_slot(pid_t pid)
{
	bool found = false;

	vt_lock(vt);
	for (uint32_t i = 0; i < vt->high && !found; i++)
		found = vt->slot[i].state != VT_FREE && vt->slot[i].tid == pid;
	vt_unlock(vt);
	return found;
}

static bool ended(pid_t pid)
{
	siginfo_t si = { 0 };

	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) || si.si_pid == pid;
}

/* As with a new thread, the new process is registered before its parent continues. */
EXPORT pid_t fork(void)
{
	pid_t pid = real_fork();

	while (pid > 0 && entered && !has_slot(pid) && !ended(pid))
		sched_yield();
	return pid;
}

static void after_fork(void)
{
	self = NULL;
	if (entered)
		slot_take();
}

void vt_enter(void)
{
	if (!vt || entered)
		return;
	entered = true;
	slot_take();
}

/* ---- sleeping
 * ------------------------------------------------------------------------------------------ */

/* No other thread can run: the conductor is not needed. Lock held. */
static void advance_alone(void)
{
	struct vt_slot *s = vt->nr_awake || vt->hold ? NULL : vt_earliest(vt);

	if (!s)
		return;
	if (s->wake_ns > vt->now_ns)
		__atomic_store_n(&vt->now_ns, s->wake_ns, __ATOMIC_RELEASE);
	vt->advances++;
	vt_wake(vt, s);
}

/* The lock is held on entry, and not on return. */
static void sleep_locked(uint64_t wake_ns)
{
	bool kick;

	self->wake_ns = wake_ns;
	self->turn = ++vt->turns;
	self->futex = 0;
	self->state = VT_ASLEEP;
	vt->nr_awake--;
	vt->changes++;
	advance_alone();
	kick = self->state == VT_ASLEEP;
	vt_unlock(vt);
	if (kick)
		vt_kick(vt);
	while (!__atomic_load_n(&self->futex, __ATOMIC_ACQUIRE))
		vt_futex_wait(&self->futex, 0, 0);
}

static void sleep_until(uint64_t ns)
{
	vt_lock(vt);
	sleep_locked(ns > vt->now_ns ? ns : vt->now_ns);
}

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

static bool ours(clockid_t id)
{
	return entered && self &&
	       (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW ||
		id == CLOCK_MONOTONIC_COARSE || id == CLOCK_BOOTTIME);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *t)
{
	uint64_t ns;

	if (!ours(id))
		return real_clock_gettime(id, t);
	ns = now();
	if (ns != spin.at) {
		spin.at = ns;
		spin.nr = 0;
	} else if (++spin.nr > SPINS) { /* it waits for time to pass: advances the clock */
		sleep_until(ns + 1000);
		ns = now();
		spin.nr = 0;
	}
	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
	return 0;
}

EXPORT int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	uint64_t ns = ns_of(t);

	/* fio finds out how exact sleeping is, and spins for so long before each I/O that its rate=
	 * puts off: exact */
	if (vt && !entered && ns <= 1000 && !(flags & TIMER_ABSTIME))
		return 0;
	if (!ours(id) && !(entered && self && id == CLOCK_REALTIME && !(flags & TIMER_ABSTIME)))
		return real_clock_nanosleep(id, flags, t, left);
	/* a sleep of no length still costs a little, since some loops sleep until time has
	 * passed */
	sleep_until(flags & TIMER_ABSTIME ? ns : now() + (ns > 1000 ? ns : 1000));
	return 0;
}

EXPORT int nanosleep(const struct timespec *t, struct timespec *left)
{
	int rc = clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);

	if (!rc)
		return 0;
	errno = rc;
	return -1;
}

EXPORT int usleep(useconds_t us)
{
	struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	return nanosleep(&t, NULL);
}

/* ---- condition variables
 * ------------------------------------------------------------------------------- */

static unsigned bucket_of(const void *cond)
{
	return ((uintptr_t)cond >> 4) % BUCKETS;
}

static int wait_on(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline)
{
	struct waiter w = { .cond = c }, **p;
	unsigned b = bucket_of(c);

	if (!self)
		slot_take();
	w.slot = self;
	pthread_mutex_lock(&bucket[b].lock);
	for (p = &bucket[b].first; *p; p = &(*p)->next)
		;
	*p = &w;
	/* asleep before the mutex is free: whoever signals finds us so */
	vt_lock(vt);
	pthread_mutex_unlock(&bucket[b].lock);
	pthread_mutex_unlock(m);
	sleep_locked(deadline == VT_NEVER  ? VT_NEVER :
		     deadline > vt->now_ns ? deadline :
					     vt->now_ns);

	pthread_mutex_lock(&bucket[b].lock);
	for (p = &bucket[b].first; *p && *p != &w; p = &(*p)->next)
		;
	if (*p)
		*p = w.next;
	pthread_mutex_unlock(&bucket[b].lock);
	pthread_mutex_lock(m);
	return w.woken ? 0 : ETIMEDOUT;
}

static int wake_some(pthread_cond_t *c, bool all)
{
	unsigned b = bucket_of(c);
	struct waiter **p, *w;

	pthread_mutex_lock(&bucket[b].lock);
	for (p = &bucket[b].first; (w = *p);) {
		if (w->cond != c) {
			p = &w->next;
			continue;
		}
		*p = w->next;
		w->woken = true;
		vt_lock(vt);
		vt_wake(vt, w->slot);
		vt_unlock(vt);
		if (!all)
			break;
	}
	pthread_mutex_unlock(&bucket[b].lock);
	return 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

EXPORT int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	return entered ? wait_on(c, m, VT_NEVER) : REAL(pthread_cond_wait)(c, m);
}

/* A deadline beyond any uptime is one of the wall clock. */
static uint64_t deadline_of(const struct timespec *t)
{
	struct timespec wall;
	uint64_t ns = ns_of(t), at;

	real_clock_gettime(CLOCK_REALTIME, &wall);
	at = ns_of(&wall);
	if (t->tv_sec < wall.tv_sec / 2)
		return ns;
	return now() + (ns > at ? ns - at : 0);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	return entered ? wait_on(c, m, deadline_of(t)) : REAL(pthread_cond_timedwait)(c, m, t);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t id,
				  const struct timespec *t)
{
	return entered ? wait_on(c, m, deadline_of(t)) : REAL(pthread_cond_clockwait)(c, m, id, t);
}

EXPORT int pthread_cond_signal(pthread_cond_t *c)
{
	return entered ? wake_some(c, false) : REAL(pthread_cond_signal)(c);
}

EXPORT int pthread_cond_broadcast(pthread_cond_t *c)
{
	return entered ? wake_some(c, true) : REAL(pthread_cond_broadcast)(c);
}

/* ---- start
 * --------------------------------------------------------------------------------------------- */

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("ZNS_VTIME");
	int fd;

	real_clock_gettime = (__typeof__(real_clock_gettime))dlsym(RTLD_NEXT, "clock_gettime");
	real_clock_nanosleep = (__typeof__(real_clock_nanosleep))dlsym(RTLD_NEXT,
								       "clock_nanosleep");
	real_create = (__typeof__(real_create))dlsym(RTLD_NEXT, "pthread_create");
	real_fork = (__typeof__(real_fork))dlsym(RTLD_NEXT, "fork");
	for (unsigned i = 0; i < BUCKETS; i++)
		pthread_mutex_init(&bucket[i].lock, NULL);
	fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	vt = mmap(NULL, sizeof(*vt), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (vt == MAP_FAILED || vt->magic != VT_MAGIC) {
		vt = NULL;
		return;
	}
	pthread_atfork(NULL, NULL, after_fork);
	if (strcmp(program_invocation_short_name, "fio"))
		vt_enter();
}
