/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads and writes the manifest in a data zone, and the footer behind it. */
#include <string.h>
#include "store_int.h"
#include "zns/pbcopy.h"

#define PAGE 4096

/* The version that a reader must know. A program that does not know checksums of pieces must refuse
 * the manifest, because the checksum of a unit is then computed from those of its pieces. */
static uint16_t version_of(const ZnsPb__Manifest *m)
{
	for (size_t i = 0; i < m->n_images; i++)
		if (m->images[i]->has_piece)
			return ZNS_MANIFEST_VERSION;
	return ZNS_FRAME_VERSION;
}

int zns_manifest_pack(const ZnsPb__Manifest *m, size_t block, uint32_t zone, uint64_t start,
		      uint8_t **out, size_t *padded_len, ZnsPb__ExtentRef *ref, struct zns_err *err)
{
	size_t n = zns_pb__manifest__get_packed_size(m), padded, total, fn;
	struct zns_frame f = { .type = ZNS_FRAME_MANIFEST, .version = version_of(m) };
	ZnsPb__Footer foot = ZNS_PB__FOOTER__INIT;
	uint8_t *buf;

	/* refuse the key, because it could never be erased from a data zone */
	if (m->checkpoint->crypt && m->checkpoint->crypt->has_wrapped)
		return zns_fail(err, -EINVAL,
				"the manifest has a wrapped key, which belongs into the log alone");
	if (!block || m->checkpoint->id.len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "the manifest has no block size or no checkpoint id");
	if (n > UINT32_MAX - 2 * PAGE)
		return zns_fail(err, -EFBIG, "a manifest of %zu bytes is too large", n);
	padded = zns_frame_size(n, block);
	total = padded + block;
	buf = aligned_alloc(PAGE, zns_align_up(total, PAGE));
	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for a manifest of %zu bytes", n);
	zns_pb__manifest__pack(m, buf + ZNS_FRAME_HDR);
	f.payload = buf + ZNS_FRAME_HDR;
	f.len = n;
	zns_frame_pack(&f, block, buf);

	zns_pb__extent_ref__init(ref);
	ref->zone = zone;
	ref->start = start;
	ref->len = zns_frame_size(n, 1);
	ref->hash = zns_hash(buf, ref->len);

	foot.checkpoint = m->checkpoint->id;
	foot.zone = zone;
	foot.manifest_start = start;
	foot.manifest_len = ref->len;
	foot.manifest_hash = ref->hash;
	fn = zns_pb__footer__get_packed_size(&foot);
	if (zns_frame_size(fn, 1) > block) {
		free(buf);
		return zns_fail(err, -EINVAL, "blocks of %zu bytes are too small for a footer",
				block);
	}
	zns_pb__footer__pack(&foot, buf + padded + ZNS_FRAME_HDR);
	f = (struct zns_frame){ .type = ZNS_FRAME_FOOTER,
				.payload = buf + padded + ZNS_FRAME_HDR,
				.len = fn };
	zns_frame_pack(&f, block, buf + padded);
	*out = buf;
	*padded_len = total;
	return 0;
}

int zns_manifest_parse(const uint8_t *buf, size_t len, const struct zns_geometry *geo,
		       ZnsPb__Manifest **out, struct zns_err *err)
{
	struct zns_frame f;
	ZnsPb__Manifest *m;
	int ret;

	ret = zns_frame_parse(buf, len, &f, err);
	if (ret == -EPROTONOSUPPORT)
		return ret;
	if (ret || f.type != ZNS_FRAME_MANIFEST)
		return zns_fail(err, -EBADMSG, "no manifest where it should be");
	if (zns_frame_size(f.len, 1) != len)
		return zns_fail(err, -EBADMSG, "the manifest has another length than recorded");
	m = zns_pb__manifest__unpack(NULL, f.len, f.payload);
	if (!m)
		return zns_fail(err, -EBADMSG, "the manifest cannot be decoded");
	ret = zns_manifest_check(m, geo, err);
	if (ret) {
		zns_pb__manifest__free_unpacked(m, NULL);
		return ret;
	}
	*out = m;
	return 0;
}

static int read_aligned(struct zns_dev *dev, uint32_t zone, uint64_t off, size_t len, uint8_t **out,
			struct zns_err *err)
{
	size_t padded = zns_align_up(len, dev->geo.block_size);

	*out = zns_store_buf(dev, padded);
	if (!*out)
		return zns_fail(err, -ENOMEM, "no memory to read %zu bytes", len);
	return zns_store_read(dev, zone, off, *out, padded, err);
}

static int read_manifest(struct zns_dev *dev, const ZnsPb__Checkpoint *c, ZnsPb__Manifest **out,
			 struct zns_err *err)
{
	const struct zns_geometry *geo = &dev->geo;
	struct zns_limits lim = { .nr_zones = geo->nr_zones,
				  .nr_meta = geo->nr_conventional + zns_store_meta_zones(geo),
				  .block = geo->block_size,
				  .zone_capacity = geo->zone_capacity };
	const ZnsPb__ExtentRef *ref = c->manifest;
	cleanup_free uint8_t *buf = NULL;
	ZnsPb__Manifest *m;
	int ret;

