/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What can still be read of the metadata zones: every good frame, wherever it stands, applied in order of generation
 * and number without asking that the ones before it are there. A generation's snapshot repeats what came before, so
 * that this ends where the log would have.
 */
#include <string.h>
#include "salvage.h"
#include "zns/crypt.h"
#include "zns/frame.h"

struct piece {
	uint64_t generation, seq;
	uint16_t type;
	uint8_t *payload;
	uint32_t len;
};

struct pieces {
	struct piece *v;
	size_t nr, cap;
};

static int keep(struct pieces *p, const struct zns_frame *f)
{
	struct piece *v;
	size_t cap = p->cap ? 2 * p->cap : 256;

	if (p->nr == p->cap) {
		v = realloc(p->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		p->v = v;
		p->cap = cap;
	}
	v = &p->v[p->nr];
	*v = (struct piece){ f->generation, f->seq, f->type, malloc(f->len + 1), f->len };
	if (!v->payload)
		return -ENOMEM;
	memcpy(v->payload, f->payload, f->len);
	p->nr++;
	return 0;
}

static int read_zone(struct zns_store *s, const struct zns_zone *z, struct pieces *p, struct zns_salvage *r,
		     struct zns_err *err)
{
	uint64_t block = s->dev->geo.block_size, next = 0;
	struct zns_log_reader lr;
	struct zns_frame f;
	int rc = 0;

	zns_log_reader_init(&lr, s->dev, z);
	for (; lr.off < lr.limit && !rc; lr.off = next) {
		next = lr.off + block;
		if (zns_log_peek(&lr, &f, NULL) != 1) {
			r->damaged_blocks++;
			continue;
		}
		next = lr.off + zns_frame_size(f.len, block);
		r->records++;
		rc = keep(p, &f);
	}
	zns_log_reader_fini(&lr);
	return rc ? zns_fail(err, rc, "no memory for the records of zone %u", z->index) : 0;
}

static int cmp_piece(const void *pa, const void *pb)
{
	const struct piece *a = pa, *b = pb;

	if (a->generation != b->generation)
		return a->generation < b->generation ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* ---- one record, as far as it makes sense ---- */

static void apply_superblock(struct zns_store *s, const struct piece *p, struct zns_salvage *r)
{
	struct zns_frame f = { .type = p->type, .generation = p->generation, .seq = p->seq, .payload = p->payload,
			       .len = p->len };
	ZnsPb__Superblock *sb;

	if (zns_superblock_parse(&f, &s->dev->geo, s->nr_meta, &sb, NULL))
		return;
	memcpy(s->uuid, sb->device.data, ZNS_UUID_LEN);
	r->has_uuid = true;
	zns_pb__superblock__free_unpacked(sb, NULL);
}

static void add_ent(struct zns_state *st, ProtobufCMessage *m, const char *container,
		    void (*add)(struct zns_state *st, struct zns_ent *e))
{
	struct zns_ent *e = zns_state_ent(st, m, container, NULL);

	if (e)
		add(st, e);
}

void zns_crypt_inherit(ZnsPb__Checkpoint *c, ZnsPb__Checkpoint *from)
{
	ZnsPb__CheckpointKey *key = from->crypt;

	if (!key || !key->has_wrapped || !c->crypt)
		return;
	from->crypt = c->crypt;
	c->crypt = key;
}

/* Of two versions the one that was moved later; a snapshot may be the first to know of a move. */
static void apply_checkpoint(struct zns_state *st, const struct piece *p)
{
	ZnsPb__Checkpoint *c = zns_pb__checkpoint__unpack(NULL, p->len, p->payload);
	struct zns_limits lim = st->lim;
	struct zns_ent *e = c && c->id.len == ZNS_UUID_LEN ? zns_state_find(st, c->id.data) : NULL;

	/* The one thing in it that may change: what its key is wrapped with. */
	if (e && c->crypt && c->crypt->has_wrapped && e->ckpt->crypt && zns_crypt_record_sane(c->crypt)) {
		ZnsPb__CheckpointKey *old = e->ckpt->crypt;

		e->ckpt->crypt = c->crypt;
		c->crypt = old;
	}
	lim.nr_groups = lim.nr_zones;
	if (c && (!c->manifest || zns_check_checkpoint(c, &lim, -EBADMSG, NULL))) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
		return;
	}
	if (c && !zns_state_may_add(st, c, -EBADMSG, NULL)) {
		add_ent(st, &c->base, c->container, zns_state_add);
	} else if (c && !zns_state_may_replace(st, c, -EBADMSG, NULL)) {
		zns_crypt_inherit(c, e->ckpt);
		add_ent(st, &c->base, c->container, zns_state_replace);
	} else if (c) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
	}
}

