/* SPDX-License-Identifier: GPL-2.0-only */
/* Rules of zns/alloc.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "zns/alloc.h"
#include "zns/retention.h"

#define CHANNELS 8
#define WAYS 4
#define DIES (CHANNELS * WAYS)

static void table(struct zns_group_state *g, uint32_t nr)
{
	uint32_t i;

	memset(g, 0, nr * sizeof(*g));
	for (i = 0; i < nr; i++) {
		g[i].id = i;
		g[i].channel = i % CHANNELS;
		g[i].free_zones = 2;
	}
}

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
	/* a reservation outweighs everything */
	g[0].nr_reservations = 1;
	g[1].nr_leases = 3;
	g[2].metadata = true;
	assert_int_equal(zns_alloc_pick(g, 4, 4, out), 4);
	assert_int_equal(out[0], 3);
	assert_int_equal(out[1], 2);
	assert_int_equal(out[2], 1);
	assert_int_equal(out[3], 0);

	/* a lease outweighs a shared channel, a shared channel outweighs metadata */
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

	/* all shared alike: small numbers again */
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

	/* beyond the range: clipped, never 0 */
	g[0].nr_reservations = 0;
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
	/* Seven do not leave a channel; no page is given up for it. */
	assert_int_equal(zns_alloc_apart(g, order, found, 7, out, &n, &meta), ZNS_APART_DIE);
	assert_int_equal(n, 7);
	for (i = 0; i < n; i++)
		assert_int_not_equal(out[i], meta);
	/* Eight: one fewer. */
	assert_int_equal(zns_alloc_apart(g, order, found, 8, out, &n, &meta), ZNS_APART_DIE);
	assert_int_equal(n, 7);

	/* A channel apart that others have reserved is not worth it: a die of the own channel is.
	 */
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

/* ---- retention ---- */

/*
 * @spec: a letter for each checkpoint, oldest first: '.', 'p' pinned, 'c' built on the one before
 * it, 'C' that and pinned, 'm' a pre-dump, 'n' one built on the one before it, 'e' something else
 * is built on it; @want: 'x' due. Ages count down to 0 s.
 */
static void rule(const char *spec, uint32_t keep, uint64_t ttl_s, const char *want)
{
	struct zns_retained v[32] = { 0 };
	size_t n = strlen(spec), due = 0;
	char got[33] = "";

	for (size_t i = 0; i < n; i++) {
		v[i].created_ns = 1000000000000ll - (int64_t)(n - 1 - i) * 1000000000;
		v[i].pinned = spec[i] == 'p' || spec[i] == 'C';
		v[i].parent = strchr("cCn", spec[i]) ? i : 0;
		v[i].pre_dump = spec[i] == 'm' || spec[i] == 'n';
		v[i].needed = spec[i] == 'e';
	}
	due = zns_retention(v, n, keep, ttl_s, 1000000000000ll);
	for (size_t i = 0; i < n; i++) {
		got[i] = v[i].due ? 'x' : '.';
		due -= v[i].due;
	}
	assert_string_equal(got, want);
	assert_int_equal(due, 0);
}

static void retention(void **state)
{
	(void)state;
	rule("", 1, 1, "");
	rule(".....", 0, 0, ".....");
	rule(".....", 2, 0, "xxx..");
	rule(".....", 5, 0, ".....");
	rule("p....", 2, 0, ".xx..");
	rule("...pp", 2, 0, "x....");
	rule("ppppp", 1, 1, ".....");
	rule(".....", 0, 3, "xx..."); /* ages 4 3 2 1 0 */
	rule(".....", 4, 3, "xx...");
	rule(".....", 1, 3, "xxxx.");
	/* The newest stays, however old. */
	rule("..ppp", 0, 1, "x....");
	rule(".ppp", 1, 1, "....");
	/* What stays keeps all that it is built on; a chain goes as a whole. */
	rule(".cccc", 1, 0, ".....");
	rule(".ccc.", 1, 0, "xxxx.");
	rule(".cc.c.", 2, 0, "xxx...");
	rule("..Cc..", 1, 0, "x..xx.");
	rule(".c..", 1, 2, "xxx.");
	rule("e...", 1, 0, ".xx.");
	/* No pre-dump is worth the last checkpoint that can be restored. */
	rule("mnc", 1, 0, "...");
	rule("mncmn", 1, 0, ".....");
	rule("mncmnc", 1, 0, "xxx...");
	rule(".m", 1, 1, "..");
	rule("m", 1, 0, ".");
	/* Made in the future, by a clock that was wrong: not older than anything. */
	struct zns_retained v[2] = { { .created_ns = 5 }, { .created_ns = 9 } };

	assert_int_equal(zns_retention(v, 2, 0, 1, 3), 0);
	assert_int_equal(zns_retention(v, 2, 0, 1, INT64_MAX), 1);
}

