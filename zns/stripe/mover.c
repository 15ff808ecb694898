/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Moves parts of a checkpoint: see zns/mover.h. */
#include <stdlib.h>
#include <string.h>
#include "mover.h"
#include "zns/pbcopy.h"
#include "transfer.h"
#include "zns/grow.h"

#define BATCH MIB(1) /* bytes that are read, verified and written in one step */

/* Sorts places by the group that they move to, so that only one zone is written at a time. */
static int cmp_place(const struct zns_mover_params *p, uint32_t za, uint64_t a, uint32_t zb,
		     uint64_t b)
{
	if (p->zone_group[za] != p->zone_group[zb])
		return p->zone_group[za] < p->zone_group[zb] ? -1 : 1;
	if (za != zb)
		return za < zb ? -1 : 1;
	return a < b ? -1 : a > b;
}

static int cmp_unit(const void *pa, const void *pb, void *arg)
{
	const struct mover_unit *a = pa, *b = pb;

	return cmp_place(arg, a->zone, a->off, b->zone, b->off);
}

static bool is_victim(const struct zns_mover_params *p, uint32_t zone)
{
	for (uint32_t i = 0; i < p->nr_victims; i++)
		if (p->victims[i] == zone)
			return true;
	return false;
}

/* The group to which the data of @zone move. */
static uint32_t group_for(const struct zns_mover_params *p, uint32_t zone)
{
	for (uint32_t i = 0; p->to_group && i < p->nr_victims; i++)
		if (p->victims[i] == zone)
			return p->to_group[i];
	return p->zone_group[zone];
}

static int add_unit(struct mover *v, const struct mover_unit *u, struct zns_err *err)
{
	if (zns_grow(v->units, v->nr_units, v->max_units))
		return zns_fail(err, -ENOMEM, "no memory for %zu units", v->nr_units + 1);
	v->units[v->nr_units++] = *u;
	return 0;
}

static int list_segment(struct mover *v, const ZnsPb__Image *img, const ZnsPb__Segment *pb,
			struct zns_err *err)
{
	uint64_t nr = (pb->len + img->unit - 1) / img->unit, first = pb->off / img->unit;
	struct zns_seg seg;
	bool any = false;
	int ret;

	for (size_t e = 0; e < pb->n_extents; e++)
		any |= is_victim(v->p, pb->extents[e]->zone);
	if (!any)
		return 0;
	ret = zns_seg_init(&seg, pb, img->unit, err);
	for (uint64_t k = 0; k < nr && !ret; k++) {
		struct mover_unit u = { .img = img };
		struct zns_place place;

		zns_seg_place(&seg, k, &place);
		if (!is_victim(v->p, place.zone))
			continue;
		u.zone = place.zone;
		u.off = place.off;
		u.len = (uint32_t)zns_min((uint64_t)img->unit, pb->len - k * img->unit);
		u.csum = img->csums[first + k];
		ret = add_unit(v, &u, err);
	}
	zns_seg_fini(&seg);
	return ret;
}

/* Lists all units in the victim zones in the order of their places, and the pieces that they form:
 * runs of whole blocks without a gap. */
static int list_units(struct mover *v, struct zns_err *err)
{
	uint32_t block = v->p->dev->geo.block_size;
	int ret = 0;

	for (size_t i = 0; i < v->m->n_images && !ret; i++)
		for (size_t s = 0; s < v->m->images[i]->n_segments && !ret; s++)
			ret = list_segment(v, v->m->images[i], v->m->images[i]->segments[s], err);
	if (ret)
		return ret;
	if (v->nr_units)
		qsort_r(v->units, v->nr_units, sizeof(*v->units), cmp_unit, (void *)v->p);
	v->pieces = calloc(v->nr_units + 1, sizeof(*v->pieces));
	if (!v->pieces)
		return zns_fail(err, -ENOMEM, "no memory for %zu units", v->nr_units);
	for (size_t i = 0; i < v->nr_units; i++) {
		const struct mover_unit *u = &v->units[i];
		struct mover_piece *last = v->nr_pieces ? &v->pieces[v->nr_pieces - 1] : NULL;
		uint64_t from = zns_align_down(u->off, block),
			 to = zns_align_up(u->off + u->len, block);

		if (!last || last->zone != u->zone || from > last->end) {
			last = &v->pieces[v->nr_pieces++];
			*last = (struct mover_piece){
				.zone = u->zone, .start = from, .end = from, .first = i
			};
		}
		last->end = zns_max(last->end, to);
		last->nr++;
	}
	return 0;
}

