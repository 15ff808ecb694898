/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The write cache of the timing model: how full it is, and when it has room again. */
#include "emu_priv.h"

uint32_t emu_cache_units(const struct zns_emu_params *p)
{
	uint64_t n = MIB(p->cache_mib) / p->program_unit;

	return !p->cache_mib ? 0 : n ? (uint32_t)n : 1;
}

static void swap(uint64_t *a, uint64_t *b)
{
	uint64_t x = *a;

	*a = *b;
	*b = x;
}

/* Removes the earliest end time from the heap and returns it. */
static uint64_t pop(struct emu_cache *c)
{
	uint64_t first = c->end_ns[0];
	uint32_t at = 0, child;

	c->end_ns[0] = c->end_ns[--c->nr];
	while ((child = 2 * at + 1) < c->nr) {
		child += child + 1 < c->nr && c->end_ns[child + 1] < c->end_ns[child];
		if (c->end_ns[at] <= c->end_ns[child])
			break;
		swap(&c->end_ns[at], &c->end_ns[child]);
		at = child;
	}
	return first;
}

uint64_t emu_cache_accept(struct emu *e, uint64_t at)
{
	struct emu_cache *c = e->cache;

	/* none of our programs writes such a value: the shared memory was damaged */
	if (c->nr > emu_cache_units(&e->p))
		c->nr = 0;
	if (c->nr == emu_cache_units(&e->p)) {
		uint64_t free_ns = pop(c);

		at = zns_max(at, free_ns);
	}
	return at;
}

void emu_cache_hold(struct emu *e, uint64_t end)
{
	struct emu_cache *c = e->cache;
	uint32_t at;

	if (c->nr >= emu_cache_units(&e->p))
		return;
	at = c->nr++;
	c->end_ns[at] = end;
	for (; at && c->end_ns[(at - 1) / 2] > c->end_ns[at]; at = (at - 1) / 2)
		swap(&c->end_ns[(at - 1) / 2], &c->end_ns[at]);
}

void emu_cache_clear(struct emu *e)
{
	if (!e->cache)
		return;
	e->cache->nr = 0;
	emu_cal_clear(&e->cache->drain);
}
