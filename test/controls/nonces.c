/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Notes each AEAD encryption (seal) of the test build's programs: a line in the file that
 * ZNS_NONCES names has a digest of the key, the nonce, and a digest of the text. A key and nonce
 * that are used twice can reveal both texts. The linker wraps aead_seal (Makefile).
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../../zns/crypt/crypt_priv.h"
#include "zns/util.h"

int __real_aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
		     uint8_t tag[ZNS_TAG_BYTES]);
int __wrap_aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
		     uint8_t tag[ZNS_TAG_BYTES]);

static void note(const char *path, const struct aead *a, const uint8_t *buf, size_t len)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	uint64_t text = len ? zns_hash(buf, len) : 0;
	char line[96];
	int n;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(a->aad) && a->aad[i]; i++)
		text = text * 31 + zns_hash(a->aad[i], a->aad_len[i]);
	n = snprintf(line, sizeof(line), "%016" PRIx64 " ", zns_hash(a->key, ZNS_KEY_BYTES));
	for (size_t i = 0; i < NONCE_BYTES; i++)
		n += snprintf(line + n, sizeof(line) - (size_t)n, "%02x", a->nonce[i]);
	n += snprintf(line + n, sizeof(line) - (size_t)n, " %016" PRIx64 "\n", text);
	if (fd < 0 || write(fd, line, (size_t)n) != n) {
		perror(path);
		abort();
	}
}

int __wrap_aead_seal(const struct aead *a, const EVP_CIPHER *cipher, uint8_t *buf, size_t len,
		     uint8_t tag[ZNS_TAG_BYTES])
{
	const char *path = getenv("ZNS_NONCES");

	if (path)
		note(path, a, buf, len);
	return __real_aead_seal(a, cipher, buf, len, tag);
}
