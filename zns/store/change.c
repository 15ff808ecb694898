/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Changes of the catalogue: memory first, then the durable record, then what cannot fail. */
#include <string.h>
#include "store_int.h"
#include "zns/pbcopy.h"

/* Room that must stay beside every snapshot, so that removing something is always possible. */
static uint64_t slack(const struct zns_store *s)
{
	return zns_frame_size(3 * (ZNS_NAME_LEN_MAX + 8), s->dev->geo.block_size);
}

static int writable(const struct zns_store *s, struct zns_err *err)
{
	if (s->flags & ZNS_STORE_RDONLY)
		return zns_fail(err, -EROFS, "the store is open for reading only");
	return 0;
}

/* Would the catalogue, @more bytes longer, still fit into any metadata zone? */
int zns_store_may_grow(const struct zns_store *s, uint64_t more, struct zns_err *err)
{
	if (zns_store_snapshot_bytes(s) + more + slack(s) <= s->min_cap)
		return 0;
	return zns_fail(err, -ENOSPC,
			"the catalogue is full (%zu checkpoints, metadata zones of %llu bytes): remove checkpoints",
			s->st.checkpoints.nr, (unsigned long long)s->min_cap);
}

/* @key goes with it, in one write, or is NULL. */
static int append(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg, const ZnsPb__KeyLine *key,
		  struct zns_err *err)
{
	uint64_t rec = zns_state_rec(&s->st, msg) + (key ? zns_state_rec(&s->st, &key->base) : 0);
	uint64_t claim = zns_store_claim_rec(s);
	int rc;

	if (rec > ZNS_RECORD_MAX)
		return zns_fail(err, -EFBIG, "a record of %llu bytes is too long for the log", (unsigned long long)rec);
	rc = zns_store_alone(s, err);
	if (rc)
		return rc;
	if (s->need_roll || s->log.off + claim + rec > s->log.cap) {
		rc = zns_store_roll(s, claim + rec, err);
		if (rc)
			return zns_store_lost(s, rc);
	}
	if (claim)
		rc = zns_log_put(&s->log, ZNS_FRAME_MOUNT, &s->claim->base, err);
	if (!rc)
		rc = zns_log_put(&s->log, type, msg, err);
	if (!rc && key)
		rc = zns_log_put(&s->log, ZNS_FRAME_KEY, &key->base, err);
	if (!rc)
		rc = zns_log_write_durable(&s->log, err);
	if (!rc && claim) {
		zns_state_set_mount(&s->st, s->claim);
		s->claim = NULL;
	}
	if (!rc)
		return 0;
	/*
	 * The record may stand on the device although the caller is told that it failed. A new generation without it
	 * settles that; if this fails too, the next change tries again first.
	 */
	if (rc == -EBADE)	/* the device is another host's now: nothing of ours gets there any more */
		return zns_store_lost(s, rc);
	zns_wrap(err, "cannot write metadata zone %u", s->log.zone);
	s->need_roll = true;
	zns_store_roll(s, 0, NULL);
	return rc;
}

int zns_store_append(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg, struct zns_err *err)
{
	return append(s, type, msg, NULL, err);
}

struct change {
	uint16_t type;
	const ProtobufCMessage *msg;
	const char *container;	/* whose it is; or NULL */
	const ZnsPb__KeyLine *key;	/* written behind it; or NULL */
	void (*apply)(struct zns_state *st, struct zns_ent *e);	/* cannot fail */
};

/* What nearly all of them are once @c has been found right. */
static int change(struct zns_store *s, const struct change *c, struct zns_err *err)
{
	int rc = zns_state_room(&s->st, err);
	struct zns_ent *e;
	void *copy;

	if (rc)
		return rc;
	copy = zns_pb_copy(c->msg, err);
	if (!copy)
		return -ENOMEM;
	e = zns_state_ent(&s->st, copy, c->container, err);
	if (!e)
		return -ENOMEM;
	rc = append(s, c->type, c->msg, c->key, err);
	if (rc) {
		zns_state_ent_drop(&s->st, e);
		return rc;
	}
	c->apply(&s->st, e);
	zns_state_compact(&s->st);
	return 0;
}

int zns_store_commit(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__KeyLine key;
	int rc;

	rc = writable(s, err);
	if (!rc && !c->manifest)
		rc = zns_fail(err, -EINVAL, "checkpoint without a manifest");
	if (!rc)
		rc = zns_check_checkpoint(c, &s->st.lim, -EINVAL, err);
	if (!rc)
		rc = zns_state_may_add(&s->st, c, -EINVAL, err);
	if (!rc)
		rc = zns_store_may_grow(s, zns_state_rec(&s->st, &c->base) + zns_state_key_rec(&s->st, c), err);
	return rc ? rc : change(s, &(struct change){ .type = ZNS_FRAME_CHECKPOINT, .msg = &c->base, .container = c->container,
						    .key = zns_state_key(c, &key) ? &key : NULL, .apply = zns_state_add }, err);
}

