/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_RETENTION_H
#define ZNS_RETENTION_H
/* Decides which checkpoints of a container a retention rule removes. Pure functions, used by both
 * the broker and `znsctl gc`. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns-record.pb-c.h"

struct zns_retained {
	int64_t created_ns; /* time of the commit, CLOCK_REALTIME */
	bool pinned; /* the checkpoint is neither counted nor removed */
	/* the checkpoint cannot be restored, so it is removed like others but not counted */
	bool pre_dump;
	bool needed; /* a checkpoint that is not in the list has this one as its parent */
	size_t parent; /* 1 + the parent's index in the list, or 0 */
	bool due; /* result: the rule removes it */
	/* result: the rule would remove it, but a checkpoint that stays has it as a parent */
	bool held;
};

/*
 * Applies a rule. @v: the container's checkpoints in the order of their commits. A checkpoint is
 * due if @keep newer ones exist (0: no limit), or if its commit is at least @ttl_s seconds ago (0:
 * no limit). The newest one that is not pinned is never due, so that a wrong clock or a schedule
 * that stopped does not remove the last copy. A parent of one that stays is never due. Returns how
 * many are due.
 */
size_t zns_retention(struct zns_retained *v, size_t nr, uint32_t keep, uint64_t ttl_s,
		     int64_t now_ns);

/* One checkpoint in the list of all checkpoints of a device. */
struct zns_ruled {
	const ZnsPb__Checkpoint *c;
	bool pinned;
	bool in_use; /* a running dump has this checkpoint as its parent */
	/* results: due: a rule removes it; held: it would, but other checkpoints need it. Both are
	 * false for other containers' checkpoints and for those that have only pages */
	bool due, held;
};

/* Applies @rule to its container, given all @nr checkpoints in the order of their commits. Returns
 * how many are due, or -ENOMEM. */
ssize_t zns_retention_rule(const ZnsPb__Retention *rule, struct zns_ruled *v, size_t nr,
			   int64_t now_ns);

#endif
