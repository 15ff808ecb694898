/* SPDX-License-Identifier: GPL-2.0-only */
/* Weights: the rule that znsd goes by (zns/alloc/weigh.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "zns/alloc.h"

#define GROUPS 8
#define MOST 16

/* Readers of 400 MiB/s a group: how much of each one's bytes lies in each group. */
struct crowd {
	uint32_t nr, res[GROUPS];
	double cost[MOST][GROUPS];
	struct zns_weighed v[MOST];
};

static void comes(struct crowd *c, double weight, double most, const double *part)
{
	struct zns_weighed *v = &c->v[c->nr];

	for (uint32_t g = 0; g < GROUPS; g++) {
		c->res[g] = g;
		c->cost[c->nr][g] = part[g] / 400;
	}
	*v = (struct zns_weighed){
		.res = c->res, .cost = c->cost[c->nr], .nr = GROUPS, .weight = weight, .most = most
	};
	c->nr++;
}

/* Time on group @g that the @i-th takes. */
static double time_on(const struct crowd *c, uint32_t i, uint32_t g)
{
	return c->v[i].rate * c->cost[i][g];
}

static double load_of(const struct crowd *c, uint32_t g)
{
	double sum = 0;

	for (uint32_t i = 0; i < c->nr; i++)
		sum += time_on(c, i, g);
	return sum;
}

static const double all[GROUPS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
static const double even[GROUPS] = { .125, .125, .125, .125, .125, .125, .125, .125 };
static const double one_die[GROUPS] = { 1 };
static const double uneven[GROUPS] = { .3, .1, .1, .1, .1, .1, .1, .1 };

static void near_to(double got, double want)
{
	if (fabs(got - want) > 1e-6 * want)
		fail_msg("%f is not %f", got, want);
}

/* Two to eight tenants, one of them scattered: time on the full group is as the weights say. */
static void time_follows_weights(void **state)
{
	for (uint32_t nr = 2; nr <= 8; nr++)
		for (uint32_t odd = 0; odd < 3; odd++) {
			struct crowd c = { 0 };
			double sum = 0;

			for (uint32_t i = 0; i < nr; i++) {
				comes(&c, i + 1, 0, i || !odd ? even : odd == 1 ? one_die : uneven);
				sum += i + 1;
			}
			assert_int_equal(zns_alloc_weigh(c.v, nr, all, GROUPS), 0);
			near_to(load_of(&c, 0), 1);
			for (uint32_t i = 0; i < nr; i++)
				near_to(time_on(&c, i, 0), (i + 1) / sum);
		}
}

static void what_is_left_goes_on(void **state)
{
	struct crowd c = { 0 };
	const double half[GROUPS] = { 0, 0, 0, 0, .25, .25, .25, .25 };
	const double some[GROUPS] = { .5, 1, 1, 1, 1, 1, 1, 1 };

	/* the second one needs little: the rest is the first one's, up to the whole device */
	comes(&c, 1, 0, even);
	comes(&c, 3, 80, even);
	assert_int_equal(zns_alloc_weigh(c.v, c.nr, all, GROUPS), 0);
	near_to(c.v[1].rate, 80);
	near_to(c.v[0].rate, 3200 - 80);
	/* who meets nobody has all of its groups */
	c.nr = 0;
	comes(&c, 100, 0, one_die);
	comes(&c, 1, 0, half);
	assert_int_equal(zns_alloc_weigh(c.v, c.nr, all, GROUPS), 0);
	near_to(c.v[0].rate, 400);
	near_to(c.v[1].rate, 1600);
	/* what is promised is not there */
	c.nr = 0;
	comes(&c, 1, 0, one_die);
	comes(&c, 1, 0, one_die);
	assert_int_equal(zns_alloc_weigh(c.v, c.nr, some, GROUPS), 0);
	near_to(c.v[0].rate, 100);
	near_to(c.v[1].rate, 100);
	assert_int_equal(zns_alloc_weigh(NULL, 0, all, GROUPS), 0);
}

/* Whatever they are: no group has more than all of its time, and nobody could have more without
 * taking it from somebody. */
static void nothing_is_wasted(void **state)
{
	uint64_t x = 1;

	for (int round = 0; round < 300; round++) {
		struct crowd c = { 0 };

		for (uint32_t i = 0; i < 1 + (uint32_t)round % MOST; i++) {
			double part[GROUPS], sum = 0;

			for (uint32_t g = 0; g < GROUPS; g++) {
				x = x * 6364136223846793005u + 1442695040888963407u;
				part[g] = (x >> 60) < 8 ? 0 : (double)(x >> 33 & 255);
				sum += part[g];
			}
			for (uint32_t g = 0; g < GROUPS; g++)
				part[g] = sum > 0 ? part[g] / sum : even[g];
			comes(&c, 1 + (double)(x >> 40 & 63), (x >> 50 & 3) ? 0 : 25, part);
		}
		assert_int_equal(zns_alloc_weigh(c.v, c.nr, all, GROUPS), 0);
		for (uint32_t g = 0; g < GROUPS; g++)
			assert_true(load_of(&c, g) < 1 + 1e-6);
		for (uint32_t i = 0; i < c.nr; i++) {
			bool bound = c.v[i].most > 0 && c.v[i].rate > c.v[i].most * (1 - 1e-6);

			for (uint32_t g = 0; g < GROUPS; g++)
				bound |= c.cost[i][g] > 0 && load_of(&c, g) > 1 - 1e-6;
			assert_true(bound);
		}
	}
}

/* Weights move the level of max-min shares, too. */
static void fair_by_weight(void **state)
{
	const double wants[] = { 8, 8, 1 }, weights[] = { 3, 1, 1 };

	near_to(zns_alloc_fair(wants, weights, 3, 9), 2);
	near_to(zns_alloc_fair(wants, weights, 2, 8), 2);
	assert_true(zns_alloc_fair(wants, weights, 3, 17) >= 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_follows_weights),
		cmocka_unit_test(what_is_left_goes_on),
		cmocka_unit_test(nothing_is_wasted),
		cmocka_unit_test(fair_by_weight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
