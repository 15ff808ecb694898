/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Changes of the catalogue. A change first allocates memory, then writes the durable record, then
 * does what cannot fail. */
#include <string.h>
#include "kinds.h"
#include "zns/pbcopy.h"

#define FIRST_SHARE 8u /* first pages may take at most 1/FIRST_SHARE of the catalogue */

/* Bytes that every snapshot must leave free in its zone, so that there is always room to record a
 * removal. */
static uint64_t slack(const struct zns_store *s)
{
	return zns_frame_size(3 * (ZNS_NAME_LEN_MAX + 8), zns_geo_log_block(&s->dev->geo));
}

int zns_store_writable(const struct zns_store *s, struct zns_err *err)
{
	if (s->flags & ZNS_STORE_RDONLY)
		return zns_fail(err, -EROFS,
				"the store is open for reading only, so nothing can be changed");
	return 0;
}

int zns_store_may_grow(const struct zns_store *s, uint64_t more, struct zns_err *err)
{
	if (zns_store_snapshot_bytes(s) + more + slack(s) <= s->min_cap)
		return 0;
	return zns_fail(
		err, -ENOSPC,
		"the catalogue is full (%zu checkpoints, metadata zones of %llu bytes): remove checkpoints",
		s->st.checkpoints.nr, (unsigned long long)s->min_cap);
}

/* To be called after a failed write: settles whether its record exists. Returns @ret. */
static int not_written(struct zns_store *s, int ret, struct zns_err *err)
{
	/* another host has reserved the device meanwhile, so we cannot write any more */
	if (ret == -EBADE)
		return zns_store_lost(s, ret);
	zns_wrap(err, "cannot write metadata zone %u", s->log.zone);
	/* The record may be on the device although the caller is told that it failed. So a new
	 * generation without it is written. If that fails too, the next change tries it again
	 * first. */
	s->need_roll = true;
	zns_store_roll(s, 0, NULL);
	return ret;
}

/* Appends the record of a change. If @key is not NULL, it is written in the same write. */
static int append(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg,
		  const ZnsPb__KeyLine *key, struct zns_err *err)
{
	uint64_t rec = zns_state_rec(&s->st, msg) + (key ? zns_state_rec(&s->st, &key->base) : 0);
	uint64_t claim = zns_store_claim_rec(s);
	int ret;

	if (rec > ZNS_RECORD_MAX)
		return zns_fail(err, -EFBIG, "a record of %llu bytes is too long for the log",
				(unsigned long long)rec);
	ret = zns_store_alone(s, err);
	if (ret)
		return ret;
	if (s->need_roll || s->log.off + s->log.fill + claim + rec > s->log.cap) {
		ret = zns_store_roll(s, claim + rec, err);
		if (ret)
			return zns_store_lost(s, ret);
	}
	if (claim)
		ret = zns_log_put(&s->log, ZNS_FRAME_MOUNT, s->claim->msg, err);
	if (!ret)
		ret = zns_log_put(&s->log, type, msg, err);
	if (!ret && key)
		ret = zns_log_put(&s->log, ZNS_FRAME_KEY, &key->base, err);
	if (!ret && !s->batch)
		ret = zns_log_write_durable(&s->log, err);
	if (!ret && claim) {
		zns_state_set_mount(&s->st, s->claim);
		s->claim = NULL;
	}
	return ret ? not_written(s, ret, err) : 0;
}

void zns_store_batch_begin(struct zns_store *s)
{
	s->batch = true;
}

int zns_store_batch_end(struct zns_store *s, struct zns_err *err)
{
	int ret;

	s->batch = false;
	/* An earlier write of the batch failed. The new generation has all changes, since they are
	 * in memory. */
	if (s->need_roll) {
		ret = zns_store_roll(s, 0, err);
		return ret ? zns_store_lost(s, ret) : 0;
	}
	ret = zns_store_alone(s, err);
	if (ret) {
		s->log.fill = 0;
		return ret;
	}
	ret = zns_log_write_durable(&s->log, err);
	if (!ret)
		return 0;
	ret = not_written(s, ret, err);
	/* no error if the new generation was written: it contains the changes */
	return ret == -EBADE || s->need_roll ? ret : 0;
}

