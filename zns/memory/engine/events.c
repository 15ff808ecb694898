/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads the processes' events. One thread does this. It makes no call that could wait for a
 * process, since processes wait for it. Each event is applied to the table before the thread
 * releases its lock.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../policy/birth.h"
#include "../policy/hiber.h"

#define CROWD_US 500
/* Slots of the inbox that are kept free for messages that receive_missing() waits for. */
#define MISSING 4U

static void drop_place(struct proc *p, uint64_t word)
{
	struct zns_mem_store *st = &p->m->store;

	if (!p->uncounted)
		st->drop(st->arg, (struct zns_pages_ref){ .place = PLACE(word) });
}

/*
 * Marks pages that the program is removing. The kernel queues the event before it removes the
 * pages, and does not wait for us, so its thread may be preempted in between. Until the pages are
 * gone they must not be copied.
 */
static void note_going(struct unit *u, uint32_t mask, bool removal)
{
	if (STATE(u->word) == U_DROP)
		return; /* these are removals by the pager itself */
	if (removal && !mem_without(RULE_GOING))
		u->pages |= mask << 16;
	else if (u->pages >> 16 & mask)
		u->pages &= ~(mask << 16);
}

/*
 * The program has removed or replaced these pages: their bytes at the unit's place on a zone are
 * not valid any more.
 */
static void forget_pages(struct proc *p, struct unit *u, uint32_t mask, bool removal)
{
	uint64_t word = u->word;

	note_going(u, mask, removal);
	if (!ON_ZONE(word)) {
		/* ends an eviction; a worker that holds the unit in BUSY notices this by itself */
		if (STATE(word) == U_CLEAN)
			unit_unkeep(p, u, U_RES);
		else if (STATE(word) >= U_WPING)
			u->word = WORD(U_RES, 0);
		if (word || removal)
			unit_stamp(u);
		return;
	}
	if (STATE(word) == U_DROP && removal && !mem_without(RULE_OWN_REMOVAL)) {
		uint32_t own = u->pages >> 16 & mask;

		u->pages &= ~(own << 16);
		mask &= ~own;
	}
	u->pages &= ~mask;
	/* in DROP and LOADING, the thread that has set this state drops the place */
	if (STATE(word) == U_ZONE && !(u->pages & 0xffff)) {
		u->word = WORD(U_RES, 0);
		drop_place(p, word);
	}
	if (mask)
		unit_stamp(u);
}

void unit_forget(struct proc *p, struct unit *u, uint32_t mask)
{
	forget_pages(p, u, mask, false);
}

/*
 * Applies a removal to one unit. It first records its progress, so that a successor can repeat a
 * unit that was half done when the pager was killed. The successor begins with the recorded value
 * of `pages`: otherwise a removal by the pager, which was subtracted already, would be counted as
 * one by the program.
 */
static void forget_unit(struct proc *p, uint64_t a, uint32_t mask, bool removal)
{
	struct inbox *in = &p->m->sh->inbox;
	struct unit *u = unit_at(p, a);

	in->at = a | in->tag;
	if (ON_ZONE(u->word)) {
		in->had = u->pages;
		in->had_at = a | in->tag;
	}
	forget_pages(p, u, mask, removal);
	mem_reached(REACHED_FORGOT);
	in->at = (a + UNIT) | in->tag;
}

/* A pager that died has already handled units below @from; @from 0: none. */
static void forget_range(struct proc *p, uint64_t start, uint64_t end, bool removal, uint64_t from)
{
	uint32_t nr = p->nr_strays;
	uint64_t a = zns_max(start / UNIT * UNIT, from);
	/*
	 * visit each unit, even if its page of the table does not exist yet: note_going() needs
	 * them all
	 */
	bool each = removal && end - start <= GIB(1);

	/* otherwise skip missing pages of the table: an unmapped range may be terabytes of holes */
	for (a = each ? a : table_next(p, a, end); a < end;
	     a = each ? a + UNIT : table_step(p, a, end))
		forget_unit(p, a, pages_of(a, start, end), removal);
	for (uint32_t i = 0; i < nr; i++) {
		struct unit *s = stray_nr(p, i);
		uint32_t mask = pages_of(s->addr, start, end);

		if (ON_ZONE(s->word) && mask)
			forget_pages(p, s, mask, removal);
	}
}

