/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The checksum of everything stored: XXH3, 64 bits. The distribution's libxxhash is built for the
 * oldest x86-64. With AVX2, the same code compiled for it (hash_avx2.c) takes a quarter of the
 * time, with AVX-512 a fifth, and gives the same values.
 */
#include <xxhash.h>

#include "hash_priv.h"
#include "zns/util.h"

uint64_t zns_hash(const void *data, size_t len)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return zns_hash_avx512(data, len);
	if (__builtin_cpu_supports("avx2"))
		return zns_hash_avx2(data, len);
#endif
	return XXH3_64bits(data, len);
}

uint64_t zns_hash_pieces(const void *data, size_t len, size_t piece, uint64_t *out)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return zns_hash_pieces_avx512(data, len, piece, out);
	if (__builtin_cpu_supports("avx2"))
		return zns_hash_pieces_avx2(data, len, piece, out);
#endif
	for (size_t at = 0; at < len; at += piece)
		*out++ = XXH3_64bits((const char *)data + at, zns_min(piece, len - at));
	return XXH3_64bits(data, len);
}

uint64_t zns_hash_seeded(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}
