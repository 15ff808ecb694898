/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_RUNS_H
#define ZNS_STRIPE_RUNS_H
/* The runs of an image that is composed of others: a composed image, whose manifest lists the runs,
 * or the flattened pages of a chain, whose pagemaps list them. composed.c reads such images. */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns/image_map.h"

#define RUN_AT_BITS 48
_Static_assert(ZNS_MAP_FROM_MAX <= 1 << (64 - RUN_AT_BITS), "a run has no room for its source");

/* A run ends where the next one begins. */
struct run {
	uint64_t off; /* byte offset in the composed image */
	uint64_t at : RUN_AT_BITS, source : 64 - RUN_AT_BITS;
};

struct runs {
	const char *name; /* name of the composed image; borrowed */
	/* the source images by their number; only those that a run refers to are set */
	struct zns_rimage **from;
	uint32_t nr_from;
	struct run *run;
	size_t nr, max;
	uint64_t size; /* size of the image, in bytes */
};

/* Makes room for the sources. *r must have been zeroed. */
int runs_init(struct runs *r, const char *name, uint32_t nr_from, struct zns_err *err);
int runs_add(struct runs *r, uint32_t source, uint64_t at, uint64_t len, struct zns_err *err);
/* Adds all runs of a map that was checked before. */
int runs_add_map(struct runs *r, const ZnsPb__ImageMap *map, struct zns_err *err);
void runs_fini(struct runs *r);
/* The index of the run that contains byte @off of the image. */
size_t runs_find(const struct runs *r, uint64_t off);

static inline uint64_t run_end(const struct runs *r, size_t n)
{
	return n + 1 < r->nr ? r->run[n + 1].off : r->size;
}

#endif