/* ---- copying ---- */

/* Gets a place for @need bytes: in the zone that is being written if it has room, else in a new
 * one. */
static int get_slot(struct mover *v, uint32_t group, uint64_t need, struct zns_err *err)
{
	struct mover_slot *s = v->nr_slots ? &v->slots[v->nr_slots - 1] : NULL;
	struct zns_zone_slot got;
	uint32_t done = 0;
	int ret;

	if (s && s->from == group && s->capacity - s->wp >= need)
		return 0;
	if (s)
		done = s->zone;
	ret = v->p->zone_get(v->p->arg, group, need, &done, s != NULL, &got, err);
	if (ret)
		return ret;
	if (v->p->to_group && got.group != group)
		return zns_fail(err, -ENOSPC, "group %u has no zone for %llu bytes", group,
				(unsigned long long)need);
	if (is_victim(v->p, got.zone) || got.capacity - zns_min(got.start, got.capacity) < need)
		return zns_fail(err, -EPROTO, "zone %u has no room for %llu bytes", got.zone,
				(unsigned long long)need);
	if (zns_grow_by_one(v->slots, v->nr_slots))
		return zns_fail(err, -ENOMEM, "no memory for a zone");
	v->slots[v->nr_slots++] = (struct mover_slot){ .zone = got.zone,
						       .group = got.group,
						       .from = group,
						       .start = got.start,
						       .wp = got.start,
						       .capacity = got.capacity };
	return 0;
}

static struct mover_slot *slot(struct mover *v)
{
	return &v->slots[v->nr_slots - 1];
}

static int room_for_batch(struct mover *v, size_t len, struct zns_err *err)
{
	if (len <= v->buf_len)
		return 0;
	free(v->buf);
	v->buf_len = zns_align_up(len, 4096);
	v->buf = aligned_alloc(zns_max((size_t)4096, (size_t)v->p->dev->geo.mem_align), v->buf_len);
	if (v->buf)
		return 0;
	v->buf_len = 0;
	return zns_fail(err, -ENOMEM, "no memory for %zu bytes", len);
}

static int copy_batch(struct mover *v, const struct mover_piece *pc, uint64_t from, uint64_t to,
		      size_t first, size_t nr, struct zns_err *err)
{
	uint32_t groups[2] = { v->p->zone_group[pc->zone], slot(v)->group };
	struct mover_slot *s = slot(v);
	int ret;

	ret = v->p->step(v->p->arg, groups, groups[0] == groups[1] ? 1 : 2, v->bytes, err);
	if (!ret)
		ret = room_for_batch(v, to - from, err);
	if (!ret)
		ret = transfer_read(v->p->dev, v->p->bucket, false, pc->zone, from, v->buf,
				    to - from, err);
	for (size_t i = first; i < first + nr && !ret; i++) {
		const struct mover_unit *u = &v->units[i];

		if (zns_unit_csum(u->img, v->buf + (u->off - from), u->len) != u->csum)
			ret = zns_fail(
				err, -EBADMSG,
				"image %s is damaged: a checksum at byte %llu of zone %u does not match",
				u->img->name, (unsigned long long)u->off, u->zone);
	}
	if (!ret)
		ret = transfer_write(v->p->dev, v->p->bucket, 0, s->zone, s->wp, v->buf, to - from,
				     NULL, err);
	if (!ret) {
		s->wp += to - from;
		v->bytes += to - from;
	}
	return ret;
}

/* Copies one piece. A piece is never split, because all extents in it must move by the same
 * distance. */
