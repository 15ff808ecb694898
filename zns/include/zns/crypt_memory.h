/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CRYPT_MEMORY_H
#define ZNS_CRYPT_MEMORY_H
/*
 * The key of a memory context (Documentation/inside/memory.md, "Encryption"). It is random, exists
 * only in memory, and is lost when the context ends; no master key wraps it. A descriptor refers to
 * that memory: of memfd_secret(2) where the kernel has it, else of a memfd whose page is locked by
 * every process that has the key. A process that has the descriptor has the key. The keeper holds
 * it for the next pager, and a dump gets it if its checkpoint refers to units of the context.
 *
 * A unit is encrypted as a whole with AES-256-GCM. Its nonce is never used twice: it consists of
 * the number of the writer, drawn from the shared memory, and of a count of the units that this
 * writer has written. The caller keeps nonce and tag in memory or in a sealed manifest, where the
 * device cannot change them. So they also identify the unit: no other unit can be decrypted with
 * them.
 *
 * Functions return 0 or -errno and fill @err. Errors as in zns/crypt.h.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/crypt.h"

#define ZNS_MEMORY_NONCE 12
/* Size of a context's key in a checkpoint: a note (zns_crypt_seal_note) with the context's UUID and
 * its key. */
#define ZNS_MEMORY_SEALED (ZNS_NOTE_EXTRA + ZNS_UUID_LEN + ZNS_KEY_BYTES)

struct zns_memory_key;

int zns_memory_key_new(const uint8_t context[ZNS_UUID_LEN], struct zns_memory_key **out,
		       struct zns_err *err);
/* Gets the key from a descriptor of zns_memory_key_fd(), which stays the caller's. -EPROTO: it is
 * not a key, or the key of another context. */
int zns_memory_key_take(int fd, const uint8_t context[ZNS_UUID_LEN], struct zns_memory_key **out,
			struct zns_err *err);
/* the descriptor of the key; @k keeps owning it */
int zns_memory_key_fd(const struct zns_memory_key *k);
const uint8_t *zns_memory_key_context(const struct zns_memory_key *k);
void zns_memory_key_free(struct zns_memory_key *k); /* @k may be NULL */

/* Encrypts (seal) or decrypts (open) one unit in place. May be called from any thread. -EBADMSG:
 * the unit is not the one that was sealed. */
int zns_memory_seal(struct zns_memory_key *k, uint8_t nonce[ZNS_MEMORY_NONCE], uint8_t *buf,
		    size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
int zns_memory_open(const struct zns_memory_key *k, const uint8_t nonce[ZNS_MEMORY_NONCE],
		    uint8_t *buf, size_t len, const uint8_t tag[ZNS_TAG_BYTES],
		    struct zns_err *err);

/* Wraps the key for a checkpoint whose key is @c. A key that is read back from the checkpoint can
 * only decrypt units. */
int zns_memory_key_put(const struct zns_memory_key *k, const struct zns_crypt *c,
		       uint8_t out[ZNS_MEMORY_SEALED], struct zns_err *err);
int zns_memory_key_get(const struct zns_crypt *c, const uint8_t *sealed, size_t len,
		       struct zns_memory_key **out, struct zns_err *err);

#endif