/* Of a device's checkpoints only the container's count, without those of pages only; whoever is
 * built on one holds it. */
static void rule_of_a_device(void **state)
{
	static const struct {
		const char *container;
		int parent;
		bool pages_only, in_use;
	} spec[] = { { "a", -1, 0, 0 }, { "b", 0, 0, 0 },  { "a", -1, 0, 0 },
		     { "a", -1, 0, 1 }, { "a", -1, 0, 0 }, { "a", 4, 1, 0 },
		     { "a", -1, 1, 0 }, { "b", -1, 0, 0 }, { "a", 2, 0, 0 } };
	enum { NR = sizeof(spec) / sizeof(*spec) };
	ZnsPb__Retention rule_a = ZNS_PB__RETENTION__INIT;
	uint8_t ids[NR][16] = { 0 };
	ZnsPb__Checkpoint c[NR];
	struct zns_ruled v[NR];
	char got[NR + 1] = "";

	(void)state;
	for (int i = 0; i < NR; i++) {
		ids[i][0] = (uint8_t)(i + 1);
		zns_pb__checkpoint__init(&c[i]);
		c[i].id = (ProtobufCBinaryData){ 16, ids[i] };
		c[i].container = (char *)spec[i].container;
		c[i].created_ns = i;
		c[i].pages_only = spec[i].pages_only;
		c[i].has_parent = spec[i].parent >= 0;
		if (c[i].has_parent)
			c[i].parent = (ProtobufCBinaryData){ 16, ids[spec[i].parent] };
		v[i] = (struct zns_ruled){ .c = &c[i], .in_use = spec[i].in_use };
	}
	rule_a.container = (char *)"a";
	rule_a.keep = 1;
	assert_int_equal(zns_retention_rule(&rule_a, v, NR, 100), 0);
	for (int i = 0; i < NR; i++)
		got[i] = v[i].due ? 'x' : v[i].held ? 'h' : '.';
	assert_string_equal(got, "h.hhh....");
	c[8].has_parent = c[5].has_parent = false;
	v[3].in_use = false;
	assert_int_equal(zns_retention_rule(&rule_a, v, NR, 100), 3);
	for (int i = 0; i < NR; i++)
		got[i] = v[i].due ? 'x' : v[i].held ? 'h' : '.';
	assert_string_equal(got, "h.xxx....");
}

/* --- sharing --- */

static void fair_level(void **state)
{
	const double some[] = { 5, 1, 5 };

	assert_true(zns_alloc_fair(some, NULL, 3, 9) == 4);
	assert_true(zns_alloc_fair(some, NULL, 3, 3) == 1);
	assert_true(zns_alloc_fair(some, NULL, 3, 1.5) == 0.5);
	assert_true(zns_alloc_fair(some, NULL, 3, 20) >= 5);
	assert_true(zns_alloc_fair(NULL, NULL, 0, 7) == 7);
}

#define DUMPS 12

struct crowd {
	uint32_t nr, groups[DUMPS][DIES];
	struct zns_sharer s[DUMPS];
};

/* One more dump comes, as the broker lets it in; with equal parts of each group for all who are on
 * it. */
static void comes(struct crowd *c, uint32_t dies, uint32_t zones)
{
	struct zns_group_state g[DIES];
	uint32_t order[DIES], found, n;

	table(g, dies);
	for (uint32_t i = 0; i < c->nr; i++) {
		for (uint32_t k = 0; k < c->s[i].nr_groups; k++) {
			g[c->groups[i][k]].nr_reservations++;
			g[c->groups[i][k]].nr_leases++;
		}
	}
	found = zns_alloc_pick(g, dies, dies, order);
	assert_int_equal(found, dies);
	n = zns_alloc_spread(g, dies, c->s, c->nr, zones, 0, zones, dies, 0, 0, order, found);
	assert_in_range(n, 1, dies);
	for (uint32_t i = 0; i < found; i++) /* every group once, as before */
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(order[i], order[k]);
	memcpy(c->groups[c->nr], order, n * sizeof(*order));
	c->s[c->nr] =
		(struct zns_sharer){ .groups = c->groups[c->nr], .nr_groups = n, .want = zones };
	c->nr++;
}

