/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The record lists the units that the last activations touched, in order of first use. (An
 * activation is a burst of use of an idle program, see memory-inside.md.) It is read ahead by a
 * wake, or when an idle context becomes active (active.c). The next pager inherits it.
 *
 * A unit that was read ahead raises no fault, so its use is not noticed. Therefore one unit of 16,
 * another one each time, is not read ahead. It is a sample: if no thread touches it, it leaves the
 * record.
 *
 * The part of the samples that is touched shows how right the record is. Units of one activation
 * are read ahead while it is at least 70 %, units of several while it is at least 50 %. The next
 * pager assumes both at first.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "hiber.h"

#define FIND (2U * RECORD_MAX) /* slots of the hash table */
#define UNIT_BITS 31
#define LEFT_OUT (1ULL << 63)
#define AGAIN (1ULL << 62) /* bit: the unit was touched in more than one activation */
#define TOUCHED (1ULL << 61) /* bit: the unit was touched in this activation */
#define KEY(word) ((word) & ~(LEFT_OUT | AGAIN | TOUCHED))
/* Entries that are kept at the end of an activation; the others make room for new ones. */
#define KEEP (RECORD_MAX / 4 * 3)
#define LEAVE_EACH 16U
#define MEASURED 4U /* fewest samples from which a result is computed */
/* Percentage of samples that must be used: of units touched in one activation, and in several. */
static const uint32_t right_min[RECORD_GATES] = { 70, 50 };

static uint64_t key_of(const struct zns_mem *m, const struct proc *p, uint64_t base)
{
	return (uint64_t)(p->sh - m->sh->proc) << UNIT_BITS | base / UNIT;
}

static uint32_t spread(uint64_t key)
{
	return (uint32_t)((key * 0x9E3779B97F4A7C15ULL) >> 40);
}

/*
 * Returns the slot of the key, or the free one where it belongs. A slot contains the entry's index
 * + 1, or 0.
 */
static uint32_t *find(const struct zns_mem *m, uint64_t key)
{
	const struct shared_hiber *h = &m->sh->hiber;
	uint32_t i = spread(key) % FIND;

	while (m->hiber.find[i] && KEY(h->unit[m->hiber.find[i] - 1]) != key)
		i = (i + 1) % FIND;
	return &m->hiber.find[i];
}

static void build(struct zns_mem *m)
{
	struct shared_hiber *h = &m->sh->hiber;

	memset(m->hiber.find, 0, FIND * sizeof(*m->hiber.find));
	h->nr = zns_min((uint32_t)h->nr, RECORD_MAX);
	for (uint32_t i = 0; i < h->nr; i++)
		*find(m, KEY(h->unit[i])) = i + 1;
}

static unsigned int gate_of(uint64_t word)
{
	return (word & AGAIN) != 0;
}

/* Chosen by the key, since the index of an entry changes. */
static bool is_sample(const struct zns_mem *m, uint64_t word)
{
	return (spread(KEY(word)) + m->hiber.turns) % LEAVE_EACH == 0;
}

static bool is_open(const struct zns_mem *m, unsigned int gate)
{
	return m->hiber.gate[gate].right >= right_min[gate];
}

int record_make(struct zns_mem *m)
{
	m->hiber.find = mmap(NULL, FIND * sizeof(*m->hiber.find), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->hiber.find == MAP_FAILED) {
		m->hiber.find = NULL;
		return -ENOMEM;
	}
	for (unsigned int g = 0; g < RECORD_GATES; g++)
		m->hiber.gate[g].right = 100;
	build(m);
	/* units that the dead pager has left out are no samples of this pager */
	for (uint32_t i = 0; i < m->sh->hiber.nr; i++)
		m->sh->hiber.unit[i] &= ~LEFT_OUT;
	return 0;
}

void record_free(struct zns_mem *m)
{
	if (m->hiber.find)
		munmap(m->hiber.find, FIND * sizeof(*m->hiber.find));
	m->hiber.find = NULL;
}

/* Call with the lock held. @at: from find(). */
static void add(struct zns_mem *m, uint64_t key, uint32_t *at)
{
	struct shared_hiber *h = &m->sh->hiber;

	if (h->nr >= RECORD_MAX)
		return;
	h->unit[h->nr] = key | TOUCHED;
	*at = ++h->nr;
}

