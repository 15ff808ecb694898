/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Evicts a few units of one process. Until DROP, each step may lose a unit again: because of a
 * write, a fault in one of its holes, or because its memory is removed. Only one thread evicts, so
 * a unit that was lost this way is simply left until the next batch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "going.h"

#define GOING_MS 10000U
#define FROZEN "it is frozen or stopped, and drops nothing"
#define STOP_MS 1000U /* ms; limit for one stop, including all attempts */

/*
 * Registers the whole area, and not only the part with the victims: otherwise the kernel would
 * split the area, and mremap() over both parts would fail. The area is read again, since the list
 * is as old as this turn. It is registered even if it was before, because only this call reports
 * (-EBUSY) that the area belongs to another userfaultfd. Write protection and copies would work on
 * memory of any userfaultfd of the process, but the kernel reports removals only to the one that
 * owns the area.
 */
static int enlist(struct proc *p, const struct victim *v, unsigned int nr, struct place area)
{
	struct areas all = { 0 };
	int ret;

	if (mem_without(RULE_OWNER) &&
	    mem_uffd_protect(p->uffd, area.start, area.start + PAGE, false) != -ENOENT)
		return 0;
	ret = place_read(p, v[0].start, &all, &area);
	areas_free(&all);
	for (unsigned int i = 0; i < nr && !ret; i++)
		if (v[i].start < area.start || v[i].end > area.end)
			/* it has moved; the next turn finds it at its new addresses */
			ret = -ESTALE;
	mem_reached(REACHED_AREA);
	return ret ? ret : dropping_from(p, area);
}

/* Gives up the eviction of a unit, if its state is still @from, and wakes its threads. */
static void withdraw(struct proc *p, struct victim *v, enum unit_state from)
{
	v->out = true;
	if (!unit_move(v->u, from, U_BUSY))
		return;
	p->m->sh->cancelled++;
	unit_release(p, v->u, v->base);
}

static bool look(const struct proc *p, struct victim *v, bool *protected)
{
	uint64_t entry[UNIT_PAGES];
	unsigned int nr = (unsigned int)((v->end - v->start) / PAGE);
	unsigned int first = (unsigned int)((v->start - v->base) / PAGE);

	v->mask = 0;
	*protected = true;
	if (present_entries(p->pagemap, v->start, nr, entry))
		return false;
	for (unsigned int i = 0; i < nr; i++)
		if (entry[i] & PRESENT) {
			v->mask |= 1U << (first + i);
			*protected &= (entry[i] & PROTECTED) != 0;
		} else if (entry[i] & SWAPPED) /* the kernel has swapped the page out already */
			return false;
	return v->mask;
}

static int protect_once(struct proc *p, void *arg)
{
	const struct range *r = arg;

	return mem_uffd_protect(p->uffd, r->start, r->end, true);
}

/*
 * Protects the pages that are present. Holes are not protected, since that would put markers there.
 * A page that arrives later comes with a fault, which ends the eviction.
 */
static int protect(struct proc *p, struct victim *v)
{
	uint32_t pages;
	struct range r;
	bool protected;
	int ret = look(p, v, &protected) ? 0 : -ENOENT;

	for (pages = v->mask; !ret && next_run(&pages, v->base, &r);)
		ret = fault_repeat(p, protect_once, &r);
	return ret;
}

/*
 * Copies the pages that are present; the rest of the unit is zeroes. It reads the descriptor of
 * /proc/PID/mem that was opened at the attach, since the PID may have other memory by now.
 */
static bool copy(struct proc *p, const struct victim *v, uint8_t *buf)
{
	unsigned int n;

	memset(buf, 0, UNIT);
	for (unsigned int i = 0; i < UNIT_PAGES; i += n) {
		for (n = 0; i + n < UNIT_PAGES && v->mask >> (i + n) & 1;)
			n++;
		if (n && pread(p->mem, buf + i * PAGE, n * PAGE, (off_t)(v->base + i * PAGE)) !=
				 (ssize_t)(n * PAGE))
			return false;
		n = n ? n : 1;
	}
	return true;
}

/*
 * Does the place of a CLEAN unit still have exactly the pages that are in memory? Pages that have
 * arrived since are not protected, and pages that were removed would come back. If not, the unit
 * gives up its place and is evicted like any other.
 */
static bool is_kept(struct proc *p, struct victim *v, uint8_t *buf)
{
	uint64_t word = v->u->word;
	bool protected;

	if (STATE(word) != U_CLEAN)
		return false;
	if (look(p, v, &protected) && v->mask == (v->u->pages & 0xffff) &&
	    (protected || mem_without(RULE_CLEAN))) {
		v->kept = word;
		return copy(p, v, buf);
	}
	unit_unkeep(p, v->u, U_RES);
	return false;
}

