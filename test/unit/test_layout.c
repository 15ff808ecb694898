/* SPDX-License-Identifier: GPL-2.0-only */
/* Layout arithmetic: turns, places, capacities, against models that walk unit by unit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "zns/layout.h"

#define MAX_SLOTS (ZNS_STRIPE_MAX_WIDTH * ZNS_STRIPE_MAX_WEIGHT)

static uint64_t rng_state = 0x9e3779b97f4a7c15ull;

static uint32_t rnd(uint32_t below)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (uint32_t)((rng_state >> 20) % below);
}

/* --- turns --- */

/* The order is part of the format: these were computed by another program. */
static void turn_golden(void **state)
{
	static const struct {
		uint32_t nr, weights[4];
		const char *turn;
	} v[] = {
		{ 1, { 1 }, "0" },
		{ 1, { 3 }, "000" },
		{ 3, { 1, 1, 1 }, "012" },
		{ 2, { 2, 1 }, "010" },
		{ 3, { 5, 1, 1 }, "0010200" },
		{ 3, { 1, 2, 3 }, "210212" },
		{ 2, { 16, 1 }, "00000000100000000" },
		{ 3, { 3, 3, 2 }, "01201201" },
		{ 4, { 4, 2, 1, 1 }, "01023010" },
		{ 2, { 7, 16 }, "10110111011011011101101" },
	};
	uint16_t turn[64];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++) {
		uint32_t n = zns_turn_build(v[i].weights, v[i].nr, turn, ZNS_ARRAY_SIZE(turn));

		assert_int_equal(n, strlen(v[i].turn));
		for (uint32_t s = 0; s < n; s++)
			assert_int_equal(turn[s], v[i].turn[s] - '0');
	}
}

static uint32_t digest(const uint16_t *turn, uint32_t n)
{
	uint32_t h = 0;

	for (uint32_t i = 0; i < n; i++)
		h = h * 31 + turn[i] + 1;
	return h;
}

static void turn_golden_wide(void **state)
{
	uint32_t weights[ZNS_STRIPE_MAX_WIDTH];
	uint16_t turn[MAX_SLOTS];

	for (uint32_t i = 0; i < ZNS_STRIPE_MAX_WIDTH; i++)
		weights[i] = i * 7 % 16 + 1;
	assert_int_equal(zns_turn_build(weights, ZNS_STRIPE_MAX_WIDTH, turn, MAX_SLOTS), 2176);
	assert_int_equal(digest(turn, 2176), 0x8756d600u);
	for (uint32_t i = 0; i < ZNS_STRIPE_MAX_WIDTH; i++)
		weights[i] = 16;
	assert_int_equal(zns_turn_build(weights, ZNS_STRIPE_MAX_WIDTH, turn, MAX_SLOTS), MAX_SLOTS);
	assert_int_equal(digest(turn, MAX_SLOTS), 0xde910800u);
}

static void turn_range(void **state)
{
	uint32_t weights[ZNS_STRIPE_MAX_WIDTH + 1];
	uint16_t turn[MAX_SLOTS];

	for (uint32_t i = 0; i <= ZNS_STRIPE_MAX_WIDTH; i++)
		weights[i] = 1;
	assert_int_equal(zns_turn_build(weights, 0, turn, MAX_SLOTS), 0);
	assert_int_equal(zns_turn_build(weights, ZNS_STRIPE_MAX_WIDTH + 1, turn, MAX_SLOTS), 0);
	assert_int_equal(zns_turn_build(weights, ZNS_STRIPE_MAX_WIDTH, turn, MAX_SLOTS),
			 ZNS_STRIPE_MAX_WIDTH);
	assert_int_equal(zns_turn_build(weights, 5, turn, 5), 5);
	assert_int_equal(zns_turn_build(weights, 5, turn, 4), 0);
	weights[3] = 0;
	assert_int_equal(zns_turn_build(weights, 5, turn, MAX_SLOTS), 0);
	assert_int_equal(zns_turn_build(weights, 3, turn, MAX_SLOTS), 3);
	weights[3] = ZNS_STRIPE_MAX_WEIGHT + 1;
	assert_int_equal(zns_turn_build(weights, 5, turn, MAX_SLOTS), 0);
	weights[3] = UINT32_MAX;
	assert_int_equal(zns_turn_build(weights, 5, turn, MAX_SLOTS), 0);
	weights[3] = ZNS_STRIPE_MAX_WEIGHT;
	assert_int_equal(zns_turn_build(weights, 5, turn, MAX_SLOTS), 20);
}

/*
 * Every extent gets its weight, the same way each time; nowhere in the turn does one run ahead of
 * its share by a unit, or lag behind it by @lag units.
 */
