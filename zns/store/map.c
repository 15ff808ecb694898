/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A hash table with open addressing and linear probing. Deletion shifts later entries back. A slot
 * is empty if val is NULL. */
#include <stdlib.h>
#include "store_int.h"

int zns_map_room(struct zns_map *m)
{
	size_t cap = m->cap ? m->cap * 2 : 64, i;
	struct zns_map old = *m;

	if (m->cap && (m->nr + 1) * 3 <= m->cap * 2)
		return 0;
	m->slots = calloc(cap, sizeof(*m->slots));
	if (!m->slots) {
		*m = old;
		return -ENOMEM;
	}
	m->cap = cap;
	m->nr = 0;
	for (i = 0; i < old.cap; i++)
		if (old.slots[i].val)
			zns_map_add(m, old.slots[i].hash, old.slots[i].val);
	free(old.slots);
	return 0;
}

void zns_map_add(struct zns_map *m, uint64_t hash, void *val)
{
	size_t i = hash & (m->cap - 1);

	while (m->slots[i].val)
		i = (i + 1) & (m->cap - 1);
	m->slots[i].hash = hash;
	m->slots[i].val = val;
	m->nr++;
}

void *zns_map_find(const struct zns_map *m, uint64_t hash, zns_map_eq eq, const void *key)
{
	size_t i;

	if (!m->cap)
		return NULL;
	for (i = hash & (m->cap - 1); m->slots[i].val; i = (i + 1) & (m->cap - 1))
		if (m->slots[i].hash == hash && eq(m->slots[i].val, key))
			return m->slots[i].val;
	return NULL;
}

void zns_map_del(struct zns_map *m, uint64_t hash, const void *val)
{
	size_t mask = m->cap - 1, i, hole;

	if (!m->cap)
		return;
	for (hole = hash & mask; m->slots[hole].val != val; hole = (hole + 1) & mask)
		if (!m->slots[hole].val)
			return;
	for (i = (hole + 1) & mask; m->slots[i].val; i = (i + 1) & mask) {
		/* An entry may move back into the hole unless the slot of its hash lies behind the
		 * hole. */
		if (((i - (m->slots[i].hash & mask)) & mask) < ((i - hole) & mask))
			continue;
		m->slots[hole] = m->slots[i];
		hole = i;
	}
	m->slots[hole].val = NULL;
	m->nr--;
}

void zns_map_fini(struct zns_map *m)
{
	free(m->slots);
	*m = (struct zns_map){ 0 };
}
