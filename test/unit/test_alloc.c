/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of zns/alloc.h: which groups a dump gets. More dumps than groups:
 * test_alloc_share.c. */
#include "alloc_fixture.h"

static void width_is_the_ceiling(void **state)
{
	assert_int_equal(zns_alloc_width(500, 100), 5);
	assert_int_equal(zns_alloc_width(501, 100), 6);
	assert_int_equal(zns_alloc_width(1, 100), 1);
	assert_int_equal(zns_alloc_width(0, 100), 1);
	assert_int_equal(zns_alloc_width(100, 0), 1);
	assert_int_equal(zns_alloc_width(UINT32_MAX, 1), UINT32_MAX);
	assert_int_equal(zns_alloc_width(UINT32_MAX, UINT32_MAX), 1);
}

static void distinct_channels_first(void **state)
{
	struct zns_group_state g[DIES];
	uint32_t out[DIES], i, j, n;

	table(g, DIES);
	n = zns_alloc_pick(g, DIES, 5, out);
	assert_int_equal(n, 5);
	for (i = 0; i < n; i++)
		for (j = 0; j < i; j++)
			assert_int_not_equal(g[out[i]].channel, g[out[j]].channel);
	/* 16 of 8 channels: two on each */
	n = zns_alloc_pick(g, DIES, 16, out);
	assert_int_equal(n, 16);
	for (i = 0; i < CHANNELS; i++) {
		uint32_t hits = 0;

		for (j = 0; j < n; j++)
			hits += g[out[j]].channel == (int32_t)i;
		assert_int_equal(hits, 2);
	}
}

static void order_of_preference(void **state)
{
	struct zns_group_state g[4];
	uint32_t out[4];

	table(g, 4);
	/* a reservation counts more than everything else */
	g[0].nr_reservations = 1;
	g[1].nr_leases = 3;
	g[2].metadata = true;
	assert_int_equal(zns_alloc_pick(g, 4, 4, out), 4);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 2);
	assert_int_equal(out[2], 1);
	assert_int_equal(out[3], 0);

	/* a lease counts more than a shared channel, and that more than metadata */
	table(g, 4);
	g[0].channel = g[1].channel = g[2].channel = 0;
	g[3].channel = 1;
	g[3].nr_leases = 1;
	assert_int_equal(zns_alloc_pick(g, 4, 2, out), 2);
	assert_int_equal(out[0], 0);
	assert_int_equal(out[1], 1);
	table(g, 3);
	g[0].channel = g[1].channel = 0;
	g[2].metadata = true;
	assert_int_equal(zns_alloc_pick(g, 3, 2, out), 2);
	assert_int_equal(out[0], 0);
	assert_int_equal(out[1], 2);

	/* an unknown channel collides with none */
	table(g, 3);
	g[0].channel = g[1].channel = g[2].channel = -1;
	assert_int_equal(zns_alloc_pick(g, 3, 3, out), 3);
	assert_int_equal(out[0], 0);
	assert_int_equal(out[2], 2);
}

static void passed_over(void **state)
{
	struct zns_group_state g[4];
	uint32_t out[4];

	table(g, 4);
	g[0].free_zones = 0;
	g[1].reserved_io = true;
	assert_int_equal(zns_alloc_pick(g, 4, 4, out), 2);
	assert_int_equal(out[0], 2);
	assert_int_equal(out[1], 3);
	assert_int_equal(zns_alloc_pick(g, 4, 0, out), 0);
	assert_int_equal(zns_alloc_pick(g, 0, 4, out), 0);
}

static void no_group_twice_and_deterministic(void **state)
{
	struct zns_group_state g[DIES];
	uint32_t a[DIES], b[DIES], i, j, round;

	for (round = 0; round < 200; round++) {
		table(g, DIES);
		for (i = 0; i < DIES; i++) {
			g[i].nr_reservations = (round * 7 + i * 13) % 4;
			g[i].nr_leases = (round + i) % 3;
			g[i].free_zones = (round + i * 5) % 6;
			g[i].metadata = i < 3;
		}
		uint32_t n = zns_alloc_pick(g, DIES, 1 + round % DIES, a);

		assert_int_equal(n, zns_alloc_pick(g, DIES, 1 + round % DIES, b));
		assert_memory_equal(a, b, n * sizeof(*a));
		for (i = 0; i < n; i++) {
			assert_true(a[i] < DIES && g[a[i]].free_zones);
			if (i)
				assert_true(g[a[i]].nr_reservations >= g[a[i - 1]].nr_reservations);
			for (j = 0; j < i; j++)
				assert_int_not_equal(a[i], a[j]);
		}
	}
}

