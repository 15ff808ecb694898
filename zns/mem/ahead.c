/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Units that are read before they are asked for. After a fault the next ones of the process's chain
 * (predict.h) come into its memory, as far as its own budget has room; behind all faults. The last
 * of a chain does not come into the process: we keep a copy (spare.c). Its fault waits for no
 * device, goes on with the chain, and is how we know whether what is fetched is used: a chain is as
 * long as 7 in 10 of the last ones are.
 */
#include <string.h>

#include "hiber.h"

#define TRY 8U /* one of so many faults fetches something while nothing proves right */
#define RIGHT 3U /* tenths that a right guess adds; 7 in 10 keep the depth as it is */
#define WRONG 7U /* tenths that a wrong one takes */
#define QUEUE_MAX 4096U /* fetches that wait */
#define AGE_MIN_MS 1000U /* so long, at least, a guess may be right */

/* A chain becomes longer while more than 7 in 10 of its last ones are used. */
static void outcome(struct zns_mem *m, bool used)
{
	struct ahead *a = &m->ahead;

	pthread_mutex_lock(&a->lock);
	if (used)
		a->depth = zns_min(a->depth + RIGHT, PREDICT_CHAIN * AHEAD_DEPTH);
	else
		a->depth = zns_max(a->depth, AHEAD_DEPTH + WRONG) - WRONG;
	pthread_mutex_unlock(&a->lock);
	if (used)
		m->sh->ahead_used++;
	else
		m->sh->ahead_unused++;
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

/* What nobody asked for while it would have been in memory. */
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
		outcome(m, false);
		forget_link(m, &wrong);
	} while (true);
}

/* With the lock. */
static unsigned int depth(struct ahead *a)
{
	unsigned int n = zns_max(a->depth / AHEAD_DEPTH, 1U);

	return n > 1 || a->tries++ % TRY == 0 ? n : 0;
}

/* The last of a chain was asked for, so most likely those before it were used; nobody faulted. */
static void chain_used(struct proc *p, uint32_t block)
{
	uint32_t before[PREDICT_CHAIN];
	unsigned int n;

	outcome(p->m, true);
	pthread_mutex_lock(&p->m->ahead.lock);
	n = predict_before(&p->predict, block, before);
	pthread_mutex_unlock(&p->m->ahead.lock);
	while (n--)
		record_touch(p, before[n] * UNIT);
}

void ahead_fault(struct proc *p, uint64_t addr)
{
	struct zns_mem *m = p->m;
	uint32_t block = (uint32_t)(addr / UNIT), next[PREDICT_CHAIN], fetch[PREDICT_CHAIN];
	unsigned int n, nr = 0;
	bool full, predicted;

	judge(m);
	pthread_mutex_lock(&m->ahead.lock);
	predicted = guess_asked(&m->ahead.guesses, p->born, block);
	pthread_mutex_unlock(&m->ahead.lock);
	if (predicted)
		chain_used(p, block);
	if (m->sh->no_predict)
		return;
	pthread_mutex_lock(&m->queue.lock);
	full = m->queue.ahead.nr >= QUEUE_MAX;
	pthread_mutex_unlock(&m->queue.lock);
	pthread_mutex_lock(&m->ahead.lock);
	n = predict_fault(&p->predict, block, !predicted,
			  full || hiber_rests(m) ? 0 : depth(&m->ahead), next);
	pthread_mutex_unlock(&m->ahead.lock);
	for (unsigned int i = 0; i < n; i++)
		if (STATE(unit_at(p, next[i] * UNIT)->word) == U_ZONE)
			fetch[nr++] = next[i];
	for (unsigned int i = 0; i < nr; i++)
		fault_push(&m->queue, p, fetch[i] * UNIT, i + 1 == nr ? FETCH_COPY : FETCH);
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

	/* going to rest: it would come back behind the evictor */
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
	/* its place may be given up meanwhile: then it is not found, or its bytes are others */
	if (m->store.get(m->store.arg, ref, buf, NULL) || u->word != word)
		return;
	m->sh->ahead_units++;
	spare_put(p, u, ref, buf, SPARE_AHEAD);
	pthread_mutex_lock(&m->ahead.lock);
	guess_add(&m->ahead.guesses, (struct guess){ p->born, (uint32_t)(base / UNIT), now_ms() });
	pthread_mutex_unlock(&m->ahead.lock);
}
