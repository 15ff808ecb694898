/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_IMAGE_H
#define ZNS_WRITE_IMAGE_H
/* An image that is being written, and what the manifest will say of it. */
#include <sys/types.h>
#include "lock.h"
#include "../transform.h"
#include "zns-record.pb-c.h"
#include "zns/util.h"

#define NAME_BUCKETS 1024 /* a tree of thousands of tasks has tens of thousands of images */

struct job;
struct source;
struct wzone;

struct zns_wimage {
	struct zns_writer *w;
	struct zns_wimage *next, *next_name;
	bool pages, sealed;
	uint32_t index; /* its place in the manifest */
	uint64_t nr_units; /* dispatched */
	uint32_t ungathered; /* units whose task memory is not read yet */
	struct job *open; /* unit being filled; belongs to the thread that feeds the image */
	ZnsPb__Image pb; /* what the manifest says of it */
	size_t max_segments, max_csums, max_tags, max_sums;
	struct source **source; /* of each unit (rescue.h); NULL: not kept */
	size_t max_sources;
	ZnsPb__ImageMap map; /* of a composed one */
	const ZnsPb__Image *like; /* its units come sealed; NULL: not */
};

/* Units of a memory context are named there, up to @end. */
struct named_zone {
	uint32_t zone;
	uint64_t end;
};

/* All images of a dump. */
struct images {
	struct zns_wimage *first, **tail;
	uint32_t nr;
	struct zns_wimage *by_name[NAME_BUCKETS];
	uint32_t nr_runs; /* of all maps */
	uint64_t nr_sums; /* of pieces of all images */
	uint64_t unit_base; /* of the images, in nonces */
	struct named_zone *named;
	size_t nr_named, max_named;
	uint64_t named_bytes;
	uint8_t context[ZNS_UUID_LEN]; /* whose units they are */
	const ZnsPb__Checkpoint *with; /* zns_writer_adopt; NULL: none */
	const ZnsPb__Manifest *with_m;
};

/* NULL: no memory. */
ZnsPb__Segment *image_add_segment(struct zns_wimage *i, uint64_t off, uint32_t nr_extents)
	NEEDS_LOCK;
/* nothing from @size on has a place */
void image_cut(struct zns_wimage *i, uint64_t size) NEEDS_LOCK;
/* @tag: as transform_out gave it; unused without a key. -ENOMEM. */
int image_put_csum(struct zns_wimage *i, uint64_t k, uint64_t csum,
		   const uint8_t tag[ZNS_TAG_BYTES]) NEEDS_LOCK;
/* sealed.c: unit @k as it is to be on the device, from what was fed. No lock. */
int image_outgoing(const struct zns_wimage *i, uint64_t k, uint8_t *buf, size_t len,
		   uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
/* All images of zns_writer_params.sealed are there, and whole. */
int sealed_whole(const struct zns_writer *w, struct zns_err *err) NEEDS_LOCK;
/* The checksum of unit @k as it goes to the device. Of pages that are not encrypted it notes the
 * pieces' checksums, too. -ENOMEM. */
int image_csum(struct zns_wimage *i, uint64_t k, const uint8_t *buf, size_t len, uint64_t *csum)
	NO_LOCK;
void image_free(struct zns_wimage *i) NEEDS_LOCK;

#endif
