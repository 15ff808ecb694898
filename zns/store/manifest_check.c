/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checks a manifest. A reader computes places and buffer sizes from it, so every value is checked:
 * afterwards every offset that is computed from it is in a data zone, and no sum overflows.
 */
#include <string.h>
#include "store_int.h"
#include "zns/crypt.h"
#include "zns/crypt_memory.h"
#include "zns/image_map.h"
#include "zns/layout.h"

struct ctx {
	struct zns_limits lim;
	uint64_t block;
	uint64_t device_bytes;
	bool encrypted;
	bool placed; /* false: the images have no places on the device yet */
	uint32_t runs_left; /* how many runs the maps that are not checked yet may have in total */
	struct zns_err *err;
};

/* An image that consists of one unit in one place may begin in the middle of a unit, which it
 * shares with other small images. */
static bool is_packed(const ZnsPb__Image *i)
{
	return i->n_segments == 1 && i->segments[0]->n_extents == 1 && i->size <= i->unit;
}

static int check_pieces(const ZnsPb__Image *i, const struct ctx *c)
{
	uint64_t piece = i->has_piece ? i->piece : ZNS_PIECE_V1, nr = i->n_piece_csums;

	if (!i->has_piece && !i->has_piece_sums && !nr)
		return 0;
	/* refuse checksums of pieces, because AEAD authenticates whole units only */
	if (c->encrypted)
		return zns_fail(c->err, -EBADMSG,
				"image %s: checksums of pieces of encrypted units", i->name);
	if (i->has_piece && (piece < ZNS_PIECE || piece > ZNS_PIECE_MAX || (piece & (piece - 1))))
		return zns_fail(c->err, -EBADMSG, "image %s: pieces of %llu bytes", i->name,
				(unsigned long long)piece);
	if (i->has_piece)
		nr = i->piece_sums.len / ZNS_SUM_BYTES;
	if (i->unit % piece || nr > i->size / piece + (i->size % piece != 0) ||
	    i->piece_sums.len % ZNS_SUM_BYTES ||
	    (i->has_piece ? i->n_piece_csums > 0 : i->has_piece_sums))
		return zns_fail(c->err, -EBADMSG,
				"image %s: %llu checksums of pieces for %llu bytes", i->name,
				(unsigned long long)nr, (unsigned long long)i->size);
	return 0;
}

static int check_unit(const ZnsPb__Image *i, const struct ctx *c)
{
	uint64_t unit = i->unit;

	if (!unit || unit % 4096 || unit % c->block || unit > ZNS_STRIPE_UNIT_MAX ||
	    (unit < ZNS_UNIT_LEAST && i->n_segments && !is_packed(i)))
		return zns_fail(c->err, -EBADMSG, "image %s: stripe unit of %llu bytes", i->name,
				(unsigned long long)unit);
	if (i->size > c->device_bytes)
		return zns_fail(c->err, -EBADMSG, "image %s: %llu bytes, more than the device has",
				i->name, (unsigned long long)i->size);
	if (i->n_csums != i->size / unit + (i->size % unit != 0))
		return zns_fail(c->err, -EBADMSG,
				"image %s: %zu checksums for %llu bytes in units of %llu", i->name,
				i->n_csums, (unsigned long long)i->size, (unsigned long long)unit);
	/* unit_base is added to the unit's number in a nonce: the sum must not overflow. */
	if (i->has_unit_base && (!c->encrypted || i->unit_base > UINT64_MAX - i->n_csums))
		return zns_fail(c->err, -EBADMSG,
				"image %s: an impossible base of its units' numbers", i->name);
	if (c->encrypted != (bool)i->has_tags && i->size)
		return zns_fail(c->err, -EBADMSG, "image %s: %s", i->name,
				c->encrypted ? "encrypted, but without tags" :
					       "tags of an image that is not encrypted");
	if (i->has_tags && i->tags.len != ZNS_TAG_BYTES * i->n_csums)
		return zns_fail(c->err, -EBADMSG, "image %s: %zu bytes of tags for %zu units",
				i->name, i->tags.len, i->n_csums);
	return 0;
}

/* Checks a part that consists of a memory context's encrypted units: they are encrypted with the
 * context's key, so the manifest must have their nonces. */
static int check_memory(const ZnsPb__Image *i, const struct ctx *c)
{
	if (!i->has_memory_key && !i->has_nonces)
		return 0;
	if (!i->has_memory_key || !i->has_nonces || !c->encrypted || !i->part || !i->n_csums ||
	    i->has_unit_base || i->memory_key.len != ZNS_MEMORY_SEALED ||
	    i->nonces.len != i->n_csums * ZNS_MEMORY_NONCE)
		return zns_fail(c->err, -EBADMSG,
				"image %s: an impossible key of a memory context, or impossible "
				"nonces",
				i->name);
	return 0;
}

