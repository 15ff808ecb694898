/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_LAYOUT_H
#define ZNS_LAYOUT_H
/*
 * Layout arithmetic (design.md §3): an image is a list of segments; within a segment the place of
 * an offset is computed. The units of a segment are distributed over its extents in turns. In each
 * turn extent e takes as many units as its weight says, spread over the turn as evenly as whole
 * units allow, in the same order in every turn.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/dev.h"
#include "zns/err.h"
#include "zns/util.h"
#include "zns-record.pb-c.h"

#define ZNS_STRIPE_MAX_WIDTH 256 /* most extents of one segment */
#define ZNS_STRIPE_MAX_WEIGHT 16
#define ZNS_STRIPE_UNIT_MIN KIB(64) /* limits of the unit that a user can ask for (design.md §4) */
/* The smallest unit that is chosen automatically: a small checkpoint on a disk has small units, so
 * that they fit into places that removed checkpoints left. */
#define ZNS_UNIT_LEAST KIB(8)
/*
 * The unit for a small checkpoint of about @bytes on a disk. @scattered: it is written to the
 * places of several removed checkpoints. At the end of each place a rest shorter than a unit is
 * lost, so the unit is then only a 128th of the checkpoint (devices.md).
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
 * An image of pages has a checksum for each piece of a unit, so that a page fault can read and
 * verify one page instead of a whole unit. The writer makes pieces of 4 KiB. A manifest has at most
 * ZNS_SUMS_MAX of these checksums (64 GiB of pages), since a reader holds all of them in memory.
 */
#define ZNS_PIECE KIB(4)
#define ZNS_PIECE_MAX KIB(256)
/* size of a piece in a manifest of version 1, and of a unit of a memory context */
#define ZNS_PIECE_V1 KIB(64)
#define ZNS_SUM_BYTES 4
#define ZNS_SUMS_MAX (1u << 24)
/* the largest unit that is chosen by default; see zns_stripe_unit */
#define ZNS_STRIPE_UNIT_DEFAULT KIB(512)

/*
 * Computes the order in which one turn visits the extents: @turn gets sum(weights) extent indices.
 * The result is deterministic, because it is a part of the format. Returns the number of slots; 0:
 * @nr or a weight is out of range.
 */
uint32_t zns_turn_build(const uint32_t *weights, uint32_t nr, uint16_t *turn, uint32_t turn_max);

/*
 * The unit for a device if nobody asks for another one: 512 KiB, but no more than one transfer or a
 * sixteenth of a zone (half of a zone on an ordinary disk). Larger units save hardly any CPU time
 * on dump, and do not fit into the processor's caches on restore (test/bench/compare.py). In small
 * zones the unit is smaller, so that small checkpoints still spread over several zones and little
 * is lost at a zone's end.
 */
uint32_t zns_stripe_unit(const struct zns_geometry *geo);

struct zns_place {
	uint32_t extent; /* index into the segment's extents */
	uint32_t zone;
	uint64_t off; /* offset in the zone in bytes */
};

/* A segment prepared for look-ups. The caller provides the memory and frees it with
 * zns_seg_fini. */
struct zns_seg {
	uint64_t off, len; /* range of the image in bytes; off is a multiple of unit */
	uint32_t unit; /* stripe unit in bytes */
	uint32_t nr; /* number of extents */
	/* number of units in one turn, which repeats along the segment: the sum of the weights */
	uint32_t slots;
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

/* Computes the checksum of a unit of @i as stored in ZnsPb__Image.csums. */
uint64_t zns_unit_csum(const ZnsPb__Image *i, const void *unit, size_t len);
/* Like zns_unit_csum, for pieces of @piece bytes (ZNS_PIECE to ZNS_PIECE_MAX). Fills @sums, unless
 * NULL, with the pieces' checksums as stored in ZnsPb__Image.piece_sums. @len: at most
 * ZNS_STRIPE_UNIT_MAX. */
uint64_t zns_pieces_csum(const void *unit, size_t len, uint32_t piece, uint8_t *sums);
/* Computes a piece's checksum as stored in ZnsPb__Image.piece_sums. */
void zns_piece_sum(const void *piece, size_t len, uint8_t sum[ZNS_SUM_BYTES]);

/* How many of the first @units units of the segment are in extent @e. */
uint64_t zns_seg_units_of(const struct zns_seg *s, uint32_t e, uint64_t units);

/* How many units a segment with these weights can take if extent e has room for room_units[e]. */
uint64_t zns_turn_capacity(const uint32_t *weights, const uint64_t *room_units, uint32_t nr);

#endif