static void check_turn(const uint32_t *weights, uint32_t nr, int32_t lag)
{
	uint16_t turn[MAX_SLOTS], again[MAX_SLOTS];
	int32_t count[ZNS_STRIPE_MAX_WIDTH] = { 0 }, total = 0;
	uint32_t slots = zns_turn_build(weights, nr, turn, MAX_SLOTS);

	for (uint32_t i = 0; i < nr; i++)
		total += (int32_t)weights[i];
	assert_int_equal(slots, total);
	memset(again, 0xff, sizeof(again));
	assert_int_equal(zns_turn_build(weights, nr, again, slots), slots);
	assert_memory_equal(turn, again, slots * sizeof(*turn));
	assert_true(slots == MAX_SLOTS || again[slots] == 0xffff);
	for (int32_t s = 0; s < total; s++) {
		assert_true(turn[s] < nr);
		count[turn[s]]++;
		for (uint32_t i = 0; i < nr; i++) {
			int32_t behind = (s + 1) * (int32_t)weights[i] - count[i] * total;

			if (behind <= -total || behind >= lag * total)
				fail_msg("extent %u of %u: %d of %d after slot %d", i, nr, behind,
					 total, s);
		}
	}
	for (uint32_t i = 0; i < nr; i++)
		assert_int_equal(count[i], weights[i]);
}

static void turn_all_pairs_and_triples(void **state)
{
	uint32_t w[3];

	for (w[0] = 1; w[0] <= ZNS_STRIPE_MAX_WEIGHT; w[0]++) {
		check_turn(w, 1, 1);
		for (w[1] = 1; w[1] <= ZNS_STRIPE_MAX_WEIGHT; w[1]++) {
			check_turn(w, 2, 1);
			for (w[2] = 1; w[2] <= ZNS_STRIPE_MAX_WEIGHT; w[2]++)
				check_turn(w, 3, 1);
		}
	}
}

static void turn_random(void **state)
{
	uint32_t w[ZNS_STRIPE_MAX_WIDTH];

	for (int round = 0; round < 300; round++) {
		uint32_t nr = 1 + rnd(round % 10 ? 24 : ZNS_STRIPE_MAX_WIDTH);

		for (uint32_t i = 0; i < nr; i++)
			w[i] = round & 1 ? 1 + rnd(ZNS_STRIPE_MAX_WEIGHT) :
			       rnd(2)    ? 1 :
					   ZNS_STRIPE_MAX_WEIGHT;
		check_turn(w, nr, 2);
	}
}

/* What is chosen when nobody asks: within the limits of a writer, one transfer, and no large part
 * of a zone. */
static void default_unit(void **state)
{
	struct zns_geometry geo = { .nr_zones = 100, .block_size = 4096 };
	static const struct {
		uint64_t capacity;
		uint32_t max_io, unit;
	} v[] = {
		{ MIB(1077), 0, KIB(512) },
		{ MIB(1077), MIB(4), KIB(512) },
		{ MIB(1077), KIB(508), KIB(448) },
		{ MIB(1077), KIB(512), KIB(512) },
		{ MIB(1077), 4096, KIB(64) },
		{ MIB(4), MIB(1), KIB(256) },
		{ MIB(4) - 4096, MIB(1), KIB(192) },
		{ KIB(960), MIB(1), KIB(64) },
		{ 4096, 0, KIB(64) },
		{ GIB(300), UINT32_MAX, KIB(512) },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(v); i++) {
		geo.zone_capacity = v[i].capacity;
		geo.max_io_bytes = v[i].max_io;
		assert_int_equal(zns_stripe_unit(&geo), v[i].unit);
	}
}

/* --- places --- */

struct pbseg {
	ZnsPb__Segment s;
	ZnsPb__Extent e[ZNS_STRIPE_MAX_WIDTH + 1], *ep[ZNS_STRIPE_MAX_WIDTH + 1];
};

static void pb_init(struct pbseg *p, uint32_t nr)
{
	zns_pb__segment__init(&p->s);
	p->s.extents = p->ep;
	p->s.n_extents = nr;
	for (uint32_t i = 0; i < nr; i++) {
		p->ep[i] = &p->e[i];
		zns_pb__extent__init(&p->e[i]);
		p->e[i].zone = 1000 + i * 3;
		p->e[i].start = rnd(1000) * 4096ull;
	}
}

