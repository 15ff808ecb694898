/* SPDX-License-Identifier: GPL-2.0-only */
/* Which zones compaction empties: rules of zns/compact.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "zns/compact.h"
#include "zns/mover.h"
#include "zns/util.h"

#define CAP MIB(100)

static struct zns_compact_zone full(uint32_t i, uint32_t group, uint32_t owner, uint64_t live_mib)
{
	return (struct zns_compact_zone){ .index = i,
					  .group = group,
					  .owner = owner,
					  .capacity = CAP,
					  .wp = CAP,
					  .live = MIB(live_mib) };
}

static struct zns_compact_zone parked(uint32_t i, uint32_t group, uint32_t owner, uint64_t live_mib,
				      uint64_t wp_mib)
{
	struct zns_compact_zone z = full(i, group, owner, live_mib);

	z.wp = MIB(wp_mib);
	z.parked = true;
	return z;
}

static struct zns_compact_zone empty(uint32_t i, uint32_t group)
{
	return (struct zns_compact_zone){
		.index = i, .group = group, .capacity = CAP, .empty = true
	};
}

static struct zns_compact_plan plan(const struct zns_compact_zone *z, uint32_t nr, uint32_t percent)
{
	struct zns_compact_plan p;

	assert_int_equal(zns_compact_plan_make(z, nr, percent, &p, NULL), 0);
	return p;
}

static void two_into_one(void **state)
{
	struct zns_compact_zone z[] = { full(0, 0, 1, 20), full(1, 0, 1, 10), empty(2, 0),
					full(3, 0, 1, 90) };
	struct zns_compact_plan p = plan(z, 4, 25);

	assert_int_equal(p.nr, 1);
	assert_int_equal(p.freed, 1);
	assert_int_equal(p.v[0].nr, 2);
	assert_int_equal(p.v[0].taken, 1);
	assert_int_equal(p.v[0].victims[0], 1); /* the zone with the least live data first */
	assert_int_equal(p.v[0].victims[1], 0);
	assert_true(p.live == MIB(30));
	assert_true(p.v[0].dead == MIB(170));
	assert_false(p.v[0].blocked);
	zns_compact_plan_fini(&p);
}

/* Moving one zone's data into one other zone gains nothing; neither do data of different containers
 * or dies. */
static void nothing_to_win(void **state)
{
	struct zns_compact_zone one[] = { full(0, 0, 1, 5), empty(1, 0) };
	struct zns_compact_zone owners[] = { full(0, 0, 1, 5), full(1, 0, 2, 5), empty(2, 0) };
	struct zns_compact_zone dies[] = { full(0, 0, 1, 5), full(1, 1, 1, 5), empty(2, 0) };
	struct zns_compact_zone much[] = { full(0, 0, 1, 40), full(1, 0, 1, 40), empty(2, 0) };
	struct zns_compact_plan p;

	p = plan(one, 2, 25);
	assert_int_equal(p.nr, 0);
	p = plan(owners, 3, 25);
	assert_int_equal(p.nr, 0);
	p = plan(dies, 3, 25);
	assert_int_equal(p.nr, 0);
	p = plan(much, 3, 25);
	assert_int_equal(p.nr, 0);
	p = plan(much, 3, 40);
	assert_int_equal(p.freed, 1);
	zns_compact_plan_fini(&p);
}

/* Moving into a partly filled zone costs no zone; and that zone is emptied itself only if it
 * pays. */
static void into_what_is_there(void **state)
{
	struct zns_compact_zone z[] = { full(0, 0, 1, 20), parked(1, 0, 1, 50, 60) };
	struct zns_compact_zone small[] = { full(0, 0, 1, 20), parked(1, 0, 1, 50, 90) };
	struct zns_compact_zone all[] = { parked(0, 0, 1, 5, 5), parked(1, 0, 1, 6, 6),
					  parked(2, 0, 1, 7, 7) };
	struct zns_compact_plan p = plan(z, 2, 25);

	assert_int_equal(p.freed, 1);
	assert_int_equal(p.v[0].taken, 0);
	assert_false(p.v[0].blocked);
	zns_compact_plan_fini(&p);
	p = plan(small, 2, 25);
	assert_int_equal(p.nr, 0);
	/* Three partly filled zones become one, the fullest: no new zone is needed. */
	p = plan(all, 3, 25);
	assert_int_equal(p.freed, 2);
	assert_int_equal(p.v[0].nr, 2);
	assert_int_equal(p.v[0].taken, 0);
	zns_compact_plan_fini(&p);
}

static void a_full_device(void **state)
{
	struct zns_compact_zone z[] = { full(0, 0, 1, 20), full(1, 0, 1, 20), full(2, 1, 1, 100) };
	struct zns_compact_zone beside[] = { full(0, 0, 1, 20), full(1, 0, 1, 20), empty(2, 1) };
	struct zns_compact_plan p = plan(z, 3, 25);

	assert_int_equal(p.nr, 1);
	assert_true(p.v[0].blocked);
	assert_int_equal(p.freed, 0);
	assert_true(p.live == 0);
	zns_compact_plan_fini(&p);
	p = plan(beside, 3, 25);
	assert_false(p.v[0].blocked);
	zns_compact_plan_fini(&p);
}

static void what_is_in_use_stays(void **state)
{
	struct zns_compact_zone z[] = { full(0, 0, 1, 5), full(1, 0, 1, 5), full(2, 0, 1, 5),
					empty(3, 0) };
	struct zns_compact_plan p;

	z[1].fixed = true;
	p = plan(z, 4, 25);
	assert_int_equal(p.v[0].nr, 2);
	assert_int_equal(p.v[0].victims[0] + p.v[0].victims[1], 2);
	zns_compact_plan_fini(&p);
	z[0].extra = MIB(99); /* with so large a manifest there is no gain */
	p = plan(z, 4, 25);
	assert_int_equal(p.nr, 0);
	zns_compact_plan_fini(&p);
}

/* A hundred zones with a hundredth each are moved into one. */
static void many(void **state)
{
	struct zns_compact_zone z[101];
	struct zns_compact_plan p;

	for (uint32_t i = 0; i < 100; i++)
		z[i] = full(i, 0, 1, 1);
	z[100] = empty(100, 0);
	p = plan(z, 101, 25);
	assert_int_equal(p.freed, 99);
	assert_int_equal(p.v[0].taken, 1);
	zns_compact_plan_fini(&p);
	p = plan(z, 0, 25);
	assert_int_equal(p.nr, 0);
}

/* A checkpoint with no data in the zones to be emptied is left as it is. */
static void nothing_to_move(void **state)
{
	ZnsPb__ZoneUse use = ZNS_PB__ZONE_USE__INIT, *uses[] = { &use };
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT, *out = NULL;
	const uint32_t victims[] = { 4, 6 };
	const struct zns_mover_params p = { .c = &c, .victims = victims, .nr_victims = 2 };
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t bytes = 1;

	use.zone = 5;
	c.zones = uses;
	c.n_zones = 1;
	assert_int_equal(zns_mover_run(&p, &out, &bytes, &err), -ENODATA);
	assert_true(!out && !bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_to_move),
		cmocka_unit_test(two_into_one),
		cmocka_unit_test(nothing_to_win),
		cmocka_unit_test(into_what_is_there),
		cmocka_unit_test(a_full_device),
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
