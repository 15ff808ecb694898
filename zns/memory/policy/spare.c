/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps copies in DRAM of some units that are on zones, for a short time: those evicted last, and
 * those expected to be used next. A fault on one of them waits for no device, and gives
 * information. A unit of the first kind was evicted too early, and is made the youngest (so reads
 * are noticed too). For a unit of the second kind the prediction was right. Each kind has a ring; a
 * new copy replaces the oldest one. The copies count towards the budget.
 */
#include <string.h>
#include <sys/mman.h>

#include "../engine/mem.h"

#define MIN 8U /* fewest units of a ring */
/* A ring gets at most 1/share of the budget. */
static const uint32_t share[SPARE_KINDS] = { [SPARE_OUT] = 16, [SPARE_AHEAD] = 64 };

struct spare_ring {
	uint64_t place[SPARE_MAX]; /* place of the unit; 0: the slot is empty */
	uint64_t hash[SPARE_MAX];
	/* number of the process, and number of its unit */
	uint32_t born[SPARE_MAX], block[SPARE_MAX];
	/* next: index of the next copy; touched: number of slots that were ever used */
	uint32_t next, touched;
	uint8_t *copy;
};

struct spare {
	pthread_mutex_t lock;
	struct spare_ring ring[SPARE_KINDS];
};

int spare_open(struct zns_mem *m)
{
	struct spare *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	m->spare = s;
	for (unsigned int i = 0; i < SPARE_KINDS; i++) {
		s->ring[i].copy = mmap(NULL, SPARE_MAX * UNIT, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (s->ring[i].copy == MAP_FAILED) {
			s->ring[i].copy = NULL;
			return -errno;
		}
		madvise(s->ring[i].copy, SPARE_MAX * UNIT, MADV_DONTDUMP);
	}
	return 0;
}

void spare_close(struct zns_mem *m)
{
	for (unsigned int i = 0; m->spare && i < SPARE_KINDS; i++)
		if (m->spare->ring[i].copy)
			munmap(m->spare->ring[i].copy, SPARE_MAX * UNIT);
	free(m->spare);
	m->spare = NULL;
}

uint64_t spare_bytes(struct zns_mem *m)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < SPARE_KINDS; i++)
		sum += m->spare->ring[i].touched * UNIT;
	return sum;
}

static uint32_t block_of(const struct proc *p, const struct unit *u)
{
	return (uint32_t)(u - p->u);
}

static int find(const struct spare_ring *r, const struct proc *p, const struct unit *u,
		struct zns_pages_ref ref)
{
	for (uint32_t i = 0; i < r->touched; i++)
		if (r->place[i] == ref.place && r->hash[i] == ref.hash && r->born[i] == p->born &&
		    r->block[i] == block_of(p, u))
			return (int)i;
	return -1;
}

void spare_put(struct proc *p, const struct unit *u, struct zns_pages_ref ref, const void *buf,
	       enum spare_kind kind)
{
	struct zns_mem *m = p->m;
	struct spare_ring *r = &m->spare->ring[kind];
	uint32_t nr = (uint32_t)zns_min(zns_max(m->sh->dram / share[kind] / UNIT, (uint64_t)MIN),
					(uint64_t)SPARE_MAX);
	uint32_t i;

	pthread_mutex_lock(&m->spare->lock);
	i = r->next % nr;
	r->next = i + 1;
	r->place[i] = ref.place;
	r->hash[i] = ref.hash;
	r->born[i] = p->born;
	r->block[i] = block_of(p, u);
	r->touched = zns_max(r->touched, i + 1);
	memcpy(r->copy + i * UNIT, buf, UNIT);
	pthread_mutex_unlock(&m->spare->lock);
}

bool spare_take(struct proc *p, const struct unit *u, struct zns_pages_ref ref, void *buf)
{
	struct spare *s = p->m->spare;
	int i = -1;

	pthread_mutex_lock(&s->lock);
	for (unsigned int k = 0; k < SPARE_KINDS && i < 0; k++) {
		i = find(&s->ring[k], p, u, ref);
		if (i < 0)
			continue;
		memcpy(buf, s->ring[k].copy + (size_t)i * UNIT, UNIT);
		s->ring[k].place[i] = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return i >= 0;
}

bool spare_has(struct proc *p, const struct unit *u, struct zns_pages_ref ref, enum spare_kind kind)
{
	struct spare *s = p->m->spare;
	bool has;

	pthread_mutex_lock(&s->lock);
	has = find(&s->ring[kind], p, u, ref) >= 0;
	pthread_mutex_unlock(&s->lock);
	return has;
}
