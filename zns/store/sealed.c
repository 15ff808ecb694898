/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See zns/sealed.h. */
#include <stdlib.h>
#include <string.h>
#include "store_int.h"
#include "zns/crypt.h"
#include "zns/layout.h"
#include "zns/sealed.h"

uint32_t zns_sealed_unit(const ZnsPb__Manifest *m)
{
	uint32_t unit = m->checkpoint->stripe_unit;

	for (size_t i = 0; i < m->n_images; i++)
		if (!m->images[i]->map && m->images[i]->unit != unit)
			return 0;
	return unit;
}

/* Refuses checkpoints that cannot be exported without decryption. */
static int check_kind(const ZnsPb__Manifest *m, const char *what, struct zns_err *err)
{
	for (size_t i = 0; i < m->n_images; i++)
		if (m->images[i]->has_memory_key)
			return zns_fail(
				err, -EOPNOTSUPP,
				"%s has a program's memory that is encrypted with the program's own key: `znsctl flatten` it first",
				what);
	if (!zns_sealed_unit(m))
		return zns_fail(
			err, -EOPNOTSUPP,
			"%s has images of different stripe units: send it with --decrypt, or "
			"`znsctl flatten` it first",
			what);
	return 0;
}

int zns_sealed_may(const ZnsPb__Manifest *m, struct zns_err *err)
{
	char id[ZNS_UUID_STR], what[ZNS_UUID_STR + 16];

	zns_uuid_format(m->checkpoint->id.data, id);
	snprintf(what, sizeof(what), "checkpoint %s", id);
	if (!m->checkpoint->crypt)
		return check_kind(m, what, err);
	if (!m->checkpoint->crypt->has_wrapped || !zns_crypt_record_sane(m->checkpoint->crypt))
		return zns_fail(err, -ENOKEY,
				"the key of %s is gone (the log that held it was lost): its data "
				"cannot be read any more",
				what);
	if (!m->has_seal)
		return zns_fail(
			err, -EBADMSG,
			"%s has no seal (the MAC of its manifest): it is damaged, or was changed",
			what);
	return check_kind(m, what, err);
}

/* Copies the record without anything that depends on the device or on the time. */
static ZnsPb__Checkpoint bare_checkpoint(const ZnsPb__Checkpoint *c)
{
	ZnsPb__Checkpoint b = ZNS_PB__CHECKPOINT__INIT;

	b.id = c->id;
	b.container = (char *)"";
	b.bytes = c->bytes;
	b.page_bytes = c->page_bytes;
	b.nr_images = c->nr_images;
	b.has_parent = c->has_parent;
	b.parent = c->parent;
	b.has_stripe_unit = 1;
	b.stripe_unit = c->stripe_unit;
	b.has_parent_bytes = c->has_parent_bytes;
	b.parent_bytes = c->parent_bytes;
	b.has_pre_dump = c->pre_dump;
	b.pre_dump = c->pre_dump;
	b.has_post_copy = c->post_copy;
	b.post_copy = c->post_copy;
	return b;
}

static uint8_t *pack(const ZnsPb__Manifest *m, size_t *len)
{
	struct zns_frame f = { .type = ZNS_FRAME_SEALED };
	uint8_t *buf;

	f.len = (uint32_t)zns_pb__manifest__get_packed_size(m);
	*len = zns_frame_size(f.len, 1);
	buf = malloc(*len);
	if (!buf)
		return NULL;
	zns_pb__manifest__pack(m, buf + ZNS_FRAME_HDR);
	f.payload = buf + ZNS_FRAME_HDR;
	zns_frame_pack(&f, 1, buf);
	return buf;
}

int zns_sealed_pack(const ZnsPb__Manifest *m, uint8_t **out, size_t *len, struct zns_err *err)
{
	cleanup_free ZnsPb__Image **list = calloc(m->n_images + 1, sizeof(*list));
	cleanup_free ZnsPb__Image *bare = calloc(m->n_images + 1, sizeof(*bare));
	ZnsPb__CheckpointKey key = ZNS_PB__CHECKPOINT_KEY__INIT;
	ZnsPb__Checkpoint c = bare_checkpoint(m->checkpoint);
	ZnsPb__Manifest b = *m;

	if (!list || !bare)
		return zns_fail(err, -ENOMEM, "no memory for %zu images", m->n_images);
	for (size_t i = 0; i < m->n_images; i++) {
		bare[i] = *m->images[i];
		bare[i].n_segments = bare[i].n_piece_csums = 0;
		list[i] = &bare[i];
	}
	if (m->checkpoint->crypt) {
		key.cipher = m->checkpoint->crypt->cipher;
		c.crypt = &key;
	}
	b.device = (ProtobufCBinaryData){ 0, NULL };
	b.checkpoint = &c;
	b.images = list;
	if (zns_pb__manifest__get_packed_size(&b) > ZNS_SEALED_MAX - ZNS_FRAME_HDR)
		return zns_fail(
			err, -EFBIG,
			"a checkpoint with so many units cannot be sent encrypted: send it with --decrypt");
	*out = pack(&b, len);
	return *out ? 0 : zns_fail(err, -ENOMEM, "no memory for a manifest");
}

