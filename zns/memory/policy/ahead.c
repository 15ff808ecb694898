/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads units before a thread needs them. After a fault, the units that the process's predictor
 * (predict.h) expects next are read into its memory, or if it knows none, the units above in a
 * stream (stream.c). This is done after all faults, and while the process's own budget has room.
 * The last predicted unit is not put into the process: the pager keeps a copy (spare.c). A fault on
 * it waits for no device, makes the next prediction, and shows that this one was right. The number
 * of units read ahead grows while 7 of 10 last units of the predictor are used, or half of those of
 * streams (a stream ends at some point, so the units before the last one are used more often).
 */
#include <string.h>

#include "hiber.h"

#define TRY 8U /* while all predictions are wrong, one fault in 8 still reads something ahead */
#define QUEUE_MAX 4096U /* most requests in the queue for units to be read ahead */
#define AGE_MIN_MS 1000U /* ms; a prediction has at least this long to be confirmed */

static void outcome(struct zns_mem *m, const struct guess *g, bool used)
{
	struct ahead_depth *d = g->stream ? &m->ahead.stream : &m->ahead.chain;

	pthread_mutex_lock(&m->ahead.lock);
	if (used)
		d->tenths = zns_min(d->tenths + d->right, d->max_tenths);
	else
		d->tenths = zns_max(d->tenths, AHEAD_DEPTH + d->wrong) - d->wrong;
	pthread_mutex_unlock(&m->ahead.lock);
	if (used)
		m->sh->ahead_used++;
	else
		m->sh->ahead_unused++;
}

void ahead_begin(struct ahead *a)
{
	a->chain = (struct ahead_depth){ .tenths = PREDICT_CHAIN * AHEAD_DEPTH,
					 .max_tenths = PREDICT_CHAIN * AHEAD_DEPTH,
					 .right = 3,
					 .wrong = 7 };
	a->stream = (struct ahead_depth){ .tenths = STREAM_MAX / 4 * AHEAD_DEPTH,
					  .max_tenths = STREAM_MAX * AHEAD_DEPTH,
					  .right = 5,
					  .wrong = 5 };
	pthread_mutex_init(&a->lock, NULL);
}

static void forget_link(struct zns_mem *m, const struct guess *wrong)
{
	struct proc *list[PROCS_MAX];
	unsigned int nr;

	procs(m, list, &nr);
	for (unsigned int i = 0; i < nr; i++) {
		if (list[i]->born == wrong->born) {
			pthread_mutex_lock(&m->ahead.lock);
			predict_unused(&list[i]->predict, wrong->block);
			pthread_mutex_unlock(&m->ahead.lock);
		}
		proc_put(list[i]);
	}
}

/* Counts a prediction as wrong when its unit would have been evicted again without use. */
static void judge(struct zns_mem *m)
{
	struct guess wrong;
	bool found;

	do {
		pthread_mutex_lock(&m->ahead.lock);
		found = guess_wrong(&m->ahead.guesses, now_ms(), zns_max(m->age_ms, AGE_MIN_MS),
				    &wrong);
		pthread_mutex_unlock(&m->ahead.lock);
		if (!found)
			break;
		outcome(m, &wrong, false);
		if (!wrong.stream)
			forget_link(m, &wrong);
	} while (true);
}

/* Call with the lock held: returns how many units to fetch now. */
static unsigned int depth(struct ahead_depth *d)
{
	unsigned int n = zns_max(d->tenths / AHEAD_DEPTH, 1U);

	return n > 1 || d->tries++ % TRY == 0 ? n : 0;
}

/*
 * The last unit of a prediction was used. So most likely the units before it were used too: they
 * were in memory and raised no fault.
 */
static void chain_used(struct proc *p, uint32_t block)
{
	uint32_t before[PREDICT_CHAIN];
	unsigned int n;

	pthread_mutex_lock(&p->m->ahead.lock);
	n = predict_before(&p->predict, block, before);
	pthread_mutex_unlock(&p->m->ahead.lock);
	while (n--)
		record_touch(p, before[n] * UNIT);
}