static int copy_piece(struct mover *v, struct mover_piece *pc, struct zns_err *err)
{
	uint32_t block = v->p->dev->geo.block_size;
	size_t i = pc->first, end = pc->first + pc->nr, from_unit;
	uint64_t from = pc->start, to;
	int ret = get_slot(v, group_for(v->p, pc->zone), pc->end - pc->start, err);

	if (ret)
		return ret;
	pc->to_zone = slot(v)->zone;
	pc->to_start = slot(v)->wp;
	while (i < end && !ret) {
		from_unit = i;
		to = from;
		/* a batch has whole units and ends at a block boundary, so a block that two units
		 * share is not split */
		while (i < end) {
			uint64_t unit_end = zns_align_up(v->units[i].off + v->units[i].len, block);

			if (i > from_unit && unit_end - from > BATCH &&
			    zns_align_down(v->units[i].off, block) >= to)
				break;
			to = zns_max(to, unit_end);
			i++;
		}
		ret = copy_batch(v, pc, from, to, from_unit, i - from_unit, err);
		from = to;
	}
	return ret;
}

/* ---- the new record ---- */

static const struct mover_piece *piece_of(const struct mover *v, uint32_t zone, uint64_t off)
{
	size_t lo = 0, hi = v->nr_pieces;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		const struct mover_piece *pc = &v->pieces[mid];

		if (cmp_place(v->p, pc->zone, pc->end, zone, off + 1) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < v->nr_pieces && v->pieces[lo].zone == zone && v->pieces[lo].start <= off)
		return &v->pieces[lo];
	return NULL;
}

/* Changes the extents to the new places. An extent that has no unit keeps its place, since nothing
 * is stored for it. */
static void point_extents(struct mover *v)
{
	for (size_t i = 0; i < v->m->n_images; i++)
		for (size_t s = 0; s < v->m->images[i]->n_segments; s++) {
			ZnsPb__Segment *seg = v->m->images[i]->segments[s];

			for (size_t e = 0; e < seg->n_extents; e++) {
				ZnsPb__Extent *x = seg->extents[e];
				const struct mover_piece *pc =
					is_victim(v->p, x->zone) ? piece_of(v, x->zone, x->start) :
								   NULL;

				if (!pc)
					continue;
				x->start = pc->to_start + (x->start - pc->start);
				x->zone = pc->to_zone;
			}
		}
}

/* Copies the zone uses of everything that is not moved: all outside of the victims, except the old
 * manifest and its footer. */
static void keep_uses(const struct mover *v, ZnsPb__Checkpoint *c)
{
	const ZnsPb__ExtentRef *ref = v->p->c->manifest;
	uint32_t block = v->p->dev->geo.block_size;
	uint64_t end = ref->start + zns_align_up(ref->len, block) + block;
	size_t n = 0;

	for (size_t i = 0; i < c->n_zones; i++) {
		ZnsPb__ZoneUse *u = c->zones[i];

		if (u->zone == ref->zone && u->start <= ref->start && u->start + u->len == end)
			u->len = ref->start - u->start;
		if (u->len && !is_victim(v->p, u->zone))
			c->zones[n++] = u;
		else
			zns_pb__zone_use__free_unpacked(u, NULL);
	}
	c->n_zones = n;
}

static int set_groups(const struct mover *v, ZnsPb__Checkpoint *c, struct zns_err *err)
{
	uint32_t *g = calloc(c->n_zones + 1, sizeof(*g));
	size_t n = 0, k;

	if (!g)
		return zns_fail(err, -ENOMEM, "no memory for %zu groups", c->n_zones);
	for (size_t i = 0; i < c->n_zones; i++) {
		uint32_t group = v->p->zone_group[c->zones[i]->zone];

		for (k = 0; k < n && g[k] != group; k++)
			;
		if (k == n)
			g[n++] = group;
	}
	free(c->groups);
	c->groups = g;
	c->n_groups = n;
	return 0;
}

