/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_KINDS_H
#define ZNS_KINDS_H
/*
 * The kinds of record that the log has, one row each (kinds.c). Every way into the catalogue goes
 * through these rows: a change by the broker, the log when it is opened, and what fsck finds of a
 * damaged one. A snapshot is written from them too, and their names and message descriptors are all
 * that it takes to print one.
 */
#include "store_int.h"

struct zns_salvage;

#define ZNS_NOWHERE SIZE_MAX

struct zns_kind {
	uint16_t type; /* enum zns_frame_type */
	const char *name; /* name of the kind, for messages */
	const ProtobufCMessageDescriptor *desc;
	/* offset in struct zns_state of its list, which a snapshot writes out; ZNS_NOWHERE: it has
	 * none */
	size_t list;
	/* offset in the message of its container's name; ZNS_NOWHERE: it has none */
	size_t container;
	/* Is the message valid by itself? @code is the error to return if not: -EINVAL for what a
	 * caller passes, -EBADMSG for what was read. */
	int (*check)(const void *msg, const struct zns_limits *l, int code, struct zns_err *err);
	/* Does the record fit the catalogue? NULL: always. @snapshot: it is part of a snapshot. */
	int (*may)(struct zns_state *st, const void *msg, bool snapshot, int code,
		   struct zns_err *err);
	/* Takes ownership of @e. Cannot fail after a successful zns_state_room(). */
	void (*apply)(struct zns_state *st, struct zns_ent *e);
	/*
	 * Records before it may be missing. Takes over @msg, which was checked. NULL: it is applied
	 * if it fits, and left out if it does not.
	 */
	int (*salvage)(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r);
};

/* Row @i, in the order of a snapshot; NULL: @i is beyond the last row. */
const struct zns_kind *zns_kind_at(size_t i);
const struct zns_kind *zns_kind_of(uint16_t type); /* NULL: unknown type */
/* NULL: none */
const struct zns_list *zns_kind_list(const struct zns_kind *k, const struct zns_state *st);

/* The message, decoded and checked by itself. -EBADMSG, or -ENOMEM. */
int zns_record_decode(const struct zns_kind *k, const uint8_t *payload, size_t len,
		      const struct zns_limits *l, ProtobufCMessage **out, struct zns_err *err);
/* Makes an entry for the catalogue; takes ownership of @msg, also on failure (NULL). */
struct zns_ent *zns_record_ent(struct zns_state *st, const struct zns_kind *k,
			       ProtobufCMessage *msg, struct zns_err *err);
/* Put a record into the catalogue, given zns_state_room(). -EBADMSG: @err names the record. */
int zns_record_apply(struct zns_state *st, const struct zns_frame *f, bool snapshot,
		     struct zns_err *err);
/* Like zns_record_apply(), but skips a record that is unknown, damaged or does not fit. -ENOMEM. */
int zns_record_salvage(struct zns_state *st, const struct zns_frame *f, struct zns_salvage *r);
/* Put a copy of a caller's message into the catalogue. -EINVAL, or what the kind's checks say. */
int zns_record_set(struct zns_state *st, uint16_t type, const ProtobufCMessage *msg,
		   struct zns_err *err);

/* One line that says which record this is: its kind, and what of its fields is a name or an id.
 * Returns @buf. */
char *zns_record_print(const struct zns_kind *k, const ProtobufCMessage *msg, char *buf,
		       size_t len);

/* @c is another version of @from, which ends: what @from knows of the wrapped key is the newest. */
void zns_crypt_inherit(ZnsPb__Checkpoint *c, ZnsPb__Checkpoint *from);

#endif
