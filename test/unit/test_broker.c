/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd through its socket: dumps, restores, admission. Faults and restarts: test_broker_faults.c.
 */
#include "broker_fixture.h"

static void dump_ls_rm(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct grant g = begin(&b, "web", 300);
	struct zone z[3];
	ZnsPb__RestoreBegin rb;
	ZnsPb__Response *r;
	ZnsPb__Request q;
	uint32_t i, k;

	assert_int_equal(g.n, 3);
	assert_int_equal(g.shared, 0);
	for (i = 0; i < 3; i++) {
		/* distinct groups on distinct channels, none of them with metadata */
		assert_int_not_equal(g.group[i], 0);
		assert_int_equal(g.weight[i], 1);
		for (k = 0; k < i; k++)
			assert_int_not_equal(g.group[i] % CHANNELS, g.group[k] % CHANNELS);
		z[i] = zone_get(&b, g.group[i]);
		assert_int_equal(z[i].group, g.group[i]);
		assert_int_equal(z[i].start, 0);
		assert_int_equal(z[i].cap, CAP);
		fill(f, &z[i], KIB(256));
	}
	r = status(&b);
	assert_int_equal(r->status->n_leases, 1);
	assert_string_equal(r->status->leases[0]->container, "web");
	assert_int_equal(r->status->leases[0]->pid, getpid());
	assert_int_equal(r->status->n_reservations, 1);
	assert_int_equal(r->status->bytes_wasted, 0);
	drop(r);
	assert_int_equal(nr_checkpoints(&b), 0);
	commit(&b, &g, z, 3);

	zns_pb__request__init(&q);
	q.has_ls = q.ls = 1;
	r = ask(&b, &q);
	assert_int_equal(r->n_checkpoints, 1);
	assert_memory_equal(r->checkpoints[0]->id.data, g.id, ZNS_UUID_LEN);
	drop(r);
	r = status(&b);
	assert_int_equal(r->status->n_leases, 0);
	assert_int_equal(r->status->bytes_live, 3 * KIB(256));
	assert_int_equal(r->status->nr_checkpoints, 1);
	drop(r);
	assert_int_equal(state_of(f, z[0].zone), ZNS_ZONE_CLOSED);

	zns_pb__request__init(&q);
	q.has_zones = q.zones = 1;
	r = ask(&b, &q);
	assert_int_equal(r->n_zones, ZONES);
	assert_string_equal(r->zones[0]->owner, "(metadata)");
	assert_string_equal(r->zones[z[1].zone]->owner, "web");
	assert_int_equal(r->zones[z[1].zone]->live, KIB(256));
	drop(r);

	rm(&b, g.id, 1);
	rm(&b, g.id, 0);
	for (i = 0; i < 3; i++)
		assert_true(becomes(f, z[i].zone, ZNS_ZONE_EMPTY));
	assert_int_equal(nr_reservations(&b), 0);
	restore_request(&q, &rb, g.id);
	refused(&b, &q, -ESTALE, "of container web was deleted at");
	g.id[0] ^= 0xff;
	refused(&b, &q, -ENOENT, "has no checkpoint");
	zns_broker_close(&b);
}

static void ls_of_one(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	struct grant web[2], db;
	ZnsPb__Retention keep = ZNS_PB__RETENTION__INIT;
	ZnsPb__Response *r;
	char id[ZNS_UUID_STR], cut[ZNS_UUID_STR], long_name[4096];
	REQ(q);

	web[0] = dump(f, &b, "web", KIB(64), &z);
	db = dump(f, &b, "db", KIB(64), &z);
	web[1] = dump(f, &b, "web", KIB(64), &z);
	keep.container = "web";
	keep.has_keep = 1;
	keep.keep = 9;
	q.retain = &keep;
	drop(ask(&b, &q));
	zns_uuid_format(db.id, id);
	snprintf(cut, sizeof(cut), "%.8s", id);
	memset(long_name, 'w', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	const struct {
		const char *only;
		size_t nr, rules;
	} cases[] = { { NULL, 3, 1 }, { "web", 2, 0 }, { "we", 0, 0 },     { "", 0, 0 },
		      { id, 1, 0 },   { cut, 0, 0 },   { long_name, 0, 0 } };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(cases); i++) {
		zns_pb__request__init(&q);
		q.has_ls = q.ls = 1;
		q.only = (char *)cases[i].only;
		r = ask(&b, &q);
		assert_int_equal(r->n_checkpoints, cases[i].nr);
		assert_int_equal(r->n_retentions, cases[i].rules);
		if (cases[i].nr == 1)
			assert_memory_equal(r->checkpoints[0]->id.data, db.id, ZNS_UUID_LEN);
		for (size_t n = 0; cases[i].nr == 2 && n < 2; n++)
			assert_memory_equal(r->checkpoints[n]->id.data, web[n].id, ZNS_UUID_LEN);
		drop(r);
	}
	zns_broker_close(&b);
}