static int check_bare(const ZnsPb__Checkpoint *c, bool plain, struct zns_err *err)
{
	if (c->id.len != ZNS_UUID_LEN || (c->has_parent && c->parent.len != ZNS_UUID_LEN) ||
	    (c->has_parent && !memcmp(c->parent.data, c->id.data, ZNS_UUID_LEN)))
		return zns_fail(err, -EBADMSG, "its record has an impossible id or parent");
	if (c->crypt ? c->crypt->has_key_id || c->crypt->has_wrapped : !plain)
		return zns_fail(err, -EBADMSG, "its record is not of an encrypted checkpoint");
	if (*c->container || c->n_zones || c->n_groups || c->n_metadata_groups || c->manifest ||
	    c->origin || c->live || c->pages_only || c->moved || c->memory_bytes)
		return zns_fail(
			err, -EBADMSG,
			"its record has fields that are valid only on the device that wrote it");
	return 0;
}

/*
 * Has the manifest only fields that this program knows? Fields that a later version added would be
 * lost in the copy, and the seal would not match any more.
 */
static bool is_known(const ZnsPb__Manifest *m)
{
	bool known = !m->base.n_unknown_fields && !m->checkpoint->base.n_unknown_fields &&
		     (!m->checkpoint->crypt || !m->checkpoint->crypt->base.n_unknown_fields);

	for (size_t i = 0; i < m->n_images; i++)
		known &= !m->images[i]->base.n_unknown_fields &&
			 (!m->images[i]->map || !m->images[i]->map->base.n_unknown_fields);
	return known;
}

static int check(const ZnsPb__Manifest *m, const struct zns_geometry *geo, bool plain,
		 struct zns_err *err)
{
	uint32_t unit = m->checkpoint->stripe_unit;
	uint64_t bytes = 0;
	int ret = check_bare(m->checkpoint, plain, err);

	if (!ret && !is_known(m))
		ret = zns_fail(
			err, -EPROTONOSUPPORT,
			"its record has fields that this program does not know: a newer one wrote it, use that");
	if (!ret && (m->device.len || !m->has_seal != !m->checkpoint->crypt))
		ret = zns_fail(
			err, -EBADMSG,
			"its record has no seal, or names places on a device, which no sent checkpoint has");
	if (!ret)
		ret = check_kind(m, "the checkpoint", err);
	if (!ret && (unit < ZNS_UNIT_LEAST || unit > ZNS_STRIPE_UNIT_MAX || unit % 4096))
		ret = zns_fail(err, -EBADMSG, "its record has a stripe unit of %u bytes", unit);
	if (!ret && unit % geo->block_size)
		ret = zns_fail(err, -EOPNOTSUPP,
			       "its stripe unit of %u bytes does not fit blocks of %u bytes", unit,
			       geo->block_size);
	if (!ret)
		ret = zns_check_images(m, geo, false, err);
	for (size_t i = 0; i < m->n_images && !ret; i++) {
		bytes += m->images[i]->map ? 0 : m->images[i]->size;
		if (bytes > geo->nr_zones * geo->zone_capacity)
			ret = zns_fail(err, -ENOSPC,
				       "no space: the checkpoint has more bytes than the device");
	}
	return ret;
}

int zns_sealed_parse(const uint8_t *buf, size_t len, const struct zns_geometry *geo, bool plain,
		     ZnsPb__Manifest **out, struct zns_err *err)
{
	struct zns_frame f;
	ZnsPb__Manifest *m;
	int ret = zns_frame_parse(buf, len, &f, err);

	if (ret == -EPROTONOSUPPORT)
		return ret;
	if (ret || f.type != ZNS_FRAME_SEALED || zns_frame_size(f.len, 1) != len)
		return zns_fail(err, -EBADMSG, "no record of an encrypted checkpoint");
	m = zns_pb__manifest__unpack(NULL, f.len, f.payload);
	if (!m)
		return zns_fail(err, -EBADMSG, "its record cannot be decoded");
	ret = check(m, geo, plain, err);
	if (ret)
		zns_pb__manifest__free_unpacked(m, NULL);
	else
		*out = m;
	return ret;
}
