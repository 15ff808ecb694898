/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Answers faults. The message of a fault is only a hint: the answer depends on the unit's state at
 * the moment when a worker examines it. A thread that is woken too early faults again.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "mem.h"

/* ms; a thread works in address order if the unit below came back within this time */
#define IN_ORDER_MS 50
#define TRIES_NOMEM 1000 /* number of tries, each after 10 ms, while the process's cgroup is full */

static void nap(long us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

int fault_repeat(struct proc *p, int (*once)(struct proc *p, void *arg), void *arg)
{
	int ret;

	if (mem_without(RULE_READER_FREE)) {
		pthread_rwlock_rdlock(&p->ev);
		while ((ret = once(p, arg)) == -EAGAIN && !p->gone)
			nap(20);
		pthread_rwlock_unlock(&p->ev);
		return ret;
	}
	for (;;) {
		pthread_rwlock_rdlock(&p->ev);
		/* a process that is about to be killed gets no answers */
		ret = p->gone || p->sh->doomed ? -ESRCH : once(p, arg);
		pthread_rwlock_unlock(&p->ev);
		if (ret != -EAGAIN)
			return ret;
		nap(20); /* wait until the reader has read the event that causes -EAGAIN */
	}
}

struct span {
	struct unit *u;
	uint64_t start, end;
};

/*
 * Ends the protection of the unit's pages, one by one if it fails for all: the unit may span
 * several areas, and parts of it may not be registered.
 */
static int lift(struct proc *p, void *arg)
{
	struct span *s = arg;
	int ret = 0;

	if (STATE(s->u->word) != U_BUSY)
		return 0;
	ret = mem_uffd_protect(p->uffd, s->start, s->end, false);
	for (uint64_t a = s->start; ret == -ENOENT && a < s->end; a += PAGE)
		if (mem_uffd_protect(p->uffd, a, a + PAGE, false) == -EAGAIN)
			ret = -EAGAIN;
	return ret == -EAGAIN ? ret : 0;
}

void unit_release(struct proc *p, struct unit *u, uint64_t base)
{
	struct span s = { u, base, base + UNIT };

	fault_repeat(p, lift, &s);
	unit_move(u, U_BUSY, U_RES);
	unit_stamp(u);
	mem_uffd_wake(p->uffd, base, base + UNIT);
}

static int fill_hole(struct proc *p, void *arg)
{
	struct span *s = arg;
	uint64_t done = 0;
	int ret;

	if (STATE(s->u->word) != U_BUSY || stray_at(p, s->start))
		return 0;
	/*
	 * also fill the holes behind the page, so that new heap memory does not fault for each page
	 */
	ret = mem_uffd_zero(p->uffd, s->start,
			    stray_near(p, s->start, s->end) ? s->start + PAGE : s->end, &done);
	if (ret == -ENOENT)
		ret = mem_uffd_zero(p->uffd, s->start, s->start + PAGE, &done);
	/* these new pages are not those that the program was removing */
	s->u->pages &= ~(pages_of(s->start / UNIT * UNIT, s->start, s->start + done) << 16);
	return ret == -EAGAIN ? ret : 0;
}

/* Claims a unit that is in memory. True: the unit is BUSY, and belongs to this worker. */
static bool take(struct proc *p, struct unit *u)
{
	struct shared *sh = p->m->sh;

	if (unit_move(u, U_RES, U_BUSY))
		return true;
	if (unit_unkeep(p, u, U_BUSY)) {
		sh->clean_writes++;
		mem_reached(U_BUSY);
		return true;
	}
	if (!unit_move(u, U_WPING, U_BUSY) && !unit_move(u, U_COPY, U_BUSY) &&
	    !unit_move(u, U_WRITE, U_BUSY))
		return false;
	sh->cancelled++;
	return true;
}

struct lost {
	struct unit *u;
	uint64_t base, word;
	unsigned int nr; /* index of the page in the unit */
};

/*
 * Makes an access to a page that cannot be read raise SIGBUS. A page that a guard page has removed
 * is not lost, since it reads as zeroes.
 */
static int poison(struct proc *p, void *arg)
{
	const struct lost *l = arg;
	uint64_t at = l->base + l->nr * PAGE;
	struct unit_pages is;
	uint32_t bit = 1U << l->nr;
	int ret;

	if (l->u->word != l->word || !(l->u->pages & bit))
		return 0;
	if (present_look(p, p->pagemap, l->u, l->base, &is))
		return -EAGAIN;
	l->u->pages &= ~bit; /* do this before the marker is removed: see unit_set_marked() */
	if ((is.other | is.removed) & bit)
		return 0;
	/* remove the marker first: a page with a marker cannot be poisoned */
	ret = mem_uffd_protect(p->uffd, at, at + PAGE, false);
	if (ret)
		goto out;
	ret = mem_uffd_poison(p->uffd, at, at + PAGE);
	if (ret == -EAGAIN)
		unit_set_marked(p, l->u, false);
out:
	if (ret == -EAGAIN) /* an event is unread: the memory may be moving */
		l->u->pages |= bit;
	return ret;
}

/* Gives up the pages @mask of the unit, which cannot be read. Its other memory stays readable. */
static void give_up(struct proc *p, struct unit *u, uint64_t base, uint64_t word, uint32_t mask,
		    struct zns_err *err)
{
	int ret = 0;

	p->m->sh->lost_units++;
	mem_warn(p->m, "process %d: %d pages of its memory cannot be read: %s", p->pid,
		 __builtin_popcount(mask), err->msg);
	for (unsigned int i = 0; i < UNIT_PAGES && !ret; i++) {
		struct lost l = { u, base, word, i };

		if (!(mask & 1U << i))
			continue;
		ret = fault_repeat(p, poison, &l);
		if (ret == -EEXIST || ret == -ENOENT || ret == -ESRCH)
			ret = 0; /* it was written or unmapped meanwhile */
	}
	if (!ret)
		return;
	if (p->pid)
		syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	/*
	 * a child whose PID is unknown cannot be killed: it waits for ever, but never reads zeroes
	 */
}

struct filling {
	struct unit *u;
	uint64_t base, word;
	const uint8_t *buf;
	uint32_t done; /* pages that were copied */
	/* Keep the place, since all pages were copied and were protected at the same moment. */
	bool keep;
};

/*
 * Like present_look(), but also works for a child whose PID, and so whose page table, is unknown.
 * For that child it tries to fill the pages with zeroes: the kernel refuses this for a page with a
 * marker, so a page that gets zeroes was removed by a guard page.
 */
static int look(struct proc *p, const struct filling *f, uint32_t pages, struct unit_pages *is)
{
	/* Read this once: family.c may recognise the child meanwhile. */
	int pagemap = p->pagemap;
	int ret = present_look(p, pagemap, f->u, f->base, is);
	uint64_t done;

	if (ret || pagemap >= 0 || !unit_is_marked(p, f->u))
		return ret;
	pages &= f->u->pages & ~f->done;
	for (unsigned int i = 0; i < UNIT_PAGES && ret != -EAGAIN; i++) {
		uint64_t at = f->base + i * PAGE;

		if (!(pages >> i & 1))
			continue;
		ret = mem_uffd_zero(p->uffd, at, at + PAGE, &done);
		is->removed |= ret ? 0 : 1U << i;
	}
	return ret == -EAGAIN ? ret : 0;
}

/* Copies the pages that are still missing into the process. The unit is RES or CLEAN then. */
static int fill(struct proc *p, void *arg)
{
	struct filling *f = arg;
	bool protect = f->keep && !mem_without(RULE_CLEAN), met = false;
	uint64_t to = WORD(U_RES, 0);
	unsigned int i = 0;
	struct unit_pages is;
	struct range r;
	uint32_t left;

	if (f->u->word != f->word)
		return -ESTALE;
	if (look(p, f, UINT16_MAX, &is))
		return -EAGAIN;
	/*
	 * leave out pages that the program has replaced or removed: a copy would overwrite a guard
	 * page
	 */
	is.other |= is.removed & ~f->done;
	f->keep &= !is.other;
	met |= is.other != 0;
	while (i < UNIT_PAGES) {
		uint32_t want = (f->u->pages & 0xffff & ~f->done & ~is.other) >> i;
		unsigned int n = 0;
		uint64_t done, at = f->base + i * PAGE;
		int ret;

		while (want >> n & 1)
			n++;
		if (!n) {
			i++;
			continue;
		}
		ret = mem_uffd_copy(p->uffd, at, f->buf + i * PAGE, n * PAGE, protect, &done);
		if (ret == -ENOENT && n > 1) /* the range crosses the border of two areas */
			ret = mem_uffd_copy(p->uffd, at, f->buf + i * PAGE, PAGE, protect, &done);
		met |= ret == -EEXIST;
		if (ret && ret != -EEXIST && ret != -ENOENT)
			return ret;
		if (ret) /* not an error: a page that is present is newer than the copy */
			f->keep = false;
		n = ret ? 1 : (unsigned int)(done / PAGE);
		f->done |= ((1U << n) - 1) << i;
		i += n;
	}
	if (f->keep && f->u->pages & 0xffff) {
		to = WORD(U_CLEAN, PLACE(f->word));
	} else {
		f->keep = false;
		/*
		 * for a stray, remove only markers of its own pages: other units may share these 64
		 * KiB
		 */
		left = f->u->addr ? f->u->pages & 0xffff : UINT16_MAX;
		while ((met || protect) && next_run(&left, f->base, &r))
			if (mem_uffd_protect(p->uffd, r.start, r.end, false) == -EAGAIN)
				return -EAGAIN;
		f->u->pages &= ~0xffffU;
	}
	return atomic_compare_exchange_strong(&f->u->word, &f->word, to) ? 0 : -ESTALE;
}

static void latency(struct zns_mem *m, struct fault *f)
{
	uint64_t ns = zns_mono_ns() - f->since_ns;

	if (!f->since_ns)
		return;
	m->stall_ns += ns;
	m->latency_ns[m->latencies++ % LATENCIES] = (uint32_t)zns_min(ns, (uint64_t)UINT32_MAX);
	f->since_ns = 0;
}

/* Arguments to fill the page at @addr alone, before fill() fills the others. */
struct first {
	struct filling *f;
	uint64_t addr;
	uint32_t bit;
};

static int fill_first(struct proc *p, void *arg)
{
	struct first *g = arg;
	struct filling *f = g->f;
	struct unit_pages is;
	uint64_t done;
	int ret;

	if (f->u->word != f->word || !(f->u->pages & g->bit))
		return -ESTALE;
	ret = look(p, f, g->bit, &is);
	if (ret || (is.other | is.removed) & g->bit)
		return ret ? ret : -EEXIST;
	ret = mem_uffd_copy(p->uffd, g->addr, f->buf, PAGE, f->keep && !mem_without(RULE_CLEAN),
			    &done);
	if (!ret)
		f->done |= g->bit;
	return ret;
}

/*
 * Does the thread walk through memory in address order? Then one read of the whole unit is faster
 * than reading the page first and then the unit.
 */
static bool in_order(struct proc *p, const struct unit *u, uint64_t base, uint64_t addr)
{
	return addr == base && !u->addr && u > p->u && unit_came_lately(u - 1, IN_ORDER_MS);
}

/*
 * Reads the page that a thread waits for before the rest of its unit: reading 4 KiB takes half the
 * time of 64 KiB. The rest is read right after that, since pages beside it will be needed soon.
 */
static void load_first(struct proc *p, struct filling *f, uint8_t *buf, struct fault *fault)
{
	struct zns_mem_store *st = &p->m->store;
	uint32_t nr = (uint32_t)((fault->addr - f->base) / PAGE);
	struct first g = { .f = f, .addr = fault->addr, .bit = 1U << nr };
	struct zns_pages_ref ref = unit_ref(p, f->u, f->word);

	if (!st->piece || !(f->u->pages & 0xffff & g.bit) ||
	    in_order(p, f->u, f->base, fault->addr))
		return;
	/* ignore this error: the read of the whole unit reports it */
	if (st->piece(st->arg, &ref, nr, buf, NULL) || fault_repeat(p, fill_first, &g))
		return;
	mem_uffd_wake(p->uffd, fault->addr, fault->addr + PAGE);
	latency(p->m, fault);
	sched_yield(); /* let the woken thread run, which may have been waiting on this CPU */
}

/*
 * Reads a unit page by page after it could not be read as a whole. *@bad: the pages that cannot be
 * read. -ENOMEM: unknown, try again later.
 */
static int read_pieces(struct proc *p, const struct zns_pages_ref *ref, uint32_t pages,
		       uint8_t *buf, uint32_t *bad)
{
	const struct zns_mem_store *st = &p->m->store;

	*bad = 0;
	for (unsigned int i = 0; i < UNIT_PAGES; i++) {
		int ret = pages >> i & 1 ? -EOPNOTSUPP : 0;

		if (ret && st->piece)
			ret = st->piece(st->arg, ref, i, buf + i * PAGE, NULL);
		if (ret == -ENOMEM)
			return ret;
		*bad |= ret ? 1U << i : 0;
	}
	return 0;
}

/*
 * Reads a unit into @buf. *@bad: the pages that are lost, with the reason in *@err. -ENOMEM: try
 * again later.
 */
static int read_unit(struct proc *p, struct zns_pages_ref ref, uint32_t pages, uint8_t *buf,
		     uint32_t *bad, struct zns_err *err)
{
	struct zns_mem_store *st = &p->m->store;
	int ret = st->get(st->arg, ref, buf, err);

	*bad = 0;
	if (!ret || ret == -ENOMEM || p->m->keep_unreadable)
		return ret;
	if (mem_without(RULE_HASH)) {
		memset(buf, 0, UNIT);
		return 0;
	}
	return read_pieces(p, &ref, pages, buf, bad);
}

static int load(struct proc *p, struct unit *u, uint64_t base, uint8_t *buf, bool keep,
		struct fault *fault)
{
	struct zns_mem_store *st = &p->m->store;
	struct zns_err err = ZNS_ERR_INIT;
	struct filling f = {
		.u = u, .base = base, .word = u->word, .buf = buf, .keep = keep && !u->addr
	};
	struct zns_pages_ref ref = unit_ref(p, u, f.word);
	uint32_t bad = 0;
	int ret = 0;

	if (STATE(f.word) != U_LOADING)
		return 0;
	if (spare_take(p, u, ref, buf)) {
		p->m->sh->spare_units++;
	} else {
		if (fault)
			load_first(p, &f, buf, fault);
		ret = read_unit(p, ref, u->pages & 0xffff, buf, &bad, &err);
	}
	if (u->word != f.word)
		return 0; /* it was unmapped or moved meanwhile, so its place may be free already */
	if (ret) { /* restore the state and wake no thread: the fault is handled again */
		atomic_compare_exchange_strong(&u->word, &f.word, WORD(U_ZONE, ref.place));
		if (ret == -ENOMEM && !p->m->keep_unreadable) {
			mem_warn(p->m, "process %d waits for memory: %s", p->pid, err.msg);
			nap(10000);
		}
		return ret;
	}
	if (bad) {
		give_up(p, u, base, f.word, bad, &err);
		u->pages &= ~bad;
		f.keep = false;
	}
	if (!p->m->keep_unreadable)
		ceiling_wait(p);
	for (int i = 0; i < TRIES_NOMEM; i++) {
		ret = fault_repeat(p, fill, &f);
		if (ret != -ENOMEM)
			break;
		mem_warn(p->m, "process %d waits for memory: its cgroup's limit is below its need",
			 p->pid);
		nap(10000);
	}
	if (!ret) {
		if (f.keep)
			mem_reached(U_CLEAN);
		else
			st->drop(st->arg, ref);
		return 0;
	}
	if (ret == -ESTALE)
		return 0;
	/* restore the state and wake no thread: the fault is handled again */
	atomic_compare_exchange_strong(&u->word, &f.word, WORD(U_ZONE, ref.place));
	return ret;
}

int unit_load(struct proc *p, struct unit *u, uint64_t base, uint8_t *buf, bool keep,
	      struct fault *f)
{
	uint64_t word = u->word;
	int ret;

	do { /* cleaning may change its place meanwhile */
		if (STATE(word) != U_ZONE)
			return 0;
	} while (!atomic_compare_exchange_strong(&u->word, &word, WORD(U_LOADING, PLACE(word))));
	/* the slot of a stray may have been reused since the caller found it */
	if (u->addr && u->addr != base) {
		base = u->addr;
		f = NULL;
	}
	mem_reached(U_LOADING);
	ret = load(p, u, base, buf, keep && !p->m->keep_unreadable && !mem_without(RULE_KEEP), f);
	unit_stamp(u);
	mem_uffd_wake(p->uffd, base, base + UNIT);
	if (f && !ret)
		latency(p->m, f);
	return ret;
}

/* Answers a fault on a unit that is in memory: the page is a hole, or is protected. */
static void answer_resident(struct fault *f, struct unit *u, uint64_t base)
{
	struct proc *p = f->p;
	struct span s = { u, f->addr, base + UNIT };

	/*
	 * If the page came back after the fault was raised, waking the thread suffices. But if a
	 * guard page has replaced it without an event, the page is a hole.
	 */
	if (STATE(u->word) == U_CLEAN && f->kind != FAULT_WRITE &&
	    u->pages & pages_of(base, f->addr, f->addr + PAGE) && !present_is_hole(p, f->addr)) {
		mem_uffd_wake(p->uffd, f->addr, f->addr + PAGE);
		return;
	}
	if (!take(p, u)) {
		/*
		 * Another worker handles the unit: queue the fault again. For DROP and LOADING this
		 * is not needed, since their end wakes the thread.
		 */
		if (STATE(u->word) <= U_BUSY || STATE(u->word) == U_CLEAN)
			fault_push(&p->m->queue, p, f->addr, f->kind);
		sched_yield();
		return;
	}
	if (f->kind != FAULT_WRITE) {
		p->m->sh->zero_faults++;
		ceiling_wait(p); /* the thread is about to write, which allocates memory */
		fault_repeat(p, fill_hole, &s);
	} else {
		p->m->sh->write_faults++;
	}
	unit_release(p, u, base);
}

static bool answer_zone(struct fault *f, struct unit *u, uint64_t base, uint8_t *buf)
{
	/*
	 * do not keep the place if the thread is about to write: CLEAN would cost it a second fault
	 */
	if (unit_load(f->p, u, base, buf, f->kind != FAULT_FIRST_WRITE,
		      f->kind == FAULT_LOAD ? NULL : f))
		return false;
	f->p->m->sh->read_units++;
	return f->kind != FAULT_LOAD;
}

bool fault_answer(struct fault *f, uint8_t *buf)
{
	struct proc *p = f->p;
	uint64_t base = f->addr / UNIT * UNIT;
	struct unit *s = stray_at(p, f->addr), *u;

	if (f->kind == FAULT_STRAY) {
		if (s)
			unit_load(p, s, s->addr, buf, false, NULL);
		return false;
	}
	if (s) {
		p->m->sh->read_units++;
		unit_load(p, s, s->addr, buf, false, f);
		mem_uffd_wake(p->uffd, f->addr, f->addr + PAGE);
		return false;
	}
	u = unit_at(p, f->addr);
	if (STATE(u->word) == U_ZONE)
		return answer_zone(f, u, base, buf);
	if (f->kind != FAULT_LOAD && !ON_ZONE(u->word))
		answer_resident(f, u, base);
	return false;
}
