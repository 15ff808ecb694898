/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Wraps keys of checkpoints with the master key. The log contains only wrapped keys. */
#include <string.h>
#include <openssl/rand.h>
#include "crypt_priv.h"

static const char wrap_label[] = "zns-criu wrap 1";

/* The authenticated data bind a wrapped key to one checkpoint and one cipher. */
static struct aead wrap_aead(const struct zns_master *m, const uint8_t *id, const uint8_t *nonce)
{
	return (struct aead){ .key = m->wrap,
			      .nonce = nonce,
			      .aad = { wrap_label, id },
			      .aad_len = { sizeof(wrap_label), ZNS_UUID_LEN } };
}

int wrap_key(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
	     const uint8_t key[ZNS_KEY_BYTES], uint8_t out[ZNS_WRAPPED_BYTES])
{
	struct aead a = wrap_aead(m, id, out);

	/* A random nonce is safe here, since a master key wraps far fewer than 2^32 keys. */
	if (RAND_bytes(out, NONCE_BYTES) != 1)
		return -EIO;
	memcpy(out + NONCE_BYTES, key, ZNS_KEY_BYTES);
	return aead_seal(&a, NULL, out + NONCE_BYTES, ZNS_KEY_BYTES,
			 out + NONCE_BYTES + ZNS_KEY_BYTES);
}

int unwrap_key(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
	       const ZnsPb__CheckpointKey *k, uint8_t key[ZNS_KEY_BYTES], struct zns_err *err)
{
	char str[ZNS_UUID_STR], want[ZNS_KEY_ID_STR], have[ZNS_KEY_ID_STR];
	struct aead a;
	int ret;

	zns_uuid_format(id, str);
	if (k->cipher != ZNS_CIPHER_AES_256_GCM)
		return zns_fail(
			err, -EPROTONOSUPPORT,
			"checkpoint %s is encrypted with cipher %u, which this program does not know",
			str, k->cipher);
	if (!k->has_wrapped)
		return zns_fail(
			err, -ENOKEY,
			"the key of checkpoint %s is gone (the log that held it was lost): its data cannot be "
			"read any more",
			str);
	if (!zns_crypt_record_sane(k))
		return zns_fail(err, -EBADMSG, "the wrapped key of checkpoint %s is damaged", str);
	if (memcmp(k->key_id.data, m->id, ZNS_KEY_ID_BYTES))
		return zns_fail(err, -EKEYREJECTED,
				"checkpoint %s is encrypted with key %s, not with key %s", str,
				zns_key_id_format(k->key_id.data, want),
				zns_key_id_format(m->id, have));
	a = wrap_aead(m, id, k->wrapped.data);
	memcpy(key, k->wrapped.data + NONCE_BYTES, ZNS_KEY_BYTES);
	ret = aead_open(&a, NULL, key, ZNS_KEY_BYTES,
			k->wrapped.data + NONCE_BYTES + ZNS_KEY_BYTES);
	if (!ret)
		return 0;
	explicit_bzero(key, ZNS_KEY_BYTES);
	return zns_fail(err, ret, "the wrapped key of checkpoint %s is damaged", str);
}

static struct zns_crypt *new_crypt(const uint8_t *id, struct zns_err *err)
{
	struct zns_crypt *c = secret_alloc(sizeof(*c), err);

	if (!c)
		return NULL;
	memcpy(c->id, id, ZNS_UUID_LEN);
	/* Look the cipher up once, not for each unit. */
	c->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
	if (!c->cipher) {
		zns_crypt_free(c);
		zns_fail(err, -EIO, "libcrypto has no AES-256-GCM");
		return NULL;
	}
	return c;
}

int zns_crypt_new(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
		  struct zns_crypt **out, struct zns_err *err)
{
	struct zns_crypt *c = new_crypt(id, err);

	if (!c)
		return err && err->code ? err->code : -ENOMEM;
	memcpy(c->key_id, m->id, ZNS_KEY_ID_BYTES);
	if (RAND_priv_bytes(c->key, ZNS_KEY_BYTES) != 1 || wrap_key(m, id, c->key, c->wrapped)) {
		zns_crypt_free(c);
		return zns_fail(err, -EIO, "libcrypto gives no random bytes for a key");
	}
	*out = c;
	return 0;
}

int zns_crypt_open(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
		   const ZnsPb__CheckpointKey *k, struct zns_crypt **out, struct zns_err *err)
{
	struct zns_crypt *c = new_crypt(id, err);
	int ret;

	if (!c)
		return err && err->code ? err->code : -ENOMEM;
	ret = unwrap_key(m, id, k, c->key, err);
	if (ret) {
		zns_crypt_free(c);
		return ret;
	}
	memcpy(c->key_id, k->key_id.data, ZNS_KEY_ID_BYTES);
	memcpy(c->wrapped, k->wrapped.data, ZNS_WRAPPED_BYTES);
	*out = c;
	return 0;
}

void zns_crypt_free(struct zns_crypt *c)
{
	if (!c)
		return;
	EVP_CIPHER_free(c->cipher);
	secret_free(c, sizeof(*c));
}

static int set_bytes(ProtobufCBinaryData *b, const uint8_t *from, size_t len)
{
	b->data = malloc(len);
	if (!b->data)
		return -ENOMEM;
	memcpy(b->data, from, len);
	b->len = len;
	return 0;
}

static ZnsPb__CheckpointKey *record(const uint8_t *key_id, const uint8_t *wrapped)
{
	ZnsPb__CheckpointKey *k = malloc(sizeof(*k));

	if (!k)
		return NULL;
	zns_pb__checkpoint_key__init(k);
	k->cipher = ZNS_CIPHER_AES_256_GCM;
	k->has_key_id = k->has_wrapped = 1;
	if (set_bytes(&k->key_id, key_id, ZNS_KEY_ID_BYTES) ||
	    set_bytes(&k->wrapped, wrapped, ZNS_WRAPPED_BYTES)) {
		zns_pb__checkpoint_key__free_unpacked(k, NULL);
		return NULL;
	}
	return k;
}

ZnsPb__CheckpointKey *zns_crypt_record(const struct zns_crypt *c)
{
	return record(c->key_id, c->wrapped);
}

int zns_crypt_rewrap(const struct zns_master *from, const struct zns_master *to,
		     const uint8_t id[ZNS_UUID_LEN], const ZnsPb__CheckpointKey *k,
		     ZnsPb__CheckpointKey **out, struct zns_err *err)
{
	uint8_t wrapped[ZNS_WRAPPED_BYTES], key[ZNS_KEY_BYTES];
	int ret = unwrap_key(from, id, k, key, err);

	if (!ret && wrap_key(to, id, key, wrapped))
		ret = zns_fail(err, -EIO, "libcrypto cannot wrap a key");
	explicit_bzero(key, sizeof(key));
	if (ret)
		return ret;
	*out = record(to->id, wrapped);
	return *out ? 0 : zns_fail(err, -ENOMEM, "no memory for a wrapped key");
}
