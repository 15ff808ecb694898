/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The calendar of one die, one channel or the controller: a sorted list of the periods in which it
 * is busy. Bookings are made in advance: a write that must wait for its buffer books its program
 * for the time when there is room. So a later booking may start earlier: it takes the first gap
 * that is long enough. Adjacent periods are merged. When the list is half full, each command drops
 * the periods that ended before it was issued, and no later booking can start before the end of
 * these. When the list is full, two neighbouring periods are joined.
 */
#include <string.h>

#include "emu_priv.h"

static void forget_oldest(struct emu_cal *c)
{
	c->floor_ns = zns_max(c->floor_ns, c->busy[0].to);
	memmove(c->busy, c->busy + 1, --c->nr * sizeof(c->busy[0]));
}

/* Joins two neighbouring periods; the free time between them is lost. Takes the pair that makes the
 * shortest period, so that little free time is lost, and not all of it in one place. Otherwise a
 * burst of reads on one die would block the channel for all other dies. */
static void join_shortest(struct emu_cal *c)
{
	uint32_t at = 0;

	for (uint32_t i = 1; i + 1 < c->nr; i++)
		if (c->busy[i + 1].to - c->busy[i].from < c->busy[at + 1].to - c->busy[at].from)
			at = i;
	c->busy[at].to = c->busy[at + 1].to;
	memmove(c->busy + at + 1, c->busy + at + 2, (--c->nr - at - 1) * sizeof(c->busy[0]));
}

void emu_cal_pass(struct emu_cal *c, uint64_t now)
{
	while (c->nr > EMU_CAL_PERIODS / 2 && c->nr <= EMU_CAL_PERIODS && c->busy[0].to <= now)
		forget_oldest(c);
}

static void insert(struct emu_cal *c, uint32_t at, uint64_t from, uint64_t to)
{
	bool joins_prev = at && c->busy[at - 1].to == from,
	     joins_next = at < c->nr && c->busy[at].from == to;

	if (joins_prev && joins_next) {
		c->busy[at - 1].to = c->busy[at].to;
		memmove(c->busy + at, c->busy + at + 1, (--c->nr - at) * sizeof(c->busy[0]));
	} else if (joins_prev) {
		c->busy[at - 1].to = to;
	} else if (joins_next) {
		c->busy[at].from = from;
	} else {
		memmove(c->busy + at + 1, c->busy + at, (c->nr++ - at) * sizeof(c->busy[0]));
		c->busy[at] = (struct emu_period){ .from = from, .to = to };
	}
}

/* Finds the first gap of @ns; *at is its index in the list. */
static uint64_t first_gap(struct emu_cal *c, uint64_t ready, uint64_t ns, uint32_t *at)
{
	uint64_t start;
	uint32_t i;

	/* a value that we never write: the shared memory was damaged */
	if (c->nr > EMU_CAL_PERIODS)
		c->nr = 0;
	if (c->nr == EMU_CAL_PERIODS)
		join_shortest(c);
	start = zns_max(ready, c->floor_ns);
	for (i = c->nr; i && c->busy[i - 1].to > start; i--)
		;
	for (; i < c->nr && c->busy[i].from < start + ns; i++)
		start = zns_max(start, c->busy[i].to);
	*at = i;
	return start;
}

uint64_t emu_cal_book(struct emu_cal *c, uint64_t ready, uint64_t ns)
{
	uint64_t start;
	uint32_t at;

	if (!ns)
		return ready;
	start = first_gap(c, ready, ns, &at);
	insert(c, at, start, start + ns);
	c->busy_ns += ns;
	return start;
}

uint64_t emu_cal_book_all(struct emu_cal *c, uint32_t nr, uint32_t step, uint64_t ready,
			  uint64_t ns)
{
	uint64_t start = ready, was;
	uint32_t at;

	if (nr == 1)
		return emu_cal_book(c, ready, ns);
	if (!ns)
		return ready;
	do {
		was = start;
		for (uint32_t i = 0; i < nr; i++)
			start = first_gap(c + (size_t)i * step, start, ns, &at);
	} while (start != was);
	for (uint32_t i = 0; i < nr; i++)
		emu_cal_book(c + (size_t)i * step, start, ns);
	return start;
}

uint64_t emu_cal_idle_from(const struct emu_cal *c)
{
	return c->nr && c->nr <= EMU_CAL_PERIODS ? c->busy[c->nr - 1].to : c->floor_ns;
}

void emu_cal_clear(struct emu_cal *c)
{
	c->nr = 0;
	c->floor_ns = 0;
}
