/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Manages the processes of a context. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "mem.h"

struct proc *proc_new(struct zns_mem *m, pid_t pid, struct zns_err *err)
{
	pthread_rwlockattr_t attr;
	struct proc *p = calloc(1, sizeof(*p));
	int ret;

	if (!p) {
		zns_fail(err, -ENOMEM, "no memory for a process");
		return NULL;
	}
	*p = (struct proc){ .m = m,
			    .pid = pid,
			    .pidfd = -1,
			    .uffd = -1,
			    .maps = -1,
			    .pagemap = -1,
			    .mem = -1,
			    .table = -1,
			    .refs = 1 };
	pthread_rwlockattr_init(&attr);
	/*
	 * prefer writers: the reader of events takes the lock for writing, and processes wait for
	 * it
	 */
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&p->ev, &attr);
	ret = table_make(&p->table);
	if (!ret)
		ret = table_map(p);
	if (!ret)
		return p;
	zns_fail_sys(err, ret, "no room for the table of a process");
	proc_put(p);
	return NULL;
}

static int open_proc(pid_t pid, const char *name)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int proc_open(struct proc *p, struct zns_err *err)
{
	if (p->pidfd < 0)
		p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->pidfd < 0)
		return zns_fail_sys(err, -errno, "cannot find process %d", p->pid);
	p->maps = open_proc(p->pid, "maps");
	p->pagemap = open_proc(p->pid, "pagemap");
	p->mem = open_proc(p->pid, "mem");
	if (p->maps < 0 || p->pagemap < 0 || p->mem < 0 || proc_ended(p))
		return zns_fail(err, -ESRCH, "process %d is gone", p->pid);
	return 0;
}

bool proc_ended(const struct proc *p)
{
	struct pollfd f = { .fd = p->pidfd, .events = POLLIN };

	return p->pidfd >= 0 && poll(&f, 1, 0) > 0;
}

uint64_t proc_resident(const struct proc *p)
{
	cleanup_free uint8_t *text = NULL;
	char path[40], *second;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/statm", p->pid);
	if (!p->pid || zns_read_file(AT_FDCWD, path, 4096, &text, &len))
		return 0;
	strtoull((char *)text, &second, 10);
	return strtoull(second, NULL, 10) * PAGE;
}

struct proc *proc_get(struct proc *p)
{
	p->refs++;
	return p;
}

static void destroy(struct proc *p)
{
	const int fd[] = { p->pidfd, p->uffd, p->maps, p->pagemap, p->mem, p->table };

	table_unmap(p);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		if (fd[i] >= 0)
			close(fd[i]);
	pthread_rwlock_destroy(&p->ev);
	predict_free(&p->predict);
	mem_places_free(&p->known);
	mem_places_free(&p->guarded);
	free(p);
}

void proc_put(struct proc *p)
{
	struct zns_mem *m = p->m;
	uint64_t one = 1;

	if (--p->refs)
		return;
	if (!p->sh) { /* without a slot, the reader of events never watched it */
		destroy(p);
		return;
	}
	pthread_mutex_lock(&m->lock);
	p->next_dead = m->dead;
	m->dead = p;
	pthread_mutex_unlock(&m->lock);
	/* wake the reader at once: a thread that forks waits until this userfaultfd is closed */
	if (write(m->wake, &one, sizeof(one)) < 0)
		return; /* the eventfd is readable already */
}

void procs_arrived(struct zns_mem *m)
{
	while (m->nr_handed)
		proc_put(m->handed[--m->nr_handed]);
}

void procs_bury(struct zns_mem *m, void (*forget)(struct proc *p))
{
	struct proc *p, *next;

	pthread_mutex_lock(&m->lock);
	p = m->dead;
	m->dead = NULL;
	pthread_mutex_unlock(&m->lock);
	for (; p; p = next) {
		next = p->next_dead;
		forget(p);
		destroy(p);
	}
}

/* Returns a free slot from @from on; -1: none. Call with m->lock held. */
static int free_slot(const struct zns_mem *m, unsigned int from, unsigned int max)
{
	for (unsigned int i = from; i < from + max; i++)
		if (!m->proc[i])
			return (int)i;
	return -1;
}

