/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Puts a process's events into the order in which they happened. A thread that moves or unmaps
 * memory first releases the lock of the memory, and then queues its event. If it is preempted in
 * between, another thread may move its own memory to the addresses that the first thread has
 * vacated, and queue its event first. If the events were applied in the order of the queue, the
 * first thread's event would remove the second thread's units. This file detects that case: if the
 * destination of a move still has registered memory, the event that removes this memory was not
 * read yet, so the reader waits for it.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>

#include "../engine/mem.h"

#define ORDER_MS 1000U /* ms; time for a preempted thread to get its CPU back */
/* pages whose entries are read at once; a page of the table of units covers as much */
#define PART MIB(8)

void order_moved(struct proc *p, uint64_t from, uint64_t to, uint64_t len)
{
	struct moves *all = p->moves;
	const struct move *last = &all->move[(all->nr - 1) % MOVES_KEPT];
	struct move *m = &all->move[all->nr % MOVES_KEPT];

	/* after a kill, the successor repeats a move that the dead pager may have noted already */
	if (last->owed && last->from == from && last->to == to)
		return;
	m->owed = 0;
	m->told_ns = zns_mono_ns();
	m->from = from;
	m->to = to;
	m->len = len;
	m->owed = !mem_without(RULE_OWED);
	all->nr++;
	p->has_pending_moves = true;
}

/*
 * If no event is missing, no second event of a move is missing either: mremap() with
 * MREMAP_DONTUNMAP does not send one.
 */
void order_look(struct proc *p)
{
	if (!p->has_pending_moves || mem_uffd_changes(p->uffd))
		return;
	for (unsigned int i = 0; i < MOVES_KEPT; i++)
		p->moves->move[i].owed = 0;
	p->has_pending_moves = false;
}

const struct move *order_move(const struct proc *p, uint32_t n)
{
	return &p->moves->move[(p->moves->nr - n) % MOVES_KEPT];
}

/* Has the child memory at @page, although @p has had none there since move @n? */
static bool child_has(const struct proc *child, const struct proc *p, uint32_t n, uint64_t page)
{
	for (uint32_t k = 1; k < n; k++) {
		const struct move *m = order_move(p, k);

		if (m->from <= page && page < m->from + m->len)
			return false;
	}
	return !known_within(child, page, page + PAGE) &&
	       !mem_uffd_has(child->uffd, page, page + PAGE);
}

/*
 * The event of a fork may also be read late. Memory that was moved after the fork is at its old
 * addresses in the child, where the parent has had no memory since. Then all later moves happened
 * after the fork too. The child does not run yet, so the lock of its memory is free.
 */
uint32_t order_fork(const struct proc *child, const struct proc *p)
{
	uint32_t nr = zns_min(p->moves->nr, MOVES_KEPT), late = 0;

	for (uint32_t n = 1; n <= nr && !mem_without(RULE_FORK); n++) {
		const struct move *m = order_move(p, n);

		if (zns_mono_ns() - m->told_ns > ORDER_MS * 1000000ULL)
			break;
		if (child_has(child, p, n, m->from) ||
		    child_has(child, p, n, m->from + m->len - PAGE))
			late = n;
	}
	return late;
}

typedef void (*gone_fn)(struct proc *p, uint64_t start, uint64_t end, void *arg);

/*
 * Calls @gone for the range, without the parts to which move @nr and later ones have moved memory.
 */
static void gone_except(struct proc *p, uint64_t start, uint64_t end, uint32_t nr, gone_fn gone,
			void *arg)
{
	for (; nr != p->moves->nr && start < end; nr++) {
		const struct move *m = &p->moves->move[nr % MOVES_KEPT];

		if (m->to >= end || m->to + m->len <= start)
			continue;
		gone_except(p, start, m->to, nr + 1, gone, arg);
		start = m->to + m->len;
	}
	if (start < end)
		gone(p, start, end, arg);
}