static int drop(struct going *g, bool *begun, struct zns_err *err)
{
	*begun = false;
	g->stop = stop_begin(g->p, going_go, g);
	return g->stop ? stop_end(g->stop, STOP_MS, begun, err) :
			 zns_fail(err, -ENOMEM, "no thread to stop process %d", g->p->pid);
}

/*
 * Called after the stop, when all events of removals by the pager have been read and applied to the
 * table.
 */
static bool settle(struct proc *p, struct victim *v, struct zns_pages_ref ref)
{
	struct zns_mem_store *st = &p->m->store;
	uint64_t old = WORD(U_DROP, ref.place);
	bool out = false, empty = false;

	pthread_rwlock_rdlock(&p->ev);
	if (!p->gone && v->u->word == old) {
		v->u->pages &= 0xffff;
		empty = !v->u->pages;
		out = atomic_compare_exchange_strong(&v->u->word, &old,
						     empty ? WORD(U_BUSY, 0) :
							     WORD(U_ZONE, ref.place));
	}
	pthread_rwlock_unlock(&p->ev);
	if (out && empty) {
		st->drop(st->arg, ref);
		unit_release(p, v->u, v->base);
	}
	if (out && !empty)
		mem_reached(U_ZONE);
	mem_uffd_wake(p->uffd, v->base, v->base + UNIT);
	return out && !empty;
}

/*
 * Does the unit have pages that the program is removing (note_going()), but that still exist? Call
 * with `ev` locked. Waits at most GOING_MS, since after MADV_FREE pages may stay until the kernel
 * needs memory.
 */
static bool goes(const struct proc *p, struct victim *v)
{
	uint32_t going = v->u->pages >> 16;
	bool protected;

	if (!going)
		return false;
	if (look(p, v, &protected) && v->mask & going && now_ms() - v->u->stamp < GOING_MS)
		return true;
	v->u->pages &= 0xffff;
	return false;
}

/*
 * Protects and copies the units. Units that did not change meanwhile, and units whose place is
 * still valid, remain candidates. Returns their number.
 */
static unsigned int gather(struct proc *p, struct victim *v, unsigned int nr)
{
	unsigned int ok = 0;
	bool protected;

	for (unsigned int i = 0; i < nr; i++) {
		if (is_kept(p, &v[i], p->m->bufs + i * UNIT) &&
		    !stray_near(p, v[i].base, v[i].base + UNIT)) {
			going_note(&v[i], p->m->bufs + i * UNIT);
			ok++;
			continue;
		}
		v[i].kept = 0;
		pthread_rwlock_rdlock(&p->ev);
		v[i].out = stray_near(p, v[i].base, v[i].base + UNIT) || goes(p, &v[i]) ||
			   !unit_move(v[i].u, U_RES, U_WPING);
		pthread_rwlock_unlock(&p->ev);
		if (!v[i].out && protect(p, &v[i]))
			withdraw(p, &v[i], U_WPING);
	}
	for (unsigned int i = 0; i < nr; i++) {
		if (v[i].out || v[i].kept)
			continue;
		if (!unit_move(v[i].u, U_WPING, U_COPY)) {
			v[i].out = true;
			continue;
		}
		if (!look(p, &v[i], &protected) || !copy(p, &v[i], p->m->bufs + i * UNIT))
			withdraw(p, &v[i], U_COPY);
		else if (!unit_move(v[i].u, U_COPY, U_WRITE))
			v[i].out = true;
		else
			ok++;
		if (!v[i].out)
			going_note(&v[i], p->m->bufs + i * UNIT);
	}
	return ok;
}

/*
 * Completes the units after a stop. @bufs: m->bufs still contain their bytes. Returns how many
 * units have left the process.
 */
static unsigned int settle_all(struct proc *p, struct batch *b, bool bufs)
{
	unsigned int out = 0;

	for (unsigned int i = 0; i < b->nr; i++) {
		struct victim *v = &b->v[i];

		if (v->out || !settle(p, v, b->ref[i]))
			continue;
		p->m->sh->evicted_units++;
		p->m->sh->clean_units += v->kept != 0;
		/* a unit that kept its place was not copied into bufs */
		if (bufs && !v->kept)
			spare_put(p, v->u, b->ref[i], p->m->bufs + i * UNIT, SPARE_OUT);
		out++;
		if (v->left) /* some of its pages stayed in the process: read back the others */
			fault_push(&p->m->queue, p, v->start, FAULT_LOAD);
	}
	return out;
}

static void not_begun(struct going *g)
{
	struct zns_mem_store *st = &g->p->m->store;

	for (unsigned int i = 0; i < g->b.nr; i++) {
		struct victim *v = &g->b.v[i];

		if (v->out || v->kept)
			continue;
		withdraw(g->p, v, U_WRITE);
		st->drop(st->arg, g->b.ref[i]);
	}
}

