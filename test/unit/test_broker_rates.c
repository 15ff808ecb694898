/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd's part in rates: caps, a drive that is one domain, progress, and what is kept of restores.
 */
#include "broker_fixture.h"

#define DEV_MIBPS 100 /* of one zone: see the fixture */

static int setup_ceiling(void **state)
{
	int ret;

	fx_ceiling = 500;
	ret = fx_setup(state);
	fx_ceiling = 0;
	return ret;
}

static int setup_one(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 0, 1);
	*state = f;
	return 0;
}

static uint32_t begin_capped(struct zns_broker *b, const char *name, uint32_t qos, uint32_t cap,
			     const char *mode, const char *note)
{
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	uint32_t rate;
	REQ(q);

	begin_request(&q, &d, name, qos, mode, NULL);
	d.has_qos_max_mibps = cap > 0;
	d.qos_max_mibps = cap;
	r = ask(b, &q);
	assert_non_null(r->dump);
	assert_true(r->dump->has_rate_mibps);
	if (note && (!r->dump->note || !strstr(r->dump->note, note)))
		fail_msg("\"%s\" lacks \"%s\"", r->dump->note ? r->dump->note : "", note);
	if (!note && r->dump->note)
		fail_msg("%s", r->dump->note);
	rate = r->dump->rate_mibps;
	drop(r);
	return rate;
}

/* Reports @bytes; returns the limit in the answer. */
static uint32_t progress(struct zns_broker *b, uint64_t bytes, uint64_t total)
{
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Response *r;
	uint32_t rate;
	REQ(q);

	p.bytes = bytes;
	p.has_total = 1;
	p.total = total;
	q.progress = &p;
	r = ask(b, &q);
	assert_true(r->has_rate_mibps);
	rate = r->rate_mibps;
	drop(r);
	return rate;
}

static void caps_are_told(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	ZnsPb__DumpBegin d;
	REQ(q);

	assert_int_equal(begin_capped(&a, "a", 200, 250, "share", NULL), 250);
	assert_int_equal(progress(&a, MIB(1), 0), 250);
	/* they use different groups: no limit, whatever other dumps run */
	assert_int_equal(begin_capped(&b, "b", 200, 0, "share", NULL), 0);
	assert_int_equal(progress(&b, 0, 0), 0);
	begin_request(&q, &d, "c", 200, "share", NULL);
	d.has_qos_max_mibps = 1;
	d.qos_max_mibps = 199;
	refused(&c, &q, -EINVAL, "cannot be kept with a cap of 199 MiB/s");
	/* a cap alone is no requested rate */
	assert_int_equal(begin_capped(&c, "c", 0, 5, "share", NULL), 5);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* Eight groups of 100 MiB/s, but the device writes 500 as a whole. */
static int setup_slow(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_slow = 33;
	fx_open(f, 0, 0, DIES);
	fx_slow = 0;
	*state = f;
	return 0;
}

static bool has(const struct grant *g, uint32_t group)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->group[i] == group)
			return true;
	return false;
}

/* Group 3 is three times slower. Promises count only the seven others; only a sharing dump gets
 * group 3, after all free groups, at its own rate. */
