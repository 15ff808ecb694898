/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_MEMORY_H
#define BROKER_MEMORY_H
/*
 * Memory contexts in the broker: their leases (memory.c), the limit of their open zones
 * (memory_room.c), and the limit of their bytes (memory_ceiling.c). Other files of the broker call
 * these only through the table of functions in memory.c.
 */
#include "../../broker/policy/policy.h"

/*
 * A context's lease. It exists as long as a process holds the lock on the context's lock file, with
 * or without a connection.
 */
struct memory_lease {
	int fd; /* descriptor of the lock file; it holds no lock */
	uint32_t width; /* most zones that it may write at once */
	uint64_t look_ns; /* when the lock file is to be checked next */
	uint64_t wrote_ns; /* when it last reported writes, or was granted a zone */
	uint64_t live, dead, written, read; /* bytes, from its last report */
	/* bytes that the cgroup of its program may use, from its last report; 0: no limit */
	uint64_t group_limit;
	/* memory_ceiling.c: the tenant's limits, as they were last read */
	char tenant[512], refused[400];
	uint64_t max_memory, total_memory, ceiling_ns;
	uint32_t rule_line, max_mibps;
	bool wrong; /* tenants.conf has an error; `refused` names it */
	/* it may have written `allowed` bytes at the time allowed_ns */
	uint64_t allowed, allowed_ns;
};

extern const struct yielding memory_leases;

static inline bool memory_is(const struct lease *l)
{
	return l->kind == LEASE_YIELDING && l->yields.ops == &memory_leases;
}

/* Call this only for a lease for which memory_is() is true. */
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
/*
 * Handles a context's report. @busy: *nr groups that the report names. Afterwards it contains only
 * those that dumps or restores use.
 */
int memory_step(struct znsd *d, struct lease *l, const ZnsPb__MemoryStep *q, uint32_t *busy,
		size_t *nr, bool *give_way, struct zns_err *err);
/*
 * Lists the context's zones with data that checkpoints refer to. @zones must have room for all
 * zones of the context.
 */
size_t memory_named(const struct znsd *d, const struct lease *l, uint32_t *zones);

/*
 * memory_room.c. memory_room(): may the context open one more zone? memory_gives_back(): must it
 * give back its open zones?
 */
bool memory_room(struct znsd *d, const struct lease *l);
/* Do all contexts together have as many zones as they may have? */
bool memory_has_its_part(const struct znsd *d);
bool memory_gives_back(struct znsd *d, const struct lease *l);

/*
 * memory_ceiling.c. memory_refused(): why the context may write nothing now, as text; NULL: it may
 * write *@room more bytes. memory_too_fast(): has it written faster than it may?
 */
const char *memory_refused(const struct znsd *d, struct lease *l, uint64_t *room);
bool memory_too_fast(struct lease *l);

#endif