/* The clock was ahead when the checkpoint was removed. A copy that arrives again must be
 * noticed, and count as later. */
static void comes_again_after_a_clock_ahead(void **state)
{
	struct fx *f = *state;
	const int64_t ahead = zns_now_ns() + INT64_C(3600000000000);
	struct zns_broker b = client(f);
	struct grant g = begin(&b, "web", 0), again;
	struct zone z = zone_get(&b, g.group[0]);
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	struct record k;
	REQ(q);
	REQ(c);

	fill(f, &z, KIB(64));
	record(&k, &g, &z, 1);
	k.c.created_ns = ahead;
	c.commit = &k.c;
	drop(ask(&b, &c));
	rm(&b, g.id, 1);

	begin_request(&q, &d, "web", 0, NULL, NULL);
	d.has_sealed = 1;
	d.sealed = (ProtobufCBinaryData){ ZNS_UUID_LEN, g.id };
	r = ask(&b, &q);
	again = grant_of(r, "web");
	assert_memory_equal(again.id, g.id, ZNS_UUID_LEN);
	assert_true(r->dump->deleted_ns >= ahead);
	drop(r);
	z = zone_get(&b, again.group[0]);
	fill(f, &z, KIB(64));
	record(&k, &again, &z, 1);
	c.commit = &k.c;
	k.c.has_moved_ns = 1;
	k.c.moved_ns = ahead;
	refused(&b, &c, -EINVAL, "not later than the removal");
	k.c.moved_ns = zns_now_after(ahead);
	drop(ask(&b, &c));
	zns_broker_close(&b);
}

static void parked_zone_is_continued(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z, y, other;

	dump(f, &b, "web", KIB(256), &z);
	dump(f, &b, "db", KIB(128), &other);
	assert_int_not_equal(other.zone, z.zone);
	dump(f, &b, "web", KIB(512), &y);
	assert_int_equal(y.zone, z.zone);
	assert_int_equal(y.start, KIB(256));
	/* of 256 KiB this dump leaves less than a unit: the zone is not given again */
	dump(f, &b, "web", KIB(256) - KIB(32), &y);
	assert_int_equal(y.zone, z.zone);
	dump(f, &b, "web", KIB(64), &y);
	assert_int_not_equal(y.zone, z.zone);
	assert_int_equal(y.start, 0);
	/* and the zone no longer counts as active */
	assert_true(becomes(f, z.zone, ZNS_ZONE_FULL));
	zns_broker_close(&b);
}

static void abort_gives_back(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct grant g;
	struct zone z, p, unused;

	g = begin(&b, "web", 0);
	z = zone_get(&b, g.group[0]);
	fill(f, &z, KIB(64));
	unused = zone_get(&b, g.group[0]);
	assert_int_not_equal(unused.zone, z.zone);
	abort_dump(&b);
	abort_dump(&b);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	assert_int_equal(nr_reservations(&b), 0);
	zone_refused(&b, g.group[0], -EINVAL, "without a dump");

	/* A parked zone keeps its live data, and is continued from its present write pointer. */
	dump(f, &b, "web", KIB(64), &z);
	g = begin(&b, "web", 0);
	p = zone_get(&b, g.group[0]);
	assert_int_equal(p.zone, z.zone);
	fill(f, &p, KIB(64));
	abort_dump(&b);
	settle(&b);
	assert_int_equal(state_of(f, z.zone), ZNS_ZONE_CLOSED);
	g = begin(&b, "web", 0);
	p = zone_get(&b, g.group[0]);
	assert_int_equal(p.zone, z.zone);
	assert_int_equal(p.start, KIB(128));
	abort_dump(&b);
	assert_int_equal(nr_reservations(&b), 1);
	zns_broker_close(&b);
}

/* The container keeps the groups that its newest dump asked for, also if it had others before. */
static void reservation_has_the_newest_qos(void **state)
{
	static const uint32_t qos[] = { 60, 100, 80 };
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__Response *r;
	struct grant g;
	struct zone z;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(qos); i++) {
		g = begin(&b, "web", qos[i]);
		z = zone_get(&b, g.group[0]);
		fill(f, &z, KIB(64));
		commit(&b, &g, &z, 1);
		r = status(&b);
		assert_int_equal(r->status->n_reservations, 1);
		assert_int_equal(r->status->reservations[0]->n_groups, 1);
		assert_int_equal(r->status->reservations[0]->qos_mibps, qos[i]);
		drop(r);
	}
	zns_broker_close(&b);
}

