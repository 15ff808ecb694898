/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds footers without the log. Each zone is walked from its write pointer down to its start. The
 * walk skips the bytes of checkpoints that are already known. A footer makes its checkpoint known.
 * Bytes that belong to no known checkpoint are searched block by block. These come last, since
 * walking the other zones may make their checkpoint known.
 */
#include <string.h>
#include "kinds.h"
#include "zns/fsck.h"
#include "zns/grow.h"

#define BACK MIB(1)

struct use {
	struct use *next;
	uint64_t start, end;
};

struct zwalk {
	uint64_t at; /* the walk has come down to this offset */
	uint64_t cap;
	struct use *uses;
	bool dead; /* the block below @at belongs to no known checkpoint and is no footer */
	bool stuck; /* the block below @at cannot be read */
};

struct walk {
	struct zns_dev *dev;
	uint32_t nr_meta, block;
	struct zwalk *z;
	struct zns_scan *out;
	uint8_t *buf;
	uint32_t buf_zone;
	uint64_t buf_off, buf_len;
	const struct zns_scan_params *p;
};

static int add_use(struct walk *w, uint32_t zone, uint64_t start, uint64_t len)
{
	struct use *u;

	if (zone < w->nr_meta || zone >= w->dev->geo.nr_zones || !len || start % w->block)
		return 0;
	u = malloc(sizeof(*u));
	if (!u)
		return -ENOMEM;
	*u = (struct use){ w->z[zone].uses, start, start + zns_align_up(len, w->block) };
	w->z[zone].uses = u;
	w->z[zone].dead = false; /* a checkpoint in this zone has become known: try again to skip */
	return 0;
}

static int add_uses(struct walk *w, const ZnsPb__Checkpoint *c)
{
	for (size_t i = 0; i < c->n_zones; i++)
		if (add_use(w, c->zones[i]->zone, c->zones[i]->start, c->zones[i]->len))
			return -ENOMEM;
	return 0;
}

/* Returns the block that ends at @end; NULL: it cannot be read. Reads backwards in large pieces. */
static const uint8_t *block_before(struct walk *w, uint32_t zone, uint64_t end, bool piece)
{
	uint64_t off = end - w->block;

	if (w->buf_zone != zone || off < w->buf_off || end > w->buf_off + w->buf_len) {
		uint64_t from = piece && end > BACK ? end - BACK : piece ? 0 : off;

		from = zns_align_up(from, w->block);
		w->buf_zone = UINT32_MAX;
		/* Read a single block: an unreadable one must not hide the others of the piece. */
		if (zns_store_read(w->dev, zone, from, w->buf, end - from, NULL)) {
			from = off;
			if (zns_store_read(w->dev, zone, from, w->buf, end - from, NULL))
				return NULL;
		}
		w->buf_zone = zone;
		w->buf_off = from;
		w->buf_len = end - from;
		w->out->bytes += w->buf_len;
		if (w->p->progress)
			w->p->progress(w->p->arg, w->buf_len);
	}
	return w->buf + (off - w->buf_off);
}

/* Completes the copy of the record that the manifest has: adds the manifest's place, and its bytes
 * to the zone uses. */
static int complete(const ZnsPb__Footer *f, uint64_t footer, uint32_t block, ZnsPb__Checkpoint *c)
{
	ZnsPb__ExtentRef *ref = calloc(1, sizeof(*ref));
	ZnsPb__ZoneUse *u;

	if (!ref)
		return -ENOMEM;
	zns_pb__extent_ref__init(ref);
	ref->zone = f->zone;
	ref->start = f->manifest_start;
	ref->len = f->manifest_len;
	ref->hash = f->manifest_hash;
	c->manifest = ref;
	for (size_t i = 0; i < c->n_zones; i++) {
		u = c->zones[i];
		if (u->zone == f->zone && !u->has_memory &&
		    u->start + u->len == f->manifest_start) {
			u->len = footer + block - u->start;
			return 0;
		}
	}
	if (zns_grow_by_one(c->zones, c->n_zones))
		return -ENOMEM;
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	zns_pb__zone_use__init(u);
	u->zone = f->zone;
	u->start = f->manifest_start;
	u->len = footer + block - f->manifest_start;
	c->zones[c->n_zones++] = u;
	return 0;
}

