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
#define ZNS_MAP_FROM_MAX 4096 /* images that one is composed of */
#define ZNS_MAP_RUNS_MAX (1u << 24) /* of a manifest: a reader has 16 bytes for each */

/* Bytes, all multiples of ZNS_MAP_PAGE. */
struct zns_image_run {
	uint64_t len;
	uint32_t source; /* index in from[] */
	uint64_t at; /* in the source */
};

/* Goes through the runs of a map. */
struct zns_map_reader {
	const uint8_t *p, *end;
	uint32_t nr_from;
	uint64_t *last; /* of each source: where its last run ended, pages */
};

int zns_map_open(struct zns_map_reader *r, const ZnsPb__ImageMap *map, struct zns_err *err);
/* 1: *run is the next one; 0: there are no more; -EBADMSG: no map. No sum of a run overflows. */
int zns_map_next(struct zns_map_reader *r, struct zns_image_run *run);
void zns_map_close(struct zns_map_reader *r);
uint32_t zns_map_runs(const ZnsPb__ImageMap *map); /* of a checked map; 0 also without memory */

/*
 * The runs as a map has them; neighbours become one. *out is malloc'ed, *nr: how many they are
 * there. They must have passed zns_map_run_fits. -E2BIG: more than a manifest takes.
 */
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