static void bad_requests(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__ZonesReset reset = ZNS_PB__ZONES_RESET__INIT;
	char name[202];
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct grant g;

	begin_request(&q, &d, "web", 100, "maybe", NULL);
	refused(&b, &q, -EINVAL, "share, wait[=SECONDS] or reject");
	begin_request(&q, &d, "web", 100, "wait=", NULL);
	refused(&b, &q, -EINVAL, "wait=S");
	begin_request(&q, &d, "web", 100, "wait=-1", NULL);
	refused(&b, &q, -EINVAL, "wait=S");
	begin_request(&q, &d, "web", 100, "waiting", NULL);
	refused(&b, &q, -EINVAL, "not known");
	begin_request(&q, &d, "web", 100, NULL, "random");
	refused(&b, &q, -EINVAL, "static or dynamic");
	begin_request(&q, &d, "", 100, NULL, NULL);
	refused(&b, &q, -EINVAL, "empty");
	begin_request(&q, &d, "a\nb", 100, NULL, NULL);
	refused(&b, &q, -EINVAL, "cannot be printed");
	begin_request(&q, &d, "a\"b", 100, NULL, NULL);
	refused(&b, &q, -EINVAL, "which no name may have");
	begin_request(&q, &d, "a\\b", 100, NULL, NULL);
	refused(&b, &q, -EINVAL, "which no name may have");
	begin_request(&q, &d, "\xc3(", 100, NULL, NULL);
	refused(&b, &q, -EINVAL, "cannot be printed");
	memset(name, 'x', 201);
	name[201] = 0;
	begin_request(&q, &d, name, 100, NULL, NULL);
	refused(&b, &q, -EINVAL, "longer than 200");
	/* Eight groups of 100 MiB/s; in every mode. */
	begin_request(&q, &d, "web", 801, NULL, NULL);
	refused(&b, &q, -ERANGE, "at most 800 MiB/s (8 groups x 100 MiB/s)");
	begin_request(&q, &d, "web", 801, "wait", NULL);
	refused(&b, &q, -ERANGE, "at most 800");
	begin_request(&q, &d, "web", UINT32_MAX, "reject", NULL);
	refused(&b, &q, -ERANGE, "at most 800");
	assert_int_equal(nr_reservations(&b), 0);

	g = begin(&b,
		  "w\xc3\xa9"
		  "b",
		  800);
	assert_int_equal(g.n, 8);
	begin_request(&q, &d, "web", 100, NULL, NULL);
	refused(&b, &q, -EBUSY, "has a dump already");
	zone_refused(&b, 8, -EINVAL, "not granted");
	zone_refused(&b, UINT32_MAX, -EINVAL, "not granted");
	begin_request(&q, &d, "web", 100, NULL, NULL);
	q.has_ls = q.ls = 1;
	refused(&b, &q, -EINVAL, "exactly one member");
	zns_pb__request__init(&q);
	q.reset = &reset;
	reset.n_zones = 1;
	reset.zones = (uint32_t[]){ ZONES };
	refused(&b, &q, -EINVAL, "no zone");
	reset.zones = (uint32_t[]){ 0 };
	refused(&b, &q, -EBUSY, "metadata");
	zns_broker_close(&b);
}

static void commit_is_checked(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f), b2 = client(f);
	struct grant g, h;
	struct zone z, other;
	struct record k;
	REQ(q);

	dump(f, &b, "web", KIB(64), &z);
	g = begin(&b, "web", 0);
	z = zone_get(&b, g.group[0]);
	assert_int_equal(z.start, KIB(64));
	fill(f, &z, KIB(64));
	h = begin(&b2, "db", 0);
	other = zone_get(&b2, h.group[0]);
	fill(f, &other, KIB(64));
	q.commit = &k.c;

	record(&k, &h, &other, 1);
	refused(&b, &q, -EINVAL, "not the checkpoint");
	record(&k, &g, &z, 1);
	k.c.container = "db";
	refused(&b, &q, -EINVAL, "another container");
	record(&k, &g, &other, 1);
	refused(&b, &q, -EINVAL, "not granted");
	record(&k, &g, &z, 1);
	k.use[0].start = 0;
	refused(&b, &q, -EINVAL, "not what this dump wrote");
	record(&k, &g, &z, 1);
	k.use[0].len += 4096;
	refused(&b, &q, -EINVAL, "not what this dump wrote");
	record(&k, &g, &z, 1);
	k.use[0].len = UINT64_MAX;
	refused(&b, &q, -EINVAL, "not what this dump wrote");
	record(&k, &g, &z, 1);
	k.m.start = 0;
	refused(&b, &q, -EINVAL, "manifest");
	record(&k, &g, &z, 1);
	k.m.len = UINT64_MAX;
	refused(&b, &q, -EINVAL, "manifest");
	record(&k, &g, &z, 1);
	k.c.manifest = NULL;
	refused(&b, &q, -EINVAL, "no manifest");
	record(&k, &g, &z, 1);
	k.c.groups = (uint32_t[]){ 99 };
	k.c.n_groups = 1;
	refused(&b, &q, -EINVAL, "no group 99");
	/* the same bytes twice */
	record(&k, &g, &z, 1);
	k.use[1] = k.use[0];
	k.up[1] = &k.use[1];
	k.c.n_zones = 2;
	refused(&b, &q, -EINVAL, "not what this dump wrote");
	/* After all these refusals the right record is accepted. */
	commit(&b, &g, &z, 1);
	commit(&b2, &h, &other, 1);
	assert_int_equal(nr_checkpoints(&b), 3);
	refused(&b, &q, -EINVAL, "without a dump");
	zns_broker_close(&b);
	zns_broker_close(&b2);
}

