/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_LAYOUT_H
#define ZNS_LAYOUT_H
/*
 * Layout arithmetic (design.md §3): an image is a list of segments; inside a segment the place of
 * an offset is computed. A segment's units go to its extents in turns: extent e takes `weight`
 * units of a turn, spread over the turn as evenly as whole units allow, the same way in every turn.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/dev.h"
#include "zns/err.h"
#include "zns/util.h"
#include "zns-record.pb-c.h"

#define ZNS_STRIPE_MAX_WIDTH 256 /* extents of one segment */
#define ZNS_STRIPE_MAX_WEIGHT 16
#define ZNS_STRIPE_UNIT_MIN KIB(64) /* limits of what can be asked for (design.md §4) */
/* Small checkpoints on a disk have smaller ones, which fit where others were removed. */
#define ZNS_UNIT_LEAST KIB(8)
/*
 * The unit of a small checkpoint of about @bytes on a disk. @scattered: it goes to the places of
 * several removed ones. The end of each place that is shorter than a unit is lost, so the units
 * are as small as a 128th of the checkpoint then (devices.md).
 */
static inline uint32_t zns_unit_small(uint64_t bytes, bool scattered)
{
	uint32_t unit = ZNS_STRIPE_UNIT_MIN, least = scattered ? ZNS_UNIT_LEAST : KIB(16);

	while (unit > least && unit > bytes / (scattered ? 128 : 16))
		unit /= 2;
	return unit;
}
#define ZNS_STRIPE_UNIT_MAX MIB(4)
/*
 * Each piece of an image of pages has a checksum, so that a page fault reads one page and not a
 * whole unit. The writer makes pieces of 4 KiB. A manifest has at most ZNS_SUMS_MAX of these
 * checksums (64 GiB of pages), since a reader holds all of it in memory.
 */
#define ZNS_PIECE KIB(4)
#define ZNS_PIECE_MAX KIB(256)
#define ZNS_PIECE_V1 KIB(64) /* of a manifest of version 1, and a unit of a memory context */
#define ZNS_SUM_BYTES 4
#define ZNS_SUMS_MAX (1u << 24)
#define ZNS_STRIPE_UNIT_DEFAULT KIB(512) /* the largest default; see zns_stripe_unit */

/*
 * The order in which one turn visits the extents: @turn gets sum(weights) extent indices.
 * Deterministic: part of the format. Returns the number of slots, 0 if @nr or a weight is out of
 * range.
 */
uint32_t zns_turn_build(const uint32_t *weights, uint32_t nr, uint16_t *turn, uint32_t turn_max);

/*
 * The unit for a device when nobody asks for one: 512 KiB, but no more than one transfer or a
 * sixteenth of a zone (half of one on an ordinary disk). Larger units cost little less CPU on dump,
 * and fall out of the processor's caches on restore (test/bench/compare.py). In small zones small
 * checkpoints must still spread, and little may be lost at a zone's end.
 */
uint32_t zns_stripe_unit(const struct zns_geometry *geo);

struct zns_place {
	uint32_t extent; /* index into the segment's extents */
	uint32_t zone;
	uint64_t off; /* offset in the zone, bytes */
};

/* A segment prepared for look-ups; the caller provides the memory; free with zns_seg_fini. */
struct zns_seg {
	uint64_t off, len; /* in the image, in bytes; off is a multiple of unit */
	uint32_t unit; /* bytes */
	uint32_t nr; /* extents */
	uint32_t slots; /* number of slots of one turn */
	uint16_t *turn; /* slot → extent */
	uint16_t *rank; /* slot → how many earlier slots of the turn went to the same extent */
	uint32_t *zone;
	uint64_t *start;
	uint32_t *weight;
};

int zns_seg_init(struct zns_seg *s, const ZnsPb__Segment *pb, uint32_t unit, struct zns_err *err);
void zns_seg_fini(struct zns_seg *s);

/* Finds the place of unit @k of the segment (k counts from the segment's start). */
void zns_seg_place(const struct zns_seg *s, uint64_t k, struct zns_place *out);

/* The checksum of a unit of @i, as ZnsPb__Image.csums has it. */
uint64_t zns_unit_csum(const ZnsPb__Image *i, const void *unit, size_t len);
/* The same where a piece has @piece bytes (ZNS_PIECE to ZNS_PIECE_MAX). Fills @sums, unless it is
 * NULL, with the pieces' checksums as ZnsPb__Image.piece_sums has them. @len: to
 * ZNS_STRIPE_UNIT_MAX. */
uint64_t zns_pieces_csum(const void *unit, size_t len, uint32_t piece, uint8_t *sums);
/* A piece's checksum, as ZnsPb__Image.piece_sums has it. */
void zns_piece_sum(const void *piece, size_t len, uint8_t sum[ZNS_SUM_BYTES]);

/* How many of the segment's first @units units lie in extent @e. */
uint64_t zns_seg_units_of(const struct zns_seg *s, uint32_t e, uint64_t units);

/* The most units a segment with these weights can take when extent e has room for room_units[e]. */
uint64_t zns_turn_capacity(const uint32_t *weights, const uint64_t *room_units, uint32_t nr);

#endif
