/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_IMAGE_H
#define ZNS_WRITE_IMAGE_H
/* An image that is being written, and its entry for the manifest. */
#include <sys/types.h>
#include "lock.h"
#include "../transform.h"
#include "zns-record.pb-c.h"
#include "zns/util.h"

/* buckets of the hash table of names: a tree of thousands of tasks has tens of thousands of
 * images */
#define NAME_BUCKETS 1024

struct job;
struct source;
struct wzone;

struct zns_wimage {
	struct zns_writer *w;
	struct zns_wimage *next, *next_name;
	bool pages, sealed;
	uint32_t index; /* index of the image in the manifest */
	uint64_t nr_units; /* number of units that were given to the queue */
	uint32_t ungathered; /* number of units whose task memory has not been read yet */
	struct job *open; /* the unit being filled; only the thread that feeds the image uses it */
	ZnsPb__Image pb; /* its entry in the manifest */
	size_t max_segments, max_csums, max_tags, max_sums;
	/* where the bytes of each unit came from (rescue.h); NULL: not recorded */
	struct source **source;
	size_t max_sources;
	ZnsPb__ImageMap map; /* the runs of a composed image */
	/* the image in the other manifest, if the units come encrypted from another checkpoint;
	 * else NULL */
	const ZnsPb__Image *like;
};

/* A zone with units of a memory context that the checkpoint refers to; @end: where the last of them
 * ends. */
struct named_zone {
	uint32_t zone;
	uint64_t end;
};

/* All images of a dump. */
struct images {
	struct zns_wimage *first, **tail;
	uint32_t nr;
	struct zns_wimage *by_name[NAME_BUCKETS];
	uint32_t nr_runs; /* number of runs of all composed images */
	uint64_t nr_sums; /* number of checksums of pieces of all images */
	uint64_t unit_base; /* added to the numbers of units in nonces */
	struct named_zone *named;
	size_t nr_named, max_named;
	uint64_t named_bytes;
	uint8_t context[ZNS_UUID_LEN]; /* id of the memory context that wrote the named units */
	/* the checkpoint that was given to zns_writer_adopt(); NULL: none */
	const ZnsPb__Checkpoint *with;
	const ZnsPb__Manifest *with_m;
};

/* Adds a segment. NULL: out of memory. */
ZnsPb__Segment *image_add_segment(struct zns_wimage *i, uint64_t off, uint32_t nr_extents)
	NEEDS_LOCK;
/* removes the places of all bytes from offset @size on */
void image_cut(struct zns_wimage *i, uint64_t size) NEEDS_LOCK;
/* Stores a unit's checksum and tag. @tag: filled in by transform_out(); ignored without a key.
 * -ENOMEM. */
int image_put_csum(struct zns_wimage *i, uint64_t k, uint64_t csum,
		   const uint8_t tag[ZNS_TAG_BYTES]) NEEDS_LOCK;
/* Turns the bytes of unit @k that were fed into those that are written to the device (as_is.c). No
 * lock. */
int image_outgoing(const struct zns_wimage *i, uint64_t k, uint8_t *buf, size_t len,
		   uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
/* Have all images of zns_writer_params.sealed been fed completely? */
int sealed_whole(const struct zns_writer *w, struct zns_err *err) NEEDS_LOCK;
/* Returns the checksum of unit @k as written to the device. For pages that are not encrypted it
 * also stores the checksums of the pieces. -ENOMEM. */
int image_csum(struct zns_wimage *i, uint64_t k, const uint8_t *buf, size_t len, uint64_t *csum)
	NO_LOCK;
void image_free(struct zns_wimage *i) NEEDS_LOCK;

#endif