/* Makes a change: checks it, makes room for it in memory and in the log, writes the record, and
 * applies it. @more: by how many bytes the catalogue grows. */
static int change(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg, uint64_t more,
		  struct zns_err *err)
{
	const struct zns_kind *k = zns_kind_of(type);
	ZnsPb__KeyLine key;
	struct zns_ent *e;
	void *copy;
	bool keyed;
	int ret;

	ret = zns_store_writable(s, err);
	if (!ret && k->check)
		ret = k->check(msg, &s->st.lim, -EINVAL, err);
	if (!ret && k->may)
		ret = k->may(&s->st, msg, false, -EINVAL, err);
	if (!ret && more)
		ret = zns_store_may_grow(s, more, err);
	if (!ret)
		ret = zns_state_room(&s->st, err);
	if (ret)
		return ret;
	copy = zns_pb_copy(msg, err);
	if (!copy)
		return -ENOMEM;
	e = zns_record_ent(&s->st, k, copy, err);
	if (!e)
		return -ENOMEM;
	keyed = type == ZNS_FRAME_CHECKPOINT && zns_state_key(e->ckpt, &key);
	ret = append(s, type, e->msg, keyed ? &key : NULL, err);
	if (ret) {
		zns_state_ent_drop(&s->st, e);
		return ret;
	}
	k->apply(&s->st, e);
	zns_state_compact(&s->st);
	return 0;
}

static uint64_t whole(const struct zns_store *s, const ProtobufCMessage *msg)
{
	return zns_state_rec(&s->st, msg);
}

int zns_store_put(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg,
		  struct zns_err *err)
{
	const struct zns_kind *k = zns_kind_of(type);

	if (!k || k->desc != msg->descriptor)
		return zns_fail(err, -EINVAL, "no such record of type %u can be written", type);
	return change(s, type, msg, whole(s, msg), err);
}

int zns_store_commit(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	return change(s, ZNS_FRAME_CHECKPOINT, &c->base,
		      whole(s, &c->base) + zns_state_key_rec(&s->st, c), err);
}

int zns_store_move(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const struct zns_ent *old = c->id.len == ZNS_UUID_LEN ? zns_state_find(&s->st, c->id.data) :
								NULL;
	/* the key's record was written together with the checkpoint's */
	uint64_t rec = whole(s, &c->base) + zns_state_key_rec(&s->st, c);

	return change(s, ZNS_FRAME_MOVED, &c->base, old && rec > old->rec ? rec - old->rec : 0,
		      err);
}

int zns_store_remove(struct zns_store *s, const uint8_t *id, const char *by, struct zns_err *err)
{
	ZnsPb__Tombstone t = ZNS_PB__TOMBSTONE__INIT;
	const struct zns_ent *victim;
	char str[ZNS_UUID_STR];
	int ret;

	ret = zns_store_writable(s, err);
	if (ret)
		return ret;
	victim = zns_state_find(&s->st, id);
	if (!victim)
		return zns_fail(err, -ENOENT, "no checkpoint %s in the store",
				zns_uuid_format(id, str));
	t.id.data = (uint8_t *)id;
	t.id.len = ZNS_UUID_LEN;
	/* the time of the removal must be later than all versions of the checkpoint, even if the
	 * clock was set back */
	t.deleted_ns = zns_max(zns_now_ns(),
			       zns_max(victim->ckpt->moved_ns, victim->ckpt->created_ns));
	t.by = (char *)by;
	t.container = victim->ckpt->container;
	t.has_created_ns = 1;
	t.created_ns = victim->ckpt->created_ns;
	t.has_encrypted = t.encrypted = victim->ckpt->crypt != NULL;
	return change(s, ZNS_FRAME_TOMBSTONE, &t.base, 0, err);
}

int zns_store_reserve(struct zns_store *s, const ZnsPb__Reservation *r, struct zns_err *err)
{
	return change(s, ZNS_FRAME_RESERVATION, &r->base, whole(s, &r->base), err);
}