static bool found_before(const struct walk *w, uint32_t zone, uint64_t footer)
{
	for (size_t i = 0; i < w->out->nr; i++)
		if (w->out->v[i].zone == zone && w->out->v[i].footer == footer)
			return true;
	return false;
}

static bool same_life(int64_t a, int64_t b)
{
	return a == b || a == ZNS_ANY_LIFE || b == ZNS_ANY_LIFE;
}

bool zns_dead_is(const struct zns_dead *d, const uint8_t *id, int64_t created_ns, int64_t moved_ns)
{
	return (d->moved_ns == moved_ns || (d->removed && moved_ns < d->moved_ns)) &&
	       same_life(d->created_ns, created_ns) && !memcmp(d->id, id, ZNS_UUID_LEN);
}

bool zns_tombstone_of(const ZnsPb__Tombstone *t, const uint8_t *id, int64_t created_ns,
		      int64_t moved_ns)
{
	return moved_ns <= t->deleted_ns &&
	       same_life(t->has_created_ns ? t->created_ns : ZNS_ANY_LIFE, created_ns) &&
	       !memcmp(t->id.data, id, ZNS_UUID_LEN);
}

static bool is_dead(const struct walk *w, const ZnsPb__Checkpoint *c)
{
	for (size_t i = 0; i < w->p->nr_dead; i++)
		if (zns_dead_is(&w->p->dead[i], c->id.data, c->created_ns, c->moved_ns))
			return true;
	for (size_t i = 0; i < w->out->nr_dead; i++)
		if (zns_tombstone_of(w->out->dead[i], c->id.data, c->created_ns, c->moved_ns))
			return true;
	return false;
}

/* Is @k a later version of this checkpoint? */
static bool is_later(const ZnsPb__Checkpoint *k, const ZnsPb__Checkpoint *c)
{
	return !memcmp(k->id.data, c->id.data, ZNS_UUID_LEN) && k->created_ns == c->created_ns &&
	       zns_version_cmp(k, c) > 0;
}

/* Is a later version known? Then the place of this one may have been written again. */
static bool outdated(const struct walk *w, const ZnsPb__Checkpoint *c)
{
	for (size_t i = 0; i < w->p->nr_known; i++)
		if (is_later(w->p->known[i], c))
			return true;
	for (size_t i = 0; i < w->out->nr; i++) {
		const struct zns_found *f = &w->out->v[i];

		if (f->c && is_later(f->c, c) && !is_dead(w, f->c))
			return true;
	}
	return false;
}

static int take_footer(struct walk *w, const ZnsPb__Footer *f, uint64_t footer, struct zns_err *err)
{
	ZnsPb__Checkpoint ask = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__ExtentRef ref = ZNS_PB__EXTENT_REF__INIT;
	struct zns_found *n;
	ZnsPb__Manifest *m = NULL;

	if (found_before(w, f->zone, footer))
		return 0;
	if (zns_grow_by_one(w->out->v, w->out->nr))
		return zns_fail(err, -ENOMEM, "no memory for what was found");
	n = &w->out->v[w->out->nr++];
	*n = (struct zns_found){ .zone = f->zone, .footer = footer };
	memcpy(n->id, f->checkpoint.data, ZNS_UUID_LEN);
	ref.zone = f->zone;
	ref.start = f->manifest_start;
	ref.len = f->manifest_len;
	ref.hash = f->manifest_hash;
	ask.id = f->checkpoint;
	ask.container = (char *)"";
	ask.manifest = &ref;
	if (zns_manifest_read(w->dev, &ask, &m, &n->why)) {
		/* on a disk, another checkpoint may have overwritten the manifest but not the
		 * footer */
		uint64_t start = zns_geo_is_disk(&w->dev->geo) ? footer : f->manifest_start;

		return add_use(w, f->zone, start, footer + w->block - start);
	}
	n->c = m->checkpoint;
	/* freeing the manifest does not free the record */
	m->checkpoint = calloc(1, sizeof(*m->checkpoint));
	if (!m->checkpoint) {
		m->checkpoint = n->c;
		n->c = NULL;
		zns_pb__manifest__free_unpacked(m, NULL);
		return zns_fail(err, -ENOMEM, "no memory for what was found");
	}
	zns_pb__checkpoint__init(m->checkpoint);
	zns_pb__manifest__free_unpacked(m, NULL);
	if (complete(f, footer, w->block, n->c) ||
	    add_use(w, f->zone, f->manifest_start, footer + w->block - f->manifest_start) ||
	    (!is_dead(w, n->c) && !outdated(w, n->c) && add_uses(w, n->c)))
		return zns_fail(err, -ENOMEM, "no memory for what was found");
	return 0;
}

