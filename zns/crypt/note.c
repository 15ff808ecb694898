/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Notes: small records about an encrypted checkpoint that are written after it, perhaps several
 * times. Units and seal have nonces that depend on their places (unit.c), which would repeat here.
 * So a note has a key of its own, derived from the checkpoint's key and the note's label, and a
 * random nonce.
 */
#include <string.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include "crypt_priv.h"

static int derive(const struct zns_crypt *c, const char *label, uint8_t key[ZNS_KEY_BYTES])
{
	unsigned int n = 0;

	return HMAC(EVP_sha256(), c->key, ZNS_KEY_BYTES, (const uint8_t *)label, strlen(label), key,
		    &n) && n == ZNS_KEY_BYTES ?
		       0 :
		       -EIO;
}

static struct aead note_aead(const struct zns_crypt *c, const char *label, const uint8_t *key,
			     const uint8_t *nonce)
{
	return (struct aead){ key, nonce, { label, c->id }, { strlen(label), ZNS_UUID_LEN } };
}

int zns_crypt_seal_note(const struct zns_crypt *c, const char *label, uint8_t *note, size_t len,
			struct zns_err *err)
{
	uint8_t key[ZNS_KEY_BYTES], *text = note + NONCE_BYTES;
	struct aead a = note_aead(c, label, key, note);
	int ret = derive(c, label, key);

	if (!ret && RAND_bytes(note, NONCE_BYTES) != 1)
		ret = -EIO;
	if (!ret)
		ret = aead_seal(&a, c->cipher, text, len, text + len);
	explicit_bzero(key, sizeof(key));
	return ret ? zns_fail(err, ret, "libcrypto cannot encrypt a note") : 0;
}

int zns_crypt_open_note(const struct zns_crypt *c, const char *label, uint8_t *note, size_t len,
			struct zns_err *err)
{
	uint8_t key[ZNS_KEY_BYTES], *text = note + NONCE_BYTES;
	struct aead a = note_aead(c, label, key, note);
	int ret = derive(c, label, key);

	if (!ret)
		ret = aead_open(&a, c->cipher, text, len, text + len);
	explicit_bzero(key, sizeof(key));
	if (ret == -EBADMSG)
		return zns_fail(err, ret, "it is not what was encrypted for this checkpoint");
	return ret ? zns_fail(err, ret, "libcrypto cannot decrypt a note") : 0;
}
