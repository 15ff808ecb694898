/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Answers faults. A fault's message is only a hint: the answer depends on the unit's state at the
 * moment when a thread of ours looks at it. A thread that is woken too early faults again.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "mem.h"

#define IN_ORDER_MS 50 /* so long ago the unit before came back, if a thread goes on in order */
#define TRIES_NOMEM 1000 /* of 10 ms: the process's cgroup is full */

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
		/* a process that is to end waits until it does */
		ret = p->gone || p->sh->doomed ? -ESRCH : once(p, arg);
		pthread_rwlock_unlock(&p->ev);
		if (ret != -EAGAIN)
			return ret;
		nap(20); /* the reader is about to read why */
	}
}

struct span {
	struct unit *u;
	uint64_t start, end;
};

/* Parts of a unit may lie in several areas, or in none that is registered. */
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
	/* the holes behind it, too, so that a new heap does not fault for each page */
	ret = mem_uffd_zero(p->uffd, s->start,
			    stray_near(p, s->start, s->end) ? s->start + PAGE : s->end, &done);
	if (ret == -ENOENT)
		ret = mem_uffd_zero(p->uffd, s->start, s->start + PAGE, &done);
	/* what is new there is nothing that goes */
	s->u->pages &= ~(pages_of(s->start / UNIT * UNIT, s->start, s->start + done) << 16);
	return ret == -EAGAIN ? ret : 0;
}

/* True: it is ours in BUSY. */
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
	unsigned int nr; /* of the page */
};

/* What guard pages removed is not lost: it is zeroes. */
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
	l->u->pages &= ~bit; /* before its marker goes: see unit_set_marked() */
	if ((is.other | is.removed) & bit)
		return 0;
	/* where a marker is nothing can be put */
	ret = mem_uffd_protect(p->uffd, at, at + PAGE, false);
	if (ret)
		goto out;
	ret = mem_uffd_poison(p->uffd, at, at + PAGE);
	if (ret == -EAGAIN)
		unit_set_marked(p, l->u, false);
out:
	if (ret == -EAGAIN) /* it may move */
		l->u->pages |= bit;
	return ret;
}

/* The rest of the memory may be read, but not these pages of the unit. */
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
			ret = 0; /* it has been written since, or is gone */
	}
	if (!ret)
		return;
	if (p->pid)
		syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
	/* a child that has not been recognised waits for ever, which is not zeroes either */
}

struct filling {
	struct unit *u;
	uint64_t base, word;
	const uint8_t *buf;
	uint32_t done; /* pages */
	bool keep; /* the place, too: all pages were copied, and protected at the same instant */
};

/*
 * A child that is not recognised yet has no page table that we can read. Where a marker is, the
 * kernel puts no zeroes, so each of @pages that gets them was removed by guard pages.
 */
static int look(struct proc *p, const struct filling *f, uint32_t pages, struct unit_pages *is)
{
	int pagemap = p->pagemap; /* it may be recognised meanwhile */
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

/* Copies what is still wanted; then the unit is RES, or CLEAN. */
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
	/* they are the truth, and a copy would take the place of a guard page */
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
		if (ret == -ENOENT && n > 1) /* a border of areas is in it */
			ret = mem_uffd_copy(p->uffd, at, f->buf + i * PAGE, PAGE, protect, &done);
		met |= ret == -EEXIST;
		if (ret && ret != -EEXIST && ret != -ENOENT)
			return ret;
		if (ret) /* a page that is there already is the truth */
			f->keep = false;
		n = ret ? 1 : (unsigned int)(done / PAGE);
		f->done |= ((1U << n) - 1) << i;
		i += n;
	}
	if (f->keep && f->u->pages & 0xffff) {
		to = WORD(U_CLEAN, PLACE(f->word));
	} else {
		f->keep = false;
		/* other units may be beside a stray in its 64 KiB, and keep their markers */
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

/* The one page @addr; fill() leaves it out then. */
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

/* Whoever comes from the unit before wants all of this one: one read is faster than two. */
static bool in_order(struct proc *p, const struct unit *u, uint64_t base, uint64_t addr)
{
	return addr == base && !u->addr && u > p->u && unit_came_lately(u - 1, IN_ORDER_MS);
}

/*
 * The page that a thread waits for comes before the rest of its unit: to read 4 KiB takes half the
 * time of 64 KiB. The rest follows at once, since what is beside it is wanted soon.
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
	/* an error is told when all of it is read */
	if (st->piece(st->arg, &ref, nr, buf, NULL) || fault_repeat(p, fill_first, &g))
		return;
	mem_uffd_wake(p->uffd, fault->addr, fault->addr + PAGE);
	latency(p->m, fault);
	sched_yield(); /* it may have been woken on this processor */
}

/*
 * The unit cannot be read as a whole: page by page then. *@bad: those that cannot be read. -ENOMEM:
 * nobody knows.
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

/* Into @buf; *@bad: pages of it that are lost, with *@err. -ENOMEM: not now. */
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
		return 0; /* unmapped or moved meanwhile; its place may be gone, too */
	if (ret) { /* its threads go on waiting, and fault again */
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
	/* its threads go on waiting, and fault again */
	atomic_compare_exchange_strong(&u->word, &f.word, WORD(U_ZONE, ref.place));
	return ret;
}

int unit_load(struct proc *p, struct unit *u, uint64_t base, uint8_t *buf, bool keep,
	      struct fault *f)
{
	uint64_t word = u->word;
	int ret;

	do { /* its place may change meanwhile */
		if (STATE(word) != U_ZONE)
			return 0;
	} while (!atomic_compare_exchange_strong(&u->word, &word, WORD(U_LOADING, PLACE(word))));
	/* a stray's slot may have got another one since the caller looked */
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

/* A page of a unit in memory: a hole, or protected. */
static void answer_resident(struct fault *f, struct unit *u, uint64_t base)
{
	struct proc *p = f->p;
	struct span s = { u, f->addr, base + UNIT };

	/* asked while it was on its way: the page is there, if no guard page has taken its place
	 * since, of which nobody tells */
	if (STATE(u->word) == U_CLEAN && f->kind != FAULT_WRITE &&
	    u->pages & pages_of(base, f->addr, f->addr + PAGE) && !present_is_hole(p, f->addr)) {
		mem_uffd_wake(p->uffd, f->addr, f->addr + PAGE);
		return;
	}
	if (!take(p, u)) {
		/* another worker's: come again when it is done. Dropping and reading end in a wake
		 */
		if (STATE(u->word) <= U_BUSY || STATE(u->word) == U_CLEAN)
			fault_push(&p->m->queue, p, f->addr, f->kind);
		sched_yield();
		return;
	}
	if (f->kind != FAULT_WRITE) {
		p->m->sh->zero_faults++;
		ceiling_wait(p); /* it is about to be written */
		fault_repeat(p, fill_hole, &s);
	} else {
		p->m->sh->write_faults++;
	}
	unit_release(p, u, base);
}

static bool answer_zone(struct fault *f, struct unit *u, uint64_t base, uint8_t *buf)
{
	/* who is about to write would have to ask again */
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