static void unmapped(struct proc *p, uint64_t start, uint64_t end, void *arg)
{
	const uint64_t *from = arg;

	forget_range(p, start, end, false, *from);
	known_gone(p, start, end);
}

/*
 * Ends an eviction of a unit to which pages are moved. The evictor has seen holes there, and would
 * drop the pages that were moved there.
 */
static void end_eviction(struct unit *u)
{
	if (STATE(u->word) >= U_WPING && STATE(u->word) <= U_WRITE)
		u->word = WORD(U_RES, 0);
}

/*
 * Pages @mask of the unit at @base have moved by @delta. While this runs, both units refer to the
 * place on the zone.
 */
static void move_pages(struct proc *p, struct unit *u, uint64_t base, uint32_t mask, uint64_t delta,
		       bool served)
{
	struct zns_mem_store *st = &p->m->store;
	struct unit *to = unit_at(p, base + delta);
	struct zns_pages_ref ref = unit_ref(p, u, u->word);

	mask &= u->pages & 0xffff;
	if (!mask)
		return;
	if ((base + delta) % UNIT || to->word) {
		end_eviction(to);
		end_eviction(unit_at(p, base + delta + UNIT - 1));
		to = stray_new(p, base + delta);
		if (!to) {
			mem_warn(p->m, "process %d: more than %u units were moved at once", p->pid,
				 STRAYS_MAX);
			return;
		}
	}
	if (!p->uncounted)
		st->hold(st->arg, ref);
	unit_note(p, to, &ref);
	unit_set_marked(p, to, unit_is_marked(p, u) && !to->addr);
	to->pages = mask;
	to->word = WORD(U_ZONE, ref.place);
	if (to->addr && served)
		fault_push(&p->m->queue, p, to->addr + (uint64_t)__builtin_ctz(mask) * PAGE,
			   FAULT_STRAY);
}

static void move_units(struct proc *p, uint64_t from, uint64_t to, uint64_t len, bool served)
{
	uint64_t end = from + len, delta = to - from;
	uint32_t nr = p->nr_strays;

	for (uint64_t a = table_next(p, from / UNIT * UNIT, end); a < end;
	     a = table_step(p, a, end)) {
		struct unit *u = unit_at(p, a);

		if (ON_ZONE(u->word))
			move_pages(p, u, a, pages_of(a, from, end), delta, served);
	}
	for (uint32_t i = 0; i < nr; i++) {
		struct unit *s = stray_nr(p, i);

		if (ON_ZONE(s->word) && pages_of(s->addr, from, end))
			move_pages(p, s, s->addr, pages_of(s->addr, from, end), delta, served);
	}
	forget_range(p, from, end, false, 0);
	known_moved(p, from, to, len);
}

static void on_remap(struct proc *p, uint64_t from, uint64_t to, uint64_t len)
{
	move_units(p, from, to, len, true);
	order_moved(p, from, to, len);
}

/*
 * Copies a unit's state to the child. Missing pages have the same place, but no eviction is in
 * progress. A CLEAN unit is still protected in the child: ending the protection fails with EAGAIN
 * from the fork until its event is read.
 */
static int inherit(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct proc *child = arg;
	struct zns_mem_store *st = &p->m->store;
	struct unit *c = &child->u[u - p->u];
	uint64_t word = u->word;
	struct zns_pages_ref ref = unit_ref(p, u, word);

	if (!HAS_PLACE(word) || !(u->pages & 0xffff))
		return 0;
	/* fails if another thread is giving up the place */
	if (st->hold(st->arg, ref))
		return 0;
	if (STATE(word) == U_CLEAN && u->word != word) {
		st->drop(st->arg, ref);
		return 0;
	}
	unit_note(child, c, &ref);
	unit_set_marked(child, c, unit_is_marked(p, u) && !u->addr);
	c->pages = u->pages & 0xffff;
	c->addr = u->addr;
	c->word = WORD(STATE(word) == U_CLEAN ? U_CLEAN : U_ZONE, ref.place);
	return 0;
}

