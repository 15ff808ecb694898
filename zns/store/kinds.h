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
	const char *name; /* in messages */
	const ProtobufCMessageDescriptor *desc;
	/* offset of its list in struct zns_state, which a snapshot repeats; ZNS_NOWHERE: none */
	size_t list;
	/* offset in the message of the name of its container; ZNS_NOWHERE: none */
	size_t container;
	/* Can this be, by itself? @code is the error that says no: -EINVAL for what a caller gives,
	 * -EBADMSG for what was read. */
	int (*check)(const void *msg, const struct zns_limits *l, int code, struct zns_err *err);
	/* Does the record fit the catalogue? NULL: always. @snapshot: it is part of a snapshot. */
	int (*may)(struct zns_state *st, const void *msg, bool snapshot, int code,
		   struct zns_err *err);
	/* Takes over @e. Cannot fail, given zns_state_room(). */
	void (*apply)(struct zns_state *st, struct zns_ent *e);
	/*
	 * Records before it may be missing. Takes over @msg, which was checked. NULL: it is applied
	 * if it fits, and left out if it does not.
	 */
	int (*salvage)(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r);
};

/* Row @i, in the order that a snapshot has; NULL: there are no more. */
const struct zns_kind *zns_kind_at(size_t i);
const struct zns_kind *zns_kind_of(uint16_t type); /* NULL: no such kind */
/* NULL: none */
const struct zns_list *zns_kind_list(const struct zns_kind *k, const struct zns_state *st);

/* The message, decoded and checked by itself. -EBADMSG, or -ENOMEM. */
int zns_record_decode(const struct zns_kind *k, const uint8_t *payload, size_t len,
		      const struct zns_limits *l, ProtobufCMessage **out, struct zns_err *err);
/* An entry for the catalogue; takes over @msg, also on failure (NULL). */
struct zns_ent *zns_record_ent(struct zns_state *st, const struct zns_kind *k,
			       ProtobufCMessage *msg, struct zns_err *err);
/* Put a record into the catalogue, given zns_state_room(). -EBADMSG: @err names the record. */
int zns_record_apply(struct zns_state *st, const struct zns_frame *f, bool snapshot,
		     struct zns_err *err);
/* The same, as far as it makes sense. An unknown or damaged record is left out. -ENOMEM. */
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