static void place_against_model(void **state)
{
	static const uint32_t units[] = { KIB(64), KIB(256), KIB(508) / 4096 * 4096, MIB(1),
					  MIB(4) };
	struct pbseg p;

	for (int round = 0; round < 400; round++) {
		uint32_t nr = 1 + rnd(round % 20 ? 12 : ZNS_STRIPE_MAX_WIDTH),
			 unit = units[rnd(ZNS_ARRAY_SIZE(units))];
		uint64_t taken[ZNS_STRIPE_MAX_WIDTH] = { 0 };
		uint16_t turn[MAX_SLOTS];
		uint32_t weights[ZNS_STRIPE_MAX_WIDTH], slots, upto = 100 + rnd(400);
		struct zns_err err = ZNS_ERR_INIT;
		struct zns_place at;
		struct zns_seg s;

		pb_init(&p, nr);
		p.s.off = (uint64_t)rnd(100) * unit;
		p.s.len = (uint64_t)upto * unit - rnd(unit);
		for (uint32_t i = 0; i < nr; i++)
			p.e[i].weight = weights[i] = rnd(3) ? 1 : 1 + rnd(ZNS_STRIPE_MAX_WEIGHT);
		assert_int_equal(zns_seg_init(&s, &p.s, unit, &err), 0);
		slots = zns_turn_build(weights, nr, turn, MAX_SLOTS);
		assert_int_equal(s.slots, slots);
		assert_true(s.off == p.s.off && s.len == p.s.len);
		assert_true(s.unit == unit && s.nr == nr);
		for (uint32_t k = 0; k < upto; k++) {
			uint32_t e = turn[k % slots];

			zns_seg_place(&s, k, &at);
			assert_int_equal(at.extent, e);
			assert_int_equal(at.zone, 1000 + e * 3);
			assert_true(at.off == p.e[e].start + taken[e] * unit);
			assert_true(zns_seg_units_of(&s, e, k) == taken[e]);
			taken[e]++;
			assert_true(zns_seg_units_of(&s, e, k + 1) == taken[e]);
		}
		for (uint32_t e = 0; e < nr; e++)
			assert_true(zns_seg_units_of(&s, e, upto) == taken[e]);
		zns_seg_fini(&s);
		zns_seg_fini(&s);
	}
}

/* Far along, past 32 bits: a whole number of turns more moves every extent by its weight in each.
 */
static void place_far(void **state)
{
	uint64_t turns = 1ull << 33;
	struct zns_place a, b;
	struct pbseg p;
	struct zns_seg s;

	pb_init(&p, 3);
	p.e[0].weight = 16;
	p.e[1].weight = 3;
	p.e[2].has_weight = 0; /* absent: 1 */
	assert_int_equal(zns_seg_init(&s, &p.s, MIB(4), NULL), 0);
	assert_int_equal(s.slots, 20);
	for (uint64_t k = 0; k < 20; k++) {
		zns_seg_place(&s, k, &a);
		zns_seg_place(&s, k + turns * 20, &b);
		assert_int_equal(a.extent, b.extent);
		assert_true(b.off - a.off == turns * s.weight[a.extent] * MIB(4));
		assert_true(zns_seg_units_of(&s, a.extent, turns * 20) ==
			    turns * s.weight[a.extent]);
	}
	zns_seg_fini(&s);
}

static void seg_refuses(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct pbseg p;
	struct zns_seg s;

	pb_init(&p, 0);
	assert_int_equal(zns_seg_init(&s, &p.s, KIB(64), &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "0 extents"));
	zns_seg_fini(&s); /* may be called after a failure, too */
	pb_init(&p, ZNS_STRIPE_MAX_WIDTH + 1);
	assert_int_equal(zns_seg_init(&s, &p.s, KIB(64), &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "257 extents"));
	zns_seg_fini(&s);
	pb_init(&p, 4);
	p.e[2].weight = 0;
	assert_int_equal(zns_seg_init(&s, &p.s, KIB(64), &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "weight"));
	zns_seg_fini(&s);
	p.e[2].weight = ZNS_STRIPE_MAX_WEIGHT + 1;
	assert_int_equal(zns_seg_init(&s, &p.s, KIB(64), &err), -EBADMSG);
	p.e[2].weight = UINT32_MAX;
	assert_int_equal(zns_seg_init(&s, &p.s, KIB(64), NULL), -EBADMSG);
	pb_init(&p, ZNS_STRIPE_MAX_WIDTH);
	for (uint32_t i = 0; i < ZNS_STRIPE_MAX_WIDTH; i++)
		p.e[i].weight = ZNS_STRIPE_MAX_WEIGHT;
	assert_int_equal(zns_seg_init(&s, &p.s, KIB(64), &err), 0);
	assert_int_equal(s.slots, MAX_SLOTS);
	zns_seg_fini(&s);
}

/* --- capacity --- */