void child_serve(struct proc *c)
{
	mem_reached(REACHED_BORN);
	proc_why(c, "%s",
		 c->leaves ? "a child for which there is no place: it leaves" :
			     "a child that has not been looked at yet");
	reader_watch(c->m, c);
	for (uint32_t i = 0; i < c->nr_strays; i++) {
		struct unit *s = stray_nr(c, i);

		if (ON_ZONE(s->word))
			fault_push(&c->m->queue, c,
				   s->addr + (uint64_t)__builtin_ctz(s->pages | 1U << 16) * PAGE,
				   FAULT_STRAY);
	}
	changed(c->m);
}

static void on_fork(struct proc *p, int uffd, uint64_t nr)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct proc *c = proc_new(p->m, 0, &err);
	uint32_t late;
	int ret = c ? 0 : -ENOMEM;

	if (ret) {
		mem_warn(p->m, "a child of process %d cannot be served: %s", p->pid, err.msg);
		/* keep its userfaultfd open, so that the child waits and never reads zeroes */
		return;
	}
	c->uffd = uffd;
	c->fork_nr = nr;
	ret = table_each(p, inherit, c);
	c->nr_strays = p->nr_strays;
	known_inherit(c, p);
	late = ret ? 0 : order_fork(c, p);
	for (uint32_t n = 1; n <= late; n++) {
		const struct move *m = order_move(p, n);

		move_units(c, m->to, m->from, m->len, false);
	}
	if (ret) {
		mem_warn(p->m, "a child of process %d cannot be served: no memory", p->pid);
		return;
	}
	birth_table(c);
	mem_reached(REACHED_TABLE);
	ret = proc_add(p->m, c);
	if (ret) { /* slots of processes that have ended may not have been freed yet */
		procs_sweep(p->m, p);
		ret = proc_add(p->m, c);
	}
	if (ret)
		leave_begin(c);
	else
		child_serve(c);
}

static enum fault_kind kind_of(uint64_t flags)
{
	if (flags & UFFD_PAGEFAULT_FLAG_WP)
		return FAULT_WRITE;
	return flags & UFFD_PAGEFAULT_FLAG_WRITE ? FAULT_FIRST_WRITE : FAULT_MISSING;
}

static uint64_t fault_addr(const struct uffd_msg *msg)
{
	return msg->arg.pagefault.address / PAGE * PAGE;
}

static void on_fault(struct proc *p, struct uffd_msg *msg)
{
	fault_push(&p->m->queue, p, fault_addr(msg), kind_of(msg->arg.pagefault.flags));
	msg->event = 0;
}

static void on_message(struct proc *p, struct uffd_msg *msg, uint64_t fork)
{
	uint64_t none = 0;

	switch (msg->event) {
	case UFFD_EVENT_PAGEFAULT:
		on_fault(p, msg);
		break;
	case UFFD_EVENT_FORK:
		on_fork(p, (int)msg->arg.fork.ufd, fork);
		break;
	case UFFD_EVENT_REMAP:
		on_remap(p, msg->arg.remap.from, msg->arg.remap.to, msg->arg.remap.len);
		break;
	case UFFD_EVENT_REMOVE:
		forget_range(p, msg->arg.remove.start, msg->arg.remove.end, true, 0);
		break;
	case UFFD_EVENT_UNMAP:
		order_unmapped(p, msg->arg.remove.start, msg->arg.remove.end, unmapped, &none);
		break;
	}
}

/*
 * Repeats a message that the dead pager had read. @from: the first unit that it had not handled; 0:
 * it had handled none.
 */