/* Gets those of the units that are predicted next which are on zones. */
static unsigned int chain_next(struct proc *p, uint32_t block, bool learn, bool fetches,
			       uint32_t next[PREDICT_CHAIN])
{
	struct ahead *a = &p->m->ahead;
	unsigned int n, nr = 0;

	pthread_mutex_lock(&a->lock);
	n = predict_fault(&p->predict, block, learn, fetches ? depth(&a->chain) : 0, next);
	pthread_mutex_unlock(&a->lock);
	for (unsigned int i = 0; i < n; i++)
		if (STATE(unit_at(p, next[i] * UNIT)->word) == U_ZONE)
			next[nr++] = next[i];
	return nr;
}

/*
 * Gets the next units of a stream of which @run units came before: as many again, limited by
 * depth().
 */
static unsigned int next_in_stream(struct proc *p, uint32_t block, unsigned int run,
				   uint32_t next[STREAM_MAX])
{
	struct ahead *a = &p->m->ahead;
	unsigned int max;

	if (!run)
		return 0;
	pthread_mutex_lock(&a->lock);
	max = depth(&a->stream);
	pthread_mutex_unlock(&a->lock);
	return stream_next(p, block, zns_min(run, max), next);
}

void ahead_fault(struct proc *p, uint64_t addr)
{
	struct zns_mem *m = p->m;
	uint32_t block = (uint32_t)(addr / UNIT), next[zns_max(PREDICT_CHAIN, STREAM_MAX)];
	enum fault_kind last = FETCH_COPY;
	struct guess right;
	unsigned int nr, run = stream_before(p, block);
	bool predicted, fetches;

	judge(m);
	pthread_mutex_lock(&m->ahead.lock);
	predicted = guess_asked(&m->ahead.guesses, p->born, block, &right);
	pthread_mutex_unlock(&m->ahead.lock);
	if (predicted)
		outcome(m, &right, true);
	if (predicted && !right.stream)
		chain_used(p, block);
	else
		record_passed(p, (block - run) * UNIT, run);
	if (m->sh->no_predict)
		return;
	pthread_mutex_lock(&m->queue.lock);
	fetches = m->queue.ahead.nr < QUEUE_MAX;
	pthread_mutex_unlock(&m->queue.lock);
	fetches = fetches && !hiber_rests(m);
	nr = chain_next(p, block, !predicted, fetches, next);
	if (!nr && fetches) {
		nr = next_in_stream(p, block, run, next);
		last = FETCH_STREAM;
	}
	for (unsigned int i = 0; i < nr; i++)
		fault_push(&m->queue, p, next[i] * UNIT, i + 1 == nr ? last : FETCH);
}

bool ahead_room(struct zns_mem *m)
{
	if (atomic_fetch_sub(&m->room, (int64_t)UNIT) >= (int64_t)UNIT)
		return true;
	m->room += (int64_t)UNIT;
	return false;
}

void ahead_fetch(struct proc *p, uint64_t base, uint8_t *buf, enum fault_kind kind)
{
	struct zns_mem *m = p->m;
	struct unit *u = unit_at(p, base);
	struct zns_pages_ref ref;
	uint64_t word = u->word;

	/*
	 * not if the context is to hibernate: the unit would come back right after the evictor has
	 * written it
	 */
	if (STATE(word) != U_ZONE || m->end || !hiber_goes_on(m, HIBER_AWAKE))
		return;
	if (kind == FETCH) {
		if (!record_allows(p, base) || !ahead_room(m) ||
		    unit_load(p, u, base, buf, true, NULL))
			return;
		m->sh->ahead_units++;
		return;
	}
	ref = unit_ref(p, u, word);
	if (spare_has(p, u, ref, SPARE_AHEAD) || spare_has(p, u, ref, SPARE_OUT))
		return;
	/* if the unit has given up its place meanwhile, the read fails or the word has changed */
	if (m->store.get(m->store.arg, ref, buf, NULL) || u->word != word)
		return;
	m->sh->ahead_units++;
	spare_put(p, u, ref, buf, SPARE_AHEAD);
	pthread_mutex_lock(&m->ahead.lock);
	guess_add(&m->ahead.guesses, (struct guess){ p->born, (uint32_t)(base / UNIT), now_ms(),
						     kind == FETCH_STREAM });
	pthread_mutex_unlock(&m->ahead.lock);
}
