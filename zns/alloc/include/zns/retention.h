/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_RETENTION_H
#define ZNS_RETENTION_H
/* Which checkpoints of one container a rule removes. Pure functions: the broker and `znsctl gc` ask
 * the same ones. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns-record.pb-c.h"

struct zns_retained {
	int64_t created_ns; /* of the commit, CLOCK_REALTIME */
	bool pinned; /* neither counted nor removed */
	bool pre_dump; /* cannot be restored: removed like others, but not counted */
	bool needed; /* a checkpoint that is not in the list is built on it */
	size_t parent; /* 1 + the parent's place in the list, or 0 */
	bool due; /* out: the rule removes it */
	bool held; /* out: it would be due, but something that stays is built on it */
};

/*
 * @v: the container's checkpoints in order of their commit. A checkpoint is due if @keep newer ones
 * exist (0: any number may stay), or if its commit is @ttl_s seconds ago or longer (0: no limit).
 * The newest one that is not pinned is never due: a wrong clock, or a schedule that stopped, must
 * not take the last copy. A parent of one that stays is never due. Returns how many are due.
 */
size_t zns_retention(struct zns_retained *v, size_t nr, uint32_t keep, uint64_t ttl_s,
		     int64_t now_ns);

/* One checkpoint in the list of all checkpoints of a device. */
struct zns_ruled {
	const ZnsPb__Checkpoint *c;
	bool pinned;
	bool in_use; /* a dump that runs is built on it */
	/* results: due, a rule removes it; held, a rule keeps it. Both are false for other
	 * containers' checkpoints and for those that have pages only */
	bool due, held;
};

/* What @rule does to its container, of all @nr checkpoints in order of their commit. -ENOMEM, or
 * how many are due. */
ssize_t zns_retention_rule(const ZnsPb__Retention *rule, struct zns_ruled *v, size_t nr,
			   int64_t now_ns);

#endif