	if (!ref)
		return zns_fail(err, -EBADMSG, "the record names no manifest");
	/* The range is checked before memory for it is allocated. */
	ret = zns_check_range(&lim, ref->zone, ref->start, ref->len, -EBADMSG, err);
	if (ret)
		return ret;
	if (ref->len <= ZNS_FRAME_HDR || ref->start % geo->block_size)
		return zns_fail(err, -EBADMSG,
				"the manifest's place is impossible (byte %llu, %llu bytes)",
				(unsigned long long)ref->start, (unsigned long long)ref->len);
	ret = read_aligned(dev, ref->zone, ref->start, ref->len, &buf, err);
	if (ret == -ENODATA) /* the place is beyond the write pointer */
		return zns_fail(err, -EBADMSG,
				"zone %u ends before the manifest: it was reset or lost data",
				ref->zone);
	if (ret)
		return ret;
	if (zns_hash(buf, ref->len) != ref->hash)
		return zns_fail(err, -EBADMSG,
				"the manifest in zone %u is damaged: checksum does not match",
				ref->zone);
	ret = zns_manifest_parse(buf, ref->len, geo, &m, err);
	if (ret)
		return ret;
	if (m->checkpoint->id.len != c->id.len ||
	    memcmp(m->checkpoint->id.data, c->id.data, c->id.len)) {
		zns_pb__manifest__free_unpacked(m, NULL);
		return zns_fail(err, -EBADMSG, "the manifest in zone %u is another checkpoint's",
				ref->zone);
	}
	*out = m;
	return 0;
}

/* Copies the wrapped key from the record @c to the manifest, which only says that there is one. If
 * only the record mentions encryption, the manifest belongs to another checkpoint. If only the
 * manifest does, the key is lost and the data cannot be read. */
static int join_key(const ZnsPb__Checkpoint *c, ZnsPb__Manifest *m, struct zns_err *err)
{
	ZnsPb__CheckpointKey *k;

	if (!c->crypt)
		return 0;
	if (!m->checkpoint->crypt || c->crypt->cipher != m->checkpoint->crypt->cipher)
		return zns_fail(
			err, -EBADMSG,
			"the record says that it is encrypted, the manifest in zone %u does not",
			c->manifest->zone);
	k = zns_pb_copy(&c->crypt->base, err);
	if (!k)
		return -ENOMEM;
	zns_pb__checkpoint_key__free_unpacked(m->checkpoint->crypt, NULL);
	m->checkpoint->crypt = k;
	return 0;
}

int zns_manifest_read(struct zns_dev *dev, const ZnsPb__Checkpoint *c, ZnsPb__Manifest **out,
		      struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	int ret;

	if (c->id.len != ZNS_UUID_LEN)
		return zns_fail(err, -EBADMSG, "checkpoint id has %zu bytes", c->id.len);
	ret = read_manifest(dev, c, out, err);
	if (!ret) {
		ret = join_key(c, *out, err);
		if (ret) {
			zns_pb__manifest__free_unpacked(*out, NULL);
			*out = NULL;
		}
	}
	if (ret)
		zns_wrap(err, "checkpoint %s", zns_uuid_format(c->id.data, id));
	return ret;
}

int zns_footer_read(struct zns_dev *dev, uint32_t zone, uint64_t off, ZnsPb__Footer **out,
		    struct zns_err *err)
{
	const struct zns_geometry *geo = &dev->geo;
	cleanup_free uint8_t *buf = NULL;
	struct zns_frame f;
	ZnsPb__Footer *foot;
	uint64_t end;
	int ret;

	if (zone >= geo->nr_zones || off % geo->block_size || off > geo->zone_capacity ||
	    geo->zone_capacity - off < geo->block_size)
		return zns_fail(err, -EINVAL, "no block at byte %llu of zone %u",
				(unsigned long long)off, zone);
	ret = read_aligned(dev, zone, off, geo->block_size, &buf, err);
	if (!ret)
		ret = zns_frame_parse(buf, geo->block_size, &f, err);
	if (ret)
		return ret;
	if (f.type != ZNS_FRAME_FOOTER)
		return zns_fail(err, -ENODATA, "this is a record of type %u, not a footer", f.type);
	foot = zns_pb__footer__unpack(NULL, f.len, f.payload);
	if (!foot)
		return zns_fail(err, -EBADMSG, "footer cannot be decoded");
	/* A footer must be directly behind its manifest. */
	end = foot->manifest_start > off || foot->manifest_len > off - foot->manifest_start ?
		      UINT64_MAX :
		      foot->manifest_start + zns_align_up(foot->manifest_len, geo->block_size);
	if (foot->checkpoint.len != ZNS_UUID_LEN || foot->zone != zone || end != off ||
	    foot->manifest_len <= ZNS_FRAME_HDR) {
		zns_pb__footer__free_unpacked(foot, NULL);
		return zns_fail(err, -EBADMSG,
				"footer at byte %llu of zone %u has impossible values",
				(unsigned long long)off, zone);
	}
	*out = foot;
	return 0;
}

int zns_footer_check(struct zns_dev *dev, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	const ZnsPb__ExtentRef *ref = c->manifest;
	ZnsPb__Footer *f;
	uint64_t off;
	int ret = 0;

	if (!ref)
		return zns_fail(err, -EBADMSG, "the record names no manifest");
	off = ref->start + zns_align_up(ref->len, dev->geo.block_size);
	ret = zns_footer_read(dev, ref->zone, off, &f, err);
	if (ret == -EINVAL || ret == -ENODATA || ret == -EBADMSG) {
		struct zns_err why = err ? *err : (struct zns_err)ZNS_ERR_INIT;

		return zns_fail(err, -EBADMSG, "the footer at byte %llu of zone %u is damaged (%s)",
				(unsigned long long)off, ref->zone, why.msg);
	}
	if (ret)
		return ret;
	if (memcmp(f->checkpoint.data, c->id.data, ZNS_UUID_LEN) ||
	    f->manifest_start != ref->start || f->manifest_len != ref->len ||
	    f->manifest_hash != ref->hash)
		ret = zns_fail(err, -EBADMSG,
			       "the footer at byte %llu of zone %u names another manifest",
			       (unsigned long long)off, ref->zone);
	zns_pb__footer__free_unpacked(f, NULL);
	return ret;
}