static void apply_tombstone(struct zns_state *st, const struct piece *p)
{
	ZnsPb__Tombstone *t = zns_pb__tombstone__unpack(NULL, p->len, p->payload);

	if (t && !zns_check_tombstone(t, -EBADMSG, NULL))
		add_ent(st, &t->base, NULL, zns_state_bury);
	else if (t)
		zns_pb__tombstone__free_unpacked(t, NULL);
}

static void apply_rules(struct zns_state *st, const struct piece *p)
{
	if (p->type == ZNS_FRAME_RESERVATION) {
		ZnsPb__Reservation *v = zns_pb__reservation__unpack(NULL, p->len, p->payload);

		if (v && !zns_check_reservation(v, &st->lim, -EBADMSG, NULL))
			add_ent(st, &v->base, v->container, zns_state_reserve);
		else if (v)
			zns_pb__reservation__free_unpacked(v, NULL);
	} else if (p->type == ZNS_FRAME_RETENTION) {
		ZnsPb__Retention *v = zns_pb__retention__unpack(NULL, p->len, p->payload);

		if (v && !zns_check_retention(v, -EBADMSG, NULL))
			add_ent(st, &v->base, v->container, zns_state_retain);
		else if (v)
			zns_pb__retention__free_unpacked(v, NULL);
	} else if (p->type == ZNS_FRAME_MARK) {
		ZnsPb__Mark *v = zns_pb__mark__unpack(NULL, p->len, p->payload);

		if (v && !zns_check_mark(v, -EBADMSG, NULL) && zns_state_find(st, v->checkpoint.data))
			add_ent(st, &v->base, NULL, zns_state_mark);
		else if (v)
			zns_pb__mark__free_unpacked(v, NULL);
	} else {
		ZnsPb__Release *v = zns_pb__release__unpack(NULL, p->len, p->payload);
		struct zns_owner *o = v ? zns_state_owner(st, v->container) : NULL;

		if (o && o->reservation)
			zns_state_release(st, o);
		if (v)
			zns_pb__release__free_unpacked(v, NULL);
	}
}

static void apply_profile(struct zns_state *st, const struct piece *p, struct zns_salvage *r)
{
	ZnsPb__Profile *v = zns_pb__profile__unpack(NULL, p->len, p->payload);

	if (v && !zns_check_profile(v, &st->lim, -EBADMSG, NULL)) {
		zns_state_set_profile(st, v);
		r->has_profile = true;
	} else if (v) {
		zns_pb__profile__free_unpacked(v, NULL);
	}
}

static void apply_mount(struct zns_state *st, const struct piece *p)
{
	ZnsPb__Mount *v = zns_pb__mount__unpack(NULL, p->len, p->payload);

	if (v && !zns_check_mount(v, -EBADMSG, NULL))
		zns_state_set_mount(st, v);
	else if (v)
		zns_pb__mount__free_unpacked(v, NULL);
}

static void apply_encryption(struct zns_state *st, const struct piece *p)
{
	ZnsPb__Encryption *v = zns_pb__encryption__unpack(NULL, p->len, p->payload);

	if (v && !zns_check_encryption(v, -EBADMSG, NULL))
		zns_state_set_encryption(st, v);
	else if (v)
		zns_pb__encryption__free_unpacked(v, NULL);
}

