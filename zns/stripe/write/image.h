/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_IMAGE_H
#define ZNS_WRITE_IMAGE_H
/* An image that is being written, and what the manifest will say of it. */
#include <sys/types.h>
#include "lock.h"
#include "../transform.h"
#include "zns-record.pb-c.h"
#include "zns/util.h"

/* buckets of the table of names: a tree of thousands of tasks has tens of thousands of images */
#define NAME_BUCKETS 1024

struct job;
struct source;
struct wzone;

struct zns_wimage {
	struct zns_writer *w;
	struct zns_wimage *next, *next_name;
	bool pages, sealed;
	uint32_t index; /* index of the image in the manifest */
	uint64_t nr_units; /* units that were given to the queue */
	uint32_t ungathered; /* units whose task memory has not been read yet */
	struct job *open; /* the unit being filled; only the thread that feeds the image uses it */
	ZnsPb__Image pb; /* its entry in the manifest */
	size_t max_segments, max_csums, max_tags, max_sums;
	struct source **source; /* where each unit's bytes came from (rescue.h); NULL: not kept */
	size_t max_sources;
	ZnsPb__ImageMap map; /* the runs of a composed image */
	/* set if the units come encrypted from another checkpoint: its image; else NULL */
	const ZnsPb__Image *like;
};

/* A zone in which the checkpoint names units of a memory context, up to @end. */
struct named_zone {
	uint32_t zone;
	uint64_t end;
};

/* All images of a dump. */
struct images {
	struct zns_wimage *first, **tail;
	uint32_t nr;
	struct zns_wimage *by_name[NAME_BUCKETS];
	uint32_t nr_runs; /* runs of all composed images */
	uint64_t nr_sums; /* checksums of pieces, of all images */
	uint64_t unit_base; /* number of the first unit, from which nonces are counted */
	struct named_zone *named;
	size_t nr_named, max_named;
	uint64_t named_bytes;
	uint8_t context[ZNS_UUID_LEN]; /* id of the memory context that wrote them */
	const ZnsPb__Checkpoint *with; /* the checkpoint given to zns_writer_adopt(); NULL: none */
	const ZnsPb__Manifest *with_m;
};

/* NULL: no memory. */
ZnsPb__Segment *image_add_segment(struct zns_wimage *i, uint64_t off, uint32_t nr_extents)
	NEEDS_LOCK;
/* removes the places of all bytes from offset @size on */
void image_cut(struct zns_wimage *i, uint64_t size) NEEDS_LOCK;
/* @tag: filled in by transform_out(); not used without a key. -ENOMEM. */
int image_put_csum(struct zns_wimage *i, uint64_t k, uint64_t csum,
		   const uint8_t tag[ZNS_TAG_BYTES]) NEEDS_LOCK;
/* Makes the bytes of unit @k as they are to stand on the device, from the bytes that were fed
 * (as_is.c). No lock. */
int image_outgoing(const struct zns_wimage *i, uint64_t k, uint8_t *buf, size_t len,
		   uint8_t tag[ZNS_TAG_BYTES], struct zns_err *err);
/* Have all images named in zns_writer_params.sealed been fed completely? */
int sealed_whole(const struct zns_writer *w, struct zns_err *err) NEEDS_LOCK;
/* Returns the checksum of unit @k in its form on the device. For pages that are not encrypted it
 * also stores the checksums of the pieces. -ENOMEM. */
int image_csum(struct zns_wimage *i, uint64_t k, const uint8_t *buf, size_t len, uint64_t *csum)
	NO_LOCK;
void image_free(struct zns_wimage *i) NEEDS_LOCK;

#endif
