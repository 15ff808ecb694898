/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_FLAT_H
#define ZNS_STRIPE_FLAT_H
/* Inside of a flat view: made by flat.c, read by flat_read.c. */
#include "zns/flat.h"

#define RUN_AT_BITS 56
_Static_assert(ZNS_CHAIN_MAX <= 1 << (64 - RUN_AT_BITS), "a run has no room for the level");

/* A run of a pages image: where it comes from. It ends where the next one begins. */
struct run {
	uint64_t off; /* in the flat image, bytes */
	uint64_t at : RUN_AT_BITS, level : 64 - RUN_AT_BITS;
};

struct flat_image {
	struct zns_rimage *raw; /* as it is, unless one of the two below is there */
	uint8_t *bytes; /* a pagemap written anew */
	struct zns_rimage **from; /* a pages image put together: of these, by level */
	struct run *run;
	size_t nr_runs, max_runs;
	uint64_t size;
};

struct zns_flat {
	struct zns_chain *c;
	const ZnsPb__Manifest *m;
	struct flat_image *img;
	uint64_t page;
};

#endif