static struct zone zone_to_move_to(struct zns_broker *b, ZnsPb__CompactZone *wants)
{
	ZnsPb__Response *r;
	struct zone z;
	REQ(q);

	q.compact_zone = wants;
	r = ask(b, &q);
	z = (struct zone){ r->zone->zone, r->zone->group, r->zone->start, r->zone->capacity,
			   r->zone->start };
	drop(r);
	return z;
}

/* Whoever moves a checkpoint may name only bytes that it had, and bytes written for the move. */
static void move_is_checked(void **state)
{
	struct fx *f = *state;
	struct zns_broker web = client(f), db = client(f), mover = client(f);
	ZnsPb__CompactBegin begins = ZNS_PB__COMPACT_BEGIN__INIT;
	ZnsPb__CompactZone wants = ZNS_PB__COMPACT_ZONE__INIT;
	struct zone z, other, back, to;
	ZnsPb__Response *r;
	struct grant g, h;
	struct record k;
	REQ(q);

	g = dump(f, &web, "web", KIB(64), &z);
	h = dump(f, &db, "db", KIB(64), &other);
	begins.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, g.id };
	q.compact_begin = &begins;
	drop(ask(&mover, &q));
	refused(&db, &q, -EBUSY, "being moved by PID");
	refused(&mover, &q, -EBUSY, "a compaction already");
	wants.group = z.group;
	wants.need = KIB(64);
	back = zone_to_move_to(&mover, &wants); /* behind the part that the zone holds */
	assert_true(back.zone == z.zone && back.start == z.wp);
	fill(f, &back, KIB(64));
	wants.not_zones = &z.zone;
	wants.n_not_zones = 1;
	to = zone_to_move_to(&mover, &wants);
	fill(f, &to, KIB(64));

	zns_pb__request__init(&q);
	q.compact_commit = &k.c;
	record(&k, &g, &to, 1);
	refused(&db, &q, -EINVAL, "no compaction has begun");
	record(&k, &h, &to, 1);
	refused(&mover, &q, -EINVAL, "of another checkpoint than was asked for");
	record(&k, &g, &to, 1);
	k.c.n_zones = 0;
	refused(&mover, &q, -EINVAL, "has no zones");
	record(&k, &g, &other, 1); /* a record of another checkpoint */
	refused(&mover, &q, -EINVAL, "neither belong to the checkpoint nor");
	record(&k, &g, &to, 1);
	k.use[0].len += 4096; /* more than is in the zone */
	refused(&mover, &q, -EINVAL, "neither belong to the checkpoint nor");
	k.use[0].len = UINT64_MAX;
	refused(&mover, &q, -EINVAL, "neither belong to the checkpoint nor");
	k.use[0].len = 0;
	refused(&mover, &q, -EINVAL, "neither belong to the checkpoint nor");
	record(&k, &g, &to, 1);
	k.use[0].zone = UINT32_MAX;
	refused(&mover, &q, -EINVAL, "neither belong to the checkpoint nor");
	record(&k, &g, &z, 1);
	k.use[0].len += 4096; /* more than it had */
	refused(&mover, &q, -EINVAL, "neither belong to the checkpoint nor");
	record(&k, &g, &to, 1);
	k.use[1] = k.use[0]; /* twice */
	k.up[1] = &k.use[1];
	k.c.n_zones = 2;
	refused(&mover, &q, -EINVAL, "not in order");
	record(&k, &g, &to, 1);
	k.m.zone = z.zone; /* the old manifest lies in a zone that the move writes */
	k.m.start = z.wp - 4096;
	refused(&mover, &q, -EINVAL, "not where this lease wrote");
	k.m.zone = other.zone;
	refused(&mover, &q, -EINVAL, "not where this lease wrote");
	/* after all these refusals the right record is accepted, and the other checkpoint is
	 * unchanged */
	record(&k, &g, &to, 1);
	k.c.moved_ns = zns_now_ns();
	drop(ask(&mover, &q));
	refused(&mover, &q, -EINVAL, "no compaction has begun");
	zns_broker_close(&mover); /* a restore may still read the old place */
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	assert_int_equal(nr_checkpoints(&web), 2);
	zns_pb__request__init(&q);
	q.has_ls = q.ls = 1;
	r = ask(&web, &q);
	for (size_t n = 0; n < r->n_checkpoints; n++)
		assert_int_equal(r->checkpoints[n]->zones[0]->zone,
				 strcmp(r->checkpoints[n]->container, "web") ? other.zone :
									       to.zone);
	drop(r);
	zns_broker_close(&web);
	zns_broker_close(&db);
}

