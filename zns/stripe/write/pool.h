/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_POOL_H
#define ZNS_WRITE_POOL_H
/* Buffers of one stripe unit each. A buffer that is given back stays allocated for the next one.
 * There is no lock: the writer's guards the pool. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slab;

struct pool {
	size_t unit, align; /* bytes */
	bool huge; /* the dump will write enough to be worth clearing huge pages */
	struct slab *slabs;
	uint8_t *free; /* buffers, chained by their first bytes */
};

uint8_t *pool_get(struct pool *p); /* NULL: no memory */
void pool_put(struct pool *p, uint8_t *unit);
void pool_fini(struct pool *p);

#endif
