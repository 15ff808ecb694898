/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests of an administrator: remove, reserve, release, reset, rules and marks, keys, quit. */
#include <string.h>
#include "zns/crypt.h"
#include "conn.h"
#include "table.h"

static ZnsPb__Tombstone *copy_tombstone(struct reply *rep, const ZnsPb__Tombstone *t)
{
	ZnsPb__Tombstone *c = reply_alloc(rep, sizeof(*c));

	*c = *t;
	c->id.data = reply_alloc(rep, t->id.len);
	memcpy(c->id.data, t->id.data, t->id.len);
	c->by = reply_printf(rep, "%s", t->by);
	if (t->container)
		c->container = reply_printf(rep, "%s", t->container);
	return c;
}

/*
 * Refuses the whole request if it is known already that one of the checkpoints cannot be removed.
 */
static int check_rm(const struct znsd *d, const ZnsPb__Rm *q, struct zns_err *err)
{
	char id[ZNS_UUID_STR];

	if (!*q->by || strlen(q->by) > 200)
		return zns_fail(err, -EINVAL,
				"rm: the field `by` (who removes it) must have 1 to 200 bytes");
	for (size_t i = 0; i < q->n_checkpoints; i++) {
		const ProtobufCBinaryData *c = &q->checkpoints[i];

		if (c->len != ZNS_UUID_LEN)
			return zns_fail(err, -EINVAL, "a checkpoint's id must have %d bytes",
					ZNS_UUID_LEN);
		if (!zns_store_find(d->store, c->data) &&
		    !zns_store_find_tombstone(d->store, c->data))
			return zns_fail(err, -ENOENT, "%s has no checkpoint %s", d->reg.path,
					zns_uuid_format(c->data, id));
		if (checkpoint_pinned(d, c->data))
			return zns_fail(err, -EPERM,
					"checkpoint %s is pinned: `znsctl unpin` it first",
					zns_uuid_format(c->data, id));
		if (yielding_allows(d, c->data, err))
			return err->code;
		if (q->secure && secure_check(d, q, c->data, err))
			return err->code;
	}
	return parents_may_go(d, q->checkpoints, q->n_checkpoints, err);
}

int serve_rm(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__Rm *q = x->q->rm;
	ProtobufCBinaryData *ids;
	struct grave *graves;
	struct zns_err end = ZNS_ERR_INIT;
	size_t nr = 0, i;
	bool undone;
	int ret = check_rm(d, q, &rep->err);

	if (ret)
		return ret;
	ids = reply_alloc(rep, q->n_checkpoints * sizeof(*ids));
	if (q->n_checkpoints)
		memcpy(ids, q->checkpoints, q->n_checkpoints * sizeof(*ids));
	parents_last(d, ids, q->n_checkpoints);
	rep->r.removed = reply_alloc(rep, q->n_checkpoints * sizeof(*rep->r.removed));
	graves = reply_alloc(rep, q->n_checkpoints * sizeof(*graves));
	zns_store_batch_begin(d->store);
	for (i = 0; !ret && i < q->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *k = zns_store_find(d->store, ids[i].data);
		cleanup_free char *container = k ? znsd_strdup(k->container) : NULL;
		struct grave *g = &graves[nr];

		if (!k)
			continue;
		ret = checkpoint_remove(d, ids[i].data, q->by, g, &rep->err);
		nr++;
		if (ret)
			break;
		if (g->t)
			rep->r.removed[rep->r.n_removed++] = copy_tombstone(rep, g->t);
		reservation_settle(d, container);
		reservation_renew(d, container);
	}
	undone = zns_store_batch_end(d->store, &end) != 0;
	if (undone) {
		/* It is not known what is on the device: the next broker reads it again. Until then
		 * no zone is reset. */
		rep->err = end;
		d->lost = d->quit = true;
		ret = end.code;
	}
	/* Write the tombstones only now, because most zones become empty only after all
	 * removals. */
	for (i = 0; i < nr; i++)
		(undone ? grave_free : bury)(d, &graves[i]);
	d->freed = true;
	/* Erase even if all of them were removed earlier: that may have been without --secure, or a
	 * crash may have prevented the erasure. */
	if (!ret && q->secure && zns_store_erase(d->store, &rep->err))
		return zns_wrap(&rep->err, "removed, but not erased");
	return ret;
}

/* For a dry run: makes the checks of serve_rm() only. */
int serve_rm_check(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__Rm *q = x->q->rm_check;
	int ret = check_rm(d, q, &rep->err);

	if (ret)
		return ret;
	rep->r.removed = reply_alloc(rep, q->n_checkpoints * sizeof(*rep->r.removed));
	for (size_t i = 0; i < q->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *k = zns_store_find(d->store, q->checkpoints[i].data);
		ZnsPb__Tombstone t = ZNS_PB__TOMBSTONE__INIT;

		if (!k)
			continue; /* the checkpoint was removed earlier */
		t.id = k->id;
		t.by = q->by;
		t.container = k->container;
		rep->r.removed[rep->r.n_removed++] = copy_tombstone(rep, &t);
	}
	return 0;
}

