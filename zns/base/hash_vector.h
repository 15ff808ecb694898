/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HASH_VECTOR_H
#define ZNS_HASH_VECTOR_H
/* XXH3 for one kind of processor. The file that includes it has set XXH_VECTOR, and is compiled
 * with the processor's instructions. See hash.c. */
#include "hash_priv.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static inline uint64_t hash_whole(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

/* Hashes the whole and the pieces alternately, so that memory is read once. */
static inline uint64_t hash_pieces(const void *data, size_t len, size_t piece, uint64_t *out)
{
	XXH3_state_t all;

	XXH3_64bits_reset(&all);
	for (size_t at = 0; at < len; at += piece) {
		const char *p = (const char *)data + at;
		size_t n = len - at < piece ? len - at : piece;

		*out++ = XXH3_64bits(p, n);
		XXH3_64bits_update(&all, p, n);
	}
	return XXH3_64bits_digest(&all);
}

#endif
