/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Begins and ends a context: see zns/mem.h. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>

#include "../../track/threads.h"
#include "../policy/birth.h"
#include "context.h"
#include "../policy/family.h"
#include "going.h"
#include "../policy/hiber.h"
#include "hold.h"

#define AGE_BEGIN_MS 5000U
#define ALONE_MS 1000U /* ms; time that a child of vfork() gets to execute its program */
#define ATTACH_TRIES 10
#define ATTACH_PAUSE_NS 100000000L

int context_make(int sh_fd, const struct zns_mem_store *store, struct zns_mem **out,
		 struct zns_err *err)
{
	struct zns_mem *m = calloc(1, sizeof(*m));
	struct epoll_event e = { .events = EPOLLIN };

	if (!m)
		return zns_fail(err, -ENOMEM, "no memory for a memory context");
	m->store = *store;
	m->sh_fd = sh_fd;
	m->pid = getpid();
	m->birth[0] = m->birth[1] = m->self = m->relieved = -1;
	m->keeper = -1;
	m->age_ms = AGE_BEGIN_MS;
	m->moves = move_can();
	/* the cgroup's limit is unknown until the first process was examined */
	m->below = CEILING_NONE;
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->text, NULL);
	pthread_mutex_init(&m->queue.lock, NULL);
	ahead_begin(&m->ahead);
	pthread_cond_init(&m->queue.more, NULL);
	pthread_cond_init(&m->leavers, NULL);
	m->epoll = epoll_create1(EPOLL_CLOEXEC);
	m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->changes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->sh = mmap(NULL, sizeof(*m->sh), PROT_READ | PROT_WRITE, MAP_SHARED, sh_fd, 0);
	m->bufs = mmap(NULL, BATCH * UNIT, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	*out = m;
	if (spare_open(m))
		return zns_fail(err, -ENOMEM, "no memory for a memory context");
	if (m->epoll >= 0 && m->wake >= 0 && m->changes >= 0 && m->sh != MAP_FAILED &&
	    m->bufs != MAP_FAILED && !epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->wake, &e) &&
	    !hiber_make(m))
		return 0;
	return zns_fail_sys(err, -errno, "cannot make a memory context");
}

int zns_mem_new(const char *name, uint64_t dram, const struct zns_mem_store *store,
		struct zns_mem **out, struct zns_err *err)
{
	int fd = memfd_create("zns-mem context", MFD_CLOEXEC), ret;

	*out = NULL;
	if (fd < 0 || ftruncate(fd, sizeof(struct shared))) {
		ret = -errno;
		if (fd >= 0)
			close(fd);
		return zns_fail_sys(err, ret, "cannot make a memory context");
	}
	ret = context_make(fd, store, out, err);
	if (!ret && (birth_open(*out) || hold_start(*out)))
		ret = zns_fail_sys(err, -errno, "cannot make a memory context");
	if (!ret)
		hold_relieve(*out);
	if (ret) {
		zns_mem_leave(*out);
		*out = NULL;
		return ret;
	}
	(*out)->sh->version = CONTEXT_VERSION;
	(*out)->sh->procs_max = PROCS_MAX;
	(*out)->sh->dram = dram;
	(*out)->sh->hiber.since_ns = (*out)->sh->hiber.active_ns = zns_now_ns();
	snprintf((*out)->sh->name, sizeof((*out)->sh->name), "%s", name);
	return 0;
}

/*
 * Tries several times, and lets the process run in between: a thread that waits for a disk or a CPU
 * may not stop in time, but may stop a moment later.
 */
int zns_mem_attach(struct zns_mem *m, pid_t pid, struct zns_err *err)
{
	/*
	 * fail if a child of vfork() shares this memory: it would run while the process is stopped
	 */
	int ret = threads_alone(pid, ALONE_MS, err);

	if (!ret)
		ret = family_join(m, pid, err);
	for (int i = 1; i < ATTACH_TRIES && ret == -ETIMEDOUT; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = ATTACH_PAUSE_NS }, NULL);
		ret = family_join(m, pid, err);
	}
	if (!ret)
		family_tree(m, pid);
	return ret;
}

int context_serve(struct zns_mem *m)
{
	return servers_start(m, SERVERS);
}

int context_evict(struct zns_mem *m)
{
	int ret = -pthread_create(&m->evictor, NULL, evictor_run, m);

	m->evicting = !ret;
	return ret ? ret : leave_start(m);
}

int zns_mem_start(struct zns_mem *m, struct zns_err *err)
{
	int ret = context_serve(m);

	if (!ret)
		ret = context_evict(m);
	return ret ? zns_fail_sys(err, ret, "cannot start threads") : 0;
}

void zns_mem_pause(struct zns_mem *m, bool pause)
{
	m->no_evict = pause;
}

void zns_mem_limit(struct zns_mem *m, uint64_t dram)
{
	m->sh->auto_total = 0;
	m->sh->dram = dram;
	m->messages = true; /* wake the evictor, since there may be much to evict */
	hiber_rouse(m);
}

void zns_mem_set_rate(struct zns_mem *m, uint32_t mibps)
{
	m->sh->rate_mibps = mibps;
}

uint32_t zns_mem_rate(const struct zns_mem *m)
{
	return m->sh->rate_mibps;
}

void zns_mem_predict(struct zns_mem *m, bool on)
{
	m->sh->no_predict = !on;
}

unsigned int zns_mem_processes(struct zns_mem *m)
{
	unsigned int nr = 0;

	pthread_mutex_lock(&m->lock);
	for (unsigned int i = 0; i < PROCS_MAX; i++)
		nr += m->proc[i] != NULL;
	pthread_mutex_unlock(&m->lock);
	return nr;
}

int zns_mem_changes(struct zns_mem *m)
{
	return m->changes;
}

static void end_threads(struct zns_mem *m)
{
	m->end = true;
	if (m->hiber.made)
		hiber_rouse(m);
	if (m->evicting)
		pthread_join(m->evictor, NULL);
	m->evicting = false;
	leave_end(m);
	servers_end(m);
}

static void circle_empty(struct circle *c)
{
	for (; c->nr; c->nr--) {
		proc_put(c->f[c->head].p);
		c->head = (c->head + 1) % c->max;
	}
	free(c->f);
}

void zns_mem_leave(struct zns_mem *m)
{
	if (!m)
		return;
	end_threads(m);
	hold_end(m);
	procs_arrived(m);
	circle_empty(&m->queue.faults);
	circle_empty(&m->queue.ahead);
	for (unsigned int i = 0; i < PROCS_MAX; i++)
		if (m->proc[i])
			proc_put(m->proc[i]);
	leave_free(m);
	procs_bury(m, evict_forget);
	hiber_free(m);
	spare_close(m);
	share_close(m);
	if (m->bufs && m->bufs != MAP_FAILED)
		munmap(m->bufs, BATCH * UNIT);
	if (m->sh && m->sh != MAP_FAILED)
		munmap(m->sh, sizeof(*m->sh));
	const int fd[] = { m->epoll,    m->wake,     m->changes,  m->sh_fd,
			   m->birth[0], m->birth[1], m->relieved, m->keeper };
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	free(m);
}