/* The least share of all, of the max-min fair one, with equal parts of each group for all who are
 * on it. */
static double least_share(const struct crowd *c, uint32_t dies)
{
	double wants[DUMPS], least = 1e9, level;
	uint32_t users[DIES] = { 0 };

	for (uint32_t i = 0; i < c->nr; i++) {
		wants[i] = c->s[i].want;
		for (uint32_t k = 0; k < c->s[i].nr_groups; k++)
			users[c->groups[i][k]]++;
	}
	level = zns_alloc_fair(wants, NULL, c->nr, dies);
	for (uint32_t i = 0; i < c->nr; i++) {
		double rate = 0;

		for (uint32_t k = 0; k < c->s[i].nr_groups; k++)
			rate += 1.0 / users[c->groups[i][k]];
		least = fmin(least, rate / fmin(wants[i], level));
	}
	return least;
}

static void sharing_is_spread(void **state)
{
	static const struct {
		uint32_t dies, nr, zones[DUMPS];
		double least;
	} mix[] = {
		{ 32, 6, { 5, 5, 5, 5, 5, 5 }, 1 },
		{ 32, 7, { 5, 5, 5, 5, 5, 5, 5 }, 0.95 },
		{ 18, 5, { 5, 5, 5, 5, 5 }, 0.95 },
		{ 8, 4, { 3, 3, 3, 3 }, 0.95 },
		{ 8, 3, { 5, 5, 5 }, 0.95 },
		{ 16, 6, { 5, 5, 5, 5, 5, 5 }, 0.95 },
		{ 32, 3, { 16, 16, 16 }, 0.95 },
		{ 32, 7, { 5, 3, 10, 2, 7, 5, 4 }, 0.95 },
		{ 32, 10, { 5, 5, 5, 5, 5, 5, 5, 5, 5, 5 }, 0.95 },
		/* parts are halves, thirds …: with few groups they cannot be alike */
		{ 32, 5, { 8, 8, 8, 8, 8 }, 0.93 },
		{ 32, 12, { 5, 5, 5, 5, 5, 5, 5, 5, 1, 1, 1, 1 }, 0.93 },
		{ 16, 8, { 3, 3, 3, 3, 3, 3, 3, 3 }, 0.91 },
		{ 4, 3, { 2, 2, 2 }, 0.74 },
	};
	int bad = 0;

	for (size_t m = 0; m < sizeof(mix) / sizeof(mix[0]); m++) {
		struct crowd c = { .nr = 0 };

		for (uint32_t i = 0; i < mix[m].nr; i++)
			comes(&c, mix[m].dies, mix[m].zones[i]);
		print_message("%u groups, %u dumps: the least share %.3f of the fair one\n",
			      mix[m].dies, mix[m].nr, least_share(&c, mix[m].dies));
		bad += least_share(&c, mix[m].dies) < mix[m].least - 1e-9;
	}
	assert_int_equal(bad, 0);
}

/*
 * What each has if everybody keeps to its limit: a group is dealt out in small pieces, in turn, to
 * those who may have more yet. Another way than the one under test.
 */
static void dealt_out(const struct crowd *c, uint32_t dies, const double *limit, double *rate)
{
	double left[DIES];
	bool any = true;

	for (uint32_t g = 0; g < dies; g++)
		left[g] = 1;
	memset(rate, 0, c->nr * sizeof(*rate));
	while (any) {
		any = false;
		for (uint32_t i = 0; i < c->nr; i++) {
			double part[DIES], sum = 0;

			for (uint32_t k = 0; k < c->s[i].nr_groups; k++)
				sum += part[k] = left[c->groups[i][k]] > 1e-6;
			if (!sum || (limit[i] > 0 && rate[i] >= limit[i]))
				continue;
			for (uint32_t k = 0; k < c->s[i].nr_groups; k++) {
				double more = fmin(0.002, left[c->groups[i][k]]) * part[k];

				left[c->groups[i][k]] -= more;
				rate[i] += more;
			}
			any = true;
		}
	}
}

