/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_FLAT_H
#define ZNS_STRIPE_FLAT_H
/* Inside of a flat view: made by flat.c, read by flat_read.c. */
#include "runs.h"
#include "zns/flat.h"

struct flat_image {
	struct zns_rimage *raw; /* the image as it is, if neither of the next two is set */
	uint8_t *bytes; /* a pagemap written anew */
	struct runs runs; /* with sources: a pages image put together, of these by level */
	uint64_t size;
};

struct zns_flat {
	struct zns_chain *c;
	const ZnsPb__Manifest *m;
	struct flat_image *img;
	uint64_t page;
};

#endif
