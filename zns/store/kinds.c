/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kinds of record: the table at the end of this file has one row for each. A new kind needs a
 * message in images/zns-record.proto, a number in zns/frame.h, and a row with its functions here.
 */
#include <string.h>
#include "kinds.h"
#include "salvage.h"
#include "zns/crypt.h"
#include "zns/grow.h"
#include "zns/pbcopy.h"

/* ---- is a record valid by itself? ---- */

static int check_profile(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_profile(m, l, code, err);
}

static int check_mount(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_mount(m, code, err);
}

static int check_encryption(const void *m, const struct zns_limits *l, int code,
			    struct zns_err *err)
{
	return zns_check_encryption(m, code, err);
}

static int check_reservation(const void *m, const struct zns_limits *l, int code,
			     struct zns_err *err)
{
	return zns_check_reservation(m, l, code, err);
}

static int check_checkpoint(const void *m, const struct zns_limits *l, int code,
			    struct zns_err *err)
{
	const ZnsPb__Checkpoint *c = m;
	struct zns_limits lim = *l;

	if (!c->manifest)
		return zns_fail(err, code, "checkpoint without a manifest");
	/* A record that was read may name groups of an earlier profile, which had more of them.
	 * That is not damage: nobody looks up groups by these numbers. */
	if (code == -EBADMSG)
		lim.nr_groups = lim.nr_zones;
	return zns_check_checkpoint(c, &lim, code, err);
}

static int check_key(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_key(m, code, err);
}

static int check_retention(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_retention(m, code, err);
}

static int check_mark(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_mark(m, code, err);
}

static int check_first(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_first(m, code, err);
}

static int check_tombstone(const void *m, const struct zns_limits *l, int code, struct zns_err *err)
{
	return zns_check_tombstone(m, code, err);
}

/* ---- does a record fit the present state? ---- */

static int may_add(struct zns_state *st, const void *m, bool snapshot, int code,
		   struct zns_err *err)
{
	return zns_state_may_add(st, m, code, err);
}

static int may_replace(struct zns_state *st, const void *m, bool snapshot, int code,
		       struct zns_err *err)
{
	return zns_state_may_replace(st, m, code, err);
}

/* This record is only a copy of the key; the one in the checkpoint's own record is used. */
static int may_repeat_key(struct zns_state *st, const void *m, bool snapshot, int code,
			  struct zns_err *err)
{
	const ZnsPb__KeyLine *k = m;
	const struct zns_ent *e = zns_state_find(st, k->checkpoint.data);

	return e && e->ckpt->crypt ? 0 : zns_fail(err, code, "key of an unknown checkpoint");
}

static int may_mark(struct zns_state *st, const void *m, bool snapshot, int code,
		    struct zns_err *err)
{
	const ZnsPb__Mark *v = m;

	return zns_state_find(st, v->checkpoint.data) ?
		       0 :
		       zns_fail(err, code, "mark of an unknown checkpoint");
}

static int may_record(struct zns_state *st, const void *m, bool snapshot, int code,
		      struct zns_err *err)
{
	const ZnsPb__FirstPages *v = m;

	return zns_state_find(st, v->checkpoint.data) ?
		       0 :
		       zns_fail(err, code, "first pages of an unknown checkpoint");
}

static int may_bury(struct zns_state *st, const void *m, bool snapshot, int code,
		    struct zns_err *err)
{
	const ZnsPb__Tombstone *t = m;
	bool lives = zns_state_find(st, t->id.data);

	if (snapshot && lives)
		return zns_fail(err, code, "tombstone of a checkpoint that lives");
	return snapshot || lives ? 0 : zns_fail(err, code, "tombstone of an unknown checkpoint");
}

static int may_release(struct zns_state *st, const void *m, bool snapshot, int code,
		       struct zns_err *err)
{
	const ZnsPb__Release *r = m;
	const struct zns_owner *o = zns_state_owner(st, r->container);

	return o && o->reservation ?
		       0 :
		       zns_fail(err, code, "release of a reservation that is not there");
}

/* ---- how the record changes the state; most of it is in state.c ---- */

static void apply_release(struct zns_state *st, struct zns_ent *e)
{
	struct zns_owner *o = e->owner;

	zns_ent_free(e);
	zns_state_release(st, o);
}

static void apply_key(struct zns_state *st, struct zns_ent *e)
{
	zns_ent_free(e);
}

/* ---- fsck: earlier records may be missing ---- */

static void drop(ProtobufCMessage *msg)
{
	protobuf_c_message_free_unpacked(msg, NULL);
}

static int enter(struct zns_state *st, const struct zns_kind *k, ProtobufCMessage *msg)
{
	struct zns_ent *e = zns_record_ent(st, k, msg, NULL);

	if (e)
		k->apply(st, e);
	return e ? 0 : -ENOMEM;
}

void zns_crypt_inherit(ZnsPb__Checkpoint *c, ZnsPb__Checkpoint *from)
{
	ZnsPb__CheckpointKey *key = from->crypt;

	if (!key || !key->has_wrapped || !c->crypt)
		return;
	from->crypt = c->crypt;
	c->crypt = key;
}