static void sharing(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f);
	struct grant ga = begin(&a, "a", 600), gb, gc;
	uint32_t i, k, twos = 0;

	assert_int_equal(ga.n, 6);
	/* Two free groups, then halves: 100 + 100 + 4 x 50. */
	gb = begin(&b, "b", 400);
	assert_int_equal(gb.n, 6);
	assert_int_equal(gb.shared, 4);
	for (i = 0; i < gb.n; i++) {
		bool shared = false;

		for (k = 0; k < ga.n; k++)
			shared |= ga.group[k] == gb.group[i];
		assert_int_equal(gb.weight[i], shared ? 1 : 2);
		twos += gb.weight[i] == 2;
	}
	assert_int_equal(twos, 2);
	assert_string_equal(gb.note, "");
	/* The groups that are left cannot give 700 any more. The grant's note says so, and the
	 * dump gets at most a third of the device. */
	gc = begin(&c, "c", 700);
	assert_int_equal(gc.n, 6);
	assert_int_equal(gc.shared, 6);
	assert_true(strstr(gc.note, "of 700") != NULL);
	abort_dump(&b);
	abort_dump(&c);
	abort_dump(&a);

	/* Static: the same groups as before, and more if more is requested; other containers
	 * avoid them. */
	struct zone z;
	dump(f, &a, "x", KIB(64), &z);
	ga = begin(&a, "x", 300);
	assert_int_equal(ga.n, 3);
	assert_int_equal(ga.group[0], z.group);
	abort_dump(&a);
	gb = begin(&a, "x", 200);
	for (i = 0; i < gb.n; i++)
		assert_true(gb.group[i] == ga.group[0] || gb.group[i] == ga.group[1] ||
			    gb.group[i] == ga.group[2]);
	gc = begin(&b, "y", 500);
	assert_int_equal(gc.shared, 0);
	/* Dynamic: no reservation, and no groups that others have reserved. */
	struct grant gd;
	size_t n = nr_reservations(&a);
	abort_dump(&b);
	gd = begin_mode(&b, "y", 500, NULL, "dynamic");
	assert_int_equal(gd.shared, 0);
	assert_int_equal(nr_reservations(&a), n - 1);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

static void reject_and_wait(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f);
	struct grant g;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	char pid[32];

	begin(&a, "a", 600);
	snprintf(pid, sizeof(pid), "a (dump, PID %d, groups", getpid());
	begin_request(&q, &d, "b", 400, "reject", NULL);
	refused(&b, &q, -EBUSY, pid);
	assert_int_equal(nr_reservations(&b), 1);
	begin_request(&q, &d, "b", 400, "wait=0", NULL);
	refused(&b, &q, -ETIMEDOUT, pid);
	begin_request(&q, &d, "b", 400, "wait=1", NULL);
	post(&b, &q);
	settle(&a);
	advance(&a, 999);
	assert_false(has_answer(&b));
	advance(&a, 1);
	r = answer(&b);
	assert_int_equal(r->code, -ETIMEDOUT);
	assert_non_null(strstr(r->error, "not admitted in 1 s"));
	drop(r);
	g = begin_mode(&b, "b", 200, "reject", NULL);
	assert_int_equal(g.n, 2);
	abort_dump(&b);

	/* First come, first served: c's smaller request does not overtake b's. */
	begin_request(&q, &d, "b", 400, "wait=20", NULL);
	post(&b, &q);
	settle(&a);
	begin_request(&q, &d, "c", 100, "wait=20", NULL);
	post(&c, &q);
	settle(&a);
	assert_false(has_answer(&c));
	assert_int_equal(nr_waiting(&a), 2);
	abort_dump(&a);
	r = answer(&b);
	assert_int_equal(r->code, 0);
	assert_int_equal(r->dump->n_groups, 4);
	drop(r);
	r = answer(&c);
	assert_int_equal(r->code, 0);
	drop(r);

	/* A waiting client that disconnects leaves the queue. */
	begin_request(&q, &d, "a", 800, "wait=20", NULL);
	post(&a, &q);
	settle(&b);
	assert_int_equal(nr_waiting(&b), 1);
	zns_broker_close(&a);
	settle(&b);
	assert_int_equal(nr_waiting(&b), 0);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