static uint64_t capacity_model(const uint32_t *weights, const uint64_t *room, uint32_t nr)
{
	uint64_t left[ZNS_STRIPE_MAX_WIDTH], units = 0;
	uint16_t turn[MAX_SLOTS];
	uint32_t slots = zns_turn_build(weights, nr, turn, MAX_SLOTS);

	memcpy(left, room, nr * sizeof(*left));
	for (uint32_t s = 0; left[turn[s]]; s = (s + 1) % slots) {
		left[turn[s]]--;
		units++;
	}
	return units;
}

static void capacity_against_model(void **state)
{
	uint64_t room[ZNS_STRIPE_MAX_WIDTH];
	uint32_t w[ZNS_STRIPE_MAX_WIDTH];

	for (int round = 0; round < 20000; round++) {
		uint32_t nr = 1 + rnd(round % 100 ? 6 : 64), most = 1 + rnd(round % 3 ? 20 : 300);

		for (uint32_t i = 0; i < nr; i++) {
			w[i] = 1 + rnd(round & 1 ? ZNS_STRIPE_MAX_WEIGHT : 2);
			room[i] = rnd(most);
		}
		assert_true(zns_turn_capacity(w, room, nr) == capacity_model(w, room, nr));
	}
}

static void capacity_edges(void **state)
{
	uint32_t w[2] = { 3, 1 };
	uint64_t room[2] = { 0, 0 };

	assert_true(zns_turn_capacity(w, room, 2) == 0);
	room[1] = 5;
	assert_true(zns_turn_capacity(w, room, 2) == 0); /* the first slot is extent 0's */
	room[0] = 3;
	room[1] = 0;
	assert_true(zns_turn_capacity(w, room, 2) == 2); /* 0 0 1 0 */
	room[0] = 3ull << 40;
	room[1] = 1ull << 40;
	assert_true(zns_turn_capacity(w, room, 2) == 4ull << 40);
	assert_true(zns_turn_capacity(w, room, 1) == 3ull << 40);
	assert_true(zns_turn_capacity(w, room, 0) == 0);
	w[1] = 0;
	assert_true(zns_turn_capacity(w, room, 2) == 0);
}

/* --- checksums --- */

/* A unit's is the hash of its pieces' hashes, of which the image has the lower halves. */
static void checksum_of_pieces(void **state)
{
	static const size_t lens[] = { 1, 4095, 4096, 4097, KIB(64), KIB(512) - 7, KIB(512) };
	static const uint32_t pieces[] = { ZNS_PIECE, KIB(64), ZNS_PIECE_MAX };
	static uint8_t unit[KIB(512)], sums[KIB(512) / ZNS_PIECE * ZNS_SUM_BYTES + 1];
	ZnsPb__Image pb = ZNS_PB__IMAGE__INIT;

	for (size_t i = 0; i < sizeof(unit); i++)
		unit[i] = (uint8_t)rnd(256);
	for (size_t n = 0; n < ZNS_ARRAY_SIZE(lens); n++) {
		pb.has_piece = 0;
		assert_true(zns_unit_csum(&pb, unit, lens[n]) == zns_hash(unit, lens[n]));
		for (size_t p = 0; p < ZNS_ARRAY_SIZE(pieces); p++) {
			uint64_t hash[KIB(512) / ZNS_PIECE];
			size_t nr = 0;

			memset(sums, 0xee, sizeof(sums));
			pb.has_piece = 1;
			pb.piece = pieces[p];
			assert_true(zns_unit_csum(&pb, unit, lens[n]) ==
				    zns_pieces_csum(unit, lens[n], pieces[p], sums));
			for (size_t at = 0; at < lens[n]; at += pieces[p], nr++) {
				size_t len = zns_min((size_t)pieces[p], lens[n] - at);
				uint8_t sum[ZNS_SUM_BYTES];

				hash[nr] = zns_hash(unit + at, len);
				zns_piece_sum(unit + at, len, sum);
				assert_memory_equal(sums + nr * ZNS_SUM_BYTES, sum, sizeof(sum));
				for (size_t b = 0; b < sizeof(sum); b++)
					assert_int_equal(sum[b], (uint8_t)(hash[nr] >> 8 * b));
			}
			assert_int_equal(sums[nr * ZNS_SUM_BYTES], 0xee);
			assert_true(zns_unit_csum(&pb, unit, lens[n]) ==
				    zns_hash(hash, nr * sizeof(hash[0])));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(turn_golden),         cmocka_unit_test(turn_golden_wide),
		cmocka_unit_test(turn_range),          cmocka_unit_test(turn_all_pairs_and_triples),
		cmocka_unit_test(turn_random),         cmocka_unit_test(default_unit),
		cmocka_unit_test(place_against_model), cmocka_unit_test(place_far),
		cmocka_unit_test(seg_refuses),         cmocka_unit_test(capacity_against_model),
		cmocka_unit_test(capacity_edges),      cmocka_unit_test(checksum_of_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
