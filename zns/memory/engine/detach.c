/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ends a context while its processes continue: all their memory is read back first. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "../../track/maps.h"
#include "../policy/hiber.h"

#define ROUNDS 10000 /* most rounds over all processes; each fork may cost one more */

struct back {
	uint8_t *buf;
	unsigned int found; /* units that were still on zones in this round */
	int error;
};

static int bring(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct back *b = arg;
	int ret = 0;

	if (STATE(u->word) == U_RES || unit_unkeep(p, u, U_RES))
		return 0;
	b->found++;
	ret = unit_load(p, u, base, b->buf, false, NULL);
	if (ret && !p->gone && ret != -ESRCH)
		b->error = ret;
	return b->error;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

/*
 * Reads back all units of all processes. Repeats this until one round has found no unit on a zone
 * and no child was forked meanwhile: a new child may have units on zones that its parent has
 * already read back.
 */
static int bring_all(struct zns_mem *m, struct back *b)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct proc *list[PROCS_MAX];
		unsigned int nr;
		uint32_t births = m->births;

		b->found = 0;
		procs_sweep(m, NULL); /* the evictor usually does this, but it is paused */
		procs(m, list, &nr);
		for (unsigned int k = 0; k < nr; k++) {
			if (!mem_uffd_dead(list[k]->uffd))
				table_each(list[k], bring, b);
			proc_put(list[k]);
		}
		if (b->error || (!b->found && births == m->births && !leave_waiting(m)))
			return b->error;
		nap();
	}
	return -ETIMEDOUT;
}

/*
 * Fails as long as a doomed child lives, that is, one that must be killed but whose PID is unknown.
 * Without its userfaultfd it would read zeroes, so nothing is detached before it is killed.
 */
static int no_doomed(struct zns_mem *m, struct zns_err *err)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr, doomed = 0;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		doomed += list[i]->sh->doomed && !mem_uffd_dead(list[i]->uffd);
		proc_put(list[i]);
	}
	if (!doomed)
		return 0;
	return zns_fail(
		err, -EBUSY,
		"a child that lost its memory is to be killed, and its PID is not known yet: try again in a moment");
}

static int count(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	if (ON_ZONE(u->word))
		*(uint64_t *)arg += (unsigned int)__builtin_popcount(u->pages & 0xffff) * PAGE;
	return 0;
}

/*
 * Checks the cgroup's limit: all memory that is read back is charged to the cgroup, and above its
 * limit the kernel would kill a process.
 */
static int check_room(struct zns_mem *m, struct zns_err *err)
{
	struct proc *list[PROCS_MAX];
	uint64_t out = 0, room = CEILING_NONE;
	unsigned int nr;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (list[i]->pid && !proc_ended(list[i]))
			room = zns_min(room, ceiling_room(list[i]->pid));
		table_each(list[i], count, &out);
		proc_put(list[i]);
	}
	if (out <= room)
		return 0;
	return zns_fail(
		err, -ENOMEM,
		"%llu MiB are on zones, and its cgroup's memory limit leaves room for %llu: raise it first",
		(unsigned long long)(out >> 20), (unsigned long long)(room >> 20));
}

/* This also ends the write protection, and wakes waiting threads. */
static void unregister(struct proc *p)
{
	struct areas l = { 0 };

	if (p->maps >= 0 && !areas_read(p->maps, &l, NULL))
		for (size_t i = 0; i < l.nr; i++)
			/*
			 * register the area first: older kernels would also unregister an area of
			 * another userfaultfd
			 */
			if (l.a[i].may && !mem_uffd_register(p->uffd, l.a[i].start, l.a[i].end))
				mem_uffd_unregister(p->uffd, l.a[i].start, l.a[i].end);
	areas_free(&l);
}

int zns_mem_detach(struct zns_mem *m, struct zns_err *err)
{
	struct back b = { .buf = aligned_alloc(PAGE, UNIT) };
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	int ret;

	if (m->sealed) {
		free(b.buf);
		return zns_fail(
			err, -EBUSY,
			"a checkpoint of memory context %s is being made: try again when it "
			"is done",
			m->sh->name);
	}
	if (!b.buf)
		return zns_fail(err, -ENOMEM, "no memory to read units back");
	m->no_evict = true;
	while (m->evicting && !m->evict_idle)
		nap();
	m->keep_unreadable = true;
	ret = no_doomed(m, err);
	if (!ret)
		ret = evict_rests(m, err);
	if (!ret)
		ret = check_room(m, err);
	if (ret) {
		m->no_evict = m->keep_unreadable = false;
		free(b.buf);
		return ret;
	}
	ret = bring_all(m, &b);
	m->keep_unreadable = false;
	free(b.buf);
	if (ret) {
		m->no_evict = false;
		return zns_fail_sys(err, ret,
				    "cannot read all memory back; the processes stay as they are");
	}
	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		unregister(list[i]);
		proc_forget(list[i]);
		proc_put(list[i]);
	}
	return 0;
}