int serve_reserve(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__Reserve *q = x->q->reserve;
	int ret = reserve_for_io(d, q, &rep->err);

	if (!ret)
		rep->r.reservation = (ZnsPb__Reservation *)zns_store_find_reservation(d->store,
										      q->container);
	return ret;
}

int serve_release(struct znsd *d, const struct call *x, struct reply *rep)
{
	return reservation_release(d, x->q->release, &rep->err);
}

static const struct lease *reader_of(const struct znsd *d, uint32_t zone)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (!lease_writes(l) && lease_zone_find(l, zone))
			return l;
	return NULL;
}

static int may_reset(const struct znsd *d, uint32_t zone, struct zns_err *err)
{
	const struct zn_zone *z;
	const struct lease *l;

	if (zone >= d->nr_zones)
		return zns_fail(err, -EINVAL, "no zone %u: %s has %u", zone, d->reg.path,
				d->nr_zones);
	z = &d->zones[zone];
	if (z->meta)
		return zns_fail(err, -EBUSY, "zone %u holds the store's metadata", zone);
	if (!zone_usable(z))
		return zns_fail(err, -EROFS, "zone %u is %s", zone,
				zns_zone_state_name(z->z.state));
	if (z->writer && z->writer->kind == LEASE_YIELDING)
		return zns_fail(err, -EBUSY, "zone %u holds %s (%s)", zone,
				z->writer->yields.ops->what, z->writer->container);
	if (z->writer)
		return zns_fail(err, -EBUSY, "zone %u is being written by a dump of %s (PID %u)",
				zone, z->writer->container, z->writer->pid);
	if (z->finishing)
		return zns_fail(err, -EBUSY, "zone %u is being finished", zone);
	if (zone_live(d, zone))
		return zns_fail(
			err, -EBUSY,
			"zone %u holds live checkpoints of %s; remove them with `znsctl rm`", zone,
			zns_store_zone_owner(d->store, zone));
	l = reader_of(d, zone);
	if (l)
		return zns_fail(err, -EBUSY, "zone %u is being read by a restore of %s (PID %u)",
				zone, l->container, l->pid);
	if (z->old && !d->readers_clear)
		return zns_fail(err, -EBUSY,
				"zone %u may be read by a restore that an earlier broker let in",
				zone);
	return 0;
}

int serve_reset(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__ZonesReset *q = x->q->reset;
	cleanup_free uint32_t *list = znsd_alloc(d->nr_zones * sizeof(*list));
	uint32_t n = 0, i, k, done;
	int ret;

	ret = zones_refresh(d, 0, d->nr_zones, &rep->err);
	if (ret)
		return ret;
	readers_check(d);
	if (q->n_zones > d->nr_zones)
		return zns_fail(&rep->err, -EINVAL, "reset: %zu zones are more than %s has",
				q->n_zones, d->reg.path);
	for (i = 0; i < q->n_zones; i++) {
		ret = may_reset(d, q->zones[i], &rep->err);
		if (ret)
			return ret;
		for (k = 0; k < n && list[k] != q->zones[i]; k++)
			;
		if (k == n && d->zones[q->zones[i]].z.state != ZNS_ZONE_EMPTY)
			list[n++] = q->zones[i];
	}
	for (i = 0; !q->n_zones && i < d->nr_zones; i++)
		if (zone_garbage(d, i))
			list[n++] = i;
	done = zones_reset(d, list, n, &rep->err);
	if (done < n)
		return rep->err.code ? rep->err.code : -EIO;
	rep->r.n_reset_zones = n;
	rep->r.reset_zones = reply_alloc(rep, n * sizeof(*list));
	memcpy(rep->r.reset_zones, list, n * sizeof(*list));
	d->freed = true;
	return 0;
}

/* PID of a client that has or waits for a lease, and whose build does not notice that a store is
 * resized; 0: there is none */
static uint32_t earlier_client(const struct znsd *d)
{
	for (const struct conn *c = d->server->conns; c; c = c->next)
		if (!c->follows && (c->waiter || lease_last(d, c)))
			return conn_pid(c);
	return 0;
}

int serve_resize(struct znsd *d, const struct call *x, struct reply *rep)
{
	uint32_t pid = x->q->resize->zones == d->nr_zones ? 0 : earlier_client(d);

	if (pid) /* such a client would write back parts of the old tables */
		return zns_fail(
			&rep->err, -EBUSY,
			"%s is used by PID %u, a program of an earlier build, which does not "
			"see its size change: try again when that has ended",
			d->reg.path, pid);
	return resize_step(d, x->conn, x->q->resize->zones, &rep->err);
}