static void weights_follow_shares(void **state)
{
	struct zns_group_state g[4];
	uint32_t picked[4] = { 0, 1, 2, 3 }, w[4], i;

	table(g, 4);
	zns_alloc_weights(g, picked, 4, w);
	for (i = 0; i < 4; i++)
		assert_int_equal(w[i], 1);

	g[1].nr_reservations = 1;
	zns_alloc_weights(g, picked, 2, w);
	assert_int_equal(w[0], 2);
	assert_int_equal(w[1], 1);

	g[2].nr_reservations = 2;
	zns_alloc_weights(g, picked, 3, w);
	assert_int_equal(w[0], 6);
	assert_int_equal(w[1], 3);
	assert_int_equal(w[2], 2);

	/* all are shared equally: small numbers first, as at the beginning */
	for (i = 0; i < 4; i++)
		g[i].nr_reservations = 4;
	zns_alloc_weights(g, picked, 4, w);
	for (i = 0; i < 4; i++)
		assert_int_equal(w[i], 1);

	/* 2/3 of the share */
	g[0].nr_reservations = 1;
	g[1].nr_reservations = 2;
	zns_alloc_weights(g, picked, 2, w);
	assert_int_equal(w[0], 3);
	assert_int_equal(w[1], 2);

	/* a third of the rate, alone and shared */
	g[0].nr_reservations = g[1].nr_reservations = 0;
	g[1].worth = 1.0 / 3;
	zns_alloc_weights(g, picked, 2, w);
	assert_int_equal(w[0], 3);
	assert_int_equal(w[1], 1);
	g[0].nr_reservations = 1;
	zns_alloc_weights(g, picked, 2, w);
	assert_int_equal(w[0], 3);
	assert_int_equal(w[1], 2);
	/* it comes after all groups that are equally free */
	table(g, 4);
	g[1].worth = 1.0 / 3;
	g[3].nr_reservations = 1;
	assert_int_equal(zns_alloc_pick(g, 4, 4, picked), 4);
	assert_int_equal(picked[2], 1);
	assert_int_equal(picked[3], 3);

	/* beyond the range: clipped, never 0 */
	table(g, 4);
	for (i = 0; i < 4; i++)
		picked[i] = i;
	g[1].nr_reservations = UINT32_MAX;
	g[2].nr_reservations = 1;
	zns_alloc_weights(g, picked, 3, w);
	for (i = 0; i < 3; i++)
		assert_true(w[i] >= 1 && w[i] <= 16);
	assert_true(w[0] > w[1]);
	zns_alloc_weights(g, picked, 0, w);
}

static void neighbours_count_last(void **state)
{
	struct zns_group_state g[8];
	uint32_t out[8];

	/* 4 channels, 2 ways; channels 0 and 1 have a container each on their first way */
	table(g, 8);
	for (uint32_t i = 0; i < 8; i++)
		g[i].channel = i % 4;
	g[0].nr_reservations = g[1].nr_reservations = 1;
	assert_int_equal(zns_alloc_pick(g, 8, 4, out), 4);
	assert_int_equal(out[0], 2);
	assert_int_equal(out[1], 3);
	assert_int_equal(out[2], 4);
	assert_int_equal(out[3], 5);
	g[6].metadata = true;
	g[2].promised = true;
	assert_int_equal(zns_alloc_pick(g, 8, 8, out), 7);
	for (uint32_t i = 0; i < 7; i++)
		assert_int_not_equal(out[i], 2);
}

