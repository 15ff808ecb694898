/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STRIPE_RUNS_H
#define ZNS_STRIPE_RUNS_H
/* An image that is put together from runs of other images: a composed image, whose manifest
 * lists the runs, or the pages of a chain, whose pagemaps do. composed.c reads it. */
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns/image_map.h"

#define RUN_AT_BITS 48
_Static_assert(ZNS_MAP_FROM_MAX <= 1 << (64 - RUN_AT_BITS), "a run has no room for its source");

/* A run ends where the next one begins. */
struct run {
	uint64_t off; /* byte offset in the image that is put together */
	uint64_t at : RUN_AT_BITS, source : 64 - RUN_AT_BITS;
};

struct runs {
	const char *name; /* name of the image that is put together; borrowed */
	/* the source images by their number; only those that a run refers to are set */
	struct zns_rimage **from;
	uint32_t nr_from;
	struct run *run;
	size_t nr, max;
	uint64_t size; /* size of the image, in bytes */
};

/* Makes room for the sources. *r must be zeroed. */
int runs_init(struct runs *r, const char *name, uint32_t nr_from, struct zns_err *err);
int runs_add(struct runs *r, uint32_t source, uint64_t at, uint64_t len, struct zns_err *err);
/* Adds all runs of a map that was checked before. */
int runs_add_map(struct runs *r, const ZnsPb__ImageMap *map, struct zns_err *err);
void runs_fini(struct runs *r);
/* The index of the run that holds byte @off of the image. */
size_t runs_find(const struct runs *r, uint64_t off);

static inline uint64_t run_end(const struct runs *r, size_t n)
{
	return n + 1 < r->nr ? r->run[n + 1].off : r->size;
}

#endif
