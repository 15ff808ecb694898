/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The checksum of everything stored: XXH3, 64 bits. */
#include <xxhash.h>

#include "zns/util.h"

uint64_t zns_hash(const void *data, size_t len)
{
	return XXH3_64bits(data, len);
}

uint64_t zns_hash_seeded(const void *data, size_t len, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, len, seed);
}
