/* SPDX-License-Identifier: GPL-2.0-only */
/* What a sharing dump gains while it runs: groups of dumps that have ended, and what it is told
 * about the others. */
#include "broker_fixture.h"

/* Seven zones besides the catalogue's may be open. */
static int setup_tight(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 8, 8, DIES);
	*state = f;
	return 0;
}

struct gains {
	uint32_t n, rate, again_ms, writers; /* number of writers on all of its groups together */
	bool crowded;
	struct zone zone[DIES];
};

/* The helper reports that it could write @more zones. */
static struct gains progress(struct zns_broker *b, uint32_t more, bool waits)
{
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	struct gains g = { 0 };
	ZnsPb__Response *r;
	REQ(q);

	p.has_more_zones = p.has_waits = 1;
	p.more_zones = more;
	p.waits = waits;
	q.progress = &p;
	r = ask(b, &q);
	assert_true(r->n_more_zones <= DIES);
	for (size_t i = 0; i < r->n_more_zones; i++) {
		const ZnsPb__ZoneGrant *z = r->more_zones[i];

		assert_true(z->has_writers);
		g.zone[g.n++] = (struct zone){ z->zone, z->group, z->start, z->capacity, z->start };
	}
	for (size_t i = 0; i < r->n_writers; i++)
		g.writers += r->writers[i]->weight;
	g.rate = r->rate_mibps;
	g.again_ms = r->again_ms;
	g.crowded = r->crowded;
	drop(r);
	return g;
}

static uint32_t gained_of(struct zns_broker *who, const char *container, uint32_t *width)
{
	ZnsPb__Response *r = status(who);
	uint32_t n = UINT32_MAX;

	for (size_t i = 0; i < r->status->n_leases; i++) {
		if (strcmp(r->status->leases[i]->container, container))
			continue;
		n = r->status->leases[i]->detail->gained_groups;
		*width = r->status->leases[i]->detail->width;
		assert_int_equal(r->status->leases[i]->n_groups, *width);
	}
	drop(r);
	return n;
}

/* Six of eight groups are promised to one dump. Another dump wants six and has two, until the
 * first ends. */
static void gains_what_is_left(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), who = client(f);
	struct zone z[DIES];
	struct grant g;
	struct gains won;
	ZnsPb__Response *r;
	uint32_t width;

	begin_mode(&a, "a", 600, "reject", NULL);
	g = begin(&b, "b", 600);
	assert_int_equal(g.n, 2);
	/* no promised groups, and none that it could not use */
	assert_int_equal(progress(&b, 8, true).n, 0);
	abort_dump(&a);
	assert_int_equal(progress(&b, 8, false).n, 0);
	assert_int_equal(progress(&b, 0, true).n, 0);
	won = progress(&b, 1, true);
	assert_int_equal(won.n, 1);
	z[0] = won.zone[0];
	/* as many as it asked for and no more */
	won = progress(&b, 8, true);
	assert_int_equal(won.n, 3);
	memcpy(z + 1, won.zone, 3 * sizeof(*z));
	assert_int_equal(progress(&b, 8, true).n, 0);
	for (uint32_t i = 0; i < 4; i++) {
		for (uint32_t k = 0; k < g.n; k++)
			assert_int_not_equal(z[i].group, g.group[k]);
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(z[i].group, z[k].group);
	}
	assert_int_equal(gained_of(&who, "b", &width), 4);
	assert_int_equal(width, 6);
	/* the gained zones are written, replaced and committed like the others */
	for (uint32_t i = 0; i < 4; i++)
		fill(f, &z[i], i ? KIB(64) : CAP);
	z[4] = zone_get(&b, z[0].group);
	assert_int_equal(z[4].group, z[0].group);
	z[5] = zone_get(&b, g.group[0]);
	fill(f, &z[4], KIB(64));
	fill(f, &z[5], KIB(64));
	commit(&b, &g, z, 6);
	/* they are not reserved afterwards: the reservation is what was admitted */
	r = status(&who);
	assert_int_equal(r->status->n_leases, 0);
	assert_int_equal(r->status->n_reservations, 1);
	assert_int_equal(r->status->reservations[0]->n_groups, 2);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&who);
}

