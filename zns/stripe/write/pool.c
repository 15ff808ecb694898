/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Buffers of one stripe unit each. See pool.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "pool.h"
#include "zns/util.h"

#define HUGE_PAGE MIB(2)

struct slab {
	uint8_t *mem;
	struct slab *next;
};

/* Buffers are parts of slabs that consist of huge pages: a direct write of a megabyte then pins one
 * page instead of 256 (a third of the write's CPU time; test/bench/compare.py). A small dump does
 * not use huge pages, since clearing three of them would double its time. */
static int slab_add(struct pool *p)
{
	size_t step = zns_align_up(p->unit, zns_max((size_t)4096, p->align)),
	       len = zns_align_up(step, HUGE_PAGE);
	struct slab *s = malloc(sizeof(*s));
	uint8_t *mem = aligned_alloc(HUGE_PAGE, len);

	if (!s || !mem) {
		free(s);
		free(mem);
		return -ENOMEM;
	}
	if (p->huge)
		/* an error is ignored: without huge pages it is only slower */
		madvise(mem, len, MADV_HUGEPAGE);
	*s = (struct slab){ mem, p->slabs };
	p->slabs = s;
	for (size_t at = 0; at + step <= len; at += step)
		pool_put(p, mem + at);
	return 0;
}

uint8_t *pool_get(struct pool *p)
{
	uint8_t *unit;

	if (!p->free && slab_add(p))
		return NULL;
	unit = p->free;
	memcpy(&p->free, unit, sizeof(p->free));
	return unit;
}

void pool_put(struct pool *p, uint8_t *unit)
{
	memcpy(unit, &p->free, sizeof(p->free));
	p->free = unit;
}

void pool_fini(struct pool *p)
{
	while (p->slabs) {
		struct slab *s = p->slabs;

		p->slabs = s->next;
		free(s->mem);
		free(s);
	}
}
