/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HEAT_H
#define MEM_HEAT_H
/*
 * Ages of what is resident, in half octaves of 100 ms: how many bytes were used last so long ago.
 * A unit of which no use is known is in the last bucket.
 */
#include <stdint.h>

#define HEAT_BUCKETS 32U /* the last one begins at 77 minutes */

struct heat {
	uint64_t bytes[HEAT_BUCKETS];
};

unsigned int heat_bucket(uint32_t age_ms);
uint32_t heat_age(unsigned int bucket); /* where it begins, in ms */
/* An age, such that what is not younger is @want bytes at least, and hardly more; 0: less are
 * there. */
uint32_t heat_cut(const struct heat *h, uint64_t want);

#endif
