/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_MEMORY_H
#define BROKER_MEMORY_H
/*
 * Memory contexts in the broker: their leases (memory.c), how many zones they may open
 * (memory_room.c), and how much they may have (memory_ceiling.c). All that the broker's other files
 * know of them is the table in memory.c.
 */
#include "../../broker/policy/policy.h"

/* A context lives as long as its lock file has a holder, with or without a connection. */
struct memory_lease {
	int fd; /* the lock file, without a lock */
	uint32_t width; /* zones that it may write at once */
	uint64_t look_ns; /* when the lock file is looked at next */
	uint64_t wrote_ns; /* when it last reported writes, or got a zone */
	uint64_t live, dead, written, read; /* bytes, as it reported last */
	uint64_t group_limit; /* the same, of its program's cgroup; 0: none */
	/* memory_ceiling.c: the tenant's limits, as they were looked up last */
	char tenant[512], refused[400];
	uint64_t max_memory, total_memory, ceiling_ns;
	uint32_t rule_line, max_mibps;
	bool wrong; /* the file is; `refused` says how */
	uint64_t allowed, allowed_ns; /* bytes that it may have written by then */
};

extern const struct yielding memory_leases;

static inline bool memory_is(const struct lease *l)
{
	return l->kind == LEASE_YIELDING && l->yields.ops == &memory_leases;
}

/* Of a lease for which memory_is() holds. */
static inline struct memory_lease *memory_of(const struct lease *l)
{
	return l->yields.own;
}

/* memory.c */
int memory_begin(struct znsd *d, const struct holder *who, const ZnsPb__MemoryBegin *q,
		 struct lease **out, struct zns_err *err);
int memory_zone(struct znsd *d, struct lease *l, const ZnsPb__MemoryZone *q, uint32_t *zone,
		struct zns_err *err);
int memory_free(struct znsd *d, struct lease *l, const ZnsPb__MemoryFree *q, struct zns_err *err);
/* @busy: room for the groups that it named; *nr of them are busy */
int memory_step(struct znsd *d, struct lease *l, const ZnsPb__MemoryStep *q, uint32_t *busy,
		size_t *nr, bool *give_way, struct zns_err *err);
/* Zones of the context that checkpoints name; @zones has room for all that it has. */
size_t memory_named(const struct znsd *d, const struct lease *l, uint32_t *zones);

/* memory_room.c: may it write one zone more? Must it give back those that it has? */
bool memory_room(struct znsd *d, const struct lease *l);
bool memory_has_its_part(const struct znsd *d); /* all contexts have, and may have no more */
bool memory_gives_back(struct znsd *d, const struct lease *l);

/* memory_ceiling.c: why it may write nothing more now, as a line; NULL: *@room bytes more. And
 * whether it has written faster than it may. */
const char *memory_refused(const struct znsd *d, struct lease *l, uint64_t *room);
bool memory_too_fast(struct lease *l);

#endif
