/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_IMAGE_MAP_H
#define ZNS_IMAGE_MAP_H
/*
 * Composed images: one that is not written, since its bytes are in other images of the checkpoint
 * already. A live dump copies memory of all tasks in rounds, each into one image. In the end the
 * manifest says of which runs of these a task's pages consist (Documentation/inside/format.md, "Composed
 * images").
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"
#include "zns-record.pb-c.h"

#define ZNS_MAP_PAGE 4096u /* runs count in it, whatever the machine's page */
#define ZNS_MAP_FROM_MAX 4096 /* most images that one image is composed of */
#define ZNS_MAP_RUNS_MAX (1u << 24) /* most runs of a manifest: a reader needs 16 bytes for each */

/* Bytes, all multiples of ZNS_MAP_PAGE. */
struct zns_image_run {
	uint64_t len;
	uint32_t source; /* index in from[] */
	uint64_t at; /* offset in the source */
};

/* Iterates over the runs of a map. */
struct zns_map_reader {
	const uint8_t *p, *end;
	uint32_t nr_from;
	uint64_t *last; /* for each source: where its last run ended, in pages */
};

int zns_map_open(struct zns_map_reader *r, const ZnsPb__ImageMap *map, struct zns_err *err);
/* 1: *run is the next run; 0: there are no more; -EBADMSG: the map is damaged. No sum of a run's
 * fields overflows. */
int zns_map_next(struct zns_map_reader *r, struct zns_image_run *run);
void zns_map_close(struct zns_map_reader *r);
/* number of runs of a checked map; 0 also if there is no memory */
uint32_t zns_map_runs(const ZnsPb__ImageMap *map);

/* Encodes runs as a map; adjacent runs are merged. *out is malloc'ed, *nr: its number of runs. The
 * runs must have passed zns_map_run_fits. -E2BIG: more than a manifest may have. */
int zns_map_pack(const struct zns_image_run *run, size_t nr, uint32_t nr_from, uint8_t **out,
		 size_t *len, uint32_t *nr_out, struct zns_err *err);
/* Does the run consist of whole pages, inside an image of @size bytes? */
bool zns_map_run_fits(const struct zns_image_run *run, uint64_t size);

/* Bytes of all images without parts: of those that `znsctl show` lists. */
uint64_t zns_images_bytes(const ZnsPb__Manifest *m);

/*
 * Check the map of image @n of @m, which may come from anybody: its sources are parts, its runs lie
 * in them and have as many bytes as the image. *runs is how many runs it has, at most @max.
 */
int zns_map_check(const ZnsPb__Manifest *m, size_t n, uint32_t max, uint32_t *runs,
		  struct zns_err *err);

#endif
