/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_MEMORY_H
#define BROKER_MEMORY_H
/*
 * Memory contexts in the broker: their leases (memory.c), how many zones they may open
 * (memory_room.c), and how many bytes they may have (memory_ceiling.c). Other files of the broker
 * know memory contexts only by the table of functions in memory.c.
 */
#include "../../broker/policy/policy.h"

/* A context's lease lives as long as a process has its lock file locked, with or without a
 * connection. */
struct memory_lease {
	int fd; /* the lock file; this descriptor holds no lock */
	uint32_t width; /* how many zones it may write at once */
	uint64_t look_ns; /* when the lock file is looked at next */
	uint64_t wrote_ns; /* when it last reported writes, or got a zone */
	uint64_t live, dead, written, read; /* bytes in its last report */
	/* bytes that its program's cgroup may use, by its last report; 0: no limit */
	uint64_t group_limit;
	/* memory_ceiling.c: the tenant's limits when they were last read */
	char tenant[512], refused[400];
	uint64_t max_memory, total_memory, ceiling_ns;
	uint32_t rule_line, max_mibps;
	bool wrong; /* tenants.conf has an error; `refused` names it */
	uint64_t allowed, allowed_ns; /* bytes that it may have written at allowed_ns */
};

extern const struct yielding memory_leases;

static inline bool memory_is(const struct lease *l)
{
	return l->kind == LEASE_YIELDING && l->yields.ops == &memory_leases;
}

/* Only for a lease for which memory_is() is true. */
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
/* Handles a context's report. @busy: the groups it named, of which *nr are left afterwards:
 * those that dumps or restores use. */
int memory_step(struct znsd *d, struct lease *l, const ZnsPb__MemoryStep *q, uint32_t *busy,
		size_t *nr, bool *give_way, struct zns_err *err);
/* The context's zones that checkpoints name. @zones must have room for all zones of the context. */
size_t memory_named(const struct znsd *d, const struct lease *l, uint32_t *zones);

/* memory_room.c: may the context open one more zone? Must it give back those that it has? */
bool memory_room(struct znsd *d, const struct lease *l);
/* do all contexts together have as many zones as they may have? */
bool memory_has_its_part(const struct znsd *d);
bool memory_gives_back(struct znsd *d, const struct lease *l);

/* memory_ceiling.c: why the context may write nothing now, as a line. NULL: it may write *@room
 * more bytes. And has it written faster than it may? */
const char *memory_refused(const struct znsd *d, struct lease *l, uint64_t *room);
bool memory_too_fast(struct lease *l);

#endif