static void replay(struct proc *p, const struct uffd_msg *msg, uint64_t from)
{
	struct inbox *in = &p->m->sh->inbox;
	uint64_t start = msg->arg.remove.start, end = msg->arg.remove.end;

	switch (msg->event) {
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		if (from && in->had_at == in->at && ON_ZONE(unit_at(p, from)->word))
			unit_at(p, from)->pages = in->had;
		if (msg->event == UFFD_EVENT_REMOVE)
			forget_range(p, start, end, true, from);
		else
			order_unmapped(p, start, end, unmapped, &from);
		break;
	case UFFD_EVENT_REMAP: /* a move may be applied twice without harm */
		on_remap(p, msg->arg.remap.from, msg->arg.remap.to, msg->arg.remap.len);
		break;
	}
	/* faults are raised again by the threads; forks are handled by birth.c */
}

void inbox_replay(struct zns_mem *m)
{
	struct inbox *in = &m->sh->inbox;
	struct proc *p = in->slot < PROCS_MAX ? m->proc[in->slot] : NULL;

	for (unsigned int i = 0; i < MESSAGES; i++) {
		bool begun = (in->at & (UNIT - 1)) == i + 1;

		in->tag = i + 1;
		if (in->msg[i].event && p)
			replay(p, &in->msg[i], begun ? in->at & ~(UNIT - 1) : 0);
		in->msg[i].event = 0;
	}
}

/* Is the message about memory that is removed or moved? */
static bool changes_memory(const struct uffd_msg *msg)
{
	return msg->event == UFFD_EVENT_REMAP || msg->event == UFFD_EVENT_REMOVE ||
	       msg->event == UFFD_EVENT_UNMAP;
}

/* For tests: is it a removal by the program? The pager itself removes whole units. */
static bool is_small(const struct uffd_msg *msg)
{
	return msg->event == UFFD_EVENT_REMOVE &&
	       msg->arg.remove.end - msg->arg.remove.start < UNIT;
}

/*
 * Stores the userfaultfds of forks that are among the messages from @from on. The pager may be
 * killed at any of these steps.
 */
static void received(struct proc *p, unsigned int from, unsigned int nr, uint64_t *fork)
{
	struct inbox *in = &p->m->sh->inbox;

	/* children of these forks run already, and only this process has their userfaultfds */
	for (unsigned int i = from; i < nr; i++)
		if (changes_memory(&in->msg[i])) {
			mem_reached(is_small(&in->msg[i]) ? REACHED_SMALL : REACHED_EVENT);
		} else if (in->msg[i].event == UFFD_EVENT_FORK) {
			mem_reached(REACHED_READ);
			fork[i] = birth_begin(p->m, (int)in->msg[i].arg.fork.ufd);
			in->born |= 1U << i;
			mem_reached(REACHED_FORK);
		}
}

/* Reads up to @room messages and appends them to the inbox. Returns how many the inbox has now. */
static unsigned int receive(struct proc *p, unsigned int nr, unsigned int room, uint64_t *fork)
{
	struct uffd_msg *msg = p->m->sh->inbox.msg + nr;
	ssize_t n = read(p->uffd, msg, room * sizeof(*msg));

	if (n <= 0)
		return nr;
	received(p, nr, nr + (unsigned int)((size_t)n / sizeof(*msg)), fork);
	return nr + (unsigned int)((size_t)n / sizeof(*msg));
}

/*
 * Reads more as long as an event is missing that happened before one of these: its thread may have
 * been preempted before it could queue the event.
 */
static unsigned int receive_missing(struct proc *p, unsigned int nr, uint64_t *fork)
{
	struct uffd_msg *msg = p->m->sh->inbox.msg;
	uint64_t since_ns = 0;

	while (order_is_missing(p, msg, nr) && nr < MESSAGES) {
		since_ns = since_ns ? since_ns : zns_mono_ns();
		if (!order_wait(p, since_ns))
			break;
		nr = receive(p, nr, 1, fork);
		while (nr && msg[nr - 1].event == UFFD_EVENT_PAGEFAULT)
			/* this fault is handled later, outside of the inbox */
			on_fault(p, &msg[--nr]);
	}
	return nr;
}