/* Checks that the bytes of each extent are within its zone. */
static int check_extents(const ZnsPb__Image *i, const ZnsPb__Segment *s, const struct ctx *c)
{
	uint64_t units = s->len / i->unit + (s->len % i->unit != 0), bytes, tail = s->len % i->unit;
	struct zns_place last;
	struct zns_seg seg;
	int ret;

	ret = zns_seg_init(&seg, s, i->unit, c->err);
	if (ret)
		return ret;
	zns_seg_place(&seg, units - 1, &last);
	for (uint32_t e = 0; e < seg.nr && !ret; e++) {
		uint64_t nr = zns_seg_units_of(&seg, e, units);

		if (!is_packed(i) && seg.start[e] % c->block) {
			ret = zns_fail(c->err, -EBADMSG,
				       "image %s: extent at byte %llu of zone %u is not aligned",
				       i->name, (unsigned long long)seg.start[e], seg.zone[e]);
			break;
		}
		/* cannot overflow: units * unit <= size + unit. An extent without units is valid if
		 * the image is short. */
		bytes = nr * i->unit;
		if (last.extent == e && tail)
			bytes -= i->unit - tail;
		ret = zns_check_range(&c->lim, seg.zone[e], seg.start[e], bytes ? bytes : 1,
				      -EBADMSG, c->err);
		if (ret)
			zns_wrap(c->err, "image %s", i->name);
	}
	zns_seg_fini(&seg);
	return ret;
}

static int check_segment(const ZnsPb__Image *i, size_t nr, uint64_t off, const struct ctx *c)
{
	const ZnsPb__Segment *s = i->segments[nr];

	if (s->off != off || !s->len || s->len > i->size - off)
		return zns_fail(c->err, -EBADMSG,
				"image %s: segment %zu (%llu+%llu) leaves a gap or the image",
				i->name, nr, (unsigned long long)s->off,
				(unsigned long long)s->len);
	if (nr + 1 < i->n_segments && s->len % i->unit)
		return zns_fail(c->err, -EBADMSG, "image %s: segment %zu ends inside a unit",
				i->name, nr);
	if (!s->n_extents || s->n_extents > ZNS_STRIPE_MAX_WIDTH)
		return zns_fail(c->err, -EBADMSG, "image %s: segment %zu has %zu extents", i->name,
				nr, s->n_extents);
	for (size_t e = 0; e < s->n_extents; e++)
		if (!s->extents[e]->weight || s->extents[e]->weight > ZNS_STRIPE_MAX_WEIGHT)
			return zns_fail(c->err, -EBADMSG, "image %s: extent of weight %u", i->name,
					s->extents[e]->weight);
	return check_extents(i, s, c);
}

/* Checks a composed image, which has no place of its own. */
static int check_composed(const ZnsPb__Manifest *m, size_t n, struct ctx *c)
{
	const ZnsPb__Image *i = m->images[n];
	uint32_t runs;
	int ret;

	if (i->size > c->device_bytes)
		return zns_fail(c->err, -EBADMSG, "image %s: %llu bytes, more than the device has",
				i->name, (unsigned long long)i->size);
	ret = zns_map_check(m, n, c->runs_left, &runs, c->err);
	if (!ret)
		c->runs_left -= runs;
	return ret;
}

static int check_image(const ZnsPb__Manifest *m, size_t n, struct ctx *c)
{
	const ZnsPb__Image *i = m->images[n];
	uint64_t off = 0;
	int ret;

	ret = zns_check_file_name(i->name, -EBADMSG, c->err);
	if (!ret && i->map)
		return check_composed(m, n, c);
	if (!ret && i->part && i->beside)
		ret = zns_fail(c->err, -EBADMSG,
			       "image %s is a part and a file of a plugin at once", i->name);
	if (!ret)
		ret = check_unit(i, c);
	if (!ret)
		ret = check_pieces(i, c);
	if (!ret)
		ret = check_memory(i, c);
	if (!ret && !c->placed)
		return i->n_segments ?
			       zns_fail(
				       c->err, -EBADMSG,
				       "image %s has a place on the device, which no image of a layer has",
				       i->name) :
			       0;
	for (size_t s = 0; s < i->n_segments && !ret; s++) {
		ret = check_segment(i, s, off, c);
		off += i->segments[s]->len;
	}
	if (!ret && off != i->size)
		ret = zns_fail(c->err, -EBADMSG, "image %s: segments cover %llu of %llu bytes",
			       i->name, (unsigned long long)off, (unsigned long long)i->size);
	return ret;
}

static int cmp_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names_differ(const ZnsPb__Manifest *m, struct zns_err *err)
{
	cleanup_free const char **names = malloc((m->n_images + 1) * sizeof(*names));

	if (!names)
		return zns_fail(err, -ENOMEM, "no memory for %zu image names", m->n_images);
	for (size_t i = 0; i < m->n_images; i++)
		names[i] = m->images[i]->name;
	qsort(names, m->n_images, sizeof(*names), cmp_name);
	for (size_t i = 1; i < m->n_images; i++)
		if (!strcmp(names[i - 1], names[i]))
			return zns_fail(err, -EBADMSG, "two images are named %s", names[i]);
	return 0;
}

