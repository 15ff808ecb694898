/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_POOL_H
#define ZNS_WRITE_POOL_H
/*
 * Buffers of one stripe unit each, taken and given back all the time. What was once allocated stays
 * for the next one. No lock of its own: the writer's guards it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slab;

struct pool {
	size_t unit, align; /* bytes */
	bool huge; /* enough will be written that huge pages pay */
	struct slab *slabs;
	uint8_t *free; /* buffers, chained by their first bytes */
};

uint8_t *pool_get(struct pool *p); /* NULL: no memory */
void pool_put(struct pool *p, uint8_t *unit);
void pool_fini(struct pool *p);

#endif
