/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pauses eviction while a checkpoint of the context's processes is made, and reports where their
 * units are. Faults are answered as always.
 */
#include <string.h>
#include <time.h>

#include "../policy/family.h"
#include "../policy/hiber.h"
#include "zns/grow.h"

/* ms; limit for an eviction in progress, in which the store may wait for dumps */
#define PAUSE_MAX_MS 10000

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static struct proc *find(struct zns_mem *m, pid_t pid)
{
	struct proc *list[PROCS_MAX], *found = NULL;
	unsigned int nr;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++)
		if (!found && list[i]->pid == pid && !list[i]->gone && !proc_ended(list[i]) &&
		    !mem_uffd_dead(list[i]->uffd)) /* it has executed another program */
			found = list[i];
		else
			proc_put(list[i]);
	return found;
}

static bool has_one(struct zns_mem *m, const pid_t *pid, uint32_t nr_pids)
{
	struct proc *p = NULL;

	for (uint32_t i = 0; i < nr_pids && !p; i++)
		p = find(m, pid[i]);
	if (p)
		proc_put(p);
	return p != NULL;
}

static int pause_evictor(struct zns_mem *m)
{
	m->sealed = true;
	for (int ms = 0; m->evicting && !m->evict_idle; ms++) {
		if (ms == PAUSE_MAX_MS)
			return -ETIMEDOUT;
		nap();
	}
	return 0;
}

int zns_mem_quiesce(struct zns_mem *m, const pid_t *pid, uint32_t nr, struct zns_err *err)
{
	int ret;

	if (m->sealed)
		return zns_fail(err, -EBUSY,
				"another checkpoint of memory context %s is being made",
				m->sh->name);
	if (!has_one(m, pid, nr))
		return zns_fail(err, -ENOENT, "none of them is of this context");
	ret = pause_evictor(m);
	if (ret) {
		m->sealed = false;
		return zns_fail_sys(err, ret, "the eviction of memory context %s does not end",
				    m->sh->name);
	}
	family_look(m); /* find the PIDs of new children */
	ret = evict_rests(m, err);
	if (ret)
		zns_mem_unquiesce(m);
	return ret;
}

void zns_mem_unquiesce(struct zns_mem *m)
{
	m->sealed = false;
	hiber_rouse(m);
}

struct listing {
	struct zns_mem_unit *v;
	size_t nr, max;
};

/*
 * Returns the pages of a CLEAN unit that are still protected, and so equal to the bytes at its
 * place.
 */
static uint16_t clean_pages(const struct proc *p, uint64_t base, uint32_t mask)
{
	uint64_t entry[UNIT_PAGES];
	uint16_t clean = 0;

	if (present_entries(p->pagemap, base, UNIT_PAGES, entry))
		return 0;
	for (unsigned int i = 0; i < UNIT_PAGES; i++)
		if (mask & 1U << i && (entry[i] & (PRESENT | PROTECTED)) == (PRESENT | PROTECTED))
			clean |= (uint16_t)(1U << i);
	return clean;
}

static int list_unit(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct listing *l = arg;
	uint64_t word = u->word;
	struct zns_mem_unit one = { .addr = base, .ref = unit_ref(p, u, word) };
	struct unit_pages is = { 0 };

	if (!HAS_PLACE(word))
		return 0;
	if (STATE(word) == U_CLEAN)
		one.clean = clean_pages(p, base, u->pages & 0xffff);
	else if (!present_look(p, p->pagemap, u, base, &is))
		one.mask = (uint16_t)(u->pages & ~(is.other | is.removed));
	else
		one.mask = (uint16_t)u->pages;
	if (!one.mask && !one.clean)
		return 0;
	if (zns_grow(l->v, l->nr, l->max))
		return -ENOMEM;
	l->v[l->nr++] = one;
	return 0;
}

int zns_mem_units(struct zns_mem *m, pid_t pid, struct zns_mem_unit **out, size_t *nr,
		  struct zns_err *err)
{
	struct proc *p = find(m, pid);
	struct listing l = { 0 };
	int ret;

	if (!m->sealed)
		return zns_fail(err, -EPROTO, "no checkpoint has begun");
	if (!p) { /* it was forked after the pause began */
		family_look(m);
		p = find(m, pid);
	}
	if (!p)
		return zns_fail(err, -ENOENT, "process %d is not of this context", pid);
	/* with the lock, all events that the reader has read are in the table */
	pthread_rwlock_rdlock(&p->ev);
	ret = table_each(p, list_unit, &l);
	pthread_rwlock_unlock(&p->ev);
	proc_put(p);
	if (ret) {
		free(l.v);
		return zns_fail_sys(err, ret, "cannot list the units of process %d", pid);
	}
	*out = l.v;
	*nr = l.nr;
	return 0;
}

int zns_mem_owns(struct zns_mem *m, pid_t pid, uint64_t start, uint64_t end, struct zns_err *err)
{
	struct proc *p = find(m, pid);
	int ret;

	if (!p && m->sealed) {
		family_look(m);
		p = find(m, pid);
	}
	if (!p)
		return zns_fail(err, -ENOENT, "process %d is not of this context", pid);
	if (start == end) {
		proc_put(p);
		return 0;
	}
	/* succeeds if the area is ours already; -EBUSY: another userfaultfd has it */
	ret = mem_uffd_register(p->uffd, start, end);
	proc_put(p);
	return ret ? zns_fail(err, -ENOENT, "this area of process %d is another userfaultfd's",
			      pid) :
		     0;
}
