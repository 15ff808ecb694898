/* SPDX-License-Identifier: GPL-2.0-only */
/* Weights: what the rule gives (zns/alloc/weigh.c), and what znsd tells those at work. */
#include <math.h>
#include "broker_fixture.h"
#include "zns/alloc.h"
#include "zns/config.h"

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

/* ---- znsd ---- */

static uint32_t begin_weighed(struct zns_broker *b, const char *name, uint32_t qos, uint32_t weight,
			      const char *mode)
{
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	uint32_t rate;
	REQ(q);

	begin_request(&q, &d, name, qos, mode, NULL);
	d.has_weight = weight > 0;
	d.weight = weight;
	r = ask(b, &q);
	rate = r->dump->rate_mibps;
	drop(r);
	return rate;
}

static uint32_t progress(struct zns_broker *b, uint64_t bytes, uint32_t *again_ms)
{
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Response *r;
	uint32_t rate;
	REQ(q);

	p.bytes = bytes;
	q.progress = &p;
	r = ask(b, &q);
	rate = r->rate_mibps;
	if (again_ms)
		*again_ms = r->again_ms;
	drop(r);
	return rate;
}

static void in_range(uint32_t got, double want)
{
	if (fabs(got - want) > 1 + want * 0.02)
		fail_msg("%u is not about %.1f", got, want);
}

/* All eight groups of 100 MiB/s are everybody's. */
static void dumps_are_told(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	uint32_t again;

	/* nobody said a weight: nobody is held */
	assert_int_equal(begin_weighed(&a, "a", 800, 0, "share"), 0);
	assert_int_equal(begin_weighed(&b, "b", 800, 0, "share"), 0);
	assert_int_equal(progress(&a, 0, &again), 0);
	abort_dump(&b);
	/* one that did: all who meet are held, and soon hear of changes */
	begin_weighed(&b, "b", 800, 300, "share");
	msleep(30);
	in_range(progress(&b, 0, NULL), 800 * 0.75);
	in_range(progress(&a, 0, &again), 800 * 0.25);
	assert_in_range(again, 1, 50);
	/* alone again: all that there is */
	abort_dump(&b);
	msleep(30);
	assert_int_equal(progress(&a, 0, NULL), 0);
	abort_dump(&a);
	begin_weighed(&a, "a", 800, 100, "share");
	begin_weighed(&b, "b", 800, 500, "share");
	/* work of one container is one tenant: together it has that one's part */
	begin_weighed(&c, "b", 800, 500, "share");
	msleep(30);
	in_range(progress(&a, 0, NULL), 800.0 / 6);
	in_range(progress(&b, 0, NULL), 800 * 2.5 / 6);
	in_range(progress(&c, 0, NULL), 800 * 2.5 / 6);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* A promise is kept whatever the others weigh, and nobody is held for its sake where none meet. */
static void promises_come_first(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);

	assert_int_equal(begin_weighed(&a, "a", 400, 100, "reject"), 0);
	begin_weighed(&b, "b", 800, 10000, "share");
	begin_weighed(&c, "c", 800, 10000, "share");
	msleep(30);
	assert_int_equal(progress(&a, 0, NULL), 0);
	in_range(progress(&b, 0, NULL), 200);
	in_range(progress(&c, 0, NULL), 200);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* Who uses less than its part leaves the rest to others, and has all of its own when it comes
 * back. */
static void idle_share_is_given_away(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);

	begin_weighed(&a, "a", 800, 300, "share");
	begin_weighed(&b, "b", 800, 100, "share");
	for (int i = 0; i < 6; i++) {
		msleep(60);
		progress(&a, 0, NULL); /* nothing at all */
		progress(&b, (uint64_t)i * MIB(12), NULL);
	}
	assert_true(progress(&b, MIB(72), NULL) > 700);
	in_range(progress(&a, 0, NULL), 600);
	/* it works again: its rate is what its part gives in 100 ms and more */
	for (int i = 1; i < 8; i++) {
		msleep(60);
		progress(&a, (uint64_t)i * MIB(600), NULL);
		progress(&b, MIB(72) + (uint64_t)i * MIB(600), NULL);
	}
	in_range(progress(&b, MIB(72) + 8 * MIB(600), NULL), 200);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void tenants(struct fx *f, const char *text)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/etc/tenants.conf", f->dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void bad_weights(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	ZnsPb__DumpBegin d;
	REQ(q);

	begin_request(&q, &d, "web-1", 100, "share", NULL);
	d.has_weight = 1;
	d.weight = 99;
	refused(&a, &q, -EINVAL, "a weight of 99 is out of range: 100 to 10000");
	d.weight = 10001;
	refused(&a, &q, -EINVAL, "out of range");
	tenants(*state, "name web-* max-weight=200\nname small-* max-weight=0\n");
	d.weight = 200;
	refused(&a, &q, -EINVAL, "tenants.conf:2");
	tenants(*state, "name web-* max-weight=200\n");
	d.weight = 201;
	refused(&a, &q, -EDQUOT,
		"a weight of 201 exceeds the ceiling of 200 that `name web-*` has");
	begin_weighed(&a, "web-1", 800, 200, "share");
	begin_weighed(&b, "other", 800, 600, "share");
	msleep(30);
	in_range(progress(&a, 0, NULL), 200);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* Restores: the weight they ask for, else that of the record. What lies on one die is charged for
 * that die. */
static uint32_t restore_of(struct zns_broker *b, struct grant *g, uint32_t weight)
{
	ZnsPb__RestoreBegin rb = ZNS_PB__RESTORE_BEGIN__INIT;
	ZnsPb__Response *r;
	uint32_t rate;
	REQ(q);

	rb.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, g->id };
	rb.has_weight = weight > 0;
	rb.weight = weight;
	q.restore_begin = &rb;
	r = ask(b, &q);
	rate = r->rate_mibps;
	drop(r);
	return rate;
}