/* Of two versions of a checkpoint, the one that was moved later is kept. The record of that move
 * may be lost: then a later snapshot is the first record with this version. */
static int salvage_checkpoint(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r)
{
	ZnsPb__Checkpoint *c = (ZnsPb__Checkpoint *)msg;
	struct zns_ent *e = zns_state_find(st, c->id.data);

	/* A record may also change without a move in one way: its key is wrapped with another
	 * master key. */
	if (e && c->crypt && c->crypt->has_wrapped && e->ckpt->crypt) {
		ZnsPb__CheckpointKey *old = e->ckpt->crypt;

		e->ckpt->crypt = c->crypt;
		c->crypt = old;
	}
	if (!zns_state_may_add(st, c, -EBADMSG, NULL))
		return enter(st, zns_kind_of(ZNS_FRAME_CHECKPOINT), msg);
	if (zns_state_may_replace(st, c, -EBADMSG, NULL)) {
		drop(msg);
		return 0;
	}
	zns_crypt_inherit(c, e->ckpt);
	return enter(st, zns_kind_of(ZNS_FRAME_MOVED), msg);
}

/* Keeps the tombstone even if its checkpoint is not known yet: the checkpoint may be found later by
 * its footer, or not at all. */
static int salvage_tombstone(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r)
{
	return enter(st, zns_kind_of(ZNS_FRAME_TOMBSTONE), msg);
}

static int salvage_key(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r)
{
	if (zns_grow_by_one(r->keys, r->nr_keys)) {
		drop(msg);
		return -ENOMEM;
	}
	r->keys[r->nr_keys++] = (ZnsPb__KeyLine *)msg;
	return 0;
}

/* Keeps the mark even if its checkpoint is not known yet: the checkpoint may be found later by its
 * footer. */
static int salvage_mark(struct zns_state *st, ProtobufCMessage *msg, struct zns_salvage *r)
{
	if (zns_grow_by_one(r->marks, r->nr_marks)) {
		drop(msg);
		return -ENOMEM;
	}
	r->marks[r->nr_marks++] = (ZnsPb__Mark *)msg;
	return 0;
}

/* ---- the table ---- */

#define IN(member) offsetof(struct zns_state, member)
#define OF(message) offsetof(message, container)

/* The rows are in the order of a snapshot, where a record comes after all records that it refers
 * to. */
static const struct zns_kind kinds[] = {
	/* columns: type, name, message, list, container, check, may, apply, salvage */
	{ ZNS_FRAME_PROFILE, "profile", &zns_pb__profile__descriptor, IN(profile), ZNS_NOWHERE,
	  check_profile, NULL, zns_state_set_profile, NULL },
	{ ZNS_FRAME_MOUNT, "mount record", &zns_pb__mount__descriptor, IN(mount), ZNS_NOWHERE,
	  check_mount, NULL, zns_state_set_mount, NULL },
	{ ZNS_FRAME_ENCRYPTION, "encryption record", &zns_pb__encryption__descriptor,
	  IN(encryption), ZNS_NOWHERE, check_encryption, NULL, zns_state_set_encryption, NULL },
	{ ZNS_FRAME_RESERVATION, "reservation", &zns_pb__reservation__descriptor, IN(reservations),
	  OF(ZnsPb__Reservation), check_reservation, NULL, zns_state_reserve, NULL },
	{ ZNS_FRAME_CHECKPOINT, "checkpoint", &zns_pb__checkpoint__descriptor, IN(checkpoints),
	  OF(ZnsPb__Checkpoint), check_checkpoint, may_add, zns_state_add, salvage_checkpoint },
	{ ZNS_FRAME_KEY, "key", &zns_pb__key_line__descriptor, ZNS_NOWHERE, ZNS_NOWHERE, check_key,
	  may_repeat_key, apply_key, salvage_key },
	{ ZNS_FRAME_RETENTION, "retention", &zns_pb__retention__descriptor, IN(retentions),
	  OF(ZnsPb__Retention), check_retention, NULL, zns_state_retain, NULL },
	{ ZNS_FRAME_MARK, "mark", &zns_pb__mark__descriptor, IN(marks), ZNS_NOWHERE, check_mark,
	  may_mark, zns_state_mark, salvage_mark },
	{ ZNS_FRAME_FIRST, "first pages", &zns_pb__first_pages__descriptor, IN(firsts), ZNS_NOWHERE,
	  check_first, may_record, zns_state_first, NULL },
	{ ZNS_FRAME_TOMBSTONE, "tombstone", &zns_pb__tombstone__descriptor, IN(tombstones),
	  ZNS_NOWHERE, check_tombstone, may_bury, zns_state_bury, salvage_tombstone },
	/* Records of these kinds are never in a snapshot: */
	{ ZNS_FRAME_MOVED, "move", &zns_pb__checkpoint__descriptor, ZNS_NOWHERE,
	  OF(ZnsPb__Checkpoint), check_checkpoint, may_replace, zns_state_replace,
	  salvage_checkpoint },
	{ ZNS_FRAME_RELEASE, "release", &zns_pb__release__descriptor, ZNS_NOWHERE,
	  OF(ZnsPb__Release), NULL, may_release, apply_release, NULL },
};

