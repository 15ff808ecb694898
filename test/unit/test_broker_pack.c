/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd and small dumps, which use fewer zones: pack zones (design.md §4 "Zones and the active
 * limit"). */
#include "broker_fixture.h"

#define UNIT KIB(64)

static int setup_of(void **state, uint32_t max_active)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, max_active, DIES);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_of(state, 0);
}

static int setup_14(void **state)
{
	return setup_of(state, 14);
}

static void small_request(ZnsPb__Request *q, ZnsPb__DumpBegin *d, const char *container,
			  uint32_t qos, uint64_t bytes, const char *mode)
{
	begin_request(q, d, container, qos, mode, NULL);
	d->has_min_room = d->has_expected_bytes = 1;
	d->min_room = UNIT;
	d->expected_bytes = bytes;
}

static struct grant take(ZnsPb__Response *r, const char *container, bool packed)
{
	struct grant g = { .n = 0 };
	uint32_t i;

	if (r->code)
		fail_msg("%s", r->error);
	assert_non_null(r->dump);
	assert_int_equal(r->dump->packed, packed);
	memcpy(g.id, r->dump->checkpoint.data, ZNS_UUID_LEN);
	snprintf(g.container, sizeof(g.container), "%s", container);
	g.n = r->dump->n_groups;
	for (i = 0; i < g.n; i++)
		g.group[i] = r->dump->groups[i]->group;
	drop(r);
	return g;
}

static struct grant small(struct zns_broker *b, const char *container, uint64_t bytes)
{
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;

	small_request(&q, &d, container, 100, bytes, NULL);
	return take(ask(b, &q), container, true);
}

static struct grant small_dump(struct fx *f, struct zns_broker *b, const char *container,
			       uint64_t bytes, struct zone *z)
{
	struct grant g = small(b, container, bytes);

	assert_int_equal(g.n, 1);
	*z = zone_get(b, g.group[0]);
	fill(f, z, bytes);
	commit(b, &g, z, 1);
	return g;
}

static void fewer_zones(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	const struct {
		uint64_t bytes;
		uint32_t zones;
	} want[] = {
		/* 16 units are 1 MiB */
		{ MIB(100), 5 }, { MIB(5), 5 },     { MIB(5) - 1, 4 },
		{ MIB(2), 2 },   { MIB(2) - 1, 1 }, { MIB(1), 1 },
	};
	uint32_t i;

	for (i = 0; i < ZNS_ARRAY_SIZE(want); i++) {
		small_request(&q, &d, "web", 500, want[i].bytes, i % 2 ? "reject" : NULL);
		assert_int_equal(take(ask(&a, &q), "web", false).n, want[i].zones);
		abort_dump(&a);
	}
	/* Fewer units than that: a pack zone, and no reservation. */
	small_request(&q, &d, "web", 500, MIB(1) - 1, NULL);
	assert_int_equal(take(ask(&a, &q), "web", true).n, 1);
	assert_int_equal(nr_reservations(&a), 0);
	abort_dump(&a);
	zns_broker_close(&a);
}

