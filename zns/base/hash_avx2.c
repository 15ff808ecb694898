/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* XXH3 compiled for AVX2. The Makefile sets -mavx2 for this file only. See hash.c. */
#ifdef __x86_64__
#include "hash_priv.h"

#define XXH_INLINE_ALL
#define XXH_VECTOR 2 /* XXH_AVX2; that name is defined only by the header */
#include <xxhash.h>

uint64_t zns_hash_avx2(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

/* Takes turns, so that memory is read once. */
uint64_t zns_hash_pieces_avx2(const void *data, size_t len, size_t piece, uint64_t *out)
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
