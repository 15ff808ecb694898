/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Encrypts units of images and computes the seal over them. A nonce consists of the image's number
 * and the unit's number. Each key is generated for one checkpoint and used by the one dump that
 * writes it, so no nonce is used twice. Nonce and authenticated data contain the unit's position.
 * So a unit cannot be replaced by another unit, nor by one of another checkpoint.
 */
#include <string.h>
#include "crypt_priv.h"

/* no image has this number: it is for the nonce of the manifest's seal */
#define SEAL_IMAGE UINT32_MAX
#define HAS_PARENT 1 /* first byte of the sealed data */
#define HAS_FORMER 2

static const char unit_label[] = "zns-criu unit 1", seal_label[] = "zns-criu seal 1";

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static void put64(uint8_t *p, uint64_t v)
{
	put32(p, (uint32_t)v);
	put32(p + 4, (uint32_t)(v >> 32));
}

static void make_nonce(uint8_t nonce[NONCE_BYTES], uint32_t image, uint64_t unit)
{
	put32(nonce, image);
	put64(nonce + 4, unit);
}

int zns_crypt_seal_unit(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
			uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err)
{
	uint8_t nonce[NONCE_BYTES];
	struct aead a = { c->key,
			  nonce,
			  { unit_label, c->id, name },
			  { sizeof(unit_label), ZNS_UUID_LEN, strlen(name) } };

	if (image == SEAL_IMAGE)
		return zns_fail(err, -EINVAL,
				"image %s: too many images for one encrypted checkpoint", name);
	make_nonce(nonce, image, unit);
	if (aead_seal(&a, c->cipher, buf, len, tag))
		return zns_fail(err, -EIO, "image %s: libcrypto cannot encrypt", name);
	return 0;
}

int zns_crypt_open_unit(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
			uint8_t *buf, size_t len, const uint8_t tag[ZNS_TAG_BYTES],
			struct zns_err *err)
{
	uint8_t nonce[NONCE_BYTES];
	struct aead a = { c->key,
			  nonce,
			  { unit_label, c->id, name },
			  { sizeof(unit_label), ZNS_UUID_LEN, strlen(name) } };
	int ret;

	make_nonce(nonce, image, unit);
	ret = aead_open(&a, c->cipher, buf, len, tag);
	if (ret == -EBADMSG)
		return zns_fail(err, ret, "image %s: unit %llu is not what was encrypted", name,
				(unsigned long long)unit);
	return ret ? zns_fail(err, ret, "image %s: libcrypto cannot decrypt", name) : 0;
}

/* Copies the manifest's entry of an image without its place and its checksums: these are not
 * sealed, so that units can be moved without a key. */
static ZnsPb__Image bare(const ZnsPb__Image *i)
{
	ZnsPb__Image b = *i;

	b.n_segments = b.n_csums = b.n_piece_csums = 0;
	return b;
}

static size_t image_bytes(const ZnsPb__Image *i)
{
	ZnsPb__Image b = bare(i);

	return 8 + zns_pb__image__get_packed_size(&b);
}

static uint8_t *put_image(uint8_t *p, const ZnsPb__Image *i)
{
	ZnsPb__Image b = bare(i);
	size_t len = zns_pb__image__pack(&b, p + 8);

	put64(p, len);
	return p + 8 + len;
}

/* Writes the number of the former MACs before them, so that the sealed bytes are unambiguous. */
static uint8_t *put_former(uint8_t *p, const ZnsPb__Manifest *m)
{
	if (!m->n_former_macs)
		return p;
	put64(p, m->n_former_macs);
	p += 8;
	for (size_t i = 0; i < m->n_former_macs; i++, p += ZNS_MAC_BYTES)
		memcpy(p, m->former_macs[i].data, ZNS_MAC_BYTES);
	return p;
}

int zns_crypt_seal_manifest(const struct zns_crypt *c, const ZnsPb__Manifest *m,
			    uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err)
{
	const ZnsPb__Checkpoint *k = m->checkpoint;
	uint8_t nonce[NONCE_BYTES], head[1 + ZNS_UUID_LEN] = { 0 };
	cleanup_free uint8_t *text = NULL;
	/* a manifest that joins two dumps is sealed twice: this makes the nonce of the second seal
	 * another one */
	uint64_t base = 0;
	size_t len = 0;
	uint8_t *p;
	struct aead a = { c->key,
			  nonce,
			  { seal_label, c->id, head },
			  { sizeof(seal_label), ZNS_UUID_LEN, sizeof(head) } };

	if (k->has_parent && k->parent.len == ZNS_UUID_LEN) {
		head[0] = HAS_PARENT;
		memcpy(head + 1, k->parent.data, ZNS_UUID_LEN);
	}
	if (m->n_former_macs) {
		head[0] |= HAS_FORMER;
		len = 8 + m->n_former_macs * ZNS_MAC_BYTES;
	}
	for (size_t i = 0; i < m->n_images; i++)
		len += image_bytes(m->images[i]);
	for (size_t i = 0; i < m->n_images; i++)
		base = zns_max(base, m->images[i]->unit_base);
	text = malloc(len + 1);
	if (!text)
		return zns_fail(err, -ENOMEM, "no memory for the seal of a manifest");
	p = put_former(text, m);
	for (size_t i = 0; i < m->n_images; i++)
		p = put_image(p, m->images[i]);
	a.aad[3] = text;
	a.aad_len[3] = len;
	make_nonce(nonce, SEAL_IMAGE, base);
	return aead_seal(&a, c->cipher, NULL, 0, tag) ?
		       zns_fail(err, -EIO, "libcrypto cannot seal a manifest") :
		       0;
}
