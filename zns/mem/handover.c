/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From a pager that died to the next one. It gets the descriptors; the tables are in memory that
 * the dead one shared with them. What the dead one had read of events and faults is lost: every
 * thread is woken and faults again, and an eviction that was on its way is either as if it had not
 * begun, or finished.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "birth.h"
#include "context.h"

#define OWN 3U /* shared memory, and both ends of the socket of births */
#define PER_PROC 3U /* table, userfaultfd, pidfd; an absent one is the context's own */

_Static_assert(ZNS_MEM_FDS_MAX == OWN + PER_PROC * PROCS_MAX, "room for all");
_Static_assert(ZNS_MEM_META_MAX == 2 * PROCS_MAX, "a slot's number is two bytes");

void zns_mem_fds(struct zns_mem *m, struct zns_mem_fds *out)
{
	out->nr = 0;
	out->len = 0;
	out->fd[out->nr++] = m->sh_fd;
	out->fd[out->nr++] = m->birth[0];
	out->fd[out->nr++] = m->birth[1];
	pthread_mutex_lock(&m->lock);
	out->forks = m->forks_done;
	for (unsigned int i = 0; i < PROCS_MAX; i++) {
		const struct proc *p = m->proc[i];

		if (!p)
			continue;
		out->fd[out->nr++] = p->table;
		out->fd[out->nr++] = p->uffd;
		out->fd[out->nr++] = p->pidfd >= 0 ? p->pidfd : m->sh_fd;
		out->meta[out->len++] = (uint8_t)i;
		out->meta[out->len++] = (uint8_t)(i >> 8);
	}
	pthread_mutex_unlock(&m->lock);
}

void zns_mem_kept(struct zns_mem *m, const struct zns_mem_fds *f)
{
	birth_kept(m, f->forks);
}

/* Before anybody else looks. */
static int recover(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct zns_mem_store *st = &p->m->store;
	uint64_t word = u->word;
	struct zns_pages_ref ref = unit_ref(p, u, word);

	if (!HAS_PLACE(word)) {
		u->word = WORD(U_RES, 0);
		return 0;
	}
	/* the ring has ended, so no removal of ours is on its way */
	u->pages &= 0xffff;
	if (!u->pages) {
		u->word = WORD(U_RES, 0);
		return 0;
	}
	if (STATE(word) != U_CLEAN)
		u->word = WORD(U_ZONE, ref.place);
	if (u->addr) {
		uint32_t i = (uint32_t)(u - stray_nr(p, 0));

		p->nr_strays = zns_max(p->nr_strays, i + 1);
	}
	return st->hold(st->arg, ref);
}

static int load_strays(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	if (u->addr && ON_ZONE(u->word))
		fault_push(&p->m->queue, p,
			   base + (uint64_t)__builtin_ctz(u->pages | 1U << 16) * PAGE, FAULT_STRAY);
	return 0;
}

static int take_proc(struct zns_mem *m, unsigned int slot, const int *fds, struct zns_err *err)
{
	struct shared_proc *sh = &m->sh->proc[slot];
	struct proc *p = proc_new(m, sh->pid, err);

	if (!p)
		return -ENOMEM;
	table_unmap(p);
	close(p->table);
	p->table = fds[0];
	p->uffd = fds[1];
	p->pidfd = sh->pid ? fds[2] : -1;
	p->sh = sh;
	m->proc[slot] = p;
	if (table_map(p))
		return zns_fail(err, -EPROTO, "a table of a memory context cannot be mapped");
	if (sh->pid && !proc_open(p, NULL)) {
		p->needs_ring = true;
		proc_why(p, "its ring is being made anew");
	}
	if (!sh->doomed)
		reader_watch(m, p);
	return 0;
}

struct taking {
	struct zns_mem *m;
	struct zns_err *err;
	int ret;
};

/* A child that the keeper had not heard of. */
static bool take_child(void *arg, uint32_t slot, int table, int uffd)
{
	struct taking *t = arg;

	if (t->ret)
		return false;
	t->ret = take_proc(t->m, slot, (int[]){ table, uffd, -1 }, t->err);
	return t->m->proc[slot] != NULL;
}

/* The reader runs already, since drops that are on their way wait for it. */
static int settle_all(struct zns_mem *m, struct zns_err *err)
{
	uint64_t begin = zns_mono_ns();

	for (unsigned int i = 0; i < PROCS_MAX; i++) {
		struct proc *p = m->proc[i];
		int ret;

		if (!p)
			continue;
		stop_await_end(p, begin);
		if (p->pid && ring_await_end(p->pid, p->pidfd, begin) == -ETIMEDOUT)
			mem_warn(m, "process %d: the ring of the dead pager does not end", p->pid);
		pthread_rwlock_wrlock(&p->ev);
		ret = table_each(p, recover, NULL);
		pthread_rwlock_unlock(&p->ev);
		if (ret)
			return zns_fail_sys(err, ret, "a unit of process %d is not in the store",
					    p->pid);
	}
	return 0;
}

/* A process of which nobody has the descriptors reads zeroes where it had memory. */
static void take_leave(struct zns_mem *m, unsigned int slot)
{
	struct shared_proc *sh = &m->sh->proc[slot];

	m->sh->lost_units++;
	if (sh->pid > 0)
		kill(sh->pid, SIGKILL);
	sh->used = 0;
	mem_warn(m, "process %d is lost: it came right before the pager died", sh->pid);
}

static int take_all(struct zns_mem *m, const struct zns_mem_fds *f, struct zns_err *err)
{
	struct taking t = { .m = m, .err = err };
	int ret = 0;

	if (m->sh->version != CONTEXT_VERSION || m->sh->procs_max != PROCS_MAX)
		return zns_fail(err, -EPROTO, "the memory context is of another version");
	for (uint32_t i = 0; i < f->len / 2 && !ret; i++) {
		unsigned int slot = f->meta[2 * i] | f->meta[2 * i + 1] << 8;
		const int *fd = f->fd + OWN + i * PER_PROC;

		if (slot >= PROCS_MAX || m->proc[slot] || OWN + (i + 1) * PER_PROC > f->nr)
			return zns_fail(err, -EPROTO, "the list of processes is damaged");
		if (m->sh->proc[slot].used)
			ret = take_proc(m, slot, fd, err);
		else /* it ended after this was handed over */
			for (unsigned int k = 0; k < PER_PROC; k++)
				if (fd[k] != f->fd[0])
					close(fd[k]);
	}
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
	if (!ret)
		ret = take_all(*out, from, err);
	if (!ret) {
		inbox_replay(*out);
		ret = -pthread_create(&(*out)->reader, NULL, reader_run, *out);
	}
	(*out)->reading = !ret;
	if (!ret)
		ret = settle_all(*out, err);
	if (!ret) {
		(*out)->sh->takeovers++;
		ret = workers_start(*out);
	}
	for (unsigned int i = 0; !ret && !mem_without(RULE_WAKE) && i < PROCS_MAX; i++)
		if ((*out)->proc[i]) {
			/* also those who wait for a unit that is in memory by now */
			mem_uffd_wake_all((*out)->proc[i]->uffd);
			table_each((*out)->proc[i], load_strays, NULL);
		}
	if (!ret)
		ret = context_evict(*out);
	if (ret)
		zns_mem_leave(*out);
	return ret;
}