/*
 * The thread that moves memory sends the event that its old addresses were unmapped after it has
 * seen that we read the event of the move. Before that, another thread may have moved memory to
 * these addresses, and the reader may have handled it.
 */
void order_unmapped(struct proc *p, uint64_t start, uint64_t end, gone_fn gone, void *arg)
{
	uint32_t nr = p->moves->nr, i = nr > MOVES_KEPT ? nr - MOVES_KEPT : 0;
	struct move *m = NULL;

	for (; i != nr && !m; i++) {
		m = &p->moves->move[i % MOVES_KEPT];
		if (!m->owed || m->from != start || m->from + m->len != end)
			m = NULL;
	}
	gone_except(p, start, end, m ? i : nr, gone, arg);
	if (m)
		m->owed = 0;
}

static struct place from_of(const struct uffd_msg *m)
{
	if (m->event == UFFD_EVENT_REMAP)
		return (struct place){ m->arg.remap.from, m->arg.remap.from + m->arg.remap.len };
	if (m->event == UFFD_EVENT_UNMAP)
		return (struct place){ m->arg.remove.start, m->arg.remove.end };
	return (struct place){ 0 };
}

static struct place to_of(const struct uffd_msg *m)
{
	if (m->event == UFFD_EVENT_REMAP)
		return (struct place){ m->arg.remap.to, m->arg.remap.to + m->arg.remap.len };
	return (struct place){ 0 };
}

static bool is_same(struct place a, struct place b)
{
	return a.end && a.start == b.start && a.end == b.end;
}

static bool overlap(struct place a, struct place b)
{
	return a.start < b.end && b.start < a.end;
}

static bool is_mapped(const struct proc *p, struct place at)
{
	struct areas all = { 0 };
	struct place now;
	bool is = !place_read(p, at.start, &all, &now) && now.start <= at.start &&
		  now.end >= at.end;

	areas_free(&all);
	return is;
}

/*
 * The number of second events that are still missing for moves away from @at whose first event was
 * handled.
 */
static int nr_owed(const struct proc *p, struct place at)
{
	int nr = 0;

	for (unsigned int i = 0; p->moves && i < MOVES_KEPT; i++) {
		const struct move *m = &p->moves->move[i];

		nr += m->owed && is_same(at, (struct place){ m->from, m->from + m->len });
	}
	return nr;
}

/*
 * Was there memory at @at before all of @msg? There was if the memory that is there now, plus what
 * has left since, minus what has arrived, is more than none. This is right for any number of moves,
 * provided that the events of all of them are in @msg.
 */
static bool was_taken(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
		      struct place at)
{
	int came = 0, moved = 0, unmapped = 0;

	for (unsigned int k = 0; k < nr; k++) {
		came += is_same(to_of(&msg[k]), at);
		moved += msg[k].event == UFFD_EVENT_REMAP && is_same(from_of(&msg[k]), at);
		unmapped += msg[k].event == UFFD_EVENT_UNMAP && is_same(from_of(&msg[k]), at);
	}
	/* each move has such a second event, which may be among these messages */
	unmapped -= zns_min(unmapped, moved + nr_owed(p, at));
	return p->maps < 0 || is_mapped(p, at) + moved + unmapped - came > 0;
}

/* Was the destination of @then free before? Only moves of exactly the same range can be counted. */
static bool is_free(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
		    unsigned int first, unsigned int then)
{
	return is_same(from_of(&msg[first]), to_of(&msg[then])) &&
	       !was_taken(p, msg, nr, to_of(&msg[then]));
}

/*
 * Must @first be handled before @then? That is so if memory left a range by @first, and other
 * memory arrived there by @then.
 */
static bool is_before(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
		      unsigned int first, unsigned int then)
{
	struct place from = from_of(&msg[first]), to = to_of(&msg[then]);
	uint64_t start = zns_max(from.start, to.start), end = zns_min(from.end, to.end);

	return start < end && known_within(p, start, end) && !is_free(p, msg, nr, first, then);
}