/* Records in which zones old footers are. If the log is lost, a later removal must find and
 * invalidate them. */
static int note_manifest(ZnsPb__Checkpoint *c, uint32_t zone, struct zns_err *err)
{
	for (size_t i = 0; i < c->n_old_manifests; i++)
		if (c->old_manifests[i] == zone)
			return 0;
	if (zns_grow_by_one(c->old_manifests, c->n_old_manifests))
		return zns_fail(err, -ENOMEM, "no memory for a record");
	c->old_manifests[c->n_old_manifests++] = zone;
	return 0;
}

/* Makes the copy of the record that the manifest contains, which lacks the manifest's own place. */
static int new_record(struct mover *v, ZnsPb__Checkpoint **out, struct zns_err *err)
{
	ZnsPb__Checkpoint *c = zns_pb_copy(&v->p->c->base, err);
	int ret = 0;

	if (!c)
		return -ENOMEM;
	if (c->manifest)
		zns_pb__extent_ref__free_unpacked(c->manifest, NULL);
	c->manifest = NULL;
	/* This copy goes to a data zone, which rm --secure does not erase, so it must not have the
	 * wrapped key. The key stays in the log, where the broker keeps it. Units are moved
	 * encrypted, so the key is not needed here. */
	if (c->crypt) {
		c->crypt->has_key_id = c->crypt->has_wrapped = 0;
		free(c->crypt->key_id.data);
		free(c->crypt->wrapped.data);
		c->crypt->key_id = c->crypt->wrapped = (ProtobufCBinaryData){ 0, NULL };
	}
	zns_record_newer(c, true, 0);
	keep_uses(v, c);
	ret = note_manifest(c, v->p->c->manifest->zone, err);
	for (size_t i = 0; i < v->nr_slots && !ret; i++)
		if (v->slots[i].wp > v->slots[i].start)
			ret = zns_use_add(c, v->slots[i].zone, v->slots[i].start,
					  v->slots[i].wp - v->slots[i].start);
	if (ret)
		zns_fail_sys(err, ret, "cannot add a zone to the record");
	else
		ret = set_groups(v, c, err);
	if (ret) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
		return ret;
	}
	*out = c;
	return 0;
}

/* Adds the new manifest's place to a use of a zone that this move has written, not to an older use,
 * which the broker already counts. */
static int add_manifest_use(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t from, uint64_t start,
			    uint64_t len, struct zns_err *err)
{
	int ret;

	for (size_t i = 0; i < c->n_zones; i++)
		if (c->zones[i]->zone == zone && c->zones[i]->start == from &&
		    from + c->zones[i]->len == start) {
			c->zones[i]->len += len;
			return 0;
		}
	ret = zns_use_add(c, zone, start, len);
	return ret ? zns_fail_sys(err, ret, "cannot add a zone to the record") : 0;
}

static int write_manifest(struct mover *v, ZnsPb__Checkpoint *c, struct zns_err *err)
{
	uint32_t block = v->p->dev->geo.block_size,
		 group = v->p->zone_group[v->p->c->manifest->zone];
	ZnsPb__Checkpoint *had = v->m->checkpoint;
	cleanup_free uint8_t *buf = NULL;
	struct mover_slot *s;
	uint64_t need;
	size_t len;
	int ret;

	c->manifest = calloc(1, sizeof(*c->manifest));
	if (!c->manifest)
		return zns_fail(err, -ENOMEM, "no memory for a record");
	zns_pb__extent_ref__init(c->manifest);
	v->m->checkpoint = c;
	{
		ZnsPb__ExtentRef *ref = c->manifest;

		c->manifest = NULL; /* the manifest does not contain its own place */
		need = zns_frame_size(zns_pb__manifest__get_packed_size(v->m), block) + block;
		ret = get_slot(v, v->nr_slots ? slot(v)->from : group, need, err);
		s = ret ? NULL : slot(v);
		if (s)
			ret = zns_manifest_pack(v->m, block, s->zone, s->wp, &buf, &len, ref, err);
		c->manifest = ref;
	}
	v->m->checkpoint = had;
	if (!ret)
		ret = v->p->step(v->p->arg, &s->group, 1, v->bytes, err);
	if (!ret)
		ret = transfer_write(v->p->dev, v->p->bucket, 0, s->zone, s->wp, buf, len, NULL,
				     err);
	if (!ret)
		ret = add_manifest_use(c, s->zone, s->start, s->wp, len, err);
	if (!ret) {
		s->wp += len;
		v->bytes += len;
		ret = set_groups(v, c, err);
	}
	if (!ret && c->n_zones)
		qsort(c->zones, c->n_zones, sizeof(*c->zones), zns_use_cmp);
	return ret;
}

