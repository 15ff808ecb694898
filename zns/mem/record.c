/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What an activation touched, in the order in which it came back: a list of units in memory that a
 * successor gets. A wake reads it ahead. What was read ahead says nothing about its use any more,
 * so each wake leaves out every sixteenth, another one each time: those that nobody misses go.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "hiber.h"

#define FIND (2U * RECORD_MAX) /* places of the hash table */
#define UNIT_BITS 31
#define LEFT_OUT (1ULL << 63)
#define KEEP (RECORD_MAX / 4 * 3) /* so that there is room for what is new */
#define LEAVE_EACH 16U

static uint64_t key_of(const struct zns_mem *m, const struct proc *p, uint64_t base)
{
	return (uint64_t)(p->sh - m->sh->proc) << UNIT_BITS | base / UNIT;
}

static uint32_t spread(uint64_t key)
{
	return (uint32_t)((key * 0x9E3779B97F4A7C15ULL) >> 40);
}

/* Where the key is, or would be: its number + 1, or 0. */
static uint32_t *find(const struct zns_mem *m, uint64_t key)
{
	const struct shared_hiber *h = &m->sh->hiber;
	uint32_t i = spread(key) % FIND;

	while (m->hiber.find[i] && (h->unit[m->hiber.find[i] - 1] & ~LEFT_OUT) != key)
		i = (i + 1) % FIND;
	return &m->hiber.find[i];
}

static void build(struct zns_mem *m)
{
	struct shared_hiber *h = &m->sh->hiber;

	memset(m->hiber.find, 0, FIND * sizeof(*m->hiber.find));
	h->nr = zns_min((uint32_t)h->nr, RECORD_MAX);
	for (uint32_t i = 0; i < h->nr; i++)
		*find(m, h->unit[i] & ~LEFT_OUT) = i + 1;
}

int record_make(struct zns_mem *m)
{
	m->hiber.find = mmap(NULL, FIND * sizeof(*m->hiber.find), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m->hiber.find == MAP_FAILED) {
		m->hiber.find = NULL;
		return -ENOMEM;
	}
	build(m);
	return 0;
}

void record_free(struct zns_mem *m)
{
	if (m->hiber.find)
		munmap(m->hiber.find, FIND * sizeof(*m->hiber.find));
	m->hiber.find = NULL;
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
		h->missed += (h->unit[*at - 1] & LEFT_OUT) != 0;
		h->unit[*at - 1] = key;
	} else if (h->nr < RECORD_MAX) {
		h->unit[h->nr] = key;
		*at = ++h->nr;
	}
	pthread_mutex_unlock(&m->hiber.record);
}

void record_turn(struct zns_mem *m)
{
	struct shared_hiber *h = &m->sh->hiber;
	uint32_t n = 0;

	pthread_mutex_lock(&m->hiber.record);
	/* killed in between, it has some units twice, which does no harm */
	for (uint32_t i = 0; i < h->nr && n < KEEP; i++)
		if (!(h->unit[i] & LEFT_OUT))
			h->unit[n++] = h->unit[i];
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
	key = m->sh->hiber.unit[i] & ~LEFT_OUT;
	*slot = (unsigned int)(key >> UNIT_BITS);
	*base = (key & ((1ULL << UNIT_BITS) - 1)) * UNIT;
	return *slot < PROCS_MAX;
}

bool record_leave_out(struct zns_mem *m, uint32_t i)
{
	struct shared_hiber *h = &m->sh->hiber;
	bool out;

	pthread_mutex_lock(&m->hiber.record);
	/* by its key, which stays while its number does not */
	out = i < h->nr && (spread(h->unit[i] & ~LEFT_OUT) + h->wakes) % LEAVE_EACH == 0;
	h->left_out += out && !(h->unit[i] & LEFT_OUT);
	if (out)
		h->unit[i] |= LEFT_OUT;
	pthread_mutex_unlock(&m->hiber.record);
	return out;
}
