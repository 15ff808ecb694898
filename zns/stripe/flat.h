/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_FLAT_H
#define ZNS_STRIPE_FLAT_H
/* A flat view of a chain, created by flat.c and read by flat_read.c. */
#include "runs.h"
#include "zns/flat.h"

struct flat_image {
	/* the stored image, used if neither bytes nor runs is set */
	struct zns_rimage *raw;
	uint8_t *bytes; /* a pagemap that flat.c has written */
	/* a pages image that is composed of several levels; the number of a source is its level */
	struct runs runs;
	uint64_t size;
};

struct zns_flat {
	struct zns_chain *c;
	const ZnsPb__Manifest *m;
	struct flat_image *img;
	uint64_t page;
};

#endif