/* Reads the new manifest back, and checks that each place in it is in a zone use of the record, so
 * that a reader will find everything. */
static int read_back(struct mover *v, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__Manifest *m = NULL;
	int ret = zns_manifest_read(v->p->dev, c, &m, err);

	if (!ret)
		ret = zns_manifest_agrees(m, c, err);
	if (!ret)
		ret = zns_footer_check(v->p->dev, c, err);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	return ret ? zns_wrap(err, "the moved checkpoint does not read back") : 0;
}

static bool uses_victims(const struct zns_mover_params *p)
{
	for (size_t i = 0; i < p->c->n_zones; i++)
		if (is_victim(p, p->c->zones[i]->zone))
			return true;
	return false;
}

int zns_mover_run(const struct zns_mover_params *p, ZnsPb__Checkpoint **out, uint64_t *bytes,
		  struct zns_err *err)
{
	struct mover v = { .p = p };
	ZnsPb__Checkpoint *c = NULL;
	char id[ZNS_UUID_STR];
	int ret;

	*bytes = 0;
	if (!uses_victims(p))
		return zns_fail(err, -ENODATA, "the checkpoint has no data in these zones");
	ret = zns_manifest_read(p->dev, p->c, &v.m, err);
	if (!ret)
		ret = zns_manifest_agrees(v.m, p->c, err);
	if (!ret)
		ret = list_units(&v, err);
	for (size_t i = 0; i < v.nr_pieces && !ret; i++)
		ret = copy_piece(&v, &v.pieces[i], err);
	if (!ret) {
		point_extents(&v);
		ret = new_record(&v, &c, err);
	}
	if (!ret)
		ret = write_manifest(&v, c, err);
	if (!ret)
		ret = read_back(&v, c, err);
	*bytes = v.bytes;
	if (!ret)
		*out = c;
	else if (c)
		zns_pb__checkpoint__free_unpacked(c, NULL);
	if (v.m)
		zns_pb__manifest__free_unpacked(v.m, NULL);
	free(v.units);
	free(v.pieces);
	free(v.slots);
	free(v.buf);
	return ret ? zns_wrap(err, "checkpoint %s of %s", zns_uuid_format(p->c->id.data, id),
			      p->c->container) :
		     0;
}

static bool was_there(const ZnsPb__Checkpoint *old, const ZnsPb__ZoneUse *u)
{
	for (size_t i = 0; i < old->n_zones; i++)
		if (old->zones[i]->zone == u->zone && u->start >= old->zones[i]->start &&
		    u->start - old->zones[i]->start < old->zones[i]->len)
			return true;
	return false;
}

int zns_mover_durable(const struct zns_mover_params *p, const ZnsPb__Checkpoint *c,
		      struct zns_err *err)
{
	cleanup_free uint32_t *zones = calloc(c->n_zones + 1, sizeof(*zones));
	uint32_t nr = 0;

	if (!zones)
		return zns_fail(err, -ENOMEM, "no memory for %zu zones", c->n_zones);
	/* zones are sorted, so duplicates are adjacent */
	for (size_t i = 0; i < c->n_zones; i++)
		if (!was_there(p->c, c->zones[i]) && (!nr || zones[nr - 1] != c->zones[i]->zone))
			zones[nr++] = c->zones[i]->zone;
	return zns_dev_flush_zones(p->dev, zones, nr, err);
}
