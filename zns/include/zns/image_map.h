/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_IMAGE_MAP_H
#define ZNS_IMAGE_MAP_H
/*
 * Composed images: images that are not written themselves, since their bytes are in other images of
 * the checkpoint. A live dump copies the memory of all tasks in rounds, and each round into one
 * image. At the end the manifest lists, for the pages image of each task, the runs of these images
 * that it consists of (Documentation/inside/format.md, "Composed images").
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns-record.pb-c.h"

#define ZNS_MAP_PAGE 4096u /* unit in which runs are counted, whatever the machine's page size is */
#define ZNS_MAP_FROM_MAX 4096 /* most images of which one image may be composed */
/* most runs of one manifest, since a reader needs 16 bytes for each */
#define ZNS_MAP_RUNS_MAX (1u << 24)

/* A run. All values are in bytes, multiples of ZNS_MAP_PAGE. */
struct zns_image_run {
	uint64_t len;
	uint32_t source; /* index in from[] */
	uint64_t at; /* offset in the source image */
};

/* Reads the runs of a map one after the other. */
struct zns_map_reader {
	const uint8_t *p, *end;
	uint32_t nr_from;
	uint64_t *last; /* for each source: where its previous run ended, in pages */
};

int zns_map_open(struct zns_map_reader *r, const ZnsPb__ImageMap *map, struct zns_err *err);
/* Reads the next run. 1: *run is the next run; 0: there are no more; -EBADMSG: the map is damaged.
 * Sums of a run's fields cannot overflow. */
int zns_map_next(struct zns_map_reader *r, struct zns_image_run *run);
void zns_map_close(struct zns_map_reader *r);
/* number of runs of a checked map; also 0 if memory is short */
uint32_t zns_map_runs(const ZnsPb__ImageMap *map);

/* Encodes runs as a map and merges adjacent ones. *out is malloc'ed; *nr_out is its number of runs.
 * The runs must have passed zns_map_run_fits. -E2BIG: there are more than a manifest may have. */
int zns_map_pack(const struct zns_image_run *run, size_t nr, uint32_t nr_from, uint8_t **out,
		 size_t *len, uint32_t *nr_out, struct zns_err *err);
/* Does the run consist of whole pages, and lie inside an image of @size bytes? */
bool zns_map_run_fits(const struct zns_image_run *run, uint64_t size);

/* The bytes of all images but parts (images that others are composed of): of those that `znsctl
 * show` lists. */
uint64_t zns_images_bytes(const ZnsPb__Manifest *m);

/*
 * Checks the map of image @n of @m, which is untrusted: its sources are parts, its runs lie inside
 * them and have as many bytes as the image. *runs: its number of runs, at most @max.
 */
int zns_map_check(const ZnsPb__Manifest *m, size_t n, uint32_t max, uint32_t *runs,
		  struct zns_err *err);

#endif
