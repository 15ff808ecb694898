/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Removes units from a process. They have been written to their places, and all threads of the
 * process are stopped. Their pages are moved to a scratch area and compared there with the bytes
 * that were written. Nobody can access them in the scratch area: a page that somebody still holds
 * is one that the kernel refuses to move. Pages that differ are moved back. Pages that the kernel
 * does not move because a child shares them are compared at their addresses and dropped: a write to
 * a shared page would make a copy of it first. Older kernels cannot move pages, so there all pages
 * are dropped this way.
 *
 * This runs in a process that shares our memory and may outlive us. It must not allocate memory.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "going.h"

#define THERE (PRESENT | SWAPPED)
#define BACK_TRIES 5000U
#define BACK_NAP_MS 1 /* ms between two attempts to put a page back */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct work {
	struct going *g;
	struct zns_guest *guest;
	struct scratch scratch;
	bool moves;
	struct range range[BATCH]; /* ranges that are to be dropped */
	unsigned int nr;
	/* Attempts that are left for this stop while the process's cgroup is full. */
	unsigned int tries;
};

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

static void nap_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000L }, NULL);
}

void going_note(struct victim *v, const uint8_t *unit)
{
	zns_hash_pieces(unit, UNIT, PAGE, v->page);
}

/*
 * Locks `ev` during a stop. False: the pager has died while its reader held the lock, so the
 * threads must be released without it.
 */
static bool lock_in_stop(struct proc *p)
{
	while (pthread_rwlock_tryrdlock(&p->ev)) {
		if (stop_orphaned(p))
			return false;
		nap();
	}
	return true;
}

/*
 * Sets a unit to DROP, with its place. From here on the unit is removed, even if a thread needs it.
 */
static void commit(struct proc *p, struct victim *v, struct zns_pages_ref ref)
{
	uint64_t old = v->kept ? v->kept : WORD(U_WRITE, 0);

	v->out = !lock_in_stop(p);
	if (v->out)
		return;
	v->out = p->gone || v->u->word != old;
	/* A fault may still set it to RES before the exchange, but nothing else can. */
	if (!v->out) {
		unit_note(p, v->u, &ref);
		unit_set_marked(p, v->u, false);
		v->u->addr = 0;
		v->u->pages = v->mask;
		v->out = !atomic_compare_exchange_strong(&v->u->word, &old,
							 WORD(U_DROP, ref.place));
		if (v->out)
			/* there was only a fault: no event has changed the pages */
			v->u->pages = 0;
	}
	pthread_rwlock_unlock(&p->ev);
}

/*
 * Are the victim's pages exactly those that were copied, and all protected? Only then does the
 * kernel report their removal. If they were unmapped before the registration, other memory may be
 * at these addresses.
 */
static bool is_whole(const struct proc *p, const struct victim *v)
{
	uint64_t entry[UNIT_PAGES];
	uint32_t there = 0, open = 0, part = pages_of(v->base, v->start, v->end);

	if (present_entries(p->pagemap, v->base, UNIT_PAGES, entry))
		return false;
	for (unsigned int i = 0; i < UNIT_PAGES; i++) {
		there |= entry[i] & THERE ? 1U << i : 0;
		open |= entry[i] & PROTECTED ? 0 : 1U << i;
	}
	return (there & part) == v->mask && (!(v->mask & open) || mem_without(RULE_CLEAN));
}

static void commit_all(struct going *g, const struct range *own)
{
	for (unsigned int i = 0; i < g->b.nr; i++) {
		struct victim *v = &g->b.v[i];

		if (v->out)
			continue;
		v->out = own->start < v->end && own->end > v->start;
		if (v->out)
			/*
			 * note the memory that the thread itself needs, else its unit would be
			 * copied in each turn
			 */
			g->p->own = *own;
		if (v->out || !is_whole(g->p, v)) {
			v->out = true;
			g->own |= 1U << i;
		} else {
			commit(g->p, v, g->b.ref[i]);
		}
		if (v->out)
			g->lost |= 1U << i;
	}
}

static bool is_going(const struct victim *v)
{
	return !v->out && STATE(v->u->word) == U_DROP;
}