/* All ask in turn, as they do while they run, until nobody gains any more; the least share then. */
static double settled(struct crowd *c, uint32_t dies, uint32_t *rounds)
{
	double wants[DUMPS], limit[DUMPS], rate[DUMPS], level, least = 1e9;
	bool again = true;

	for (*rounds = 0; again; (*rounds)++) {
		assert_in_range(*rounds, 0, 20);
		again = false;
		for (uint32_t i = 0; i < c->nr; i++) {
			struct zns_group_state g[DIES];
			uint32_t order[DIES], n = 0, found;

			table(g, dies);
			for (uint32_t o = 0; o < c->nr; o++)
				for (uint32_t k = 0; o != i && k < c->s[o].nr_groups; k++)
					g[c->groups[o][k]].nr_leases++;
			found = zns_alloc_pick(g, dies, dies, order);
			for (uint32_t k = 0; k < found; k++) {
				bool own = false;

				for (uint32_t m = 0; m < c->s[i].nr_groups; m++)
					own |= c->groups[i][m] == order[k];
				if (!own)
					order[n++] = order[k];
			}
			n = zns_alloc_gain(g, dies, c->s, c->nr, i, dies, 0, order, n, &limit[i]);
			memcpy(c->groups[i] + c->s[i].nr_groups, order, n * sizeof(*order));
			c->s[i].nr_groups += n;
			again |= n > 0;
		}
	}
	for (uint32_t i = 0; i < c->nr; i++)
		wants[i] = c->s[i].want;
	level = zns_alloc_fair(wants, NULL, c->nr, dies);
	dealt_out(c, dies, limit, rate);
	for (uint32_t i = 0; i < c->nr; i++)
		least = fmin(least, rate[i] / fmin(wants[i], level));
	return least;
}

static void leaves(struct crowd *c, uint32_t who)
{
	c->nr--;
	for (uint32_t i = who; i < c->nr; i++) {
		memcpy(c->groups[i], c->groups[i + 1], sizeof(c->groups[i]));
		c->s[i] = c->s[i + 1];
		c->s[i].groups = c->groups[i];
	}
}

/* Dumps come and go: after every change all have their shares again, with further groups and with
 * limits. */
static void gains_even_out(void **state)
{
	static const struct {
		uint32_t dies, most, zones;
		double least;
	} mix[] = { { 18, 7, 5, 0.82 },
		    { 32, 10, 5, 0.98 },
		    { 32, 8, 10, 0.77 },
		    { 8, 4, 3, 0.86 },
		    { 16, 6, 16, 0.8 } };
	uint32_t rng = 1;
	int bad = 0;

	for (size_t m = 0; m < sizeof(mix) / sizeof(mix[0]); m++) {
		double least = 1e9, before = 1e9;
		uint32_t lanes = 0, rounds, most = 0;
		struct crowd c = { .nr = 0 };

		for (uint32_t n = 0; n < 200; n++) {
			rng = rng * 1103515245 + 12345;
			if (c.nr < 2 || (c.nr < mix[m].most && rng >> 16 & 1)) {
				comes(&c, mix[m].dies, 1 + (rng >> 18) % mix[m].zones);
				c.s[c.nr - 1].grows = c.s[c.nr - 1].waits = true;
			} else {
				leaves(&c, (rng >> 18) % c.nr);
			}
			before = fmin(before, least_share(&c, mix[m].dies));
			least = fmin(least, settled(&c, mix[m].dies, &rounds));
			most = rounds > most ? rounds : most;
			for (uint32_t i = 0; i < c.nr; i++)
				lanes = c.s[i].nr_groups > lanes ? c.s[i].nr_groups : lanes;
		}
		print_message(
			"%u groups, up to %u dumps of up to %u come and go: the least share %.3f, without gains %.3f; settled in %u rounds, at most %u groups\n",
			mix[m].dies, mix[m].most, mix[m].zones, least, before, most, lanes);
		bad += least < mix[m].least || before >= least;
	}
	assert_int_equal(bad, 0);
}