void record_touch(struct proc *p, uint64_t base)
{
	struct zns_mem *m = p->m;
	struct shared_hiber *h = &m->sh->hiber;
	uint64_t key = key_of(m, p, base);
	uint32_t *at;

	pthread_mutex_lock(&m->hiber.record);
	at = find(m, key);
	if (*at) {
		uint64_t word = h->unit[*at - 1];

		if (word & LEFT_OUT && is_sample(m, word)) {
			m->hiber.gate[gate_of(word)].missed++;
			h->missed += is_open(m, gate_of(word));
		}
		h->unit[*at - 1] = key | TOUCHED | (word & TOUCHED ? word & AGAIN : AGAIN);
	} else {
		add(m, key, at);
	}
	pthread_mutex_unlock(&m->hiber.record);
}

void record_passed(struct proc *p, uint64_t base, unsigned int nr)
{
	struct zns_mem *m = p->m;

	pthread_mutex_lock(&m->hiber.record);
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t key = key_of(m, p, base + i * UNIT);
		uint32_t *at = find(m, key);

		if (!*at)
			add(m, key, at);
	}
	pthread_mutex_unlock(&m->hiber.record);
}

/* Sets the reliability half way between the old value and the last result. */
static void measure(struct record_gate *g)
{
	if (g->left < MEASURED)
		return;
	g->right = (g->right + 100 * g->missed / g->left) / 2;
	g->left = g->missed = 0;
}

void record_turn(struct zns_mem *m)
{
	struct shared_hiber *h = &m->sh->hiber;
	uint32_t n = 0;

	pthread_mutex_lock(&m->hiber.record);
	m->hiber.turns++;
	for (unsigned int g = 0; g < RECORD_GATES; g++)
		measure(&m->hiber.gate[g]);
	/* if the pager is killed here, some units are listed twice, which does no harm */
	for (uint32_t i = 0; i < h->nr && n < KEEP; i++)
		if (!(h->unit[i] & LEFT_OUT))
			h->unit[n++] = h->unit[i] & ~TOUCHED;
	h->nr = n;
	build(m);
	pthread_mutex_unlock(&m->hiber.record);
}

uint32_t record_nr(const struct zns_mem *m)
{
	return m->sh->hiber.nr;
}

bool record_at(const struct zns_mem *m, uint32_t i, unsigned int *slot, uint64_t *base)
{
	uint64_t key;

	if (i >= m->sh->hiber.nr || i >= RECORD_MAX)
		return false;
	key = KEY(m->sh->hiber.unit[i]);
	*slot = (unsigned int)(key >> UNIT_BITS);
	*base = (key & ((1ULL << UNIT_BITS) - 1)) * UNIT;
	return *slot < PROCS_MAX;
}

bool record_leave_out(struct zns_mem *m, uint32_t i)
{
	struct shared_hiber *h = &m->sh->hiber;
	unsigned int gate;
	uint64_t word;
	bool out, sample;

	pthread_mutex_lock(&m->hiber.record);
	word = i < h->nr ? h->unit[i] : 0;
	gate = gate_of(word);
	sample = i < h->nr && is_sample(m, word);
	out = i < h->nr && (sample || !is_open(m, gate));
	if (sample && !(word & LEFT_OUT)) {
		m->hiber.gate[gate].left++;
		h->left_out += is_open(m, gate);
	}
	if (out)
		h->unit[i] = word | LEFT_OUT;
	pthread_mutex_unlock(&m->hiber.record);
	return out;
}

bool record_allows(struct proc *p, uint64_t base)
{
	struct zns_mem *m = p->m;
	struct shared_hiber *h = &m->sh->hiber;
	uint32_t at;
	bool does;

	pthread_mutex_lock(&m->hiber.record);
	at = *find(m, key_of(m, p, base));
	does = !at || !(h->unit[at - 1] & LEFT_OUT) || !is_sample(m, h->unit[at - 1]);
	if (at && does)
		h->unit[at - 1] &= ~LEFT_OUT;
	pthread_mutex_unlock(&m->hiber.record);
	return does;
}