/*
 * The kernel does not say whether another process shares a swapped page. UFFDIO_MOVE finds out, and
 * refuses the page if one does.
 */
static bool may_move(uint64_t entry)
{
	if (mem_without(RULE_SWAPPED))
		return entry & EXCLUSIVE;
	return entry & EXCLUSIVE || (entry & THERE && !(entry & PRESENT));
}

/*
 * Returns the pages of the UNIT bytes at @at that exist, as bits. *@exclusive: those that may be
 * moved, according to the page table.
 */
static uint32_t look(const struct proc *p, uint64_t at, uint32_t *exclusive)
{
	uint64_t entry[UNIT_PAGES];
	uint32_t there = 0;

	*exclusive = 0;
	if (present_entries(p->pagemap, at, UNIT_PAGES, entry))
		return 0;
	for (unsigned int i = 0; i < UNIT_PAGES; i++) {
		there |= entry[i] & THERE ? 1U << i : 0;
		*exclusive |= may_move(entry[i]) ? 1U << i : 0;
	}
	*exclusive &= there;
	return there;
}

/*
 * Returns the victim's own pages that are still at their addresses; other areas may share its unit.
 */
static uint32_t look_at(const struct proc *p, const struct victim *v, uint32_t *exclusive)
{
	return look(p, v->base, exclusive) & pages_of(v->base, v->start, v->end);
}

/*
 * Returns which of @pages at @at are equal to what was copied. Reads them into g->buf. *@unread:
 * pages that could not be read, so they were not compared.
 */
static uint32_t same(struct going *g, const struct victim *v, uint64_t at, uint32_t pages,
		     uint32_t *unread)
{
	uint64_t page[UNIT_PAGES];
	uint32_t left = pages, ok = 0;
	struct range r;

	*unread = 0;
	while (next_run(&left, at, &r)) {
		struct iovec here = { g->buf + (r.start - at), r.end - r.start },
			     there = { (void *)(uintptr_t)r.start, r.end - r.start };

		if (process_vm_readv(g->p->pid, &here, 1, &there, 1, 0) != (ssize_t)here.iov_len)
			*unread |= pages_of(at, r.start, r.end);
	}
	pages &= ~*unread;
	zns_hash_pieces(g->buf, UNIT, PAGE, page);
	for (unsigned int i = 0; i < UNIT_PAGES; i++)
		ok |= page[i] == v->page[i] || mem_without(RULE_SAME) ? 1U << i : 0;
	if (mem_refused(REFUSED_SAME) && v->mask == (1U << UNIT_PAGES) - 1)
		ok &= ~1U;
	return pages & v->mask & ok;
}

/* Moves the pages that no other process has. @mend: writes to each page first (move_one()). */
static void move_exclusive(struct work *w, unsigned int nr, bool mend)
{
	const struct victim *v = &w->g->b.v[nr];
	uint32_t exclusive;
	struct range r;

	look_at(w->g->p, v, &exclusive);
	exclusive &= pages_of(v->base, v->start, v->end);
	while (next_run(&exclusive, v->base, &r)) {
		if (mend && mem_uffd_protect(w->g->p->uffd, r.start, r.end, false))
			continue; /* a write to it would make the thread wait for us */
		if (mend)
			move_call(w->guest, SYS_madvise,
				  (uint64_t[6]){ r.start, r.end - r.start, MADV_POPULATE_WRITE });
		move_pages(&w->scratch, &r, nr * UNIT + (r.start - v->base));
	}
}

/*
 * Moves a unit in which the kernel has refused a page. The kernel refuses a page that no other
 * process has in two cases: a process that shared it has exited, or somebody holds a reference. In
 * the first case the kernel accepts the page after a write to it.
 */
static void move_one(struct work *w, unsigned int nr)
{
	move_exclusive(w, nr, false);
	move_exclusive(w, nr, true);
}

/* Does another process share all of its pages? */
static bool is_shared(const struct proc *p, const struct victim *v)
{
	uint32_t exclusive;

	return look_at(p, v, &exclusive) && !exclusive;
}