bool zns_holds_bytes(const ZnsPb__Checkpoint *k, uint32_t zone, uint64_t at, uint64_t len)
{
	for (size_t i = 0; i < k->n_zones; i++) {
		const ZnsPb__ZoneUse *u = k->zones[i];

		if (u->zone == zone && u->start <= at && at + len <= u->start + u->len)
			return true;
	}
	return false;
}

static int take_tombstone(struct walk *w, const struct zns_frame *f, struct zns_err *err)
{
	ProtobufCMessage *msg;

	if (zns_record_decode(zns_kind_of(f->type), f->payload, f->len, NULL, &msg, NULL))
		return 0;
	if (zns_grow_by_one(w->out->dead, w->out->nr_dead)) {
		protobuf_c_message_free_unpacked(msg, NULL);
		return zns_fail(err, -ENOMEM, "no memory for what was found");
	}
	w->out->dead[w->out->nr_dead++] = (ZnsPb__Tombstone *)msg;
	return 0;
}

/* Adds the uses of a record that is known. On a disk, other checkpoints, whose records are lost,
 * may have been written to its place since. Then its footer is missing (or a tombstone is in its
 * place), and the bytes there are searched block by block. */
static int take_known(struct walk *w, const ZnsPb__Checkpoint *k)
{
	uint64_t at = k->manifest->start + zns_align_up(k->manifest->len, (uint64_t)w->block);
	ZnsPb__Footer *foot = NULL;
	bool own;

	if (!zns_geo_is_disk(&w->dev->geo) || !zns_holds_bytes(k, k->manifest->zone, at, w->block))
		return add_uses(w, k);
	/* an unreadable block does not prove that the footer is missing */
	if (!block_before(w, k->manifest->zone, at + w->block, false))
		return add_uses(w, k);
	own = !zns_footer_read(w->dev, k->manifest->zone, at, &foot, NULL) &&
	      !memcmp(foot->checkpoint.data, k->id.data, ZNS_UUID_LEN);
	if (foot)
		zns_pb__footer__free_unpacked(foot, NULL);
	return own ? add_uses(w, k) : 0;
}

/* Returns 1: the block that ends at z->at is a footer or a tombstone, which was added; 0: it is
 * neither. */
static int look(struct walk *w, uint32_t zone, bool piece, struct zns_err *err)
{
	struct zwalk *z = &w->z[zone];
	const uint8_t *b = block_before(w, zone, z->at, piece);
	ZnsPb__Footer *foot;
	struct zns_frame f;
	int ret;

	if (!b) {
		z->stuck = true;
		return 0;
	}
	if (zns_frame_parse(b, w->block, &f, NULL))
		return 0;
	if (f.type == ZNS_FRAME_TOMBSTONE) {
		z->at -= w->block;
		ret = take_tombstone(w, &f, err);
		return ret ? ret : 1;
	}
	if (f.type != ZNS_FRAME_FOOTER ||
	    zns_footer_read(w->dev, zone, z->at - w->block, &foot, NULL))
		return 0;
	ret = take_footer(w, foot, z->at - w->block, err);
	zns_pb__footer__free_unpacked(foot, NULL);
	return ret ? ret : 1;
}

static bool step_over(struct zwalk *z)
{
	for (struct use *u = z->uses; u; u = u->next) {
		if (u->end < z->at || u->start >= z->at)
			continue;
		z->at = u->start;
		return true;
	}
	return false;
}

/* Walks down to the first bytes that belong to no known checkpoint and are no footer. *moved: the
 * walk has come further, or has found a footer. */
static int advance(struct walk *w, uint32_t zone, bool *moved, struct zns_err *err)
{
	struct zwalk *z = &w->z[zone];
	int ret;

	while (z->at && !z->dead && !z->stuck) {
		if (step_over(z)) {
			*moved = true;
			continue;
		}
		ret = look(w, zone, false, err);
		if (ret < 0)
			return ret;
		if (ret == 1) {
			*moved = true;
			continue;
		}
		z->dead = true;
	}
	return 0;
}

/* Searches a piece of bytes that belong to no known checkpoint, until it meets known bytes or a
 * footer. */