int zns_store_release(struct zns_store *s, const char *container, struct zns_err *err)
{
	ZnsPb__Release r = ZNS_PB__RELEASE__INIT;
	const struct zns_owner *o = zns_state_owner(&s->st, container);
	int ret = zns_store_writable(s, err);

	if (ret)
		return ret;
	if (!o || !o->reservation)
		return zns_fail(err, -ENOENT, "container %s has no reservation", container);
	r.container = (char *)container;
	return change(s, ZNS_FRAME_RELEASE, &r.base, 0, err);
}

int zns_store_set_profile(struct zns_store *s, const ZnsPb__Profile *p, struct zns_err *err)
{
	return change(s, ZNS_FRAME_PROFILE, &p->base, whole(s, &p->base), err);
}

int zns_store_retain(struct zns_store *s, const ZnsPb__Retention *r, struct zns_err *err)
{
	bool says = r->keep || r->ttl_s;
	int ret = zns_store_writable(s, err);

	if (!ret)
		ret = zns_check_retention(r, -EINVAL, err);
	if (ret || (!says && !zns_store_find_retention(s, r->container)))
		return ret;
	return change(s, ZNS_FRAME_RETENTION, &r->base, says ? whole(s, &r->base) : 0, err);
}

int zns_store_set_mark(struct zns_store *s, const ZnsPb__Mark *m, struct zns_err *err)
{
	bool says = m->pinned || m->has_gone_ns || m->has_damaged_ns;
	char str[ZNS_UUID_STR];
	int ret = zns_store_writable(s, err);

	if (!ret)
		ret = zns_check_mark(m, -EINVAL, err);
	if (!ret && !zns_state_find(&s->st, m->checkpoint.data))
		ret = zns_fail(err, -ENOENT, "no checkpoint %s in the store",
			       zns_uuid_format(m->checkpoint.data, str));
	if (ret || (!says && !zns_store_find_mark(s, m->checkpoint.data)))
		return ret;
	return change(s, ZNS_FRAME_MARK, &m->base, says ? whole(s, &m->base) : 0, err);
}

int zns_store_set_first(struct zns_store *s, const ZnsPb__FirstPages *f, struct zns_err *err)
{
	uint64_t more = f->runs.len ? whole(s, &f->base) : 0;
	int ret = zns_store_writable(s, err);

	if (!ret)
		ret = zns_check_first(f, -EINVAL, err);
	if (ret || (!more && !zns_store_find_first(s, f->checkpoint.data)))
		return ret;
	/* First pages only save time, so they are limited in favour of records of checkpoints. */
	if (more && s->st.firsts.bytes + more > s->min_cap / FIRST_SHARE)
		return zns_fail(
			err, -ENOSPC,
			"the catalogue has no room for the first pages of more checkpoints (at most 1/%u of %llu bytes)",
			FIRST_SHARE, (unsigned long long)s->min_cap);
	return change(s, ZNS_FRAME_FIRST, &f->base, more, err);
}

int zns_store_set_encryption(struct zns_store *s, const ZnsPb__Encryption *e, struct zns_err *err)
{
	return change(s, ZNS_FRAME_ENCRYPTION, &e->base,
		      s->st.encryption.nr ? 0 : whole(s, &e->base), err);
}

/* ---- which machine writes the store (mount.c) ---- */

int zns_store_claim_now(struct zns_store *s, struct zns_err *err)
{
	struct zns_ent *e = s->claim;
	int ret;

	if (!e)
		return 0;
	/* The new generation contains the claim; without this it would also be written as a
	 * record. */
	s->claim = NULL;
	ret = append(s, ZNS_FRAME_MOUNT, e->msg, NULL, err);
	if (ret)
		s->claim = e;
	else
		zns_state_set_mount(&s->st, e);
	return ret;
}

int zns_store_unclaim(struct zns_store *s, struct zns_err *err)
{
	const ZnsPb__Mount *have = zns_newest(&s->st.mount);
	ZnsPb__Mount m;

	if (s->claim) { /* if no change was made, the claim was never written */
		zns_ent_free(s->claim);
		s->claim = NULL;
		return 0;
	}
	if (!have || have->released)
		return 0;
	m = *have;
	m.released = true;
	return change(s, ZNS_FRAME_MOUNT, &m.base, 0, err);
}
