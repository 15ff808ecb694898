/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hands a context over from a dead pager to its successor. The successor gets the descriptors, and
 * finds the tables in shared memory. Faults that the dead pager has read are lost, so every thread
 * is woken and faults again. An eviction that was in progress is completed or undone.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../policy/birth.h"
#include "context.h"
#include "hold.h"

/* The context's own descriptors: shared memory, and both ends of the socket for new children. */
#define OWN 3U
/*
 * Table, userfaultfd, pidfd. If one does not exist, a copy of a descriptor of the context takes its
 * place.
 */
#define PER_PROC 3U

/*
 * Sent with the descriptors of a process, to say which process they belong to. By the time the
 * pager dies, another process may use that slot.
 */
struct kept {
	uint64_t serial;
	uint32_t slot;
	uint32_t named; /* 1: the pidfd is among the descriptors */
};

_Static_assert(ZNS_MEM_FDS_MAX == OWN + PER_PROC * PROCS_MAX, "room for all");
_Static_assert(ZNS_MEM_META_MAX == sizeof(struct kept) * PROCS_MAX, "room for all");

void zns_mem_fds(struct zns_mem *m, struct zns_mem_fds *out)
{
	procs_arrived(m);
	out->nr = 0;
	out->len = 0;
	out->fd[out->nr++] = m->sh_fd;
	out->fd[out->nr++] = m->birth[0];
	out->fd[out->nr++] = m->birth[1];
	pthread_mutex_lock(&m->lock);
	/* leave out children that wait for a slot */
	out->forks = m->waiting ? m->waiting->fork_nr - 1 : m->forks_done;
	for (unsigned int i = 0; i < PROCS_MAX; i++) {
		struct proc *p = m->proc[i];
		struct kept k;

		if (!p)
			continue;
		/* keep the descriptor open: its number could be reused before it is sent */
		m->handed[m->nr_handed++] = proc_get(p);
		k = (struct kept){ .serial = p->sh->serial, .slot = i, .named = p->pidfd >= 0 };
		out->fd[out->nr++] = p->table;
		out->fd[out->nr++] = p->uffd;
		out->fd[out->nr++] = k.named ? p->pidfd : m->sh_fd;
		memcpy(out->meta + out->len, &k, sizeof(k));
		out->len += sizeof(k);
	}
	pthread_mutex_unlock(&m->lock);
}

void zns_mem_kept(struct zns_mem *m, const struct zns_mem_fds *f)
{
	procs_arrived(m);
	birth_kept(m, f->forks);
}

/*
 * Brings a unit into a state from which a successor can continue. Runs before any other thread
 * examines the unit, but the dead pager's stop may set it to DROP at the same time. A unit in DROP
 * stays so: see landed().
 */
static int recover(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct zns_mem_store *st = &p->m->store;
	uint64_t word = u->word;
	struct zns_pages_ref ref;

	while (!HAS_PLACE(word) || (STATE(word) != U_DROP && !(u->pages & 0xffff)))
		if (atomic_compare_exchange_strong(&u->word, &word, WORD(U_RES, 0)))
			return 0;
	ref = unit_ref(p, u, word);
	if (STATE(word) != U_DROP && STATE(word) != U_CLEAN)
		u->word = WORD(U_ZONE, ref.place);
	return st->hold(st->arg, ref);
}

/* Called when the stop has ended: no removal by the pager is in progress any more. */
static int landed(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct zns_mem_store *st = &p->m->store;
	uint64_t word = u->word;

	if (STATE(word) != U_DROP)
		return 0;
	/* a page that was not removed is present, and is newer than its copy */
	u->pages &= 0xffff;
	if (u->pages) {
		u->word = WORD(U_ZONE, PLACE(word));
		return 0;
	}
	u->word = WORD(U_RES, 0);
	st->drop(st->arg, unit_ref(p, u, word));
	return 0;
}

/* Call this before events are read, since they may concern these strays. */
static int count_strays(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	if (u->addr)
		p->nr_strays = zns_max(p->nr_strays, (uint32_t)(u - stray_nr(p, 0)) + 1);
	return 0;
}

static int load_strays(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	if (u->addr && ON_ZONE(u->word))
		fault_push(&p->m->queue, p,
			   base + (uint64_t)__builtin_ctz(u->pages | 1U << 16) * PAGE, FAULT_STRAY);
	return 0;
}

