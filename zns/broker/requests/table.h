/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_TABLE_H
#define BROKER_TABLE_H
/*
 * The table of all requests of the broker, except those of packages (dispatch_register): for each
 * the member of zns_pb.request (images/zns-broker.proto), and the function that finds the lease
 * which its connection must have (dispatch.c). The handler's name is `serve_` and the request's
 * name.
 */
#include "requests.h"

#define REQUESTS(ASKS)                        \
	ASKS(dump_begin, need_nothing)        \
	ASKS(progress, need_lease)            \
	ASKS(zone_get, need_dump)             \
	ASKS(dump_room, need_dump)            \
	ASKS(commit, need_dump)               \
	ASKS(abort, need_nothing)             \
	ASKS(restore_begin, need_nothing)     \
	ASKS(compact_begin, need_nothing)     \
	ASKS(compact_zone, need_compaction)   \
	ASKS(compact_step, need_compaction)   \
	ASKS(compact_commit, need_compaction) \
	ASKS(memory_naming, need_dump)        \
	ASKS(ls, need_nothing)                \
	ASKS(status, need_nothing)            \
	ASKS(zones, need_nothing)             \
	ASKS(profile, need_nothing)           \
	ASKS(history, need_nothing)           \
	ASKS(rm, need_nothing)                \
	ASKS(rm_check, need_nothing)          \
	ASKS(reserve, need_nothing)           \
	ASKS(release, need_nothing)           \
	ASKS(reset, need_nothing)             \
	ASKS(resize, need_nothing)            \
	ASKS(retain, need_nothing)            \
	ASKS(mark, need_nothing)              \
	ASKS(first_pages, need_lease)         \
	ASKS(encryption, need_nothing)        \
	ASKS(rekey, need_nothing)             \
	ASKS(quit, need_nothing)

#define DECLARE(name, needs) \
	int serve_##name(struct znsd *d, const struct call *x, struct reply *rep);
REQUESTS(DECLARE)
#undef DECLARE

#endif
