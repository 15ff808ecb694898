/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* XXH3 compiled for AVX2 (the Makefile says -mavx2, for this file alone); see hash.c. */
#ifdef __x86_64__
#include "hash_priv.h"

#define XXH_INLINE_ALL
#define XXH_VECTOR 2		/* XXH_AVX2, whose name is not known before the header */
#include <xxhash.h>

uint64_t zns_hash_avx2(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}
#endif