static bool child_lacks(const struct uffd_msg *fork, uint64_t page)
{
	return mem_uffd_has((int)fork->arg.fork.ufd, page, page + PAGE) == -ENOENT;
}

/*
 * Must move @k be handled before the fork? That is so if the child has the memory at the new
 * addresses of this move, or of one that followed it.
 */
static bool is_before_fork(const struct uffd_msg *msg, unsigned int nr, unsigned int k,
			   const struct uffd_msg *fork)
{
	struct place from = from_of(&msg[k]), to = to_of(&msg[k]);

	if (fork->event != UFFD_EVENT_FORK || !to.end || !child_lacks(fork, from.start))
		return false;
	if (!child_lacks(fork, to.start))
		return true;
	for (unsigned int n = k + 1; n < nr; n++)
		if (is_same(from_of(&msg[n]), to))
			return is_before_fork(msg, nr, n, fork);
	return false;
}

struct heard {
	const struct uffd_msg *msg, *fork;
	unsigned int nr;
	uint64_t has; /* the child has all memory from the last unit to this address */
};

/*
 * Called for each unit of the parent. Returns 1 if a page of the unit, which is on a zone, lies
 * outside of the child's registered areas, and no event in h->msg has moved or removed it.
 */
static int child_lacks_unit(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct heard *h = arg;
	bool lacks = false;

	if (!ON_ZONE(u->word) || (base < h->has && !u->addr))
		return 0;
	for (uint64_t len = MEM_HAS_MAX; len >= UNIT; len /= 8) {
		h->has = base + len;
		if (mem_uffd_has((int)h->fork->arg.fork.ufd, base, h->has) != -ENOENT)
			return 0;
	}
	h->has = 0;
	for (uint64_t page = base, bits = u->pages & 0xffff; bits; page += PAGE, bits >>= 1) {
		bool told = false;

		for (unsigned int i = 0; i < h->nr; i++)
			told |= overlap(from_of(&h->msg[i]), (struct place){ page, page + PAGE });
		lacks |= bits & 1 && !told && child_lacks(h->fork, page);
	}
	return lacks;
}

/*
 * Was the event of this fork read too early? A move before the fork may not have been read yet. If
 * the process changes no memory, the child lacks the memory for another reason: it was not copied
 * (MADV_DONTFORK).
 */
static bool is_early(struct proc *p, const struct uffd_msg *msg, unsigned int nr, unsigned int i)
{
	struct heard h = { .msg = msg, .fork = &msg[i], .nr = nr };

	return p->u && msg[i].event == UFFD_EVENT_FORK && mem_uffd_changes(p->uffd) &&
	       !mem_without(RULE_FORK) && table_each(p, child_lacks_unit, &h);
}

enum suits { DENIED, MAY_BE, FITS };

/* What the page table contains at the addresses to which a move has moved pages. */
struct found {
	/* may these be the pages of the units that the table has at the old addresses? */
	enum suits suits;
	bool partly; /* a page is in memory, or that is unknown */
	bool nothing; /* there are only holes */
	bool marked; /* a page has the marker that it should have */
	bool lacks; /* there is a hole where a marker should be */
	bool known; /* the page table was read, and no other move has changed the range */
};

/* Has another one of @msg changed the range to which message @i moved memory? */
static bool is_disturbed(const struct uffd_msg *msg, unsigned int nr, unsigned int i)
{
	struct place to = to_of(&msg[i]);

	for (unsigned int k = 0; k < nr; k++)
		if (k != i && (overlap(from_of(&msg[k]), to) || overlap(to_of(&msg[k]), to)))
			return true;
	return false;
}

/*
 * Compares the pages @at of @u, the first page of which is at @base, with their page table entries.
 * A page that is on a zone is not in memory, since a thread that touches it waits. It has a marker
 * if the unit is marked. No other page has a marker, except for strays, for which this is unknown.
 */
