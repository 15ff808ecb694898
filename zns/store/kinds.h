/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_KINDS_H
#define ZNS_KINDS_H
/*
 * The kinds of record that the log has, one row each (kinds.c). All code that puts a record into
 * the catalogue uses these rows: changes by the broker, reading the log when the store is opened,
 * and fsck on a damaged log. Snapshots are written by means of these rows too, and records are
 * printed with their names and message descriptors.
 */
#include "store_int.h"

struct zns_salvage;

#define ZNS_NOWHERE SIZE_MAX

struct zns_kind {
	uint16_t type; /* a value of enum zns_frame_type */
	const char *name; /* name of the kind, for messages */
	const ProtobufCMessageDescriptor *desc;
	/* offset in struct zns_state of the list for this kind, which is written to snapshots;
	 * ZNS_NOWHERE: it has no list */
	size_t list;
	/* offset of the container's name in the message; ZNS_NOWHERE: it has none */
	size_t container;
	/* Is the message valid by itself? @code is the error to return if not: -EINVAL for what a
	 * caller passes, -EBADMSG for what was read. */
	int (*check)(const void *msg, const struct zns_limits *l, int code, struct zns_err *err);
	/* Does the record fit the present catalogue? NULL: always. @snapshot: it is part of a
	 * snapshot. */
	int (*may)(struct zns_state *st, const void *msg, bool snapshot, int code,
		   struct zns_err *err);
	/* Applies the record. Takes ownership of @e. Cannot fail after a successful
	 * zns_state_room(). */
	void (*apply)(struct zns_state *st, struct zns_ent *e);
	/*
	 * Applies a record although records before it may be missing. Takes ownership of @msg,
	 * which was checked. NULL: the record is applied if it fits, else skipped.
	 */
	int (*salvage)(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r);
};

/* Returns row @i, in the order of a snapshot; NULL: @i is beyond the last row. */
const struct zns_kind *zns_kind_at(size_t i);
const struct zns_kind *zns_kind_of(uint16_t type); /* NULL: unknown type */
/* the list for this kind; NULL: it has none */
const struct zns_list *zns_kind_list(const struct zns_kind *k, const struct zns_state *st);

/* Decodes a message and checks it by itself. -EBADMSG, or -ENOMEM. */
int zns_record_decode(const struct zns_kind *k, const uint8_t *payload, size_t len,
		      const struct zns_limits *l, ProtobufCMessage **out, struct zns_err *err);
/* Makes an entry for the catalogue; takes ownership of @msg, also on failure (NULL is returned
 * then). */
struct zns_ent *zns_record_ent(struct zns_state *st, const struct zns_kind *k,
			       ProtobufCMessage *msg, struct zns_err *err);
/* Checks and applies a record; needs zns_state_room() before. -EBADMSG: @err names the record. */
int zns_record_apply(struct zns_state *st, const struct zns_frame *f, bool snapshot,
		     struct zns_err *err);
/* Like zns_record_apply(), but skips a record that is unknown, damaged or does not fit. -ENOMEM. */
int zns_record_salvage(struct zns_state *st, const struct zns_frame *f, struct zns_salvage *r);
/* Applies a copy of a caller's message. -EINVAL, or the error of the kind's checks. */
int zns_record_set(struct zns_state *st, uint16_t type, const ProtobufCMessage *msg,
		   struct zns_err *err);

/* Prints one line that identifies a record: its kind, and those of its fields that are names or
 * ids. Returns @buf. */
char *zns_record_print(const struct zns_kind *k, const ProtobufCMessage *msg, char *buf,
		       size_t len);

/* @c replaces @from, another version of the same checkpoint: takes over the wrapped key of @from,
 * which is the newest one. */
void zns_crypt_inherit(ZnsPb__Checkpoint *c, ZnsPb__Checkpoint *from);

#endif