static void normal_io(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__Reserve v = ZNS_PB__RESERVE__INIT;
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	struct grant g;
	uint32_t i;
	REQ(q);

	q.reserve = &v;
	v.container = "io";
	refused(&a, &q, -EINVAL, "not both");
	v.has_channels = 1;
	v.channels = 2;
	r = ask(&a, &q);
	assert_int_equal(r->reservation->n_groups, 2 * WAYS);
	/* Whole channels, but not the one with the metadata. */
	assert_int_equal(r->reservation->groups[0] % CHANNELS,
			 r->reservation->groups[1] % CHANNELS);
	for (i = 0; i < r->reservation->n_groups; i++)
		assert_int_not_equal(r->reservation->groups[i] % CHANNELS, 0);
	drop(r);
	refused(&a, &q, -EEXIST, "already");
	v.container = "more";
	v.channels = 3;
	refused(&a, &q, -EBUSY, "2 channels are free");
	v.has_channels = 0;
	v.channels = 0;
	v.has_groups = 1;
	v.groups = 5;
	refused(&a, &q, -EBUSY, "4 groups of 8 are free of");

	/* No dump gets them: 4 groups are left. */
	g = begin(&b, "web", 800);
	assert_int_equal(g.n, 4);
	assert_true(*g.note);
	abort_dump(&b);
	begin_request(&q, &d, "web", 500, "reject", NULL);
	refused(&b, &q, -EBUSY, "io (normal I/O, groups");
	g = begin_mode(&b, "web", 400, "reject", NULL);
	zns_pb__request__init(&q);
	q.release = "web";
	refused(&a, &q, -EBUSY, "is running");
	q.release = "io";
	drop(ask(&a, &q));
	refused(&a, &q, -ENOENT, "no reservation");
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void restore_protects(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__ZonesReset reset = ZNS_PB__ZONES_RESET__INIT;
	ZnsPb__RestoreBegin rb;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	struct grant g;
	struct zone z;

	g = dump(f, &a, "web", KIB(128), &z);
	restore_request(&q, &rb, g.id);
	r = ask(&b, &q);
	assert_int_equal(r->n_checkpoints, 1);
	assert_memory_equal(r->checkpoints[0]->id.data, g.id, ZNS_UUID_LEN);
	drop(r);
	zns_pb__request__init(&q);
	q.reset = &reset;
	reset.n_zones = 1;
	reset.zones = &z.zone;
	refused(&a, &q, -EBUSY, "live checkpoints of web");
	rm(&a, g.id, 1);
	assert_int_equal(nr_checkpoints(&a), 0);
	refused(&a, &q, -EBUSY, "being read by a restore of web");
	settle(&a);
	assert_int_not_equal(state_of(f, z.zone), ZNS_ZONE_EMPTY);
	zns_broker_close(&b);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	drop(ask(&a, &q));
	zns_broker_close(&a);
}

/* The broker reads bytes of a request as an id: here fewer than an id has, of a checkpoint that
 * exists. */
static void short_ids(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__Encryption want = ZNS_PB__ENCRYPTION__INIT;
	ZnsPb__Mark mark = ZNS_PB__MARK__INIT;
	ProtobufCBinaryData id = { ZNS_UUID_LEN - 1, NULL };
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__RestoreBegin rb;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct grant g;
	struct zone z;

	g = dump(f, &b, "web", KIB(128), &z);
	id.data = g.id;
	restore_request(&q, &rb, g.id);
	rb.checkpoint = id;
	refused(&b, &q, -EINVAL, "id must have 16 bytes");
	zns_pb__request__init(&q);
	q.rm = &rm;
	rm.by = "test";
	rm.n_checkpoints = 1;
	rm.checkpoints = &id;
	refused(&b, &q, -EINVAL, "id must have 16 bytes");
	zns_pb__request__init(&q);
	q.mark = &mark;
	mark.checkpoint = id;
	refused(&b, &q, -EINVAL, "id must have 16 bytes");
	begin_request(&q, &d, "web", 100, "reject", NULL);
	d.has_parent = 1;
	d.parent = id;
	refused(&b, &q, -EINVAL, "id must have 16 bytes");
	d.has_parent = 0;
	d.has_join = 1;
	d.join = id;
	refused(&b, &q, -EINVAL, "id must have 16 bytes");
	d.has_join = 0;
	d.has_flatten = 1;
	d.flatten = id;
	refused(&b, &q, -EINVAL, "id must have 16 bytes");
	d.has_flatten = 0;
	d.has_key_id = 1;
	d.key_id = (ProtobufCBinaryData){ 3, g.id };
	refused(&b, &q, -EINVAL, "key must have");
	zns_pb__request__init(&q);
	q.encryption = &want;
	want.has_key_id = 1;
	want.key_id = d.key_id;
	refused(&b, &q, -EINVAL, "key must have");
	assert_int_equal(nr_checkpoints(&b), 1);
	zns_broker_close(&b);
}

static void full_device(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct grant g = begin(&b, "web", 100);
	bool left_group = false;
	struct zone z[64];
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct record k;
	uint32_t n;

	for (n = 0; n < ZONES - META; n++) {
		z[n] = zone_get(&b, g.group[0]);
		fill(f, &z[n], CAP);
		/* The container's own group first, then the others. */
		if (n < 4)
			assert_int_equal(z[n].group, g.group[0]);
		left_group |= z[n].group != g.group[0];
	}
	assert_true(left_group);
	zone_refused(
		&b, g.group[0], -ENOSPC,
		"is full: 35 zones, 0 live checkpoints; `znsctl gc --compact` or `znsctl rm` makes room");
	record(&k, &g, z, n);
	zns_pb__request__init(&q);
	q.commit = &k.c;
	drop(ask(&b, &q));
	begin_request(&q, &d, "db", 100, NULL, NULL);
	refused(&b, &q, -ENOSPC, "is full: 35 zones, 1 live checkpoints");
	rm(&b, g.id, 1);
	g = begin(&b, "db", 100);
	zone_get(&b, g.group[0]);
	zns_broker_close(&b);
}

static void quits(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f), c = client(f);
	struct pollfd p;
	REQ(q);

	begin(&b, "web", 0);
	q.has_quit = q.quit = 1;
	refused(&c, &q, -EBUSY, "web (dump, PID");
	abort_dump(&b);
	drop(ask(&c, &q));
	p = (struct pollfd){ .fd = b.fd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 60000), 1);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* A signal ends the broker as `quit` does: another machine may take the store. */