static int check_former(const ZnsPb__Manifest *m, bool encrypted, struct zns_err *err)
{
	if (m->n_former_macs > ZNS_FORMER_MACS_MAX || (m->n_former_macs && !encrypted))
		return zns_fail(err, -EBADMSG, "the manifest knows of %zu earlier versions",
				m->n_former_macs);
	for (size_t i = 0; i < m->n_former_macs; i++)
		if (m->former_macs[i].len != ZNS_MAC_BYTES)
			return zns_fail(err, -EBADMSG,
					"the MAC of an earlier version has %zu bytes",
					m->former_macs[i].len);
	return 0;
}

static int check_seal(const ZnsPb__Manifest *m, bool encrypted, struct zns_err *err)
{
	if (m->has_seal && (m->seal.len != ZNS_TAG_BYTES || !encrypted))
		return zns_fail(err, -EBADMSG, "the manifest's seal is impossible");
	return check_former(m, encrypted, err);
}

int zns_check_images(const ZnsPb__Manifest *m, const struct zns_geometry *geo, bool placed,
		     struct zns_err *err)
{
	struct ctx c = {
		.lim = { .nr_zones = geo->nr_zones,
			 .nr_meta = geo->nr_conventional + zns_store_meta_zones(geo),
			 .nr_groups = geo->nr_zones,
			 .block = geo->block_size,
			 .zone_capacity = geo->zone_capacity,
			 .resizable = zns_geo_is_disk(geo) },
		.block = geo->block_size,
		.device_bytes = geo->nr_zones * geo->zone_capacity,
		.encrypted = m->checkpoint->crypt != NULL,
		.placed = placed,
		.runs_left = ZNS_MAP_RUNS_MAX,
		.err = err,
	};
	int ret = check_seal(m, c.encrypted, err);

	if (!ret && placed)
		ret = zns_check_checkpoint(m->checkpoint, &c.lim, -EBADMSG, err);
	for (size_t i = 0; i < m->n_images && !ret; i++)
		ret = check_image(m, i, &c);
	return ret ? ret : check_names_differ(m, err);
}

int zns_manifest_check(const ZnsPb__Manifest *m, const struct zns_geometry *geo,
		       struct zns_err *err)
{
	if (m->device.len != ZNS_UUID_LEN)
		return zns_fail(err, -EBADMSG, "manifest: device id has %zu bytes", m->device.len);
	if (m->checkpoint->manifest)
		return zns_fail(err, -EBADMSG, "the manifest of a layer names a place on a device");
	return zns_check_images(m, geo, true, err);
}

/* ---- against the record ---- */

static bool in_uses(const ZnsPb__Checkpoint *c, uint32_t zone, uint64_t start, uint64_t len)
{
	for (size_t i = 0; i < c->n_zones; i++)
		if (c->zones[i]->zone == zone && start >= c->zones[i]->start &&
		    len <= c->zones[i]->len && start - c->zones[i]->start <= c->zones[i]->len - len)
			return true;
	return false;
}

static int segment_in_uses(const ZnsPb__Image *i, const ZnsPb__Segment *s,
			   const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	uint64_t units = s->len / i->unit + (s->len % i->unit != 0), tail = s->len % i->unit;
	struct zns_place last;
	struct zns_seg seg;
	int ret = zns_seg_init(&seg, s, i->unit, err);

	if (ret)
		return ret;
	zns_seg_place(&seg, units - 1, &last);
	for (uint32_t e = 0; e < seg.nr && !ret; e++) {
		uint64_t bytes = zns_seg_units_of(&seg, e, units) * i->unit;

		if (last.extent == e && tail)
			bytes -= i->unit - tail;
		if (bytes && !in_uses(c, seg.zone[e], seg.start[e], bytes))
			ret = zns_fail(
				err, -EBADMSG,
				"image %s: bytes %llu+%llu of zone %u are not the checkpoint's",
				i->name, (unsigned long long)seg.start[e],
				(unsigned long long)bytes, seg.zone[e]);
	}
	zns_seg_fini(&seg);
	return ret;
}

int zns_manifest_agrees(const ZnsPb__Manifest *m, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const ZnsPb__Checkpoint *mc = m->checkpoint;
	uint64_t bytes = 0;
	int ret;

	if (mc->id.len != c->id.len || memcmp(mc->id.data, c->id.data, c->id.len) ||
	    strcmp(mc->container, c->container) || mc->created_ns != c->created_ns ||
	    !mc->crypt != !c->crypt || mc->bytes != c->bytes || mc->nr_images != c->nr_images ||
	    m->n_images != c->nr_images)
		return zns_fail(err, -EBADMSG,
				"the manifest is of another checkpoint than the record");
	for (size_t i = 0; i < m->n_images; i++) {
		bytes += m->images[i]->map ? 0 : m->images[i]->size;
		for (size_t s = 0; s < m->images[i]->n_segments; s++) {
			ret = segment_in_uses(m->images[i], m->images[i]->segments[s], c, err);
			if (ret)
				return ret;
		}
	}
	if (bytes != c->bytes)
		return zns_fail(err, -EBADMSG, "the images have %llu bytes, the record says %llu",
				(unsigned long long)bytes, (unsigned long long)c->bytes);
	return 0;
}
