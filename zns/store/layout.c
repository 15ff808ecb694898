/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Layout arithmetic: computes the place of each unit of a segment (zns/layout.h,
 * Documentation/inside/format.md "Segments"). */
#include <endian.h>
#include <string.h>
#include "zns/layout.h"
#include "zns/util.h"

/*
 * Smooth weighted round-robin. For each slot every extent's account grows by its weight. The extent
 * with the highest account (on a tie, the one with the lowest index) takes the slot and pays the
 * sum of all weights. So the units of an extent with a large weight are spread over the turn.
 */
uint32_t zns_turn_build(const uint32_t *weights, uint32_t nr, uint16_t *turn, uint32_t turn_max)
{
	int32_t credit[ZNS_STRIPE_MAX_WIDTH] = { 0 };
	uint32_t total = 0;

	if (!nr || nr > ZNS_STRIPE_MAX_WIDTH)
		return 0;
	for (uint32_t i = 0; i < nr; i++) {
		if (!weights[i] || weights[i] > ZNS_STRIPE_MAX_WEIGHT)
			return 0;
		total += weights[i];
	}
	if (total > turn_max)
		return 0;
	for (uint32_t slot = 0; slot < total; slot++) {
		uint32_t best = 0;

		for (uint32_t i = 0; i < nr; i++) {
			credit[i] += (int32_t)weights[i];
			if (credit[i] > credit[best])
				best = i;
		}
		credit[best] -= (int32_t)total;
		turn[slot] = (uint16_t)best;
	}
	return total;
}

uint32_t zns_stripe_unit(const struct zns_geometry *geo)
{
	/* a zone of a disk is small and holds only a part of a segment, so the unit may be half of
	 * it */
	uint64_t part = zns_geo_is_disk(geo) ? 2 : 16;
	uint64_t unit = zns_min((uint64_t)ZNS_STRIPE_UNIT_DEFAULT, geo->zone_capacity / part);

	if (geo->max_io_bytes)
		unit = zns_min(unit, (uint64_t)geo->max_io_bytes);
	return (uint32_t)zns_max(zns_align_down(unit, ZNS_STRIPE_UNIT_MIN), ZNS_STRIPE_UNIT_MIN);
}

int zns_seg_init(struct zns_seg *s, const ZnsPb__Segment *pb, uint32_t unit, struct zns_err *err)
{
	uint32_t nr = (uint32_t)pb->n_extents, slots = 0;
	uint16_t seen[ZNS_STRIPE_MAX_WIDTH] = { 0 };

	memset(s, 0, sizeof(*s));
	if (!nr || pb->n_extents > ZNS_STRIPE_MAX_WIDTH)
		return zns_fail(err, -EBADMSG,
				"a segment has %zu extents, which is no possible number",
				pb->n_extents);
	/* first check the sum of the weights, since a reader keeps a table of that size for each
	 * segment */
	for (uint32_t i = 0; i < nr; i++) {
		if (!pb->extents[i]->weight || pb->extents[i]->weight > ZNS_STRIPE_MAX_WEIGHT)
			return zns_fail(err, -EBADMSG,
					"a segment has a weight that is out of range");
		slots += pb->extents[i]->weight;
	}
	s->off = pb->off;
	s->len = pb->len;
	s->unit = unit;
	s->nr = nr;
	s->turn = calloc(slots, sizeof(*s->turn));
	s->rank = calloc(slots, sizeof(*s->rank));
	s->zone = calloc(nr, sizeof(*s->zone));
	s->start = calloc(nr, sizeof(*s->start));
	s->weight = calloc(nr, sizeof(*s->weight));
	if (!s->turn || !s->rank || !s->zone || !s->start || !s->weight) {
		zns_seg_fini(s);
		return zns_fail(err, -ENOMEM, "no memory for a segment of %u extents", nr);
	}
	for (uint32_t i = 0; i < nr; i++) {
		s->zone[i] = pb->extents[i]->zone;
		s->start[i] = pb->extents[i]->start;
		s->weight[i] = pb->extents[i]->weight;
	}
	s->slots = zns_turn_build(s->weight, nr, s->turn, slots);
	for (uint32_t i = 0; i < s->slots; i++)
		s->rank[i] = seen[s->turn[i]]++;
	return 0;
}

void zns_seg_fini(struct zns_seg *s)
{
	free(s->turn);
	free(s->rank);
	free(s->zone);
	free(s->start);
	free(s->weight);
	memset(s, 0, sizeof(*s));
}

void zns_seg_place(const struct zns_seg *s, uint64_t k, struct zns_place *out)
{
	uint64_t turn = k / s->slots;
	uint32_t slot = (uint32_t)(k % s->slots), e = s->turn[slot];

	out->extent = e;
	out->zone = s->zone[e];
	out->off = s->start[e] + (turn * s->weight[e] + s->rank[slot]) * s->unit;
}

uint64_t zns_seg_units_of(const struct zns_seg *s, uint32_t e, uint64_t units)
{
	uint64_t n = units / s->slots * s->weight[e];

	for (uint32_t slot = 0; slot < units % s->slots; slot++)
		n += s->turn[slot] == e;
	return n;
}

uint64_t zns_turn_capacity(const uint32_t *weights, const uint64_t *room_units, uint32_t nr)
{
	uint16_t turn[ZNS_STRIPE_MAX_WIDTH * ZNS_STRIPE_MAX_WEIGHT];
	uint64_t used[ZNS_STRIPE_MAX_WIDTH], turns = UINT64_MAX, units;
	uint32_t slots = zns_turn_build(weights, nr, turn, ZNS_ARRAY_SIZE(turn));

	if (!slots)
		return 0;
	for (uint32_t i = 0; i < nr; i++)
		turns = zns_min(turns, room_units[i] / weights[i]);
	for (uint32_t i = 0; i < nr; i++)
		used[i] = turns * weights[i];
	units = turns * slots;
	/* The last turn is incomplete: it ends at the first extent that has no room left. */
	for (uint32_t slot = 0; used[turn[slot]] < room_units[turn[slot]];
	     slot = (slot + 1) % slots) {
		used[turn[slot]]++;
		units++;
	}
	return units;
}

/* ---- checksums ---- */

static uint64_t put_sum(const void *piece, size_t len, uint8_t *sum)
{
	uint64_t hash = zns_hash(piece, len);
	uint32_t low = htole32((uint32_t)hash);

	if (sum)
		memcpy(sum, &low, sizeof(low));
	return htole64(hash);
}

void zns_piece_sum(const void *piece, size_t len, uint8_t sum[ZNS_SUM_BYTES])
{
	put_sum(piece, len, sum);
}

uint64_t zns_pieces_csum(const void *unit, size_t len, uint32_t piece, uint8_t *sums)
{
	uint64_t hash[ZNS_STRIPE_UNIT_MAX / ZNS_PIECE];
	size_t nr = 0;

	for (size_t at = 0; at < len; at += piece, nr++)
		hash[nr] = put_sum((const char *)unit + at, zns_min((size_t)piece, len - at),
				   sums ? sums + nr * ZNS_SUM_BYTES : NULL);
	return zns_hash(hash, nr * sizeof(hash[0]));
}

uint64_t zns_unit_csum(const ZnsPb__Image *i, const void *unit, size_t len)
{
	return i->has_piece ? zns_pieces_csum(unit, len, i->piece, NULL) : zns_hash(unit, len);
}
