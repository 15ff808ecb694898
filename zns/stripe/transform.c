/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Encrypts, decrypts and verifies units on their way to and from the device; see transform.h. */
#include <string.h>
#include "transform.h"
#include "zns/grow.h"
#include "zns/layout.h"

int transform_out(const struct zns_crypt *c, uint32_t image, const char *name, uint64_t unit,
		  uint8_t *buf, size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err)
{
	return c ? zns_crypt_seal_unit(c, image, name, unit, buf, len, tag, err) : 0;
}

int transform_keep(ZnsPb__Image *pb, size_t *max, uint64_t unit, const uint8_t tag[ZNS_TAG_BYTES])
{
	uint8_t(*tags)[ZNS_TAG_BYTES] = (void *)pb->tags.data;
	int ret = zns_grow_to(tags, (size_t)unit + 1, *max);

	if (ret)
		return ret;
	pb->tags.data = tags[0];
	memcpy(tags[unit], tag, ZNS_TAG_BYTES);
	return 0;
}

int transform_seal(const struct zns_crypt *c, ZnsPb__Manifest *m, uint8_t seal[ZNS_TAG_BYTES],
		   struct zns_err *err)
{
	for (size_t i = 0; i < m->n_images; i++) {
		m->images[i]->has_tags = m->images[i]->n_csums > 0;
		m->images[i]->tags.len = m->images[i]->n_csums * ZNS_TAG_BYTES;
	}
	m->has_seal = 1;
	m->seal = (ProtobufCBinaryData){ ZNS_TAG_BYTES, seal };
	return zns_crypt_seal_manifest(c, m, seal, err);
}

int transform_in(const struct zns_crypt *c, const struct zns_memory_key *m, const ZnsPb__Image *pb,
		 uint32_t image, uint64_t unit, uint8_t *buf, size_t len, struct zns_err *err)
{
	if (m)
		return zns_memory_open(m, pb->nonces.data + unit * ZNS_MEMORY_NONCE, buf, len,
				       pb->tags.data + unit * ZNS_TAG_BYTES, err);
	if (c && pb->has_tags)
		return zns_crypt_open_unit(c, image, pb->name, pb->unit_base + unit, buf, len,
					   pb->tags.data + unit * ZNS_TAG_BYTES, err);
	return zns_unit_csum(pb, buf, len) == pb->csums[unit] ?
		       0 :
		       zns_fail(err, -EBADMSG, "image %s: checksum does not match", pb->name);
}

int may_deliver(const struct zns_crypt *c, const ZnsPb__Image *pb, struct zns_err *err)
{
	if (c || !pb->has_tags)
		return 0;
	return zns_fail(err, -ENOKEY, "image %s is encrypted, and there is no key", pb->name);
}