/*
 * Kills a process whose events do not show which memory is at which address: otherwise it might
 * read bytes of other memory without noticing. Its children that were forked meanwhile are killed
 * too; one whose PID is unknown is killed when the PID is found.
 */
static void end_unsure(struct proc *p, unsigned int nr, const uint64_t *fork)
{
	struct uffd_msg *msg = p->m->sh->inbox.msg;

	mem_warn(
		p->m,
		"process %d is killed: its threads moved two areas away from one address, and the events do not tell in which order",
		p->pid);
	for (unsigned int i = 0; i < nr; i++)
		if (msg[i].event == UFFD_EVENT_FORK) {
			birth_doom(p->m, fork[i], (int)msg[i].arg.fork.ufd);
			msg[i].event = 0;
		}
	if (p->pidfd >= 0 && !syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0))
		return;
	reader_unwatch(p->m, p);
	p->sh->doomed = 1;
}

/*
 * Handles the messages of the process. Returns true if it was a single fault, which the caller has
 * to answer.
 */
static bool serve(struct proc *p, struct fault *own)
{
	struct inbox *in = &p->m->sh->inbox;
	struct uffd_msg *msg = in->msg;
	uint64_t fork[MESSAGES] = { 0 };
	unsigned int nr, i;
	bool alone;

	mem_reached(REACHED_READY);
	pthread_rwlock_wrlock(&p->ev);
	in->slot = (uint32_t)(p->sh - p->m->sh->proc);
	in->at = 0;
	in->born = 0;
	in->forks = p->m->sh->forks;
	order_look(p);
	nr = p->gone ? 0 : receive(p, 0, MESSAGES - MISSING, fork);
	if (nr)
		p->m->messages = true;
	alone = own && nr == 1 && msg->event == UFFD_EVENT_PAGEFAULT;
	if (nr && !alone) /* a single fault wakes the evictor when it is answered */
		evictor_rouse(p->m);
	if (alone) {
		*own = (struct fault){ proc_get(p), fault_addr(msg),
				       kind_of(msg->arg.pagefault.flags), zns_mono_ns() };
		msg->event = 0;
		nr = 0;
	}
	nr = receive_missing(p, nr, fork);
	if (order_is_unsure(p, msg, nr))
		end_unsure(p, nr, fork);
	while ((i = order_next(p, msg, nr)) < nr) {
		in->tag = i + 1;
		in->at = in->tag;
		on_message(p, &msg[i], fork[i]);
		msg[i].event = 0;
	}
	pthread_rwlock_unlock(&p->ev);
	return alone;
}

/*
 * Keeps only the events of children that leave the context. All other processes wait, and cannot
 * fork.
 */
static int only_leavers(struct epoll_event *e, int n)
{
	int left = 0;

	for (int i = 0; i < n; i++) {
		const struct proc *p = e[i].data.ptr;

		if (!p || p->leaves)
			e[left++] = e[i];
	}
	if (left < n)
		usleep(CROWD_US);
	return left;
}

bool reader_lead(struct zns_mem *m, struct fault *f)
{
	struct epoll_event e[16];

	while (!m->end) {
		int n;

		/* this is safe here, since @e has no events of dead processes */
		procs_bury(m, evict_forget);
		n = epoll_wait(m->epoll, e, ZNS_ARRAY_SIZE(e), -1);
		if (leave_crowded(m))
			n = only_leavers(e, n);
		for (int i = 0; i < n; i++) {
			uint64_t count;

			if (!e[i].data.ptr) {
				if (read(m->wake, &count, sizeof(count)) < 0)
					break;
				continue;
			}
			/* epoll reports the event again when a slot is free */
			if (leave_crowded(m) && !((struct proc *)e[i].data.ptr)->leaves)
				continue;
			if (!serve(e[i].data.ptr, n == 1 ? f : NULL))
				continue;
			if (reader_hand_on(&m->queue))
				return true;
			fault_push(&m->queue, f->p, f->addr, f->kind);
			proc_put(f->p);
		}
	}
	return false;
}
