/* SPDX-License-Identifier: GPL-2.0-only */
/* How fast a checkpoint can be read as it lies, and which moves pay (zns/defrag/scatter/scatter.c). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "zns/scatter.h"
#include "zns/util.h"

#define LANES 4
#define ROWS 8 /* zones of each lane, one after another */
#define TURNS 16 /* units in each zone */
#define UNIT MIB(1)
#define GROUPS 8

static struct zns_scatter_unit units[LANES * ROWS * TURNS];
static struct zns_scatter_zone zones[LANES * ROWS];
static uint64_t room[GROUPS];

/* A stripe over LANES groups; lane l is in group l. */
static struct zns_scatter striped(void)
{
	uint64_t n = 0;

	for (uint32_t r = 0; r < ROWS; r++)
		for (uint32_t t = 0; t < TURNS; t++)
			for (uint32_t l = 0; l < LANES; l++)
				units[n++] = (struct zns_scatter_unit){ r * LANES + l, UNIT };
	for (uint32_t z = 0; z < LANES * ROWS; z++)
		zones[z] = (struct zns_scatter_zone){ .zone = 100 + z,
						      .group = z % LANES,
						      .bytes = TURNS * UNIT };
	for (uint32_t g = 0; g < GROUPS; g++)
		room[g] = MIB(1000);
	return (struct zns_scatter){ units, n, zones, LANES * ROWS, GROUPS, LANES, 2 * LANES };
}

static void near_to(double got, double want)
{
	if (fabs(got - want) > 0.02)
		fail_msg("%f is not %f", got, want);
}

static void rate_of_a_layout(void **state)
{
	struct zns_scatter s = striped();

	assert_int_equal(zns_scatter_bytes(&s), (uint64_t)LANES * ROWS * TURNS * UNIT);
	near_to(zns_scatter_rate(&s, NULL), 1);
	/* two lanes on one die, all the time: half; half the time: two thirds */
	for (uint32_t r = 0; r < ROWS; r++)
		zones[r * LANES + 3].group = 0;
	near_to(zns_scatter_rate(&s, NULL), 0.5);
	for (uint32_t r = 0; r < ROWS / 2; r++)
		zones[r * LANES + 3].group = 3;
	near_to(zns_scatter_rate(&s, NULL), 2 / 3.0);
	/* all on one die */
	for (uint32_t z = 0; z < LANES * ROWS; z++)
		zones[z].group = 5;
	near_to(zns_scatter_rate(&s, NULL), 0.25);
	/* evenly spread over all, but one die after another: a restore reads in order */
	for (uint32_t z = 0; z < LANES * ROWS; z++)
		zones[z].group = z / (LANES * ROWS / LANES);
	near_to(zns_scatter_rate(&s, NULL), 0.25);
	s.nr_units = 0;
	assert_true(zns_scatter_rate(&s, NULL) == 0);
}

static struct zns_scatter_plan plan(const struct zns_scatter *s, double pays, uint32_t most)
{
	struct zns_scatter_plan p;
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(zns_scatter_plan_make(s, room, pays, most, &p, &err), 0);
	return p;
}

static void moves_what_collides(void **state)
{
	struct zns_scatter s = striped();
	struct zns_scatter_plan p;

	/* nothing to win */
	p = plan(&s, 0.25, 30);
	assert_int_equal(p.nr, 0);
	assert_int_equal(p.bytes, 0);
	/* four zones of the fourth lane collide with those of the first: these, and no more */
	for (uint32_t r = 0; r < ROWS / 2; r++)
		zones[r * LANES + 3].group = 0;
	p = plan(&s, 0.25, 30);
	assert_int_equal(p.nr, ROWS / 2);
	near_to(p.before, 2 / 3.0);
	near_to(p.after, 1);
	assert_int_equal(p.bytes, (uint64_t)ROWS / 2 * TURNS * UNIT);
	for (uint32_t i = 0; i < p.nr; i++) {
		const struct zns_scatter_move *m = &p.v[i];

		assert_int_equal(zones[m->at].group, 0);
		assert_true(m->at < ROWS / 2 * LANES);
		assert_true(m->after > m->before);
	}
	zns_scatter_plan_fini(&p);
}

static void stops(void **state)
{
	struct zns_scatter s = striped();
	struct zns_scatter_plan p;

	for (uint32_t r = 0; r < ROWS; r++)
		zones[r * LANES + 3].group = 0;
	/* limit of 10 % of the bytes: the whole gain would need 25 % */
	p = plan(&s, 0.25, 10);
	assert_int_equal(p.nr, 3);
	assert_true(p.bytes <= zns_scatter_bytes(&s) / 10);
	zns_scatter_plan_fini(&p);
	/* where it does not pay: this wins about 2 per cent for each one */
	s = striped();
	for (uint32_t r = 0; r < ROWS; r++)
		zones[r * LANES + 3].group = 0;
	p = plan(&s, 20, 30);
	assert_int_equal(p.nr, 0);
	/* where there is no room */
	memset(room, 0, sizeof(room));
	p = plan(&s, 0.25, 30);
	assert_int_equal(p.nr, 0);
	room[2] = room[6] = TURNS * UNIT + MIB(1); /* one zone each; in group 2 it would collide */
	p = plan(&s, 0.25, 30);
	assert_in_range(p.nr, 1, 2);
	assert_int_equal(p.v[0].group, 6);
	assert_int_equal(room[6], 0);
	zns_scatter_plan_fini(&p);
	/* what must stay */
	s = striped();
	for (uint32_t z = 0; z < LANES * ROWS; z++) {
		zones[z].group = z % LANES == 3 ? 0 : z % LANES;
		zones[z].fixed = true;
	}
	p = plan(&s, 0.25, 30);
	assert_int_equal(p.nr, 0);
}

/* The most bandwidth for a byte goes first: short zones that collide before long ones. */
static void best_first(void **state)
{
	struct zns_scatter s = striped();
	uint32_t group_of[LANES * ROWS];
	struct zns_scatter_plan p;
	double best;

	/* of the second row's lane 3 most units are small; it still holds everybody up a little */
	zones[3].group = 0;
	zones[LANES + 3].group = 0;
	for (uint64_t i = 0; i < s.nr_units; i++)
		if (units[i].at == LANES + 3)
			units[i].len = KIB(64);
	zones[LANES + 3].bytes = TURNS * KIB(64);
	p = plan(&s, 0.01, 30);
	assert_true(p.nr >= 1);
	best = (p.v[0].after - p.v[0].before) / (double)zones[p.v[0].at].bytes;
	for (uint32_t z = 0; z < LANES * ROWS; z++)
		for (uint32_t g = 0; g < GROUPS; g++) {
			for (uint32_t k = 0; k < LANES * ROWS; k++)
				group_of[k] = k == z ? g : zones[k].group;
			assert_true((zns_scatter_rate(&s, group_of) - p.before) /
					    (double)zones[z].bytes <=
				    best * 1.001);
		}
	zns_scatter_plan_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rate_of_a_layout),
		cmocka_unit_test(moves_what_collides),
		cmocka_unit_test(stops),
		cmocka_unit_test(best_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
