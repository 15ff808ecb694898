/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads back the units that the last activations touched, in this order, with several threads. The
 * program runs meanwhile, and its faults read units that it needs earlier. The thread that claims a
 * unit first reads it.
 */
#include <sys/mman.h>

#include "hiber.h"

#define READERS 4U

struct replay {
	struct zns_mem *m;
	struct proc *by_slot[PROCS_MAX]; /* each entry holds a reference */
	_Atomic uint32_t next;
	_Atomic int64_t left; /* bytes of the budget that are left */
};

/* Takes a reference to each process, which let_go() drops. by_slot has the processes by slot. */
static unsigned int hold(struct replay *r, struct proc *list[PROCS_MAX])
{
	unsigned int nr;

	procs(r->m, list, &nr);
	for (unsigned int i = 0; i < nr; i++)
		r->by_slot[list[i]->sh - r->m->sh->proc] = list[i];
	return nr;
}

static void let_go(struct proc *list[PROCS_MAX], unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		proc_put(list[i]);
}

/* Returns the unit of entry @i, or NULL if it should not be read. */
static struct unit *wanted(struct replay *r, uint32_t i, struct proc **p, uint64_t *base)
{
	unsigned int slot;
	struct unit *u;

	if (!record_at(r->m, i, &slot, base))
		return NULL;
	*p = r->by_slot[slot];
	u = *p && !(*p)->gone ? unit_at(*p, *base) : NULL;
	return u && STATE(u->word) == U_ZONE && !record_leave_out(r->m, i) ? u : NULL;
}

static void bring(struct replay *r, uint32_t i, uint8_t *buf)
{
	struct proc *p;
	uint64_t base;
	struct unit *u = wanted(r, i, &p, &base);

	if (!u)
		return;
	r->left -= (int64_t)UNIT;
	unit_load(p, u, base, buf, true, NULL);
}

static void *reader(void *arg)
{
	struct replay *r = arg;
	uint8_t *buf = mmap(NULL, UNIT, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint32_t i;

	if (buf == MAP_FAILED)
		return NULL;
	while (hiber_goes_on(r->m, HIBER_AWAKE) && r->left > 0 && (i = r->next++) < record_nr(r->m))
		bring(r, i, buf);
	munmap(buf, UNIT);
	return NULL;
}

void replay_some(struct zns_mem *m, unsigned int max, uint8_t *buf)
{
	struct hiber *h = &m->hiber;
	struct replay r = { .m = m };
	struct proc *list[PROCS_MAX], *p;
	unsigned int nr = hold(&r, list);
	uint64_t base;
	uint32_t i;

	while (max-- && hiber_goes_on(m, HIBER_AWAKE) && m->room >= (int64_t)UNIT &&
	       (i = h->next++) < h->until) {
		struct unit *u = wanted(&r, i, &p, &base);

		if (!u || !ahead_room(m) || unit_load(p, u, base, buf, true, NULL))
			continue;
		m->sh->ahead_units++;
	}
	let_go(list, nr);
}

void hiber_replay(struct zns_mem *m)
{
	uint64_t dram = m->sh->dram, used = 0;
	struct replay r = { .m = m };
	struct proc *list[PROCS_MAX];
	pthread_t thread[READERS];
	unsigned int nr, n = 0;

	if (!record_nr(m) || m->sh->no_predict)
		return;
	nr = hold(&r, list);
	for (unsigned int i = 0; i < nr; i++)
		used += proc_resident(list[i]);
	/* a little below the budget at which eviction begins */
	r.left = (int64_t)(dram - dram / 16) - (int64_t)used - (int64_t)MIB(1);
	while (n < READERS - 1 && !pthread_create(&thread[n], NULL, reader, &r))
		n++;
	reader(&r);
	while (n)
		pthread_join(thread[--n], NULL);
	let_go(list, nr);
}