/* @fds: table, userfaultfd, and pidfd or -1. */
static int make_proc(struct zns_mem *m, pid_t pid, const int *fds, struct proc **out,
		     struct zns_err *err)
{
	struct proc *p = proc_new(m, pid, err);

	if (!p)
		return -ENOMEM;
	table_unmap(p);
	close(p->table);
	p->table = fds[0];
	p->uffd = fds[1];
	p->pidfd = fds[2];
	p->uncounted = true;
	*out = p;
	if (table_map(p))
		return zns_fail(err, -EPROTO, "a table of a memory context cannot be mapped");
	p->has_pending_moves = true;
	table_each(p, count_strays, NULL);
	return 0;
}

static int take_proc(struct zns_mem *m, unsigned int slot, const int *fds, struct zns_err *err)
{
	struct shared_proc *sh = &m->sh->proc[slot];
	struct proc *p = NULL;
	int ret = make_proc(m, sh->pid, fds, &p, err);

	if (p) {
		p->sh = sh;
		p->leaves = sh->leaves;
		m->proc[slot] = p;
	}
	if (ret)
		return ret;
	p->evicts = p->pidfd >= 0 && !proc_open(p, NULL);
	if (!sh->doomed)
		reader_watch(m, p);
	return 0;
}

struct taking {
	struct zns_mem *m;
	struct zns_err *err;
	int ret;
};

/* Takes over a child that the keeper does not know. */
static bool take_child(void *arg, uint64_t nr, int slot, int table, int uffd)
{
	const int fds[] = { table, uffd, -1 };
	struct taking *t = arg;
	struct proc *p = NULL;

	if (t->ret)
		return false;
	if (slot >= 0) {
		t->ret = take_proc(t->m, (unsigned int)slot, fds, t->err);
		return t->m->proc[slot] != NULL;
	}
	t->ret = make_proc(t->m, 0, fds, &p, t->err);
	if (p) {
		p->fork_nr = nr;
		leave_wait(t->m, p);
	}
	return p != NULL;
}

static int count_units(struct proc *p)
{
	int ret;

	pthread_rwlock_wrlock(&p->ev);
	ret = table_each(p, recover, NULL);
	p->uncounted = false;
	pthread_rwlock_unlock(&p->ev);
	return ret;
}

static int land(struct proc *p)
{
	int ret;

	pthread_rwlock_wrlock(&p->ev);
	ret = table_each(p, landed, NULL);
	pthread_rwlock_unlock(&p->ev);
	return ret;
}

/*
 * Counts the units of all processes in the store. Entries of @list that the dead pager did not
 * serve are set to NULL.
 */
static int count_all(struct zns_mem *m, struct proc **list, unsigned int nr, struct zns_err *err)
{
	int ret = 0;

	/* new children may be appended to this list meanwhile */
	for (struct proc *p = m->waiting; p && p->uncounted && !ret; p = p->next_waiting) {
		ret = count_units(p);
		if (!ret)
			ret = land(p); /* it has no slot, so none of its units was being evicted */
	}
	if (ret)
		return zns_fail_sys(err, ret, "a unit of a child is not in the store");
	for (unsigned int i = 0; i < nr && !ret; i++) {
		if (!list[i]->uncounted) { /* it was forked a moment ago */
			proc_put(list[i]);
			list[i] = NULL;
			continue;
		}
		ret = count_units(list[i]);
		if (ret)
			zns_fail_sys(err, ret, "a unit of process %d is not in the store",
				     list[i]->pid);
	}
	return ret;
}

/*
 * Waits until the dead pager's stops have ended. Units that are not in DROP are served meanwhile.
 */
static int land_all(struct zns_mem *m, struct proc *const *list, unsigned int nr,
		    struct zns_err *err)
{
	uint64_t begin = zns_mono_ns();
	int ret = 0;

	for (unsigned int i = 0; i < nr && !ret; i++) {
		struct proc *p = list[i];

		if (!p)
			continue;
		stop_await_end(p, begin);
		/* Its PID was found just before the pager died, and will be found again. */
		if (p->pidfd < 0)
			p->pid = p->sh->pid = 0;
		ret = land(p);
	}
	return ret ? zns_fail_sys(err, ret, "a table of a memory context cannot be read") : 0;
}

/*
 * Kills a process whose descriptors nobody has: it would read zeroes for all memory that is on
 * zones.
 */
