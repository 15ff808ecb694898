/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CRYPT_PRIV_H
#define ZNS_CRYPT_PRIV_H
#include <openssl/evp.h>
#include "zns/crypt.h"

#define NONCE_BYTES 12

/* Both structs are in secret memory. The raw bytes of the master key are wiped as soon as these
 * values are derived from them. */
struct zns_master {
	uint8_t id[ZNS_KEY_ID_BYTES];
	uint8_t wrap[ZNS_KEY_BYTES]; /* the key with which keys of checkpoints are wrapped */
};

struct zns_crypt {
	uint8_t key[ZNS_KEY_BYTES];
	uint8_t id[ZNS_UUID_LEN]; /* the checkpoint's id */
	uint8_t key_id[ZNS_KEY_ID_BYTES], wrapped[ZNS_WRAPPED_BYTES];
	EVP_CIPHER *cipher;
};

/* secret.c: allocates memory in whole pages that is locked and excluded from core dumps and forks;
 * secret_free wipes it. */
void *secret_alloc(size_t len, struct zns_err *err);
void secret_free(void *p, size_t len);

/* key.c: makes a master key from 32 bytes; the caller wipes them. */
int master_from_bytes(const uint8_t raw[ZNS_KEY_BYTES], struct zns_master **out,
		      struct zns_err *err);
/* Decodes the contents of a key file, raw or hexadecimal; -EINVAL. */
int master_decode(const uint8_t *buf, size_t len, uint8_t raw[ZNS_KEY_BYTES]);

/* keyring.c: reads the key's payload into @buf (at most @max bytes); *len is its length. */
int keyring_read(const char *desc, uint8_t *buf, size_t max, size_t *len, struct zns_err *err);

/* ---- aead.c ---- */
struct aead {
	const uint8_t *key, *nonce;
	/* additional authenticated data: up to four strings; NULL ends the list */
	const void *aad[4];
	size_t aad_len[4];
};
/* Encrypt and decrypt in place; @len 0: only a tag is computed or verified. @cipher may be NULL.
 * -EBADMSG: the tag does not match. */
int aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
	      uint8_t tag[ZNS_TAG_BYTES]);
int aead_open(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
	      const uint8_t tag[ZNS_TAG_BYTES]);

/* ---- wrap.c ---- */
int wrap_key(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
	     const uint8_t key[ZNS_KEY_BYTES], uint8_t out[ZNS_WRAPPED_BYTES]);
int unwrap_key(const struct zns_master *m, const uint8_t id[ZNS_UUID_LEN],
	       const ZnsPb__CheckpointKey *k, uint8_t key[ZNS_KEY_BYTES], struct zns_err *err);

#endif