static void gain_keeps_rules(void **state)
{
	uint32_t mine[] = { 0, 1 }, others[] = { 2, 3, 4 }, order[8] = { 2, 3, 4, 5, 6, 7 };
	struct zns_sharer s[2] = {
		{ .groups = mine, .nr_groups = 2, .want = 4, .grows = true, .waits = true },
		{ .groups = others, .nr_groups = 3, .want = 3, .grows = true, .waits = true }
	};
	struct zns_group_state g[8];
	double limit;

	table(g, 8);
	g[2].nr_leases = g[3].nr_leases = g[4].nr_leases = 1;
	g[5].nr_leases = 1; /* a restore */
	/* what nobody writes, but not where somebody reads */
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 8, 0, order, 6, &limit), 2);
	assert_int_equal(order[0], 6);
	assert_int_equal(order[1], 7);
	assert_true(limit == 0);
	/* no more than may be had, and nothing for a dump that does not wait */
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 1, 0, order, 6, &limit), 1);
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 0, 0, order, 6, &limit), 0);
	s[0].waits = false;
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 8, 0, order, 6, &limit), 0);
	s[0].waits = true;
	/* who has its share gains nothing */
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 1, 8, 0, order, 6, &limit), 0);
	/* nobody is made poorer than the one who gains: the other has just what it wants */
	order[0] = 2;
	order[1] = 3;
	s[1].want = 3;
	s[0].want = 2.5;
	/* 2.5 of 2.5, and 2.5 of 3 */
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 8, 0, order, 2, &limit), 1);
	s[0].want = 2.05;
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 8, 0, order, 2, &limit), 0);
	/* while somebody lacks, others are held to their share: of 4 and 2 on 5 groups that is 3
	 * and 2 */
	s[0].want = 4;
	s[1].want = 2;
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 1, 0, 0, order, 0, &limit), 0);
	assert_true(limit > 2 && limit < 2.1);
	s[0].waits = false;
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 1, 0, 0, order, 0, &limit), 0);
	assert_true(limit == 0);
}

static void spread_keeps_rules(void **state)
{
	uint32_t busy[] = { 0, 1, 2, 3 }, order[DIES], found;
	struct zns_sharer s = { .groups = busy, .nr_groups = 4, .want = 4 };
	struct zns_group_state g[DIES];

	/* free groups first and in their order, no more than asked */
	table(g, DIES);
	for (uint32_t i = 0; i < 4; i++)
		g[i].nr_reservations = g[i].nr_leases = 1;
	found = zns_alloc_pick(g, DIES, DIES, order);
	assert_int_equal(zns_alloc_spread(g, DIES, &s, 1, 5, 0, 5, DIES, 0, 0, order, found), 5);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(order[i], 4 + i);
	/* its own come first, whoever writes there now */
	found = zns_alloc_pick(g, DIES, DIES, order);
	order[0] = 2;
	order[1] = 3;
	order[found - 1] = 4;
	order[found - 2] = 5;
	assert_int_equal(zns_alloc_spread(g, DIES, &s, 1, 2, 0, 2, DIES, 2, 0, order, found), 3);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 3);
	assert_true(order[2] > 3);
	/* reserved by who rests: nobody is hurt now, but its half may be wanted */
	table(g, 8);
	for (uint32_t i = 0; i < 8; i++)
		g[i].nr_reservations = 1;
	found = zns_alloc_pick(g, 8, 8, order);
	assert_int_equal(zns_alloc_spread(g, 8, NULL, 0, 3, 0, 3, 8, 0, 0, order, found), 6);
	assert_int_equal(zns_alloc_spread(g, 8, NULL, 0, 3, 0, 3, 4, 0, 0, order, found), 4);
	assert_int_equal(zns_alloc_spread(g, 8, NULL, 0, 3, 0, 3, 8, 0, 0, order, 0), 0);
}

static void away_from_normal_io(void **state)
{
	struct zns_group_state g[DIES];
	uint32_t out[DIES], n;

	/* groups of four channels are somebody's for normal I/O: the other channels first, however
	 * crowded */
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
		cmocka_unit_test(retention),
		cmocka_unit_test(rule_of_a_device),
		cmocka_unit_test(fair_level),
		cmocka_unit_test(sharing_is_spread),
		cmocka_unit_test(spread_keeps_rules),
		cmocka_unit_test(gains_even_out),
		cmocka_unit_test(gain_keeps_rules),
		cmocka_unit_test(away_from_normal_io),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