static void apart(void **state)
{
	struct zns_group_state g[8];
	uint32_t order[8], out[8], n, meta, found, i;

	table(g, 8);
	for (i = 0; i < 8; i++)
		g[i].channel = i % 4;
	found = zns_alloc_pick(g, 8, 8, order);
	assert_int_equal(zns_alloc_apart(g, order, found, 6, out, &n, &meta), ZNS_APART_CHANNEL);
	assert_int_equal(n, 6);
	for (i = 0; i < n; i++)
		assert_int_not_equal(g[out[i]].channel, g[meta].channel);
	/* Seven groups for pages leave no channel for the rest; no group is given up for one. */
	assert_int_equal(zns_alloc_apart(g, order, found, 7, out, &n, &meta), ZNS_APART_DIE);
	assert_int_equal(n, 7);
	for (i = 0; i < n; i++)
		assert_int_not_equal(out[i], meta);
	/* Eight groups are asked for: all but one are used, which is left for the metadata. */
	assert_int_equal(zns_alloc_apart(g, order, found, 8, out, &n, &meta), ZNS_APART_DIE);
	assert_int_equal(n, 7);

	/* A separate channel that others have reserved is not worth it; a die of the own channel
	 * is. */
	for (i = 0; i < 8; i++)
		g[i].nr_reservations = g[i].channel > 0;
	found = zns_alloc_pick(g, 8, 8, order);
	assert_int_equal(zns_alloc_apart(g, order, found, 1, out, &n, &meta), ZNS_APART_DIE);
	assert_int_equal(g[out[0]].channel, 0);
	assert_int_equal(g[meta].channel, 0);

	/* Unknown channels: dies apart. */
	for (i = 0; i < 8; i++) {
		g[i].channel = -1;
		g[i].nr_reservations = 0;
	}
	found = zns_alloc_pick(g, 8, 8, order);
	assert_int_equal(zns_alloc_apart(g, order, found, 3, out, &n, &meta), ZNS_APART_DIE);
	assert_int_equal(n, 3);
	/* One group, or none */
	assert_int_equal(zns_alloc_apart(g, order, 1, 3, out, &n, &meta), ZNS_APART_NONE);
	assert_int_equal(n, 1);
	assert_int_equal(out[0], order[0]);
	assert_int_equal(zns_alloc_apart(g, order, 0, 3, out, &n, &meta), ZNS_APART_NONE);
	assert_int_equal(n, 0);
}

static void max_qos(void **state)
{
	assert_int_equal(zns_alloc_max_qos(32, 0, 0, 100), 3200);
	assert_int_equal(zns_alloc_max_qos(32, 0, 31, 100), 3100);
	assert_int_equal(zns_alloc_max_qos(32, 14, 31, 100), 1400);
	assert_int_equal(zns_alloc_max_qos(1, 14, 14, 2600), 2600);
	assert_int_equal(zns_alloc_max_qos(UINT32_MAX, 0, 0, 100), UINT32_MAX);
}

static void away_from_normal_io(void **state)
{
	struct zns_group_state g[DIES];
	uint32_t out[DIES], n;

	/* groups of four channels are reserved for normal I/O: the other channels come first,
	 * however crowded they are */
	table(g, DIES);
	for (uint32_t i = 0; i < 4; i++)
		g[i].reserved_io = true;
	n = zns_alloc_pick(g, DIES, DIES, out);
	assert_int_equal(n, DIES - 4);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(g[out[i]].channel >= 4, i < 16);
	/* but a free group there is better than a shared one elsewhere */
	for (uint32_t i = 4; i < DIES; i++)
		g[i].nr_reservations = g[i].channel >= 4;
	n = zns_alloc_pick(g, DIES, 5, out);
	for (uint32_t i = 0; i < n; i++)
		assert_true(g[out[i]].channel < 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(width_is_the_ceiling),
		cmocka_unit_test(distinct_channels_first),
		cmocka_unit_test(order_of_preference),
		cmocka_unit_test(passed_over),
		cmocka_unit_test(no_group_twice_and_deterministic),
		cmocka_unit_test(weights_follow_shares),
		cmocka_unit_test(max_qos),
		cmocka_unit_test(neighbours_count_last),
		cmocka_unit_test(apart),
		cmocka_unit_test(away_from_normal_io),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