int serve_retain(struct znsd *d, const struct call *x, struct reply *rep)
{
	ZnsPb__Retention r = *x->q->retain;
	int ret = zns_check_container(r.container, &rep->err);

	if (ret)
		return ret;
	r.has_set_ns = 1;
	r.set_ns = zns_now_ns();
	return zns_store_retain(d->store, &r, &rep->err);
}

int serve_mark(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__Mark *q = x->q->mark;
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;
	const ZnsPb__Mark *old;
	char id[ZNS_UUID_STR];

	if (q->checkpoint.len != ZNS_UUID_LEN)
		return zns_fail(&rep->err, -EINVAL, "a checkpoint's id must have %d bytes",
				ZNS_UUID_LEN);
	if (!zns_store_find(d->store, q->checkpoint.data))
		return zns_fail(&rep->err, -ENOENT, "%s has no checkpoint %s", d->reg.path,
				zns_uuid_format(q->checkpoint.data, id));
	old = zns_store_find_mark(d->store, q->checkpoint.data);
	m.checkpoint = q->checkpoint;
	m.pinned = q->has_pinned ? q->pinned : old && old->pinned;
	m.has_pinned = m.pinned;
	m.gone_ns = q->has_gone_ns ? q->gone_ns : old ? old->gone_ns : 0;
	m.has_gone_ns = m.gone_ns != 0;
	m.damaged_ns = q->has_damaged_ns ? q->damaged_ns : old ? old->damaged_ns : 0;
	m.has_damaged_ns = m.damaged_ns != 0;
	return zns_store_set_mark(d->store, &m, &rep->err);
}

int serve_first_pages(struct znsd *d, const struct call *x, struct reply *rep)
{
	ZnsPb__FirstPages *q = x->q->first_pages;
	char id[ZNS_UUID_STR];

	if (x->l->kind != LEASE_RESTORE || q->checkpoint.len != ZNS_UUID_LEN ||
	    memcmp(x->l->id, q->checkpoint.data, ZNS_UUID_LEN))
		return zns_fail(&rep->err, -EPERM,
				"first pages are recorded by a restore of their checkpoint");
	/* The checkpoint may have been removed while it was being restored. */
	if (!zns_store_find(d->store, q->checkpoint.data))
		return zns_fail(&rep->err, -ENOENT, "%s has no checkpoint %s", d->reg.path,
				zns_uuid_format(q->checkpoint.data, id));
	q->recorded_ns = zns_now_ns();
	return zns_store_set_first(d->store, q, &rep->err);
}

int serve_encryption(struct znsd *d, const struct call *x, struct reply *rep)
{
	ZnsPb__Encryption *q = x->q->encryption;

	q->since_ns = zns_now_ns();
	if (q->has_key_id && q->key_id.len != ZNS_KEY_ID_BYTES)
		return zns_fail(&rep->err, -EINVAL, "the fingerprint of a key must have %d bytes",
				ZNS_KEY_ID_BYTES);
	/* the reply must not point to a record that is about to be replaced */
	rep->r.encryption = NULL;
	if (zns_store_set_encryption(d->store, q, &rep->err))
		return rep->err.code;
	rep->r.encryption = (ZnsPb__Encryption *)wanted_encryption(d);
	return 0;
}

int serve_rekey(struct znsd *d, const struct call *x, struct reply *rep)
{
	const struct lease *l;
	bool done;
	int ret;

	/* the record of a running encrypted dump would have a key that is wrapped with the old
	 * master key */
	for (l = d->leases; l; l = l->next)
		if (lease_admitted(l) && l->dump.encrypted)
			return zns_fail(&rep->err, -EBUSY,
					"an encrypted dump of %s is running (PID %u)", l->container,
					l->pid);
	rep->r.encryption = NULL; /* the reply must not point to a record that may be replaced */
	ret = zns_store_rekey(d->store, x->q->rekey, &done, &rep->err);
	rep->r.encryption = (ZnsPb__Encryption *)wanted_encryption(d);
	if (ret && done) {
		rep->r.note = reply_printf(rep, "%s", rep->err.msg);
		memset(&rep->err, 0, sizeof(rep->err));
		ret = 0;
	}
	return ret;
}

int serve_quit(struct znsd *d, const struct call *x, struct reply *rep)
{
	char who[384];

	if (d->leases)
		return zns_fail(&rep->err, -EBUSY, "%s is in use by %s", d->reg.path,
				groups_holders(d, "", who, sizeof(who)));
	d->quit = true;
	rep->hangup = true;
	return 0;
}