const struct zns_kind *zns_kind_at(size_t i)
{
	return i < ZNS_ARRAY_SIZE(kinds) ? &kinds[i] : NULL;
}

const struct zns_kind *zns_kind_of(uint16_t type)
{
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(kinds); i++)
		if (kinds[i].type == type)
			return &kinds[i];
	return NULL;
}

const struct zns_list *zns_kind_list(const struct zns_kind *k, const struct zns_state *st)
{
	return k->list == ZNS_NOWHERE ? NULL :
					(const struct zns_list *)((const char *)st + k->list);
}

/* ---- operations on records of every kind ---- */

int zns_record_decode(const struct zns_kind *k, const uint8_t *payload, size_t len,
		      const struct zns_limits *l, ProtobufCMessage **out, struct zns_err *err)
{
	int ret = 0;

	*out = protobuf_c_message_unpack(k->desc, NULL, len, payload);
	if (!*out)
		return zns_fail(err, -EBADMSG, "%s cannot be decoded", k->name);
	if (k->check)
		ret = k->check(*out, l, -EBADMSG, err);
	if (ret) {
		drop(*out);
		*out = NULL;
	}
	return ret;
}

struct zns_ent *zns_record_ent(struct zns_state *st, const struct zns_kind *k,
			       ProtobufCMessage *msg, struct zns_err *err)
{
	const char *container = NULL;

	if (k->container != ZNS_NOWHERE)
		memcpy(&container, (const char *)msg + k->container, sizeof(container));
	return zns_state_ent(st, msg, container, err);
}

int zns_record_apply(struct zns_state *st, const struct zns_frame *f, bool snapshot,
		     struct zns_err *err)
{
	const struct zns_kind *k = zns_kind_of(f->type);
	ProtobufCMessage *msg;
	struct zns_ent *e;
	char text[200];
	int ret;

	if (!k)
		return zns_fail(
			err, -EBADMSG,
			"a record has type %u, which this program does not know: use a newer ZNS-CRIU",
			f->type);
	ret = zns_record_decode(k, f->payload, f->len, &st->lim, &msg, err);
	if (ret)
		return ret;
	if (k->may)
		ret = k->may(st, msg, snapshot, -EBADMSG, err);
	if (ret) {
		zns_wrap(err, "%s", zns_record_print(k, msg, text, sizeof(text)));
		drop(msg);
		return ret;
	}
	e = zns_record_ent(st, k, msg, err);
	if (!e)
		return -ENOMEM;
	k->apply(st, e);
	return 0;
}

int zns_record_salvage(struct zns_state *st, const struct zns_frame *f, struct zns_salvage *r)
{
	const struct zns_kind *k = zns_kind_of(f->type);
	ProtobufCMessage *msg;
	int ret = k ? zns_record_decode(k, f->payload, f->len, &st->lim, &msg, NULL) : -EBADMSG;

	if (ret)
		return ret == -ENOMEM ? ret : 0;
	if (k->salvage)
		return k->salvage(st, msg, r);
	if (!k->may || !k->may(st, msg, false, -EBADMSG, NULL))
		return enter(st, k, msg);
	drop(msg);
	return 0;
}

int zns_record_set(struct zns_state *st, uint16_t type, const ProtobufCMessage *msg,
		   struct zns_err *err)
{
	const struct zns_kind *k = zns_kind_of(type);
	ProtobufCMessage *copy;
	int ret = k->check ? k->check(msg, &st->lim, -EINVAL, err) : 0;

	if (!ret && k->may)
		ret = k->may(st, msg, false, -EINVAL, err);
	if (ret)
		return ret;
	copy = zns_pb_copy(msg, err);
	if (!copy || enter(st, k, copy))
		return zns_fail(err, -ENOMEM, "no memory for a %s", k->name);
	return 0;
}

/* ---- printing a record ---- */

static size_t print_field(const ProtobufCFieldDescriptor *f, const void *value, char *buf,
			  size_t len)
{
	char text[128];

	if (f->type == PROTOBUF_C_TYPE_STRING) {
		const char *s = *(char *const *)value;

		return s && *s ? (size_t)snprintf(buf, len, ", %s %s", f->name,
						  zns_escape(s, text, sizeof(text))) :
				 0;
	}
	if (f->type == PROTOBUF_C_TYPE_BYTES) {
		const ProtobufCBinaryData *b = value;

		return b->data && b->len == ZNS_UUID_LEN ?
			       (size_t)snprintf(buf, len, ", %s %s", f->name,
						zns_uuid_format(b->data, text)) :
			       0;
	}
	return 0;
}

char *zns_record_print(const struct zns_kind *k, const ProtobufCMessage *msg, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "%s", k->name);

	for (unsigned i = 0; i < k->desc->n_fields && at < len; i++) {
		const ProtobufCFieldDescriptor *f = &k->desc->fields[i];

		if (f->label != PROTOBUF_C_LABEL_REPEATED)
			at += print_field(f, (const char *)msg + f->offset, buf + at, len - at);
	}
	return buf;
}