static int free_place(const struct zns_mem *m)
{
	return free_slot(m, 0, mem_refused(REFUSED_PLACES) ? FEW_PLACES : PLACES_MAX);
}

bool proc_place(struct zns_mem *m)
{
	bool found;

	pthread_mutex_lock(&m->lock);
	found = free_place(m) >= 0;
	pthread_mutex_unlock(&m->lock);
	return found;
}

int proc_add(struct zns_mem *m, struct proc *p)
{
	int slot;

	pthread_mutex_lock(&m->lock);
	slot = !p->leaves ? free_place(m) :
			    free_slot(m, PLACES_MAX,
				      mem_refused(REFUSED_PLACES) ? FEW_LEAVERS : LEAVERS_MAX);
	if (slot >= 0) {
		p->sh = &m->sh->proc[slot];
		p->sh->pid = p->pid;
		p->sh->doomed = 0;
		p->sh->leaves = p->leaves;
		p->sh->birth = p->fork_nr;
		p->sh->serial = ++m->sh->serials;
		p->sh->used = 1;
		m->proc[slot] = p;
		m->forks_done = zns_max(m->forks_done, p->fork_nr);
		p->born = ++m->births;
	}
	pthread_mutex_unlock(&m->lock);
	return slot < 0 ? -ENOSPC : 0;
}

void procs(struct zns_mem *m, struct proc *list[PROCS_MAX], unsigned int *nr)
{
	*nr = 0;
	pthread_mutex_lock(&m->lock);
	for (unsigned int i = 0; i < PROCS_MAX; i++)
		if (m->proc[i])
			list[(*nr)++] = proc_get(m->proc[i]);
	pthread_mutex_unlock(&m->lock);
}

void reader_watch(struct zns_mem *m, struct proc *p)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = p };

	epoll_ctl(m->epoll, EPOLL_CTL_ADD, p->uffd, &e);
}

void reader_unwatch(struct zns_mem *m, struct proc *p)
{
	epoll_ctl(m->epoll, EPOLL_CTL_DEL, p->uffd, NULL);
}

static int let_go(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct zns_mem_store *st = &p->m->store;

	uint64_t word = atomic_exchange(&u->word, WORD(U_RES, 0));

	if (HAS_PLACE(word))
		st->drop(st->arg, (struct zns_pages_ref){ .place = PLACE(word) });
	return 0;
}

void proc_forget(struct proc *p)
{
	bool found = false;

	reader_unwatch(p->m, p);
	pthread_rwlock_wrlock(&p->ev);
	p->gone = true;
	pthread_rwlock_unlock(&p->ev);
	pthread_mutex_lock(&p->m->lock);
	for (unsigned int i = 0; i < PROCS_MAX && !found; i++) {
		found = p->m->proc[i] == p;
		if (found)
			p->m->proc[i] = NULL;
	}
	if (found)
		p->sh->used = 0;
	pthread_mutex_unlock(&p->m->lock);
	if (!found)
		return;
	pthread_rwlock_wrlock(&p->ev);
	table_each(p, let_go, NULL);
	pthread_rwlock_unlock(&p->ev);
	changed(p->m);
	proc_put(p);
}

void procs_sweep(struct zns_mem *m, const struct proc *but)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;

	if (m->sealed)
		return; /* a checkpoint in progress still lists its units */
	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (list[i] != but && mem_uffd_dead(list[i]->uffd))
			proc_forget(list[i]);
		proc_put(list[i]);
	}
}

void proc_why(struct proc *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&p->m->text);
	vsnprintf(p->why, sizeof(p->why), fmt, ap);
	pthread_mutex_unlock(&p->m->text);
	va_end(ap);
}

void mem_warn(struct zns_mem *m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&m->text);
	vsnprintf(m->warning, sizeof(m->warning), fmt, ap);
	pthread_mutex_unlock(&m->text);
	va_end(ap);
}

void changed(struct zns_mem *m)
{
	uint64_t one = 1;

	if (write(m->changes, &one, sizeof(one)) < 0)
		return; /* the eventfd is readable already */
}
