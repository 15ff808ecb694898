/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_POOL_H
#define ZNS_WRITE_POOL_H
/* Buffers of one stripe unit each. A buffer that is returned stays allocated for the next user. The
 * pool has no lock of its own: the writer's lock protects it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slab;

struct pool {
	size_t unit, align; /* in bytes */
	bool huge; /* the dump will write so much that clearing huge pages pays off */
	struct slab *slabs;
	uint8_t *free; /* list of free buffers, linked through their first bytes */
};

uint8_t *pool_get(struct pool *p); /* NULL: out of memory */
void pool_put(struct pool *p, uint8_t *unit);
void pool_fini(struct pool *p);

#endif
