/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_TABLE_H
#define BROKER_TABLE_H
/*
 * Lists every request of the broker once: the member of zns_pb.request (images/zns-broker.proto),
 * and what its connection must have. Its handler is `serve_` and the name.
 */
#include "requests.h"

#define REQUESTS(ASKS)                   \
	ASKS(dump_begin, NOTHING)        \
	ASKS(progress, LEASE)            \
	ASKS(zone_get, DUMP)             \
	ASKS(dump_room, DUMP)            \
	ASKS(commit, DUMP)               \
	ASKS(abort, NOTHING)             \
	ASKS(restore_begin, NOTHING)     \
	ASKS(compact_begin, NOTHING)     \
	ASKS(compact_zone, COMPACTION)   \
	ASKS(compact_step, COMPACTION)   \
	ASKS(compact_commit, COMPACTION) \
	ASKS(memory_begin, NOTHING)      \
	ASKS(memory_zone, MEMORY)        \
	ASKS(memory_free, MEMORY)        \
	ASKS(memory_step, MEMORY)        \
	ASKS(memory_seal, DUMP)          \
	ASKS(ls, NOTHING)                \
	ASKS(status, NOTHING)            \
	ASKS(zones, NOTHING)             \
	ASKS(profile, NOTHING)           \
	ASKS(history, NOTHING)           \
	ASKS(rm, NOTHING)                \
	ASKS(rm_check, NOTHING)          \
	ASKS(reserve, NOTHING)           \
	ASKS(release, NOTHING)           \
	ASKS(reset, NOTHING)             \
	ASKS(retain, NOTHING)            \
	ASKS(mark, NOTHING)              \
	ASKS(first_pages, LEASE)         \
	ASKS(encryption, NOTHING)        \
	ASKS(rekey, NOTHING)             \
	ASKS(quit, NOTHING)

enum needs {
	NEEDS_NOTHING,
	NEEDS_DUMP, /* a running dump, import or flattening */
	NEEDS_COMPACTION,
	NEEDS_MEMORY, /* a memory context */
	NEEDS_LEASE, /* a lease of any kind */
};

#define DECLARE(name, needs) \
	int serve_##name(struct znsd *d, const struct call *x, struct reply *rep);
REQUESTS(DECLARE)
#undef DECLARE

#endif