static void take_leave(struct zns_mem *m, unsigned int slot)
{
	struct shared_proc *sh = &m->sh->proc[slot];

	m->sh->lost_units++;
	if (sh->pid > 0)
		kill(sh->pid, SIGKILL);
	sh->used = 0;
	mem_warn(m, "process %d is lost: it came right before the pager died", sh->pid);
}

/*
 * Takes over a process whose descriptors the keeper has, unless it has ended and another process
 * uses its slot.
 */
static int take_kept(struct zns_mem *m, const struct zns_mem_fds *f, uint32_t i,
		     struct zns_err *err)
{
	const int *from = f->fd + OWN + i * PER_PROC;
	int fd[PER_PROC];
	struct kept k;

	memcpy(&k, f->meta + i * sizeof(k), sizeof(k));
	if (k.slot >= PROCS_MAX || m->proc[k.slot] || OWN + (i + 1) * PER_PROC > f->nr)
		return zns_fail(err, -EPROTO, "the list of processes is damaged");
	memcpy(fd, from, sizeof(fd));
	if (!k.named) { /* another descriptor of the context was sent in place of the pidfd */
		close(fd[2]);
		fd[2] = -1;
	}
	if (m->sh->proc[k.slot].used &&
	    (m->sh->proc[k.slot].serial == k.serial || mem_without(RULE_SLOT)))
		return take_proc(m, k.slot, fd, err);
	for (unsigned int n = 0; n < PER_PROC; n++)
		if (fd[n] >= 0)
			close(fd[n]);
	return 0;
}

static int take_all(struct zns_mem *m, const struct zns_mem_fds *f, struct zns_err *err)
{
	struct taking t = { .m = m, .err = err };
	int ret = 0;

	for (uint32_t i = 0; i < f->len / sizeof(struct kept) && !ret; i++)
		ret = take_kept(m, f, i, err);
	if (ret)
		return ret;
	birth_take(m, take_child, &t);
	for (unsigned int i = 0; i < PROCS_MAX && !t.ret; i++)
		if (m->sh->proc[i].used && !m->proc[i])
			take_leave(m, i);
	m->forks_done = m->sh->forks;
	return t.ret;
}

int zns_mem_take(const struct zns_mem_fds *from, const struct zns_mem_store *store,
		 struct zns_mem **out, struct zns_err *err)
{
	struct stat st;
	int ret;

	*out = NULL;
	if (from->nr < OWN || fstat(from->fd[0], &st) || st.st_size != sizeof(struct shared))
		return zns_fail(err, -EPROTO, "these are not the descriptors of a memory context");
	ret = context_make(from->fd[0], store, out, err);
	if (*out) {
		(*out)->birth[0] = from->fd[1];
		(*out)->birth[1] = from->fd[2];
	}
	/*
	 * check this before anything is changed: after a refusal the keeper starts the program of
	 * the right version
	 */
	if (!ret && ((*out)->sh->version != CONTEXT_VERSION || (*out)->sh->procs_max != PROCS_MAX))
		ret = zns_fail(err, -EPROTO, "the memory context is of another version");
	if (!ret) {
		hold_await(*out);
		ret = hold_start(*out);
		if (ret)
			zns_fail_sys(err, ret, "cannot hold descriptors");
		else
			hold_relieve(*out);
	}
	if (!ret)
		ret = take_all(*out, from, err);
	if (ret)
		zns_mem_leave(*out);
	return ret;
}

/* Lets only one thread read events at first, since units in DROP wait for their events. */
static int settle_all(struct zns_mem *m, struct zns_err *err)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	int ret;

	procs(m, list, &nr);
	ret = count_all(m, list, nr, err);
	if (!ret)
		ret = context_serve(m);
	if (!ret)
		ret = land_all(m, list, nr, err);
	while (nr--)
		if (list[nr])
			proc_put(list[nr]);
	return ret;
}

int zns_mem_go_on(struct zns_mem *m, struct zns_err *err)
{
	int ret;

	inbox_replay(m);
	ret = servers_start(m, 1);
	if (!ret)
		ret = settle_all(m, err);
	if (!ret) {
		m->sh->takeovers++;
		ret = context_serve(m);
	}
	for (unsigned int i = 0; !ret && i < PROCS_MAX; i++)
		if (m->proc[i]) {
			/* this also wakes threads whose unit is in memory by now */
			mem_uffd_wake_all(m->proc[i]->uffd);
			table_each(m->proc[i], load_strays, NULL);
		}
	if (!ret)
		ret = context_evict(m);
	if (ret)
		zns_mem_leave(m);
	return ret;
}