static struct grant store(struct fx *f, const char *name, uint32_t qos)
{
	struct zns_broker b = client(f);
	struct grant g = begin_mode(&b, name, qos, "share", "dynamic");
	struct zone z[64];

	for (uint32_t i = 0; i < g.n; i++) {
		z[i] = zone_get(&b, g.group[i]);
		fill(f, &z[i], KIB(128));
	}
	commit(&b, &g, z, g.n);
	zns_broker_close(&b);
	return g;
}

static void restores_are_told(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	struct grant wide = store(*state, "wide", 800), other = store(*state, "other", 800),
		     die = store(*state, "die", 100);

	assert_int_equal(wide.n, 8);
	assert_int_equal(die.n, 1);
	restore_of(&a, &wide, 200);
	restore_of(&b, &other, 0);
	msleep(30);
	in_range(progress(&a, 0, NULL), 3200 * 2 / 3.0);
	in_range(progress(&b, 0, NULL), 3200 / 3.0);
	/* one die is a third full with it; the two others share its rest by weight, so by time */
	restore_of(&c, &die, 300);
	msleep(30);
	in_range(progress(&c, 0, NULL), 400 * 300 / 600.0);
	in_range(progress(&a, 0, NULL), 3200 * 200 / 600.0);
	in_range(progress(&b, 0, NULL), 3200 * 100 / 600.0);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* tenants.conf gives a weight to whoever says none: a dump by name or user, a restore whose record has
 * none by name. */
static void tenants_give_weights(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	struct grant web = store(*state, "web-1", 800), db = store(*state, "db", 800);
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	REQ(q);

	tenants(*state, "uid 7 weight=700\nname web-* weight=300 max-weight=400\n");
	begin_weighed(&a, "web-1", 800, 0, "share");
	begin_weighed(&b, "db", 800, 0, "share");
	msleep(30);
	in_range(progress(&a, 0, NULL), 600);
	in_range(progress(&b, 0, NULL), 200);
	abort_dump(&a);
	abort_dump(&b);
	/* what is said counts, and the ceiling bounds it */
	begin_weighed(&a, "web-1", 800, 100, "share");
	begin_weighed(&b, "db", 800, 300, "share");
	msleep(30);
	in_range(progress(&a, 0, NULL), 200);
	abort_dump(&a);
	begin_request(&q, &d, "web-1", 800, "share", NULL);
	d.has_weight = 1;
	d.weight = 401;
	refused(&a, &q, -EDQUOT, "a weight of 401 exceeds the ceiling of 400");
	begin_request(&q, &d, "other", 800, "share", NULL);
	d.has_uid = 1;
	d.uid = 7;
	r = ask(&a, &q);
	drop(r);
	msleep(30);
	in_range(progress(&a, 0, NULL), 560);
	in_range(progress(&b, 0, NULL), 240);
	abort_dump(&a);
	abort_dump(&b);
	/* restores */
	restore_of(&a, &web, 0);
	restore_of(&b, &db, 0);
	msleep(30);
	in_range(progress(&a, 0, NULL), 3200 * 0.75);
	in_range(progress(&b, 0, NULL), 3200 * 0.25);
	zns_broker_close(&a);
	zns_broker_close(&b);
	a = client(*state);
	b = client(*state);
	restore_of(&a, &web, 1000); /* gets the ceiling */
	restore_of(&b, &db, 100);
	msleep(30);
	in_range(progress(&a, 0, NULL), 3200 * 0.8);
	in_range(progress(&b, 0, NULL), 3200 * 0.2);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* A ceiling is no weight: where nobody says one, nobody is held for its sake. */
static void a_ceiling_says_nothing(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	struct grant web = store(*state, "web-1", 800), db = store(*state, "db", 800);

	tenants(*state, "name web-* max-weight=400\n");
	restore_of(&a, &web, 0);
	restore_of(&b, &db, 0);
	msleep(30);
	assert_int_equal(progress(&a, 0, NULL), 0);
	assert_int_equal(progress(&b, 0, NULL), 0);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_follows_weights),
		cmocka_unit_test(what_is_left_goes_on),
		cmocka_unit_test(nothing_is_wasted),
		cmocka_unit_test(fair_by_weight),
		cmocka_unit_test_setup_teardown(dumps_are_told, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(promises_come_first, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(idle_share_is_given_away, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(bad_weights, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(restores_are_told, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(tenants_give_weights, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(a_ceiling_says_nothing, fx_setup, fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