static void slow_group(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct zone z;
	struct grant g;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;

	begin_request(&q, &d, "a", 701, "reject", NULL);
	refused(&a, &q, -ERANGE, "at most 700 MiB/s (7 groups x 100 MiB/s)");
	g = begin_mode(&a, "a", 700, "reject", NULL);
	assert_int_equal(g.n, 7);
	assert_false(has(&g, 3));
	/* the quick groups are promised; the slow group's 33 MiB/s never are */
	begin_request(&q, &d, "b", 30, "reject", NULL);
	refused(&b, &q, -EBUSY, "1 groups are needed and 0 are free");
	g = begin(&b, "b", 100);
	assert_int_equal(g.n, 1);
	assert_true(has(&g, 3));
	assert_true(strstr(g.note, "about 33 MiB/s of 100") != NULL);
	abort_dump(&b);
	abort_dump(&a);

	/* A zone that replaces a full one is not of the slow group, while others have free
	 * zones. */
	g = begin_mode(&a, "c", 600, "reject", "dynamic");
	assert_int_equal(g.n, 6);
	for (uint32_t i = 0; i < 7; i++) {
		z = zone_get(&a, g.group[0]);
		assert_int_not_equal(z.group, 3);
		fill(f, &z, CAP);
	}
	abort_dump(&a);

	/* A sharing dump gets the quick groups first. */
	g = begin_mode(&a, "d", 700, NULL, "dynamic");
	assert_int_equal(g.n, 7);
	assert_false(has(&g, 3));
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void ceiling_of_the_device(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state),
			  e = client(*state);
	ZnsPb__DumpBegin d;
	REQ(q);

	begin_request(&q, &d, "a", 501, "share", NULL);
	refused(&a, &q, -ERANGE,
		"at most 500 MiB/s, which is all that the device writes as a whole");
	/* promises together stay below the device's rate, and sharing dumps keep to the rest */
	assert_int_equal(begin_capped(&a, "a", 300, 0, "reject", NULL), 0);
	begin_request(&q, &d, "b", 201, "reject", NULL);
	refused(&b, &q, -EBUSY,
		"of the 500 that the device writes as a whole 200 are not promised");
	assert_int_equal(begin_capped(&b, "b", 300, 0, "share",
				      "200 are not promised: at most these, of 300"),
			 200);
	assert_int_equal(begin_capped(&c, "c", 80, 0, "share", NULL), 80);
	assert_int_equal(progress(&b, 0, 0), 120);
	assert_int_equal(progress(&a, 0, 0), 0);
	/* one more promise means a smaller part for each sharing dump */
	assert_int_equal(begin_capped(&e, "e", 100, 0, "reject", NULL), 0);
	assert_int_equal(progress(&b, 0, 0), 50);
	assert_int_equal(progress(&c, 0, 0), 50);
	abort_dump(&e);
	/* what was promised is free again, and all zones together cannot go beyond it */
	abort_dump(&a);
	assert_int_equal(progress(&b, 0, 0), 0);
	assert_int_equal(progress(&c, 0, 0), 0);
	abort_dump(&b);
	abort_dump(&c);
	/* without promises: max-min fair shares of the rate, by the requested rates; the rest in
	 * equal parts */
	assert_int_equal(begin_capped(&a, "a", 400, 0, "share", NULL), 0);
	assert_int_equal(begin_capped(&b, "b", 400, 0, "share", NULL), 250);
	assert_int_equal(progress(&a, 0, 0), 250);
	assert_int_equal(begin_capped(&c, "c", 50, 0, "share", NULL), 50);
	assert_int_equal(progress(&a, 0, 0), 225);
	assert_int_equal(progress(&b, 0, 0), 225);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
	zns_broker_close(&e);
}

static void progress_is_shown(void **state)
{
	struct zns_broker a = client(*state), who = client(*state);
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__LeaseLine *l;
	ZnsPb__Response *r;
	REQ(q);

	q.progress = &p;
	refused(&who, &q, -EINVAL, "no dump or restore has begun");
	begin_capped(&a, "a", 100, 0, "share", NULL);
	r = status(&who);
	assert_false(r->status->leases[0]->has_bytes);
	drop(r);
	progress(&a, MIB(10), MIB(100));
	advance(&who, 600);
	progress(&a, MIB(40), MIB(100));
	r = status(&who);
	l = r->status->leases[0];
	assert_int_equal(l->bytes, MIB(40));
	assert_int_equal(l->total, MIB(100));
	assert_in_range(l->mibps, 66, 67); /* 40 MiB in 0.6 s */
	/* this applies only to a drive with one domain */
	assert_false(r->status->has_promised_mibps);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&who);
}

static void one_domain_accounts(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	REQ(q);

	/* alone: there is no other dump to protect */
	assert_int_equal(begin_capped(&a, "a", 60, 0, "reject", NULL), 0);
	begin_request(&q, &d, "b", 50, "reject", NULL);
	refused(&b, &q, -EBUSY, "one domain of 100 MiB/s, of which 60 are promised");
	begin_request(&q, &d, "b", 101, "share", NULL);
	refused(&b, &q, -ERANGE, "at most 100 MiB/s");
	/* 60 + 30 promised, the rest in equal parts; at once for both */
	assert_int_equal(begin_capped(&b, "b", 30, 0, "reject", NULL), 35);
	assert_int_equal(progress(&a, 0, 0), 65);
	/* a sharing dump gets the rest, and its note says so; a dump without a requested rate gets
	 * a part of what is not promised */
	assert_int_equal(begin_capped(&c, "c", 50, 0, "share", "about 10 MiB/s of 50"), 10);
	assert_int_equal(progress(&a, 0, 0), 60);
	r = status(&c);
	assert_int_equal(r->status->promised_mibps, 100);
	assert_int_equal(r->status->device_mibps, DEV_MIBPS);
	drop(r);
	zns_broker_close(&c);
	zns_broker_close(&b);
	settle(&a);
	assert_int_equal(progress(&a, 0, 0), 0); /* alone again */
	zns_broker_close(&a);
}