/* Many containers share a zone, one at a time; the zone is freed when all of them are gone. */
static void shared_by_many(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	struct zone z, first = { 0 }, own, y;
	struct grant g[6], o;
	ZnsPb__Response *r;
	char name[16];
	uint32_t i;
	REQ(q);

	/* a container with a partly filled zone of its own, in which no other container writes */
	o = dump(f, &a, "own", KIB(128), &own);
	for (i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		g[i] = small_dump(f, &a, name, KIB(64) + 4096 * i, &z);
		if (!i)
			first = z;
		assert_int_equal(z.zone, first.zone);
		assert_int_not_equal(z.zone, own.zone);
	}
	assert_int_equal(nr_reservations(&a), 1);
	r = status(&a);
	assert_int_equal(r->status->pack_zones, 1);
	assert_int_equal(r->status->parked_zones, 2);
	drop(r);
	q.has_zones = q.zones = 1;
	r = ask(&a, &q);
	assert_string_equal(r->zones[first.zone]->owner, "(pack)");
	drop(r);
	/* the container keeps its own zone, and a dump that is not small takes no pack zone */
	o = begin(&a, "own", 0);
	y = zone_get(&a, o.group[0]);
	assert_int_equal(y.zone, own.zone);
	abort_dump(&a);
	o = begin(&a, "c0", 0);
	y = zone_get(&a, o.group[0]);
	assert_int_not_equal(y.zone, first.zone);
	abort_dump(&a);

	/* the next broker knows the pack zone */
	kill_broker(&a);
	a = client(f);
	small_dump(f, &a, "late", KIB(64), &z);
	assert_int_equal(z.zone, first.zone);
	for (i = 0; i < 6; i++) {
		rm(&a, g[i].id, 1);
		settle(&a);
		assert_int_not_equal(state_of(f, first.zone), ZNS_ZONE_EMPTY);
	}
	r = status(&a);
	/* and for each removal a block that tells a rebuild of it */
	assert_int_equal(r->status->bytes_wasted, 6 * KIB(64) + 4096 * (15 + 6));
	drop(r);
	zns_pb__request__init(&q);
	q.has_ls = q.ls = 1;
	r = ask(&a, &q);
	assert_int_equal(r->n_checkpoints, 2);
	assert_true(r->checkpoints[1]->packed);
	assert_false(r->checkpoints[0]->packed);
	memcpy(g[0].id, r->checkpoints[1]->id.data, ZNS_UUID_LEN);
	drop(r);
	rm(&a, g[0].id, 1);
	assert_true(becomes(f, first.zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&a);
}

static void one_writer_at_a_time(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct grant g, h;
	struct zone z, y;

	small_dump(f, &a, "c0", KIB(64), &z);
	g = small(&a, "c1", KIB(128));
	h = small(&b, "c2", KIB(128));
	/* two dumps at once: two zones, on two dies */
	y = zone_get(&b, h.group[0]);
	fill(f, &y, KIB(128));
	z = zone_get(&a, g.group[0]);
	fill(f, &z, KIB(128));
	assert_int_not_equal(y.zone, z.zone);
	assert_int_not_equal(y.group, z.group);
	commit(&a, &g, &z, 1);
	/* the dead end of a failed one counts as waste and is not given again before its zone is
	 * reset */
	zns_broker_close(&b);
	settle(&a);
	b = client(f);
	g = small(&b, "c3", KIB(64));
	y = zone_get(&b, g.group[0]);
	assert_int_equal(y.zone, z.zone);
	assert_int_equal(y.start, z.wp);
	abort_dump(&b);
	/* a pack zone without enough room for the dump: it gets a new one, though the first is
	 * not full */
	small_dump(f, &a, "c4", KIB(448), &z);
	small_dump(f, &a, "c5", KIB(448), &y);
	assert_int_not_equal(y.zone, z.zone);
	/* the dump is larger than announced: it continues in other zones */
	g = small(&a, "c6", KIB(64));
	z = zone_get(&a, g.group[0]);
	fill(f, &z, z.cap - z.start);
	y = zone_get(&a, g.group[0]);
	fill(f, &y, KIB(256));
	assert_int_not_equal(y.zone, z.zone);
	commit(&a, &g, (struct zone[]){ z, y }, 2);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* Has one of the waiting connections got its answer? */
static bool somebody(struct zns_broker *b, const bool *done, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!done[i] && has_answer(&b[i]))
			return true;
	return false;
}

/* 14 active zones, 40 clients at once, 200 containers: no dump is refused, no limit is exceeded. */
static void a_crowd(void **state)
{
	enum { CLIENTS = 40, ROUNDS = 5 };
	struct fx *f = *state;
	struct zns_broker b[CLIENTS];
	struct zns_broker s = client(f);
	struct zone z;
	struct grant g;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	uint32_t i, round, most = 0, left;
	char name[CLIENTS][16];
	bool done[CLIENTS];

	for (i = 0; i < CLIENTS; i++)
		b[i] = client(f);
	for (round = 0; round < ROUNDS; round++) {
		memset(done, 0, sizeof(done));
		for (i = 0; i < CLIENTS; i++) {
			snprintf(name[i], sizeof(name[i]), "c%u-%u", round, i);
			small_request(&q, &d, name[i], i % 4 ? 0 : 200, i % 5 ? KIB(64) : MIB(1),
				      NULL);
			post(&b[i], &q);
		}
		for (left = CLIENTS; left;) {
			uint32_t before = left;

			for (i = 0; i < CLIENTS; i++) {
				uint32_t k, n;
				struct zone zs[8];

				if (done[i] || !has_answer(&b[i]))
					continue;
				r = answer(&b[i]);
				if (r->code)
					fail_msg("%s: %s", name[i], r->error);
				g = take(r, name[i], i % 5 != 0);
				for (k = n = 0; k < g.n; k++) {
					zs[n] = zone_get(&b[i], g.group[k]);
					fill(f, &zs[n++], i % 5 ? KIB(64) : KIB(256));
				}
				commit(&b[i], &g, zs, n);
				done[i] = true;
				left--;
				r = status(&s);
				most = zns_max(most, r->status->zones_granted);
				assert_true(r->status->zones_granted <= r->status->zones_budget);
				drop(r);
			}
			if (left == before)
				until((advance(&s, 10), somebody(b, done, CLIENTS)));
		}
		/* room for the next round: the device is small */
		if (round < ROUNDS - 1) {
			zns_pb__request__init(&q);
			q.has_ls = q.ls = 1;
			r = ask(&s, &q);
			for (i = 0; i < r->n_checkpoints; i++)
				rm(&s, r->checkpoints[i]->id.data, 1);
			drop(r);
		}
	}
	assert_int_equal(nr_checkpoints(&s), CLIENTS);
	r = status(&s);
	assert_int_equal(r->status->n_leases, 0);
	assert_int_equal(r->status->nr_waiting, 0);
	assert_int_equal(r->status->zones_granted, 0);
	drop(r);
	for (i = 0; i < CLIENTS; i++)
		zns_broker_close(&b[i]);
	small_dump(f, &s, "last", KIB(64), &z);
	until((advance(&s, 20), nr_parked(&s)) <= 6);
	zns_broker_close(&s);
}

/* Fills every zone except the rest of a pack zone. Returns the checkpoint in that zone. */
static struct grant fill_device(struct fx *f, struct zns_broker *b)
{
	struct zone z;
	struct grant packed = small_dump(f, b, "small", KIB(256), &z), g;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;

	while (z.wp < CAP - KIB(512))
		small_dump(f, b, "small", KIB(256), &z);
	for (;;) {
		begin_request(&q, &d, "big", 0, NULL, NULL);
		post(b, &q);
		r = answer(b);
		if (r->code)
			break;
		g = take(r, "big", false);
		z = zone_get(b, g.group[0]);
		fill(f, &z, CAP - z.start);
		commit(b, &g, &z, 1);
	}
	assert_int_equal(r->code, -ENOSPC);
	drop(r);
	return packed;
}

/* No pack zone has room for a small dump, and a reader of the rest never releases it: refused. */
static void readers_give_nothing(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), reader = client(f);
	struct grant packed = fill_device(f, &a);
	ZnsPb__RestoreBegin rb;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;

	restore_request(&q, &rb, packed.id);
	drop(ask(&reader, &q));
	small_request(&q, &d, "next", 0, MIB(1) - 1, NULL);
	refused(&a, &q, -ENOSPC, "is full");
	assert_int_equal(nr_waiting(&a), 0);
	zns_broker_close(&reader);
	zns_broker_close(&a);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(fewer_zones),
		T(shared_by_many),
		T(one_writer_at_a_time),
		T(readers_give_nothing),
		cmocka_unit_test_setup_teardown(a_crowd, setup_14, fx_teardown),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