static void look_at_unit(struct proc *p, const struct unit *u, uint64_t base, struct place at,
			 const uint64_t *entry, struct found *f)
{
	uint32_t out = ON_ZONE(u->word) ? u->pages & 0xffff : 0;
	bool is_marked = out && !u->addr && unit_is_marked(p, u);

	for (uint64_t a = at.start; a < at.end; a += PAGE, entry++) {
		bool is_out = out >> ((a - base) / PAGE) & 1;
		bool has_marker = (*entry & (PRESENT | MARKER)) == MARKER;

		f->partly |= *entry & PRESENT || (*entry & MARKER) == SWAPPED;
		f->nothing &= !(*entry & (PRESENT | SWAPPED));
		f->marked |= is_marked && is_out && has_marker;
		f->lacks |= is_marked && is_out && !(*entry & (PRESENT | SWAPPED));
		/*
		 * pages of a read back that is not complete or has failed may be present: these are
		 * protected
		 */
		if (is_out && *entry & PRESENT)
			f->suits = zns_min(f->suits,
					   STATE(u->word) == U_ZONE && !(*entry & PROTECTED) ?
						   DENIED :
						   MAY_BE);
		else if (f->suits == FITS && has_marker != (is_marked && is_out) &&
			 (!has_marker || (!u->addr && !stray_near(p, base, base + UNIT))))
			f->suits = MAY_BE;
	}
}

/* The part of @at that is within the @len bytes from @from on. */
static struct place within(struct place at, uint64_t from, uint64_t len)
{
	return (struct place){ zns_max(at.start, from), zns_min(at.end, from + len) };
}

static int read_entries(const struct proc *p, const struct uffd_msg *m, struct place at,
			uint64_t *entry)
{
	uint64_t there = at.start - from_of(m).start + to_of(m).start;

	return present_entries(p->pagemap, there, (at.end - at.start) / PAGE, entry);
}

/*
 * Compares a part of the pages that @m has moved. The table has no page for units that were never
 * accessed.
 */
static int look_at_part(struct proc *p, const struct uffd_msg *m, struct place part,
			struct found *f)
{
	static const struct unit none;
	uint64_t entry[PART / PAGE];
	bool is_known = table_next(p, part.start / UNIT * UNIT, part.end) < part.end;

	if (read_entries(p, m, part, entry))
		return -ESRCH;
	for (uint64_t a = part.start / UNIT * UNIT; a < part.end; a += UNIT) {
		struct place at = within(part, a, UNIT);

		look_at_unit(p, is_known ? unit_at(p, a) : &none, a, at,
			     entry + (at.start - part.start) / PAGE, f);
	}
	return 0;
}

static int look_at_stray(struct proc *p, const struct uffd_msg *m, const struct unit *s,
			 struct place all, struct found *f)
{
	struct place at = within(all, s->addr, UNIT);
	uint64_t entry[UNIT_PAGES];

	if (!ON_ZONE(s->word) || at.start >= at.end)
		return 0;
	if (read_entries(p, m, at, entry))
		return -ESRCH;
	look_at_unit(p, s, s->addr, at, entry, f);
	return 0;
}

/* Compares the pages @at, which message @i has moved, with the page table. */
static struct found look(const struct proc *q, const struct uffd_msg *msg, unsigned int nr,
			 unsigned int i, struct place at)
{
	struct proc *p = (struct proc *)q;
	struct found f = { .suits = FITS, .nothing = true };
	int ret = is_disturbed(msg, nr, i) ? -EBUSY : 0;

	for (uint64_t a = at.start / PART * PART; !ret && a < at.end && f.suits; a += PART)
		ret = look_at_part(p, &msg[i], within(at, a, PART), &f);
	for (uint32_t k = 0, strays = p->nr_strays; !ret && k < strays && f.suits; k++)
		ret = look_at_stray(p, &msg[i], stray_nr(p, k), at, &f);
	f.known = true;
	return ret ? (struct found){ .suits = MAY_BE, .partly = true } : f;
}

