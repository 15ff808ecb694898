/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* XXH3 compiled for AVX-512. The Makefile sets -mavx512f for this file only. See hash.c. */
#ifdef __x86_64__
#define XXH_VECTOR 3 /* this is XXH_AVX512, a name that only the header defines */
#include "hash_vector.h"

uint64_t zns_hash_avx512(const void *data, size_t len)
{
	return hash_whole(data, len);
}

uint64_t zns_hash_pieces_avx512(const void *data, size_t len, size_t piece, uint64_t *out)
{
	return hash_pieces(data, len, piece, out);
}
#endif
