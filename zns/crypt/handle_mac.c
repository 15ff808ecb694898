/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles of encrypted checkpoints. An attacker who can write to the device can replace a
 * checkpoint by another one with correct checksums, under the same id. A handle is stored elsewhere
 * and identifies its checkpoint by a MAC. The MAC's key is derived from the checkpoint's own key.
 * So the MAC stays valid when the master key is rotated (the same checkpoint key is only wrapped
 * again) and when the checkpoint is moved (neither key nor seal change). A version with another key
 * or other images (flattened, joined) contains the MACs of earlier versions under its own seal, so
 * older handles stay valid.
 */
#include <string.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include "crypt_priv.h"

static const char key_label[] = "zns-criu 1 handle", mac_label[] = "zns-criu handle 1";

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static int hmac(const uint8_t key[ZNS_KEY_BYTES], const void *text, size_t len,
		uint8_t out[ZNS_MAC_BYTES])
{
	unsigned int n = 0;

	return HMAC(EVP_sha256(), key, ZNS_KEY_BYTES, text, len, out, &n) && n == ZNS_MAC_BYTES ?
		       0 :
		       -EIO;
}

/* The MAC covers, in this order: the label with its zero byte, id, time, length of the container's
 * name, the name, the seal. */
int zns_crypt_handle_mac(const struct zns_crypt *c, const ZnsPb__Checkpoint *record,
			 const uint8_t *seal, uint8_t mac[ZNS_MAC_BYTES], struct zns_err *err)
{
	size_t name = strlen(record->container),
	       len = sizeof(mac_label) + ZNS_UUID_LEN + 16 + name + ZNS_TAG_BYTES;
	cleanup_free uint8_t *text = malloc(len);
	uint8_t key[ZNS_KEY_BYTES], *p = text;
	int ret;

	if (!text)
		return zns_fail(err, -ENOMEM, "no memory for a handle");
	memcpy(p, mac_label, sizeof(mac_label));
	p += sizeof(mac_label);
	memcpy(p, c->id, ZNS_UUID_LEN);
	p += ZNS_UUID_LEN;
	put64(p, (uint64_t)record->created_ns);
	put64(p + 8, name);
	memcpy(p + 16, record->container, name);
	memcpy(p + 16 + name, seal, ZNS_TAG_BYTES);
	ret = hmac(c->key, key_label, strlen(key_label), key);
	if (!ret)
		ret = hmac(key, text, len, mac);
	explicit_bzero(key, sizeof(key));
	return ret ? zns_fail(err, ret, "libcrypto has no HMAC-SHA-256") : 0;
}

int zns_crypt_seal_handle(const struct zns_crypt *c, const ZnsPb__Checkpoint *record,
			  const uint8_t *seal, ZnsPb__Handle *h, struct zns_handle_seal *s,
			  struct zns_err *err)
{
	int ret;

	if (!c)
		return 0;
	ret = zns_crypt_handle_mac(c, record, seal, s->mac, err);
	if (ret)
		return ret;
	memcpy(s->key_id, c->key_id, ZNS_KEY_ID_BYTES);
	zns_pb__handle_seal__init(&s->pb);
	s->pb.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, s->key_id };
	s->pb.mac = (ProtobufCBinaryData){ ZNS_MAC_BYTES, s->mac };
	h->seal = &s->pb;
	return 0;
}

void zns_crypt_name_key(const ZnsPb__CheckpointKey *k, ZnsPb__Handle *h, struct zns_handle_seal *s)
{
	memcpy(s->key_id, k->key_id.data, ZNS_KEY_ID_BYTES);
	zns_pb__handle_seal__init(&s->pb);
	s->pb.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, s->key_id };
	s->pb.mac = (ProtobufCBinaryData){ 0, s->mac };
	h->seal = &s->pb;
}

static bool is_mac(const ProtobufCBinaryData *have, const ProtobufCBinaryData *want)
{
	return have->len == ZNS_MAC_BYTES && want->len == ZNS_MAC_BYTES &&
	       !CRYPTO_memcmp(have->data, want->data, ZNS_MAC_BYTES);
}

int zns_crypt_check_handle(const struct zns_crypt *c, const ZnsPb__Handle *h,
			   const ZnsPb__Manifest *m, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k = m->checkpoint;
	char id[ZNS_UUID_STR], key[ZNS_KEY_ID_STR] = "?";
	uint8_t mac[ZNS_MAC_BYTES];
	ProtobufCBinaryData own = { sizeof(mac), mac };
	int ret;

	if (!h->seal)
		return 0;
	zns_uuid_format(k->id.data, id);
	if (h->seal->key_id.len == ZNS_KEY_ID_BYTES)
		zns_key_id_format(h->seal->key_id.data, key);
	if (!k->crypt)
		return zns_fail(
			err, -EBADMSG,
			"the handle is of a checkpoint that was encrypted with key %s, but %s stands on the device in "
			"plain: somebody has put another one in its place",
			key, id);
	if (!c || !h->seal->mac.len)
		return 0;
	if (!m->has_seal || m->seal.len != ZNS_TAG_BYTES) /* zns_crypt_of has verified the seal */
		return zns_fail(
			err, -EBADMSG,
			"checkpoint %s has no seal (the MAC of its manifest): it is damaged, or was changed",
			id);
	ret = zns_crypt_handle_mac(c, k, m->seal.data, mac, err);
	if (ret || is_mac(&h->seal->mac, &own))
		return ret;
	for (size_t i = 0; i < m->n_former_macs; i++)
		if (is_mac(&h->seal->mac, &m->former_macs[i]))
			return 0;
	return zns_fail(
		err, -EBADMSG,
		"checkpoint %s is encrypted, but is not the one that the handle was written for: an earlier state "
		"of the device was put back, or the handle was changed",
		id);
}

int zns_crypt_former_macs(const struct zns_crypt *c, const ZnsPb__Manifest *m,
			  ProtobufCBinaryData **out, size_t *nr, struct zns_err *err)
{
	size_t n = m->n_former_macs + 1, skip;
	ProtobufCBinaryData *v;
	uint8_t *mac;
	int ret;

	*out = NULL;
	*nr = 0;
	if (!c || !m->has_seal || m->seal.len != ZNS_TAG_BYTES)
		return 0;
	/* drop the MACs of the oldest versions */
	skip = n > ZNS_FORMER_MACS_MAX ? n - ZNS_FORMER_MACS_MAX : 0;
	v = malloc((n - skip) * (sizeof(*v) + ZNS_MAC_BYTES));
	if (!v)
		return zns_fail(err, -ENOMEM, "no memory for a manifest");
	mac = (uint8_t *)(v + n - skip);
	for (size_t i = skip; i < n; i++, mac += ZNS_MAC_BYTES) {
		v[i - skip] = (ProtobufCBinaryData){ ZNS_MAC_BYTES, mac };
		if (i + 1 < n) /* zns_manifest_check has checked the lengths */
			memcpy(mac, m->former_macs[i].data, ZNS_MAC_BYTES);
	}
	ret = zns_crypt_handle_mac(c, m->checkpoint, m->seal.data, mac - ZNS_MAC_BYTES, err);
	if (ret) {
		free(v);
		return ret;
	}
	*out = v;
	*nr = n - skip;
	return 0;
}
