/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Takes over a process whose restore has left its memory in a checkpoint. The process is stopped
 * meanwhile. The lazy restore has already created its userfaultfd, registered for missing pages and
 * for events, and marked the pages (criu/adapter/zns-extend.c).
 */
#include <errno.h>
#include <string.h>

#include "../../track/maps.h"
#include "mem.h"

#define RESTORE_NS 300000000ULL /* ns for which criu typically traces a restored process */

/* Does [start, end) overlap one of the given units? */
static bool any_within(const struct zns_mem_given *g, size_t nr, uint64_t start, uint64_t end)
{
	size_t low = 0, high = nr;

	while (low < high) { /* find the first unit that ends behind @start */
		size_t mid = low + (high - low) / 2;

		if (g[mid].addr + UNIT > start)
			high = mid;
		else
			low = mid + 1;
	}
	return low < nr && g[low].addr < end;
}

/*
 * Registers the restored areas for write protection as well: the restore has registered them for
 * missing pages only. After that they are like all other areas of a context, and family.c can tell
 * a child of this process from an unrelated process.
 */
static int enlist(struct proc *p, const struct zns_mem_given *g, size_t nr, struct zns_err *err)
{
	struct areas l = { 0 };
	int ret = areas_read(p->maps, &l, err);

	for (size_t i = 0; !ret && i < l.nr; i++) {
		const struct area *a = &l.a[i];

		if (!a->may || a->file || a->shared || !any_within(g, nr, a->start, a->end))
			continue;
		ret = mem_uffd_register(p->uffd, a->start, a->end);
		/*
		 * not an error: the area was not restored lazily, or belongs to another userfaultfd
		 */
		if (ret == -EINVAL || ret == -EBUSY)
			ret = 0;
		else if (!ret)
			known_add(p, (struct place){ a->start, a->end });
		if (ret)
			zns_fail_sys(err, ret, "cannot adopt the restored memory of process %d",
				     p->pid);
	}
	areas_free(&l);
	return ret;
}

static void enter(struct proc *p, const struct zns_mem_given *g, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct unit *u = unit_at(p, g[i].addr);

		u->hash = 0;
		u->addr = 0;
		u->pages = g[i].pages;
		u->word = WORD(U_ZONE, g[i].place);
	}
}

/*
 * Protects a range. If an area in it is not registered with our userfaultfd, the kernel stops
 * there; then each unit is tried alone.
 */
static void protect(const struct proc *p, const struct range *r)
{
	if (!r->end || mem_uffd_protect(p->uffd, r->start, r->end, true) != -ENOENT)
		return;
	for (uint64_t a = r->start / UNIT * UNIT; a < r->end; a += UNIT)
		mem_uffd_protect(p->uffd, zns_max(a, r->start), zns_min(a + UNIT, r->end), true);
}

/*
 * Gives pages that are still in the checkpoint write protection markers, as evicted pages have, so
 * that a guard page is noticed (unit_set_marked()). On kernels without guard pages the units stay
 * unmarked.
 */
static void mark(struct proc *p, const struct zns_mem_given *g, size_t nr)
{
	struct range all = { 0 }, r;

	for (size_t i = 0; i < nr && !mem_without(RULE_MARKED); i++)
		for (uint32_t pages = g[i].pages; next_run(&pages, g[i].addr, &r);
		     all.end = r.end) {
			if (r.start == all.end)
				continue;
			protect(p, &all);
			all.start = r.start;
		}
	protect(p, &all);
	for (size_t i = 0; i < nr; i++)
		if (present_is_marked(p, g[i].addr, g[i].pages))
			unit_set_marked(p, unit_at(p, g[i].addr), true);
}

int zns_mem_adopt(struct zns_mem *m, pid_t pid, int uffd, const struct zns_mem_given *g, size_t nr,
		  struct zns_err *err)
{
	struct proc *p = proc_new(m, pid, err);
	int ret = p ? 0 : -ENOMEM;

	if (p)
		p->uffd = uffd;
	else
		close(uffd);
	if (!ret)
		ret = proc_open(p, err);
	if (!ret)
		ret = enlist(p, g, nr, err);
	if (!ret) {
		enter(p, g, nr);
		mark(p, g, nr);
		p->again_ns = zns_mono_ns() + RESTORE_NS;
		proc_why(p, "it is being restored");
		if (proc_add(m, p))
			ret = zns_fail(err, -ENOSPC, "a context has at most %u processes",
				       PROCS_MAX);
	}
	if (ret) {
		for (size_t i = 0; i < nr; i++)
			m->store.drop(m->store.arg, (struct zns_pages_ref){ .place = g[i].place });
		if (p)
			proc_put(p);
		return ret;
	}
	reader_watch(m, p);
	changed(m);
	return 0;
}

struct settling {
	const struct places *places;
	uint8_t *buf;
};

static bool may_be_out(const struct places *l, uint64_t base)
{
	for (size_t i = 0; i < l->nr; i++)
		if (base >= l->a[i].start && base + UNIT <= l->a[i].end)
			return true;
	return false;
}

static int settle_unit(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	const struct settling *s = arg;

	return STATE(u->word) != U_ZONE || may_be_out(s->places, base) ?
		       0 :
		       unit_load(p, u, base, s->buf, false, NULL);
}

/*
 * Reads back units that must not be on zones, such as a thread's stack: the kernel writes to it
 * when the thread ends, and does not wait for a missing page but fails.
 */
int zns_mem_settle(struct zns_mem *m, struct zns_err *err)
{
	struct settling s = { .buf = aligned_alloc(PAGE, UNIT) };
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	int ret = s.buf ? 0 : zns_fail(err, -ENOMEM, "no memory to read units");

	procs(m, list, &nr);
	m->keep_unreadable = true;
	for (unsigned int i = 0; i < nr; i++) {
		struct places l = { 0 };

		if (!ret && mem_places_read(list[i], &l))
			ret = zns_fail(err, -ESRCH, "process %d has ended", list[i]->pid);
		s.places = &l;
		if (!ret && table_each(list[i], settle_unit, &s))
			ret = zns_fail(err, -EIO,
				       "a part of process %d cannot be read from its checkpoint",
				       list[i]->pid);
		mem_places_free(&l);
		proc_put(list[i]);
	}
	m->keep_unreadable = false;
	free(s.buf);
	return ret;
}