/* Postpones the next try for this process. Other processes are evicted meanwhile. */
static int put_off(struct proc *p, const char *why)
{
	p->evicts = false;
	p->again_ns = zns_mono_ns() + AGAIN_NS;
	proc_why(p, "%s", why);
	return -ESRCH;
}

/* Handles the end of a stop. @failed: its result. @bufs: m->bufs still contain the units' bytes. */
static int landed(struct going *g, int failed, bool begun, bool bufs, unsigned int *nr_out,
		  const struct zns_err *err)
{
	struct zns_mem_store *st = &g->p->m->store;
	struct proc *p = g->p;

	if (!begun) { /* the stop failed, for example because a debugger traces the process */
		not_begun(g);
		return put_off(p, err->msg);
	}
	mem_reached(REACHED_DROPPED);
	mem_reached(U_DROP);
	for (unsigned int i = 0; i < g->b.nr; i++) {
		if (!(g->lost & 1U << i) || g->b.v[i].kept)
			continue;
		if (g->own & 1U << i)
			withdraw(p, &g->b.v[i], U_WRITE);
		st->drop(st->arg, g->b.ref[i]);
	}
	if (failed == -ESRCH || p->gone)
		return -ESRCH;
	if (g->poisoned) {
		p->m->sh->lost_units++;
		mem_warn(p->m, "process %d: %u pages could not be put back: its cgroup is full",
			 p->pid, g->poisoned);
	}
	*nr_out = settle_all(p, &g->b, bufs);
	return 0;
}

int evict_rest(struct proc *p, unsigned int limit_ms)
{
	struct going *g = p->rest;
	struct zns_err err = ZNS_ERR_INIT;
	bool begun = true;
	unsigned int n;
	int ret;

	if (!g)
		return 0;
	ret = stop_end(g->stop, limit_ms, &begun, &err);
	if (ret == -EINPROGRESS)
		return ret;
	p->rest = NULL;
	landed(g, ret, begun, false, &n, &err);
	free(g);
	return 0;
}

int evict_rests(struct zns_mem *m, struct zns_err *err)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;
	int ret = 0;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (!ret && evict_rest(list[i], REST_MS))
			ret = zns_fail(
				err, -EBUSY,
				"process %d of memory context %s stands still (frozen, paused or "
				"stopped?) in the middle of an eviction: let it run first",
				list[i]->pid, m->sh->name);
		proc_put(list[i]);
	}
	return ret;
}

void evict_forget(struct proc *p)
{
	struct zns_err err;
	bool begun;

	/* the stop's thread does not use @p any more, so it ends soon */
	if (p->rest)
		stop_end(p->rest->stop, REST_MS, &begun, &err);
	free(p->rest);
}

/* Drops units that were written to zones from the process. */
static int let_go(struct going *g, unsigned int *nr_out, struct zns_err *err)
{
	struct proc *p = g->p;
	bool begun;
	int ret = drop(g, &begun, err);

	if (ret != -EINPROGRESS)
		return landed(g, ret, begun, true, nr_out, err);
	p->rest = g;
	p->evicts = false;
	proc_why(p, "%s", FROZEN);
	return -ESRCH;
}

int evict(struct proc *p, struct victim *v, unsigned int nr, const struct place *area,
	  unsigned int *nr_out, struct zns_err *err)
{
	struct zns_mem_store *st = &p->m->store;
	struct zns_pages_ref got[BATCH] = { 0 };
	struct going *g;
	const void *unit[BATCH];
	unsigned int n = 0;
	int ret, failed;

	*nr_out = 0;
	if (p->rest) /* the last stop has not ended yet */
		return -ESRCH;
	if (enlist(p, v, nr, *area))
		return 0;
	g = calloc(1, sizeof(*g));
	if (!g)
		return zns_fail(err, -ENOMEM, "no memory to evict");
	g->p = p;
	g->b.nr = nr;
	if (!gather(p, v, nr)) {
		free(g);
		return 0;
	}
	for (unsigned int i = 0; i < nr; i++)
		if (!v[i].out && !v[i].kept)
			unit[n++] = p->m->bufs + i * UNIT;
	failed = n ? st->put(st->arg, unit, n, got, err) : 0;
	n = 0;
	for (unsigned int i = 0; i < nr; i++) {
		if (v[i].out)
			continue;
		if (failed && !v[i].kept) {
			withdraw(p, &v[i], U_WRITE);
			continue;
		}
		g->b.ref[i] = v[i].kept ? unit_ref(p, v[i].u, v[i].kept) : got[n++];
	}
	memcpy(g->b.v, v, nr * sizeof(*v));
	ret = let_go(g, nr_out, err);
	if (p->rest != g)
		free(g);
	return ret ? ret : failed;
}