static void asked_to_end(void **state)
{
	static const int sig[] = { SIGTERM, SIGINT };
	struct fx *f = *state;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(sig); i++) {
		struct zns_broker b = client(f);
		struct pollfd p = { .fd = pidfd_of(b.broker_pid), .events = POLLIN };
		struct zns_store *s;
		struct zone z;

		dump(f, &b, "web", KIB(64), &z);
		assert_int_equal(kill((pid_t)b.broker_pid, sig[i]), 0);
		assert_int_equal(poll(&p, 1, 60000), 1);
		close(p.fd);
		zns_broker_close(&b);
		assert_int_equal(zns_store_open(f->dev, ZNS_STORE_RDONLY, &s, NULL), 0);
		assert_true(zns_store_mount(s)->released);
		zns_store_close(s);
	}
}

static void leaves_when_idle(void **state)
{
	struct fx *f = *state;
	struct zns_broker b;
	struct pollfd p = { .events = POLLIN };
	uint32_t pid;

	setenv("ZNSD_IDLE_S", "0.02", 1);
	b = client(f);
	setenv("ZNSD_IDLE_S", "1", 1);
	pid = b.broker_pid;
	zns_broker_close(&b);
	b = client(f);
	assert_int_equal(b.broker_pid, pid);
	p.fd = pidfd_of(pid);
	advance(&b, 20); /* not while a client is connected */
	zns_broker_close(&b);
	b = client(f);
	assert_int_equal(b.broker_pid, pid);
	zns_broker_close(&b);
	until((zns_clock_advance(20000000), poll(&p, 1, 0)) == 1);
	close(p.fd);
	b = client(f);
	assert_int_not_equal(b.broker_pid, pid);
	zns_broker_close(&b);
}

/* A client connects in the same round in which the broker is told to quit. The next broker serves
 * that client. */
