/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef MEM_HEAT_H
#define MEM_HEAT_H
/*
 * How many bytes of resident memory were last used how long ago: a histogram with two buckets per
 * octave, from 100 ms on. A unit whose last use is unknown is in the last bucket.
 */
#include <stdint.h>

#define HEAT_BUCKETS 32U /* the last bucket begins at 77 minutes */

struct heat {
	uint64_t bytes[HEAT_BUCKETS];
};

unsigned int heat_bucket(uint32_t age_ms);
uint32_t heat_age(unsigned int bucket); /* age at which the bucket begins, in ms */
/*
 * Returns an age such that at least @want bytes are older, and not many more. 0: there are fewer
 * bytes in total.
 */
uint32_t heat_cut(const struct heat *h, uint64_t want);

#endif