static void one_domain_spare(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);

	begin_capped(&a, "a", 40, 45, "share", NULL);
	/* 60 MiB/s are to spare, but the first dump's cap lets it use only 5 of them */
	assert_int_equal(begin_capped(&b, "b", 0, 0, "share", NULL), 55);
	assert_int_equal(progress(&a, 0, 0), 45);
	assert_int_equal(begin_capped(&c, "c", 0, 7, "wait=1", NULL), 7);
	assert_int_equal(progress(&b, 0, 0), 48);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* Everything is promised: dumps without a promise become very slow, but do not stop. */
static void one_domain_full(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);

	begin_capped(&a, "a", 100, 0, "wait", NULL);
	assert_int_equal(begin_capped(&b, "b", 0, 0, "share", NULL), 1);
	assert_int_equal(progress(&a, 0, 0), 100);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void one_domain_waits(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	REQ(q);

	begin_capped(&a, "a", 70, 0, "share", NULL);
	begin_request(&q, &d, "b", 40, "wait=20", NULL);
	post(&b, &q);
	settle(&a);
	assert_false(has_answer(&b));
	zns_broker_close(&a);
	r = answer(&b);
	assert_int_equal(r->code, 0);
	assert_int_equal(r->dump->rate_mibps, 0);
	drop(r);
	zns_broker_close(&b);
}

/* A restore gets the drive's free time, at the rate of reads. */
static void one_domain_restore(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__RestoreBegin rb;
	ZnsPb__Response *r;
	struct grant g;
	struct zone z;
	REQ(q);

	g = dump(f, &a, "a", KIB(64), &z);
	restore_request(&q, &rb, g.id);
	r = ask(&b, &q);
	assert_int_equal(r->rate_mibps, 0);
	drop(r);
	begin_capped(&a, "a", 60, 0, "share", NULL);
	/* half of the 40 that are not promised, reads being 4 times as fast */
	assert_int_equal(progress(&b, 0, 0), 80);
	assert_int_equal(progress(&a, 0, 0), 80);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static ZnsPb__Response *finish_restore(struct zns_broker *b, const uint8_t *id, uint64_t bytes,
				       uint64_t us)
{
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__RestoreBegin rb;
	REQ(q);
	REQ(end);

	restore_request(&q, &rb, id);
	drop(ask(b, &q));
	p.bytes = bytes;
	p.has_data_us = p.has_done = p.done = 1;
	p.data_us = us;
	end.progress = &p;
	return ask(b, &end);
}

static void restores_are_kept(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	struct grant g, g2;
	ZnsPb__RestoreStat *s;
	ZnsPb__Response *r;
	struct zone z;

	g = dump(f, &a, "one", KIB(64), &z);
	g2 = dump(f, &a, "two", KIB(64), &z);
	r = finish_restore(&a, g.id, MIB(300), 2000000);
	assert_non_null(r->restore);
	drop(r);
	drop(finish_restore(&a, g2.id, MIB(3), 900000));
	drop(finish_restore(&a, g.id, MIB(500), 2500000));
	kill_broker(&a); /* the next broker knows it */
	zns_broker_close(&a);
	a = client(f);
	r = status(&a);
	assert_int_equal(r->status->n_restores, 2);
	s = r->status->restores[1];
	assert_string_equal(s->container, "one");
	assert_memory_equal(s->checkpoint.data, g.id, ZNS_UUID_LEN);
	assert_int_equal(s->bytes, MIB(500));
	assert_true(s->has_achieved_mibps && s->achieved_mibps > 199.9 &&
		    s->achieved_mibps < 200.1);
	assert_int_equal(s->nr_zones, 1);
	s = r->status->restores[0];
	assert_string_equal(s->container, "two");
	assert_false(s->has_achieved_mibps); /* under a second */
	drop(r);
	zns_broker_close(&a);
}

static void damaged_statistics_do_no_harm(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	char path[4096];
	struct grant g;
	struct zone z;
	int fd;

	g = dump(f, &a, "one", KIB(64), &z);
	drop(finish_restore(&a, g.id, MIB(300), 2000000));
	kill_broker(&a);
	zns_broker_close(&a);
	assert_int_equal(zns_broker_path(f->reg.uuid, "restores", path, sizeof(path)), 0);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "\x0a\x7fnonsense", 10), 10);
	close(fd);
	a = client(f);
	drop(finish_restore(&a, g.id, MIB(300), 2000000));
	kill_broker(&a);
	zns_broker_close(&a);
	a = client(f);
	{
		ZnsPb__Response *r = status(&a);

		assert_int_equal(r->status->n_restores, 1);
		drop(r);
	}
	zns_broker_close(&a);
}

static uint32_t room_in(struct fx *f, uint32_t group)
{
	uint32_t n = 0;

	for (uint32_t i = META; i < ZONES; i++)
		n += (i - META) % DIES == group && state_of(f, i) == ZNS_ZONE_EMPTY;
	return n;
}

/* The groups with the least sufficient room come first, so that later dumps find whole dies
 * free. */
