/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See heat.h. */
#include "heat.h"

#define FIRST_MS 100U

/* sqrt(2), as a fraction */
#define ROOT_NUM 181U
#define ROOT_DEN 128U

uint32_t heat_age(unsigned int bucket)
{
	uint64_t ms = bucket ? (uint64_t)FIRST_MS << (bucket - 1) / 2 : 0;

	if (bucket && (bucket - 1) % 2)
		ms = ms * ROOT_NUM / ROOT_DEN;
	return (uint32_t)ms;
}

unsigned int heat_bucket(uint32_t age_ms)
{
	unsigned int b = HEAT_BUCKETS - 1;

	while (b && age_ms < heat_age(b))
		b--;
	return b;
}

uint32_t heat_cut(const struct heat *h, uint64_t want)
{
	uint64_t sum = 0;

	for (unsigned int b = HEAT_BUCKETS; b-- > 0;) {
		sum += h->bytes[b];
		if (sum >= want)
			return heat_age(b);
	}
	return 0;
}