/* Moves all units; neighbouring units are moved by one call. */
static void move_all(struct work *w)
{
	const struct victim *v = w->g->b.v;
	const struct proc *p = w->g->p;
	unsigned int i = 0, n;
	uint32_t exclusive;

	while (i < w->g->b.nr) {
		struct range r = { v[i].start, v[i].end };

		if (!is_going(&v[i]) || is_shared(p, &v[i])) {
			i++;
			continue;
		}
		for (n = i + 1; n < w->g->b.nr && is_going(&v[n]) && v[n].start == r.end; n++)
			r.end = v[n].end;
		if (!move_pages(&w->scratch, &r, i * UNIT + (r.start - v[i].base))) {
			i = n;
			continue;
		}
		while (i < n && !look_at(p, &v[i], &exclusive))
			i++;
		if (i < n)
			move_one(w, i++);
	}
}

/*
 * Copies a page back. -ENOMEM: the cgroup is full. -EAGAIN: another process with the same memory
 * runs, and its event was not read yet.
 */
static int put_page(struct work *w, uint64_t at, const uint8_t *page)
{
	uint64_t done;

	if (mem_refused(REFUSED_BACK))
		return -ENOMEM;
	return mem_uffd_copy(w->g->p->uffd, at, page, PAGE, false, &done);
}

/*
 * Should the attempt to put a page back be repeated? After -EAGAIN yes, unless nobody is left to
 * read events: our reader, or a successor's, reads the event, and the program is stopped until
 * then. After -ENOMEM only a limited number of times, since the cgroup may stay full.
 */
static bool try_later(struct work *w, int ret)
{
	if (ret != -EAGAIN && (ret != -ENOMEM || !w->tries))
		return false;
	if (ret == -EAGAIN && stop_unread(w->g->p))
		return false;
	w->tries -= ret == -ENOMEM;
	nap_ms(BACK_NAP_MS);
	return true;
}

/* The page's bytes are lost: make an access raise SIGBUS, so that it never reads older bytes. */
static void lose_page(struct work *w, uint64_t at)
{
	struct proc *p = w->g->p;
	int ret;

	do {
		ret = mem_uffd_poison(p->uffd, at, at + PAGE);
	} while (ret == -EAGAIN && try_later(w, ret));

	w->g->poisoned++;
	if (ret && ret != -EEXIST && ret != -ENOENT && ret != -ESRCH)
		syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
}

/*
 * Puts back pages that differ from the copy, or that have arrived since. All threads are stopped
 * meanwhile.
 */
static void put_back(struct work *w, struct victim *v, uint32_t pages)
{
	v->left |= pages;
	for (unsigned int i = 0; i < UNIT_PAGES; i++) {
		uint64_t at = v->base + i * PAGE;
		int ret;

		if (!(pages >> i & 1))
			continue;
		do {
			ret = put_page(w, at, w->g->buf + i * PAGE);
		} while (try_later(w, ret));
		/* else it is there already, or its memory is gone */
		if (ret && ret != -EEXIST && ret != -ENOENT && ret != -ESRCH)
			lose_page(w, at);
	}
}

static void compare_moved(struct work *w)
{
	struct going *g = w->g;
	uint32_t exclusive, unread, ok;

	for (unsigned int i = 0; i < g->b.nr; i++) {
		struct victim *v = &g->b.v[i];
		uint64_t at = w->scratch.at + i * UNIT;
		uint32_t moved = is_going(v) ? look(g->p, at, &exclusive) : 0;

		if (!moved)
			continue;
		ok = same(g, v, at, moved, &unread);
		/*
		 * a page that could not be read counts as equal: it was exclusive and protected
		 * since the copy
		 */
		moved &= ~ok & ~unread;
		if (!moved)
			continue;
		/*
		 * free the moved page first, since the cgroup may have room for only one; its bytes
		 * are in g->buf
		 */
		move_call(w->guest, SYS_madvise, (uint64_t[6]){ at, UNIT, MADV_DONTNEED });
		put_back(w, v, moved);
	}
}

/*
 * Decides what is dropped of a unit whose pages are still at their addresses: all of them, or none.
 */