int zns_store_move(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const struct zns_ent *old;
	size_t rec;
	int rc;

	rc = writable(s, err);
	if (!rc && !c->manifest)
		rc = zns_fail(err, -EINVAL, "checkpoint without a manifest");
	if (!rc)
		rc = zns_check_checkpoint(c, &s->st.lim, -EINVAL, err);
	if (!rc)
		rc = zns_state_may_replace(&s->st, c, -EINVAL, err);
	if (rc)
		return rc;
	old = zns_state_find(&s->st, c->id.data);
	rec = zns_state_rec(&s->st, &c->base) + zns_state_key_rec(&s->st, c);	/* of which the second stands already */
	if (rec > old->rec)
		rc = zns_store_may_grow(s, rec - old->rec, err);
	return rc ? rc : change(s, &(struct change){ .type = ZNS_FRAME_MOVED, .msg = &c->base, .container = c->container,
						    .apply = zns_state_replace }, err);
}

int zns_store_remove(struct zns_store *s, const uint8_t *id, const char *by, struct zns_err *err)
{
	ZnsPb__Tombstone t = ZNS_PB__TOMBSTONE__INIT;
	const struct zns_ent *victim;
	char str[ZNS_UUID_STR];
	int rc;

	rc = writable(s, err);
	if (rc)
		return rc;
	victim = zns_state_find(&s->st, id);
	if (!victim)
		return zns_fail(err, -ENOENT, "no checkpoint %s in the store", zns_uuid_format(id, str));
	t.id.data = (uint8_t *)id;
	t.id.len = ZNS_UUID_LEN;
	t.deleted_ns = zns_now_ns();
	t.by = (char *)by;
	t.container = victim->ckpt->container;
	t.has_created_ns = 1;
	t.created_ns = victim->ckpt->created_ns;
	t.has_encrypted = t.encrypted = victim->ckpt->crypt != NULL;
	rc = zns_check_tombstone(&t, -EINVAL, err);
	return rc ? rc : change(s, &(struct change){ .type = ZNS_FRAME_TOMBSTONE, .msg = &t.base,
						    .apply = zns_state_bury }, err);
}

int zns_store_reserve(struct zns_store *s, const ZnsPb__Reservation *r, struct zns_err *err)
{
	int rc;

	rc = writable(s, err);
	if (!rc)
		rc = zns_check_reservation(r, &s->st.lim, -EINVAL, err);
	if (!rc)
		rc = zns_store_may_grow(s, zns_state_rec(&s->st, &r->base), err);
	return rc ? rc : change(s, &(struct change){ .type = ZNS_FRAME_RESERVATION, .msg = &r->base, .container = r->container,
						    .apply = zns_state_reserve }, err);
}

int zns_store_release(struct zns_store *s, const char *container, struct zns_err *err)
{
	ZnsPb__Release r = ZNS_PB__RELEASE__INIT;
	struct zns_owner *o;
	int rc;

	rc = writable(s, err);
	if (rc)
		return rc;
	o = zns_state_owner(&s->st, container);
	if (!o || !o->reservation)
		return zns_fail(err, -ENOENT, "container %s has no reservation", container);
	r.container = o->name;
	rc = zns_store_append(s, ZNS_FRAME_RELEASE, &r.base, err);
	if (rc)
		return rc;
	zns_state_release(&s->st, o);
	zns_state_compact(&s->st);
	return 0;
}

int zns_store_set_profile(struct zns_store *s, const ZnsPb__Profile *p, struct zns_err *err)
{
	ZnsPb__Profile *copy;
	int rc;

	rc = writable(s, err);
	if (!rc)
		rc = zns_check_profile(p, &s->st.lim, -EINVAL, err);
	if (!rc)
		rc = zns_store_may_grow(s, zns_state_rec(&s->st, &p->base), err);
	if (rc)
		return rc;
	copy = zns_pb_copy(&p->base, err);
	if (!copy)
		return -ENOMEM;
	rc = zns_store_append(s, ZNS_FRAME_PROFILE, &copy->base, err);
	if (rc) {
		zns_pb__profile__free_unpacked(copy, NULL);
		return rc;
	}
	zns_state_set_profile(&s->st, copy);
	zns_state_compact(&s->st);
	return 0;
}

int zns_store_retain(struct zns_store *s, const ZnsPb__Retention *r, struct zns_err *err)
{
	int rc;

	rc = writable(s, err);
	if (!rc)
		rc = zns_check_retention(r, -EINVAL, err);
	if (!rc && !r->keep && !r->ttl_s && !zns_store_find_retention(s, r->container))
		return 0;
	if (!rc && (r->keep || r->ttl_s))
		rc = zns_store_may_grow(s, zns_state_rec(&s->st, &r->base), err);
	return rc ? rc : change(s, &(struct change){ .type = ZNS_FRAME_RETENTION, .msg = &r->base, .container = r->container,
						    .apply = zns_state_retain }, err);
}

int zns_store_set_mark(struct zns_store *s, const ZnsPb__Mark *m, struct zns_err *err)
{
	char str[ZNS_UUID_STR];
	int rc;

	rc = writable(s, err);
	if (!rc)
		rc = zns_check_mark(m, -EINVAL, err);
	if (!rc && !zns_state_find(&s->st, m->checkpoint.data))
		rc = zns_fail(err, -ENOENT, "no checkpoint %s in the store", zns_uuid_format(m->checkpoint.data, str));
	if (!rc && !m->pinned && !m->has_gone_ns && !zns_store_find_mark(s, m->checkpoint.data))
		return 0;
	if (!rc && (m->pinned || m->has_gone_ns))
		rc = zns_store_may_grow(s, zns_state_rec(&s->st, &m->base), err);
	return rc ? rc : change(s, &(struct change){ .type = ZNS_FRAME_MARK, .msg = &m->base,
						    .apply = zns_state_mark }, err);
}