static void comes_while_it_leaves(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f), next;
	pid_t old = (pid_t)b.broker_pid, pid;
	int status;
	REQ(q);

	assert_int_equal(kill(old, SIGSTOP), 0);
	until(run_state(old) == 'T');
	q.has_quit = q.quit = 1;
	post(&b, &q);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		next = client(f);
		_exit(next.broker_pid == (uint32_t)old);
	}
	until(run_state(pid) == 'S'); /* the process waits for an answer */
	assert_int_equal(kill(old, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	zns_broker_close(&b);
}

/* Zones whose group a probe could not find are given to no dump, and promise nothing. */
static void unknown_group(void **state)
{
	struct fx *f = *state;
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s;
	ZnsPb__Profile p;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct zns_broker b;
	struct grant g;
	uint32_t i;

	assert_int_equal(zns_store_open(f->dev, 0, &s, &err), 0);
	p = *zns_store_profile(s);
	p.has_unknown_group = 1;
	p.unknown_group = p.n_groups - 1;
	if (zns_store_set_profile(s, &p, &err))
		fail_msg("%s", err.msg);
	zns_store_close(s);
	b = client(f);
	begin_request(&q, &d, "all", 800, NULL, NULL);
	refused(&b, &q, -ERANGE, "at most 700 MiB/s (7 groups");
	g = begin(&b, "all", 700);
	assert_int_equal(g.n, 7);
	for (i = 0; i < g.n; i++)
		assert_int_not_equal(g.group[i], 7);
	abort_dump(&b);
	zns_broker_close(&b);
}

/* A checkpoint from a stranger is built only on one from a stranger: it would keep a checkpoint
 * that a rule counts for ever. */
static void strangers_parent(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__Origin o = ZNS_PB__ORIGIN__INIT;
	struct grant own, strange;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct record k;
	struct zone z;

	own = dump(f, &b, "web", KIB(128), &z);
	o.has_claimed = o.claimed = 1;
	strange = begin(&b, "web", 0);
	z = zone_get(&b, strange.group[0]);
	fill(f, &z, KIB(128));
	record(&k, &strange, &z, 1);
	k.c.origin = &o;
	zns_pb__request__init(&q);
	q.commit = &k.c;
	drop(ask(&b, &q));
	begin_request(&q, &d, "web", 0, "reject", NULL);
	d.origin = &o;
	d.has_parent = 1;
	d.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, own.id };
	refused(&b, &q, -EPERM, "which no rule could remove any more");
	d.parent.data = strange.id;
	drop(ask(&b, &q));
	abort_dump(&b);
	o.claimed = 0;
	d.parent.data = own.id;
	drop(ask(&b, &q));
	abort_dump(&b);
	zns_broker_close(&b);
}

/* A child, its parent and the parent of that: whatever the order of the request, all are removed. */
static void chain_in_any_order(void **state)
{
	static const int order[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					{ 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	struct fx *f = *state;
	struct zns_broker b = client(f);

	for (size_t n = 0; n < ZNS_ARRAY_SIZE(order); n++) {
		ProtobufCBinaryData ids[3];
		ZnsPb__Rm m = ZNS_PB__RM__INIT;
		struct grant g[3];
		ZnsPb__DumpBegin d;
		ZnsPb__Response *r;
		ZnsPb__Request q;
		struct record k;
		struct zone z;

		for (int i = 0; i < 3; i++) {
			begin_request(&q, &d, "web", 0, "reject", NULL);
			d.has_parent = i > 0;
			if (i)
				d.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, g[i - 1].id };
			r = ask(&b, &q);
			g[i] = grant_of(r, "web");
			drop(r);
			z = zone_get(&b, g[i].group[0]);
			fill(f, &z, KIB(64));
			record(&k, &g[i], &z, 1);
			k.c.has_parent = d.has_parent;
			k.c.parent = d.parent;
			zns_pb__request__init(&q);
			q.commit = &k.c;
			drop(ask(&b, &q));
		}
		for (int i = 0; i < 3; i++)
			ids[i] = (ProtobufCBinaryData){ ZNS_UUID_LEN, g[order[n][i]].id };
		m.checkpoints = ids;
		m.n_checkpoints = 3;
		m.by = "test";
		zns_pb__request__init(&q);
		q.rm = &m;
		r = ask(&b, &q);
		assert_int_equal(r->n_removed, 3);
		drop(r);
		assert_int_equal(nr_checkpoints(&b), 0);
	}
	zns_broker_close(&b);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, fx_setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(dump_ls_rm),
		T(ls_of_one),
		T(comes_again_after_a_clock_ahead),
		T(parked_zone_is_continued),
		T(abort_gives_back),
		T(bad_requests),
		T(commit_is_checked),
		T(strangers_parent),
		T(chain_in_any_order),
		T(move_is_checked),
		T(sharing),
		T(reject_and_wait),
		T(normal_io),
		T(restore_protects),
		T(short_ids),
		T(full_device),
		T(reservation_has_the_newest_qos),
		T(quits),
		T(asked_to_end),
		T(leaves_when_idle),
		T(unknown_group),
		T(comes_while_it_leaves),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