static void choose_range(struct work *w, struct victim *v)
{
	uint32_t exclusive, unread, there = look_at(w->g->p, v, &exclusive), pages = there;
	struct range r = { 0 }, *last = w->nr ? &w->range[w->nr - 1] : NULL;

	if (!there)
		return;
	if ((w->moves && there & exclusive) || same(w->g, v, v->base, there, &unread) != there) {
		v->left |= there;
		return;
	}
	for (struct range part; next_run(&pages, v->base, &part); r.end = part.end)
		r.start = r.start ? r.start : part.start;
	/* drop whole units if possible, since the kernel sends one event for each range */
	if (there == v->mask && !w->moves)
		r = (struct range){ v->start, v->end };
	v->u->pages |= pages_of(v->base, r.start, r.end) << 16;
	if (last && last->end == r.start)
		last->end = r.end;
	else
		w->range[w->nr++] = r;
}

static void drop_rest(struct work *w)
{
	for (unsigned int i = 0; i < w->g->b.nr; i++)
		if (is_going(&w->g->b.v[i]))
			choose_range(w, &w->g->b.v[i]);
	for (unsigned int i = 0; i < w->nr; i++)
		move_call(w->guest, SYS_madvise,
			  (uint64_t[6]){ w->range[i].start, w->range[i].end - w->range[i].start,
					 MADV_DONTNEED });
}

/*
 * Called before the threads are released. With the lock held, the events of our own removals are in
 * the table, since the reader holds it from reading an event to updating the table. Later removals
 * are the program's. If the pager is dead, it may have read an event that is not in the table yet:
 * then the bits in u->pages stay, and its successor subtracts them when it repeats the event.
 * Returns false if the pager is dead.
 */
static bool end_of_stop(struct going *g)
{
	bool locked = lock_in_stop(g->p);

	if (!locked || stop_orphaned(g->p)) {
		if (locked)
			pthread_rwlock_unlock(&g->p->ev);
		return false;
	}
	for (unsigned int i = 0; i < g->b.nr; i++) {
		struct victim *v = &g->b.v[i];
		uint32_t exclusive;

		if (!is_going(v))
			continue;
		/* Some pages stayed, for example because of an mlock() meanwhile. */
		v->left |= look_at(g->p, v, &exclusive);
		v->u->pages &= v->mask & ~v->left;
	}
	pthread_rwlock_unlock(&g->p->ev);
	return true;
}

/* Protects pages that were removed, which puts markers there. True: all of @pages have a marker. */
static bool mark(struct work *w, uint64_t base, uint32_t pages)
{
	const struct proc *p = w->g->p;
	uint32_t left = pages;
	struct range r;
	int ret = 0;

	while (!ret && next_run(&left, base, &r)) {
		do {
			ret = mem_uffd_protect(p->uffd, r.start, r.end, true);
		} while (ret == -EAGAIN && try_later(w, ret));
	}
	return !ret && present_is_marked(p, base, pages);
}

/*
 * Puts markers where units were removed. Guard pages that are installed and removed while a unit is
 * on its zone send no event, but remove the markers. This is noticed when the unit comes back.
 */
static void mark_all(struct work *w)
{
	for (unsigned int i = 0; i < w->g->b.nr && !mem_without(RULE_MARKED); i++) {
		struct victim *v = &w->g->b.v[i];

		if (is_going(v) && mark(w, v->base, v->u->pages & 0xffff))
			unit_set_marked(w->g->p, v->u, true);
	}
}

int going_go(void *arg, struct zns_guest *guest, const struct range *own, bool *begun)
{
	struct work w = { .g = arg,
			  .guest = guest,
			  .moves = w.g->p->m->moves,
			  .tries = mem_refused(REFUSED_BACK) ? 3 : BACK_TRIES };
	int ret = w.moves ? move_begin(&w.scratch, w.g->p, guest) : 0;

	if (ret)
		return ret;
	*begun = true;
	mem_reached(REACHED_SCRATCH);
	commit_all(w.g, own);
	if (w.moves)
		move_all(&w);
	mem_reached(REACHED_TAKEN);
	if (w.moves)
		compare_moved(&w);
	mem_reached(REACHED_COMPARED);
	drop_rest(&w);
	if (w.moves)
		move_end(&w.scratch);
	if (end_of_stop(w.g))
		mark_all(&w);
	return 0;
}