static int search(struct walk *w, uint32_t zone, struct zns_err *err)
{
	struct zwalk *z = &w->z[zone];
	uint64_t end = z->at > BACK ? z->at - BACK : 0;

	while (z->at > end && !z->stuck) {
		int ret = look(w, zone, true, err);

		if (ret)
			return ret < 0 ? ret : 0;
		if (z->stuck) { /* skip the unreadable block and continue below it */
			z->stuck = false;
			w->out->unreadable++;
		}
		z->at -= w->block;
		if (z->at && step_over(z))
			return 0;
	}
	return 0;
}

static int run(struct walk *w, struct zns_err *err)
{
	uint32_t nr = w->dev->geo.nr_zones, i;
	bool moved;
	int ret;

	do {
		do {
			moved = false;
			for (i = w->nr_meta; i < nr; i++) {
				ret = advance(w, i, &moved, err);
				if (ret)
					return ret;
			}
		} while (moved);
		/* All zones take turns, because a footer in one zone may tell what is in
		 * another. */
		for (i = w->nr_meta; i < nr; i++) {
			if (!w->z[i].at)
				continue;
			w->z[i].dead = w->z[i].stuck = false;
			ret = search(w, i, err);
			if (ret)
				return ret;
			moved = true;
		}
	} while (moved);
	return 0;
}

int zns_scan_zones(const struct zns_scan_params *p, struct zns_scan *out, struct zns_err *err)
{
	struct zns_dev *dev = p->dev;
	struct walk w = { .dev = dev,
			  .nr_meta = p->nr_meta,
			  .block = dev->geo.block_size,
			  .out = out,
			  .buf_zone = UINT32_MAX,
			  .p = p };
	cleanup_free struct zns_zone *zones = calloc(dev->geo.nr_zones, sizeof(*zones));
	int ret = 0;

	*out = (struct zns_scan){ 0 };
	w.z = calloc(dev->geo.nr_zones, sizeof(*w.z));
	w.buf = zns_store_buf(dev, BACK + dev->geo.block_size);
	if (!zones || !w.z || !w.buf)
		ret = zns_fail(err, -ENOMEM, "no memory for %u zones", dev->geo.nr_zones);
	if (!ret)
		ret = zns_dev_report(dev, 0, dev->geo.nr_zones, zones, err);
	for (uint32_t i = p->nr_meta; i < dev->geo.nr_zones && !ret; i++) {
		if (zones[i].conventional || zones[i].state == ZNS_ZONE_OFFLINE ||
		    zones[i].state == ZNS_ZONE_EMPTY)
			continue;
		w.z[i].at = zns_align_down(zns_min(zones[i].wp, zones[i].capacity), w.block);
		out->zones += w.z[i].at > 0;
	}
	for (size_t k = 0; k < p->nr_known && !ret; k++)
		if (take_known(&w, p->known[k]))
			ret = zns_fail(err, -ENOMEM, "no memory for %zu checkpoints", p->nr_known);
	if (!ret)
		ret = run(&w, err);
	for (uint32_t i = 0; w.z && i < dev->geo.nr_zones; i++)
		while (w.z[i].uses) {
			struct use *u = w.z[i].uses;

			w.z[i].uses = u->next;
			free(u);
		}
	free(w.z);
	free(w.buf);
	if (ret)
		zns_scan_free(out);
	return ret;
}

void zns_scan_free(struct zns_scan *s)
{
	for (size_t i = 0; i < s->nr; i++)
		if (s->v[i].c)
			zns_pb__checkpoint__free_unpacked(s->v[i].c, NULL);
	for (size_t i = 0; i < s->nr_dead; i++)
		zns_pb__tombstone__free_unpacked(s->dead[i], NULL);
	free(s->v);
	free(s->dead);
	*s = (struct zns_scan){ 0 };
}

int zns_tombstone_block(const ZnsPb__Tombstone *t, uint8_t *block, size_t block_size)
{
	size_t n = zns_pb__tombstone__get_packed_size(t);
	struct zns_frame f = { .type = ZNS_FRAME_TOMBSTONE,
			       .payload = block + ZNS_FRAME_HDR,
			       .len = n };

	if (zns_frame_size(n, 1) > block_size)
		return -EMSGSIZE;
	zns_pb__tombstone__pack(t, block + ZNS_FRAME_HDR);
	zns_frame_pack(&f, block_size, block);
	return 0;
}