static void nothing_for_promises_and_strangers(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Response *r;
	struct gains g;
	REQ(q);

	begin_mode(&a, "a", 200, "reject", NULL);
	g = progress(&a, 8, true);
	assert_int_equal(g.n + g.again_ms + g.writers, 0);
	abort_dump(&a);
	/* a client without this feature is told nothing */
	begin_mode(&b, "b", 600, "reject", NULL);
	begin(&a, "a", 600);
	abort_dump(&b);
	q.progress = &p;
	r = ask(&a, &q);
	assert_int_equal(r->n_more_zones + r->n_writers, 0);
	assert_false(r->has_again_ms || r->has_crowded);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void others_are_told(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	struct grant ga, gb;
	struct gains g;

	ga = begin(&a, "a", 500);
	assert_int_equal(ga.n, 5);
	g = progress(&a, 8, true);
	assert_int_equal(g.writers, 5);
	assert_false(g.crowded);
	gb = begin(&b, "b", 500);
	assert_true(gb.n > 3);
	g = progress(&a, 8, true);
	assert_int_equal(g.writers, 5 + gb.n - 3);
	assert_true(g.crowded && g.again_ms > 0 && g.again_ms < 100);
	abort_dump(&b);
	g = progress(&a, 8, true);
	assert_int_equal(g.writers, 5);
	assert_false(g.crowded);
	assert_int_equal(g.n, 0);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* A gain never overtakes a waiting dump. */
static void waiters_come_first(void **state)
{
	struct zns_broker a = client(*state), a2 = client(*state), b = client(*state),
			  c = client(*state);
	ZnsPb__DumpBegin d;
	struct grant g;
	REQ(q);

	begin_mode(&a, "a", 400, "reject", NULL);
	begin_mode(&a2, "a2", 100, "reject", NULL);
	g = begin(&b, "b", 500);
	assert_int_equal(g.n, 3);
	begin_request(&q, &d, "c", 300, "wait=30", NULL);
	post(&c, &q);
	settle(&a);
	assert_false(has_answer(&c));
	abort_dump(&a2);
	assert_int_equal(progress(&b, 8, true).n, 0);
	zns_broker_close(&c);
	settle(&a);
	assert_int_equal(progress(&b, 8, true).n, 1);
	zns_broker_close(&a);
	zns_broker_close(&a2);
	zns_broker_close(&b);
}

static void tenants(struct fx *f, const char *text)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/etc/tenants.conf", f->dir);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void ceilings_hold(void **state)
{
	struct zns_broker a = client(*state), b1 = client(*state), b2 = client(*state);

	tenants(*state, "name b* total-groups=3\n");
	begin_mode(&a, "a", 500, "reject", NULL);
	assert_int_equal(begin(&b1, "b1", 100).n, 1);
	assert_int_equal(begin(&b2, "b2", 300).n, 2);
	abort_dump(&a);
	assert_int_equal(progress(&b2, 8, true).n, 0);
	abort_dump(&b1);
	assert_int_equal(progress(&b2, 8, true).n, 1);
	assert_int_equal(progress(&b2, 8, true).n, 0);
	zns_broker_close(&a);
	zns_broker_close(&b1);
	zns_broker_close(&b2);
}

static void limits_hold(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f);
	ZnsPb__Response *r;
	struct gains g;

	begin_mode(&a, "a", 400, "reject", NULL);
	assert_int_equal(begin(&c, "c", 100).n, 1);
	assert_int_equal(begin(&b, "b", 600).n, 2); /* out of seven open zones */
	abort_dump(&a);
	g = progress(&b, 8, true);
	assert_int_equal(g.n, 4);
	for (uint32_t i = 0; i < g.n; i++)
		fill(f, &g.zone[i], KIB(64));
	assert_int_equal(progress(&b, 8, true).n, 0);
	r = status(&a);
	assert_int_equal(r->status->zones_budget, 7);
	assert_int_equal(r->status->zones_granted, 7);
	drop(r);
	/* a dump that begins now finds none free, and waits as usual */
	{
		ZnsPb__DumpBegin d;
		REQ(q);

		begin_request(&q, &d, "a", 100, "reject", NULL);
		refused(&a, &q, -EBUSY, "may still be opened");
	}
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* The dump's connection is closed: all that it gained is free again. */
static void gains_end_with_the_lease(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), who = client(f);
	struct gains g;
	struct zone z;

	begin_mode(&a, "a", 600, "reject", NULL);
	begin(&b, "b", 600);
	abort_dump(&a);
	g = progress(&b, 8, true);
	assert_int_equal(g.n, 4);
	z = g.zone[1];
	fill(f, &z, KIB(64));
	zns_broker_close(&b);
	assert_int_equal(begin_waiting(&a, &who, "a", 800, "wait=20").n, 8);
	abort_dump(&a);
	for (uint32_t i = 0; i < g.n; i++)
		assert_true(becomes(f, g.zone[i].zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&a);
	zns_broker_close(&who);
}

#define G(f) cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		G(gains_what_is_left),
		G(nothing_for_promises_and_strangers),
		G(others_are_told),
		G(waiters_come_first),
		G(ceilings_hold),
		cmocka_unit_test_setup_teardown(limits_hold, setup_tight, fx_teardown),
		G(gains_end_with_the_lease),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