static void order_by_room(struct fx *f, struct grant *g, uint32_t enough)
{
	for (uint32_t i = 0; i < g->n; i++)
		for (uint32_t k = i + 1; k < g->n; k++) {
			uint32_t a = room_in(f, g->group[i]), b = room_in(f, g->group[k]),
				 was = g->group[i];

			if (a >= enough && (b < enough || b >= a))
				continue;
			g->group[i] = g->group[k];
			g->group[k] = was;
		}
}

/* A checkpoint that says it is large, whose @nr lanes are all in @dies of its groups. */
static void commit_lanes(struct fx *f, struct zns_broker *b, const char *name, uint32_t nr,
			 uint32_t dies)
{
	struct grant g = begin(b, name, nr * DEV_MIBPS);
	struct zone z[8];
	struct record k;
	REQ(q);

	assert_true(g.n >= dies && nr <= ZNS_ARRAY_SIZE(z));
	order_by_room(f, &g, nr / dies);
	for (uint32_t i = 0; i < nr; i++) {
		z[i] = zone_get(b, g.group[i % dies]);
		assert_int_equal(z[i].group, g.group[i % dies]);
		fill(f, &z[i], KIB(256));
	}
	record(&k, &g, z, nr);
	k.c.bytes = MIB(64);
	k.c.has_qos_requested_mibps = 1;
	k.c.qos_requested_mibps = nr * DEV_MIBPS;
	q.commit = &k.c;
	drop(ask(b, &q));
}

static void is_scattered(const ZnsPb__Status *s, size_t at, const char *name, double of_best)
{
	assert_true(at < s->n_scattered);
	assert_string_equal(s->scattered[at]->container, name);
	if (s->scattered[at]->of_best < of_best - 0.01 ||
	    s->scattered[at]->of_best > of_best + 0.01)
		fail_msg("%s: %f, not %f", name, s->scattered[at]->of_best, of_best);
}

/* The same number of lanes on each die that is used, but fewer dies than lanes. */
static void collisions_are_named(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	ZnsPb__Response *r;

	commit_lanes(f, &a, "on two", 4, 2);
	commit_lanes(f, &a, "on one", 4, 1);
	commit_lanes(f, &a, "apart", 4, 4);
	r = status(&a);
	assert_int_equal(r->status->n_scattered, 2);
	is_scattered(r->status, 0, "on one", 0.25);
	is_scattered(r->status, 1, "on two", 0.5);
	drop(r);
	zns_broker_close(&a);
}

/* A die that has only small images does not count as one from which pages can be read. */
static void metadata_is_no_lane(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	struct grant g = begin(&a, "apart", 5 * DEV_MIBPS);
	ZnsPb__Response *r;
	struct zone z[5];
	struct record k;
	REQ(q);

	assert_int_equal(g.n, 5);
	for (int i = 0; i < 5; i++) {
		z[i] = zone_get(&a, g.group[i]);
		fill(f, &z[i], i < 4 ? KIB(256) : KIB(4));
	}
	record(&k, &g, z, 5);
	k.c.bytes = MIB(64);
	k.c.has_qos_requested_mibps = 1;
	k.c.qos_requested_mibps = 4 * DEV_MIBPS;
	k.c.metadata_groups = &g.group[4];
	k.c.n_metadata_groups = 1;
	q.commit = &k.c;
	drop(ask(&a, &q));
	r = status(&a);
	assert_int_equal(r->status->n_scattered, 0);
	drop(r);
	zns_broker_close(&a);
}

/* However many there are, the slowest ones are named. */
static void slowest_are_named(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	ZnsPb__Response *r;
	char name[16];

	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "half %d", i);
		commit_lanes(f, &a, name, 2, 1);
	}
	commit_lanes(f, &a, "third", 3, 1);
	r = status(&a);
	assert_int_equal(r->status->n_scattered, 8);
	is_scattered(r->status, 0, "third", 1 / 3.0);
	is_scattered(r->status, 1, "half 0", 0.5);
	is_scattered(r->status, 7, "half 6", 0.5);
	drop(r);
	zns_broker_close(&a);
}

#define G(f) cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
#define O(f) cmocka_unit_test_setup_teardown(f, setup_one, fx_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ceiling_of_the_device, setup_ceiling, fx_teardown),
		cmocka_unit_test_setup_teardown(slow_group, setup_slow, fx_teardown),
		G(caps_are_told),
		G(progress_is_shown),
		O(one_domain_accounts),
		O(one_domain_spare),
		O(one_domain_full),
		O(one_domain_waits),
		O(one_domain_restore),
		G(restores_are_kept),
		G(collisions_are_named),
		G(metadata_is_no_lane),
		G(slowest_are_named),
		G(damaged_statistics_do_no_harm),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
