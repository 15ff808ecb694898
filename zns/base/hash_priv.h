/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_HASH_PRIV_H
#define ZNS_HASH_PRIV_H
#include <stddef.h>
#include <stdint.h>

/* May only be called on processors with these instructions. */
uint64_t zns_hash_avx2(const void *data, size_t len);
uint64_t zns_hash_pieces_avx2(const void *data, size_t len, size_t piece, uint64_t *out);
uint64_t zns_hash_avx512(const void *data, size_t len);
uint64_t zns_hash_pieces_avx512(const void *data, size_t len, size_t piece, uint64_t *out);

#endif