static int keep_key(const struct piece *p, struct zns_salvage *r)
{
	ZnsPb__KeyLine *k = zns_pb__key_line__unpack(NULL, p->len, p->payload), **more;

	if (k && (k->checkpoint.len != ZNS_UUID_LEN || !k->crypt->has_wrapped || !zns_crypt_record_sane(k->crypt))) {
		zns_pb__key_line__free_unpacked(k, NULL);
		return 0;
	}
	if (!k)
		return 0;
	more = realloc(r->keys, (r->nr_keys + 1) * sizeof(*more));
	if (!more) {
		zns_pb__key_line__free_unpacked(k, NULL);
		return -ENOMEM;
	}
	r->keys = more;
	r->keys[r->nr_keys++] = k;
	return 0;
}

const ZnsPb__CheckpointKey *zns_salvage_key(const struct zns_salvage *r, const uint8_t id[ZNS_UUID_LEN])
{
	for (size_t i = r->nr_keys; i-- > 0;)
		if (!memcmp(r->keys[i]->checkpoint.data, id, ZNS_UUID_LEN))
			return r->keys[i]->crypt;
	return NULL;
}

void zns_salvage_fini(struct zns_salvage *r)
{
	for (size_t i = 0; i < r->nr_keys; i++)
		zns_pb__key_line__free_unpacked(r->keys[i], NULL);
	free(r->keys);
	r->keys = NULL;
	r->nr_keys = 0;
}

static int apply(struct zns_store *s, const struct piece *p, struct zns_salvage *r, struct zns_err *err)
{
	struct zns_state *st = &s->st;
	int rc = zns_state_room(st, err);

	if (rc)
		return rc;
	s->max_generation = zns_max(s->max_generation, p->generation);
	switch (p->type) {
	case ZNS_FRAME_SUPERBLOCK:
		apply_superblock(s, p, r);
		break;
	case ZNS_FRAME_PROFILE:
		apply_profile(st, p, r);
		break;
	case ZNS_FRAME_CHECKPOINT:
	case ZNS_FRAME_MOVED:
		apply_checkpoint(st, p);
		break;
	case ZNS_FRAME_TOMBSTONE:
		apply_tombstone(st, p);
		break;
	case ZNS_FRAME_MOUNT:
		apply_mount(st, p);
		break;
	case ZNS_FRAME_ENCRYPTION:
		apply_encryption(st, p);
		break;
	case ZNS_FRAME_KEY:
		if (keep_key(p, r))
			return zns_fail(err, -ENOMEM, "no memory for a wrapped key");
		break;
	case ZNS_FRAME_RESERVATION:
	case ZNS_FRAME_RELEASE:
	case ZNS_FRAME_RETENTION:
	case ZNS_FRAME_MARK:
		apply_rules(st, p);
		break;
	}
	return 0;
}

int zns_salvage(struct zns_store *s, struct zns_salvage *r, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	struct pieces p = { 0 };
	int rc = 0;

	*r = (struct zns_salvage){ .newest_zone = UINT32_MAX };
	if (!zones)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", n);
	rc = zns_dev_report(s->dev, s->first_meta, n, zones, err);
	if (!rc)
		zns_store_min_cap(s, zones);
	for (uint32_t i = 0; i < n && !rc; i++) {
		size_t before = p.nr;
		uint64_t top = 0;

		if (!zones[i].conventional && zones[i].state != ZNS_ZONE_OFFLINE && zones[i].state != ZNS_ZONE_EMPTY)
			rc = read_zone(s, &zones[i], &p, r, err);
		for (size_t k = before; k < p.nr; k++)
			top = zns_max(top, p.v[k].generation);
		if (top > r->newest_generation) {
			r->newest_generation = top;
			r->newest_zone = zones[i].index;
		}
	}
	if (p.nr)
		qsort(p.v, p.nr, sizeof(*p.v), cmp_piece);
	for (size_t i = 0; i < p.nr && !rc; i++)
		rc = apply(s, &p.v[i], r, err);
	for (size_t i = 0; i < p.nr; i++)
		free(p.v[i].payload);
	free(p.v);
	zns_state_compact(&s->st);
	return rc;
}
