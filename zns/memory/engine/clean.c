/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cleaning: moves the live units of a zone with mostly dead data elsewhere, so that the zone can be
 * given back. The place of a unit is changed by compare-and-exchange of its word. If the unit was
 * read back, unmapped or dropped meanwhile, the exchange fails and the copy is not used. If the
 * pager is killed, its copies are not used either. An encrypted unit is moved without decryption:
 * its nonce and tag are stored beside the word, and could not change atomically with it.
 */
#include <string.h>

#include "mem.h"

#define MOVE_MAX 128U /* units moved in one turn; the evictor waits during a turn */
#define PAUSE_MS 2000 /* ms until the next turn after one that moved nothing */

struct mover {
	uint64_t first, last; /* places of the zone's first and last unit */
	struct moving {
		struct proc *p;
		struct unit *u;
		uint64_t word;
	} at[MOVE_MAX];
	unsigned int nr, moved;
};

static bool may_move(uint64_t word)
{
	return STATE(word) == U_ZONE || STATE(word) == U_CLEAN;
}

static int find(struct proc *p, struct unit *u, uint64_t base, void *arg)
{
	struct mover *c = arg;
	uint64_t word = u->word;

	if (may_move(word) && PLACE(word) >= c->first && PLACE(word) <= c->last)
		c->at[c->nr++] = (struct moving){ p, u, word };
	return c->nr == MOVE_MAX;
}

static int by_place(const void *a, const void *b)
{
	uint64_t x = PLACE(((const struct moving *)a)->word);
	uint64_t y = PLACE(((const struct moving *)b)->word);

	return x < y ? -1 : x > y;
}

/*
 * Runs with `ev` locked, so a child that is forked during this gets a place that the store has
 * counted for it.
 */
static bool move(const struct moving *v, const struct zns_pages_ref *to)
{
	struct zns_mem_store *st = &v->p->m->store;
	struct zns_pages_ref from = { .place = PLACE(v->word) };
	uint64_t word = v->word, next = WORD(STATE(word), to->place);
	bool done = false;

	pthread_rwlock_rdlock(&v->p->ev);
	if (!v->p->gone && !st->hold(st->arg, *to)) {
		if (mem_without(RULE_MOVE)) {
			v->u->word = next;
			done = true;
		} else {
			done = atomic_compare_exchange_strong(&v->u->word, &word, next);
		}
		if (done)
			mem_reached(REACHED_MOVED);
		st->drop(st->arg, done ? from : *to);
	}
	pthread_rwlock_unlock(&v->p->ev);
	return done;
}

/* Moves a batch of units, beginning with number @i. Returns how many were handled; 0: an error. */
static unsigned int move_some(struct zns_mem *m, struct mover *c, unsigned int i)
{
	struct zns_mem_store *st = &m->store;
	struct zns_pages_ref to[BATCH] = { 0 };
	unsigned int from[BATCH], end[BATCH], n = 0, k = i;
	const void *unit[BATCH];

	while (k < c->nr && n < BATCH) {
		const struct moving *v = &c->at[k];
		int ret = (st->get_as_is ? st->get_as_is : st->get)(st->arg,
								    unit_ref(v->p, v->u, v->word),
								    m->bufs + n * UNIT, NULL);

		if (ret && v->u->word == v->word)
			return 0; /* the fault that reads this unit will report the error */
		from[n] = k;
		while (k < c->nr && PLACE(c->at[k].word) == PLACE(v->word))
			k++;
		end[n] = k;
		unit[n] = m->bufs + n * UNIT;
		n += !ret; /* a failure means that the unit has changed: it needs no move */
	}
	if ((st->put_as_is ? st->put_as_is : st->put)(st->arg, unit, n, to, NULL))
		return 0;
	mem_reached(REACHED_COPIED);
	for (unsigned int g = 0; g < n; g++) {
		for (unsigned int j = from[g]; j < end[g]; j++)
			c->moved += move(&c->at[j], &to[g]);
		st->drop(st->arg, to[g]);
	}
	return k - i;
}

/* One turn of cleaning, called by the evictor. Returns true if there is more to do. */
bool clean_some(struct zns_mem *m)
{
	struct zns_mem_store *st = &m->store;
	cleanup_free struct mover *c = NULL;
	struct proc *list[PROCS_MAX];
	unsigned int nr, i = 0, n = 1;
	uint64_t now = zns_mono_ns(), first, last;

	if (now < m->clean_after_ns || !st->dead || !st->dead(st->arg, &first, &last))
		return false;
	c = malloc(sizeof(*c));
	if (!c)
		return false;
	c->first = first;
	c->last = last;
	c->nr = c->moved = 0;
	procs(m, list, &nr);
	for (unsigned int k = 0; k < nr && c->nr < MOVE_MAX; k++)
		table_each(list[k], find, c);
	qsort(c->at, c->nr, sizeof(*c->at), by_place);
	while (i < c->nr && n && !m->end && !m->no_evict && !m->sealed) {
		n = move_some(m, c, i);
		i += n;
	}
	for (unsigned int k = 0; k < nr; k++)
		proc_put(list[k]);
	m->sh->moved_units += c->moved;
	if (n && c->moved)
		return true;
	m->clean_after_ns = now + PAUSE_MS * 1000000ULL;
	return false;
}
