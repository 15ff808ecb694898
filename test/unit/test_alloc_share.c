/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of zns/alloc.h if there are more dumps than groups. */
#include "alloc_fixture.h"

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

/* Admits one more dump, as the broker does. All dumps of a group get equal parts of it. */
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

/* The worst dump's part of its max-min fair share, when each group is divided equally among its
 * dumps. */
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
		/* parts are 1/2, 1/3 …, so with few groups the dumps cannot all have the same */
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

/* What each dump gets if all keep to their limits: a group is given out in small pieces, in
 * turn, to dumps that may have more. This is another algorithm than the tested one. */
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

/* All dumps ask in turn, as they do while they run, until none gains any more. Returns the worst
 * dump's part of its share. */
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

/* Dumps begin and end: after every change all have their shares again, with gained groups and
 * with limits. */
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
	/* groups without a writer, except those that a restore reads */
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
	/* a dump that has its share gains nothing */
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 1, 8, 0, order, 6, &limit), 0);
	/*
	 * no dump may end up with less than the one that gains: the other has exactly what it wants
	 */
	order[0] = 2;
	order[1] = 3;
	s[1].want = 3;
	s[0].want = 2.5;
	/* rates: 2.5 of 2.5, and 2.5 of 3 */
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 8, 0, order, 2, &limit), 1);
	s[0].want = 2.05;
	assert_int_equal(zns_alloc_gain(g, 8, s, 2, 0, 8, 0, order, 2, &limit), 0);
	/* while one dump has too little, others are limited to their share: of 4 and 2 on 5
	 * groups that is 3 and 2 */
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
	/* its own groups come first, whoever else writes there now */
	found = zns_alloc_pick(g, DIES, DIES, order);
	order[0] = 2;
	order[1] = 3;
	order[found - 1] = 4;
	order[found - 2] = 5;
	assert_int_equal(zns_alloc_spread(g, DIES, &s, 1, 2, 0, 2, DIES, 2, 0, order, found), 3);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 3);
	assert_true(order[2] > 3);
	/* reserved by an idle container: no dump loses now, but the container may need its half */
	table(g, 8);
	for (uint32_t i = 0; i < 8; i++)
		g[i].nr_reservations = 1;
	found = zns_alloc_pick(g, 8, 8, order);
	assert_int_equal(zns_alloc_spread(g, 8, NULL, 0, 3, 0, 3, 8, 0, 0, order, found), 6);
	assert_int_equal(zns_alloc_spread(g, 8, NULL, 0, 3, 0, 3, 4, 0, 0, order, found), 4);
	assert_int_equal(zns_alloc_spread(g, 8, NULL, 0, 3, 0, 3, 8, 0, 0, order, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fair_level),         cmocka_unit_test(sharing_is_spread),
		cmocka_unit_test(spread_keeps_rules), cmocka_unit_test(gains_even_out),
		cmocka_unit_test(gain_keeps_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