static bool is_out(struct proc *p, struct place at)
{
	for (uint64_t a = table_next(p, at.start / UNIT * UNIT, at.end); a < at.end;
	     a = table_step(p, a, at.end))
		if (ON_ZONE(unit_at(p, a)->word))
			return true;
	return stray_near(p, at.start, at.end);
}

/* Have both messages moved the same pages away (@both), of which some are on zones? */
static bool are_rivals(const struct proc *p, const struct uffd_msg *a, const struct uffd_msg *b,
		       struct place *both)
{
	struct place from = from_of(b);

	*both = within(from_of(a), from.start, from.end - from.start);
	return p->u && to_of(a).end && to_of(b).end && both->start < both->end &&
	       is_out((struct proc *)p, *both);
}

/*
 * May memory have been moved to @at, by one of @msg or by a move whose event was not read at the
 * last receive?
 */
static bool may_have_come(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
			  struct place at)
{
	for (unsigned int i = 0; i < nr; i++)
		if (overlap(to_of(&msg[i]), at))
			return true;
	return p->changes;
}

enum verdict { EITHER, THIS, THAT, NOBODY_KNOWS };

/*
 * Two different memories have left one range, and each may be the one that the table has there. The
 * question is which one left first.
 *
 * If no memory was moved to the range in between, the second memory is there because an area has
 * grown into the range, or because it was left empty (MREMAP_DONTUNMAP). In both cases it has
 * nothing on zones before the reader knows that the first memory has left. Otherwise a third
 * thread's mremap() has brought the second memory, and has not returned yet.
 *
 * If both memories are on zones as a whole, and the markers of one of them are equal to those of
 * the table, both orders are possible orders of the calls. If a part is in memory, the other part
 * belongs to it, and it cannot be decided.
 */
static enum verdict first_of(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
			     unsigned int i, unsigned int k, struct place both)
{
	struct found a = look(p, msg, nr, i, both), b = look(p, msg, nr, k, both);
	bool came = may_have_come(p, msg, nr, both);

	if (b.nothing && !a.nothing && ((!came && a.known) || (a.suits == FITS && a.marked)))
		return THIS;
	if (a.nothing && !b.nothing && ((!came && b.known) || (b.suits == FITS && b.marked)))
		return THAT;
	if (a.suits && b.suits && ((a.suits < FITS && b.suits < FITS) || a.partly || b.partly))
		return NOBODY_KNOWS;
	/*
	 * an area grows upwards, so of the two the one that begins at the lower address has grown
	 */
	if (a.nothing && b.nothing && !came && from_of(&msg[i]).start < from_of(&msg[k]).start)
		return THAT;
	return a.suits == b.suits ? EITHER : a.suits > b.suits ? THIS : THAT;
}

/*
 * Do the pages that message @i has moved lack markers of units that the table has at the old
 * addresses? Then the area has grown into a range whose former memory has left, without the reader
 * knowing yet, or guard pages were installed and removed.
 */
static bool lacks_markers(struct proc *p, const struct uffd_msg *msg, unsigned int nr,
			  unsigned int i)
{
	struct place from = from_of(&msg[i]);
	struct found f = { .suits = FITS };
	uint64_t a = from.start / UNIT * UNIT;
	int ret = !p->u || !to_of(&msg[i]).end || is_disturbed(msg, nr, i);

	/* most of a large area may have no units on zones, and its entries need not be read */
	for (; !ret && (a = table_next(p, a, from.end)) < from.end && !f.lacks && f.suits;
	     a = a / PART * PART + PART)
		if (is_out(p, within(from, a / PART * PART, PART)))
			ret = look_at_part(p, &msg[i], within(from, a / PART * PART, PART), &f);
	for (uint32_t k = 0; !ret && k < p->nr_strays && !f.lacks && f.suits; k++)
		ret = look_at_stray(p, &msg[i], stray_nr(p, k), from, &f);
	return !ret && (f.lacks || !f.suits);
}

