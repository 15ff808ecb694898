/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_CRYPT_MEMORY_H
#define ZNS_CRYPT_MEMORY_H
/*
 * The key of a memory context (Documentation/inside/memory.md, "Encryption"). It is random and wrapped
 * with nothing: it is in memory alone, and ends with it. A descriptor stands for that memory
 * (memfd_secret(2) where the kernel has it, else a memfd whose page all who have the key lock). Who
 * has the descriptor has the key; the keeper gets it for the next pager, and a dump that names
 * units.
 *
 * A unit is encrypted with AES-256-GCM as a whole, under a nonce that never comes twice: the number
 * of the writer, drawn from the shared memory, and how many it has written. Nonce and tag are kept
 * by the caller, in memory or in a sealed manifest, where the device cannot reach them. So they
 * also say which unit it is: no other one opens with them.
 *
 * Functions return 0 or -errno and fill @err. Errors as in zns/crypt.h.
 */
#include <stddef.h>
#include <stdint.h>
#include "zns/crypt.h"

#define ZNS_MEMORY_NONCE 12
/* A key in a checkpoint: the context's UUID and its key, as a note (zns_crypt_seal_note). */
#define ZNS_MEMORY_SEALED (ZNS_NOTE_EXTRA + ZNS_UUID_LEN + ZNS_KEY_BYTES)

struct zns_memory_key;

int zns_memory_key_new(const uint8_t context[ZNS_UUID_LEN], struct zns_memory_key **out,
		       struct zns_err *err);
/* From a descriptor of zns_memory_key_fd(), which stays the caller's. -EPROTO: it is no key, or
 * another context's. */
int zns_memory_key_take(int fd, const uint8_t context[ZNS_UUID_LEN], struct zns_memory_key **out,
			struct zns_err *err);
int zns_memory_key_fd(const struct zns_memory_key *k); /* the key's own */
const uint8_t *zns_memory_key_context(const struct zns_memory_key *k);
void zns_memory_key_free(struct zns_memory_key *k); /* NULL is fine */

/* One unit, in place. Any thread. -EBADMSG: it is not what was sealed. */
int zns_memory_seal(struct zns_memory_key *k, uint8_t nonce[ZNS_MEMORY_NONCE], uint8_t *buf,
		    size_t len, uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
int zns_memory_open(const struct zns_memory_key *k, const uint8_t nonce[ZNS_MEMORY_NONCE],
		    uint8_t *buf, size_t len, const uint8_t tag[ZNS_TAG_BYTES],
		    struct zns_err *err);

/* Wraps the key for a checkpoint that has the key @c. The result can only decrypt units. */
int zns_memory_key_put(const struct zns_memory_key *k, const struct zns_crypt *c,
		       uint8_t out[ZNS_MEMORY_SEALED], struct zns_err *err);
int zns_memory_key_get(const struct zns_crypt *c, const uint8_t *sealed, size_t len,
		       struct zns_memory_key **out, struct zns_err *err);

#endif
