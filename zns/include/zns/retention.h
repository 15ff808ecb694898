/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_RETENTION_H
#define ZNS_RETENTION_H
/* Which checkpoints of one container a rule removes. A pure function: the broker and `znsctl gc` ask the same one. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zns_retained {
	int64_t created_ns;	/* of the commit, CLOCK_REALTIME */
	bool pinned;		/* neither counted nor removed */
	bool pre_dump;		/* no restore can be made of it: removed as others, but not counted */
	bool needed;		/* something that is not in the list is built on it */
	size_t parent;		/* 1 + its place in the list, or 0 */
	bool due;		/* out */
};

/*
 * @v: the container's checkpoints in order of their commit. Due are those that have @keep newer ones (0: any number may
 * stay) and those whose commit is @ttl_s seconds ago or longer (0: no limit). Never the newest one that is not pinned:
 * a wrong clock or a dump that stopped being made must not take the last copy. Never a parent of one that stays.
 * Returns how many are due.
 */
size_t zns_retention(struct zns_retained *v, size_t nr, uint32_t keep, uint64_t ttl_s, int64_t now_ns);

#endif