/* Does the order of @msg depend on events that were not read yet? */
static bool is_doubtful(struct proc *p, const struct uffd_msg *msg, unsigned int nr)
{
	struct place both;

	for (unsigned int i = 0; i < nr; i++) {
		for (unsigned int k = i + 1; k < nr; k++)
			if (are_rivals(p, &msg[i], &msg[k], &both))
				return true;
		if (lacks_markers(p, msg, nr, i))
			return true;
	}
	return false;
}

bool order_is_unsure(const struct proc *p, const struct uffd_msg *msg, unsigned int nr)
{
	struct place both;

	for (unsigned int i = 0; i < nr; i++)
		for (unsigned int k = i + 1; k < nr; k++)
			if (are_rivals(p, &msg[i], &msg[k], &both) &&
			    first_of(p, msg, nr, i, k, both) == NOBODY_KNOWS)
				return true;
	return false;
}

/*
 * Returns another message that moved the memory which the table has at the old addresses of @i, if
 * @i did not move it: the other one comes first. Returns @i if there is none.
 */
static unsigned int rival(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
			  unsigned int i)
{
	struct place both;

	for (unsigned int k = 0; k < nr; k++)
		if (k != i && are_rivals(p, &msg[i], &msg[k], &both) &&
		    first_of(p, msg, nr, i, k, both) == THAT)
			return k;
	return i;
}

static bool is_denied(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
		      unsigned int i)
{
	return p->u && to_of(&msg[i]).end && !look(p, msg, nr, i, from_of(&msg[i])).suits;
}

/* Returns one of the other messages that must be handled before @i, or @nr if there is none. */
static unsigned int before(const struct proc *p, const struct uffd_msg *msg, unsigned int nr,
			   unsigned int i)
{
	unsigned int found = nr;

	for (unsigned int k = 0; k < nr; k++) {
		if (k == i || !msg[k].event ||
		    (!is_before(p, msg, nr, k, i) && !is_before_fork(msg, nr, k, &msg[i])))
			continue;
		if (found == nr || (is_denied(p, msg, nr, found) && !is_denied(p, msg, nr, k)))
			found = k;
	}
	return found;
}

unsigned int order_next(const struct proc *p, const struct uffd_msg *msg, unsigned int nr)
{
	unsigned int i = 0, k;

	while (i < nr && !msg[i].event)
		i++;
	for (unsigned int n = 0; i < nr && n < nr && !mem_without(RULE_ORDER); n++) {
		k = before(p, msg, nr, i);
		if (k == nr)
			k = rival(p, msg, nr, i);
		if (k == i)
			break;
		i = k;
	}
	return i;
}

/*
 * The messages may seem to miss one that does not exist. This is certain only when the process
 * changes no memory any more (order_wait()).
 */
bool order_is_missing(struct proc *p, const struct uffd_msg *msg, unsigned int nr)
{
	/* ask the kernel only once, so that all decisions about these messages agree */
	p->changes = is_doubtful(p, msg, nr) && mem_uffd_changes(p->uffd);
	if (mem_without(RULE_ORDER))
		return false;
	/* if the process is changing its memory, the missing event may decide the order */
	if (p->changes)
		return true;
	for (unsigned int i = 0; i < nr; i++) {
		struct place to = to_of(&msg[i]);

		if (to.end && known_within(p, to.start, to.end) && before(p, msg, nr, i) == nr)
			return true;
		if (is_early(p, msg, nr, i))
			return true;
	}
	return order_is_unsure(p, msg, nr);
}

bool order_wait(struct proc *p, uint64_t since_ns)
{
	struct pollfd f = { .fd = p->uffd, .events = POLLIN };

	if (zns_mono_ns() - since_ns > ORDER_MS * 1000000ULL) {
		mem_warn(p->m, "process %d: memory came to where other memory is", p->pid);
		return false;
	}
	if (poll(&f, 1, 0) > 0)
		return true;
	/* if it is not, all events were read: the following decisions rely on that */
	p->changes = mem_uffd_changes(p->uffd);
	return p->changes && (poll(&f, 1, 1), true);
}
