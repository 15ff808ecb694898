/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Saves what can still be read of the metadata zones. Every intact frame is used, wherever it is.
 * Frames are applied in the order of generation and number, even if some before them are missing.
 * Since a generation begins with a snapshot of everything before it, the result is what the log
 * would have given.
 */
#include <string.h>
#include "kinds.h"
#include "salvage.h"
#include "zns/grow.h"

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

	if (zns_grow(p->v, p->nr, p->cap))
		return -ENOMEM;
	v = &p->v[p->nr];
	*v = (struct piece){ f->generation, f->seq, f->type, malloc(f->len + 1), f->len };
	if (!v->payload)
		return -ENOMEM;
	memcpy(v->payload, f->payload, f->len);
	p->nr++;
	return 0;
}

static int read_zone(struct zns_store *s, const struct zns_zone *z, struct pieces *p,
		     struct zns_salvage *r, struct zns_err *err)
{
	uint64_t block = zns_geo_log_block(&s->dev->geo), next = 0;
	struct zns_log_reader lr;
	struct zns_frame f;
	int ret = 0;

	zns_log_reader_init(&lr, s->dev, z);
	for (; lr.off < lr.limit && !ret; lr.off = next) {
		next = lr.off + block;
		if (zns_log_peek(&lr, &f, NULL) != 1) {
			r->damaged_blocks++;
			continue;
		}
		next = lr.off + zns_frame_size(f.len, block);
		r->records++;
		ret = keep(p, &f);
	}
	zns_log_reader_fini(&lr);
	return ret ? zns_fail(err, ret, "no memory for the records of zone %u", z->index) : 0;
}

static int cmp_piece(const void *pa, const void *pb)
{
	const struct piece *a = pa, *b = pb;

	if (a->generation != b->generation)
		return a->generation < b->generation ? -1 : 1;
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static void take_superblock(struct zns_store *s, const struct zns_frame *f, struct zns_salvage *r)
{
	ZnsPb__Superblock *sb;

	if (zns_superblock_parse(f, &s->dev->geo, s->nr_meta, &sb, NULL))
		return;
	memcpy(s->uuid, sb->device.data, ZNS_UUID_LEN);
	r->has_uuid = true;
	zns_pb__superblock__free_unpacked(sb, NULL);
}

/* Applies one record, or skips it if it does not fit. */
static int apply(struct zns_store *s, const struct piece *p, struct zns_salvage *r,
		 struct zns_err *err)
{
	struct zns_frame f = { .type = p->type,
			       .generation = p->generation,
			       .seq = p->seq,
			       .payload = p->payload,
			       .len = p->len };
	const void *before = zns_newest(&s->st.profile);
	int ret = zns_state_room(&s->st, err);

	if (ret)
		return ret;
	s->max_generation = zns_max(s->max_generation, p->generation);
	if (f.type == ZNS_FRAME_SUPERBLOCK) {
		take_superblock(s, &f, r);
		return 0;
	}
	if (zns_record_salvage(&s->st, &f, r))
		return zns_fail(err, -ENOMEM, "no memory for a record of the log");
	r->has_profile |= zns_newest(&s->st.profile) != before;
	return 0;
}

const ZnsPb__CheckpointKey *zns_salvage_key(const struct zns_salvage *r,
					    const uint8_t id[ZNS_UUID_LEN])
{
	for (size_t i = r->nr_keys; i-- > 0;)
		if (!memcmp(r->keys[i]->checkpoint.data, id, ZNS_UUID_LEN))
			return r->keys[i]->crypt;
	return NULL;
}

void zns_salvage_marks(const struct zns_salvage *r, struct zns_state *st)
{
	for (size_t i = 0; i < r->nr_marks; i++)
		zns_record_set(st, ZNS_FRAME_MARK, &r->marks[i]->base, NULL);
}

void zns_salvage_fini(struct zns_salvage *r)
{
	for (size_t i = 0; i < r->nr_marks; i++)
		zns_pb__mark__free_unpacked(r->marks[i], NULL);
	free(r->marks);
	r->marks = NULL;
	r->nr_marks = 0;
	for (size_t i = 0; i < r->nr_keys; i++)
		zns_pb__key_line__free_unpacked(r->keys[i], NULL);
	free(r->keys);
	r->keys = NULL;
	r->nr_keys = 0;
}

int zns_salvage_log(struct zns_store *s, struct zns_salvage *r, struct zns_err *err)
{
	uint32_t n = s->nr_meta - s->first_meta;
	cleanup_free struct zns_zone *zones = calloc(n, sizeof(*zones));
	struct pieces p = { 0 };
	int ret = 0;

	*r = (struct zns_salvage){ .newest_zone = UINT32_MAX };
	if (!zones)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", n);
	ret = zns_dev_report(s->dev, s->first_meta, n, zones, err);
	if (!ret)
		zns_store_min_cap(s, zones);
	for (uint32_t i = 0; i < n && !ret; i++) {
		size_t before = p.nr;
		uint64_t top = 0;

		if (!zones[i].conventional && zones[i].state != ZNS_ZONE_OFFLINE &&
		    zones[i].state != ZNS_ZONE_EMPTY)
			ret = read_zone(s, &zones[i], &p, r, err);
		for (size_t k = before; k < p.nr; k++)
			top = zns_max(top, p.v[k].generation);
		if (top > r->newest_generation) {
			r->newest_generation = top;
			r->newest_zone = zones[i].index;
		}
	}
	if (p.nr)
		qsort(p.v, p.nr, sizeof(*p.v), cmp_piece);
	for (size_t i = 0; i < p.nr && !ret; i++)
		ret = apply(s, &p.v[i], r, err);
	for (size_t i = 0; i < p.nr; i++)
		free(p.v[i].payload);
	free(p.v);
	zns_state_compact(&s->st);
	return ret;
}
