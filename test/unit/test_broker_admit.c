/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd's admission: promises, queues, ceilings, separate groups, normal I/O. Small dumps:
 * test_broker_pack.c. */
#include "broker_fixture.h"

static int setup_active(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 9, DIES);
	*state = f;
	return 0;
}

/* The open limit is reached first: five zones, one of them the log's. */
static int setup_open(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 5, 0, DIES);
	*state = f;
	return 0;
}

static int setup_tight(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 5, DIES);
	*state = f;
	return 0;
}

static void tenants(struct fx *f, const char *text)
{
	char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "%s/etc/tenants.conf", f->dir);
	out = fopen(path, "w");
	assert_non_null(out);
	assert_true(fputs(text, out) >= 0);
	assert_int_equal(fclose(out), 0);
}

static bool in(const uint32_t *set, uint32_t n, uint32_t x)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		if (set[i] == x)
			return true;
	return false;
}

/* A dump that was granted groups of its own keeps them to itself, whatever dumps come later. */
static void promise_is_kept(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f);
	struct grant g, h;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	struct zone z;
	uint32_t i;

	g = begin_mode(&a, "a", 600, "reject", NULL);
	assert_int_equal(g.n, 6);
	h = begin(&b, "b", 400);
	assert_int_equal(h.n, 2);
	assert_true(strstr(h.note, "about 200 MiB/s of 400") != NULL);
	for (i = 0; i < h.n; i++)
		assert_false(in(g.group, g.n, h.group[i]));
	/* b's groups are not promised to it: c shares them, and b's record says so. */
	h = begin(&c, "c", 100);
	assert_int_equal(h.n, 2);
	assert_int_equal(h.shared, 2);
	r = status(&a);
	assert_int_equal(r->status->n_leases, 3);
	assert_true(r->status->leases[0]->detail->promised);
	assert_int_equal(r->status->leases[0]->detail->shared_groups, 0);
	assert_int_equal(r->status->leases[0]->detail->width, 6);
	assert_false(r->status->leases[1]->detail->promised);
	assert_int_equal(r->status->leases[1]->detail->shared_groups, 2);
	drop(r);
	abort_dump(&c);

	/* Its own zones are full: it gets a zone of another group, but not of a promised one. */
	abort_dump(&b);
	h = begin(&b, "b", 100);
	for (i = 0; i < 8; i++) {
		z = zone_get(&b, h.group[0]);
		assert_false(in(g.group, g.n, z.group));
		fill(f, &z, CAP);
	}
	zone_refused(&b, h.group[0], -EBUSY, "promised to other dumps");
	abort_dump(&b);

	/* All groups are promised: a sharing dump waits. */
	h = begin_mode(&b, "b", 200, "wait", NULL);
	assert_int_equal(h.n, 2);
	begin_request(&q, &d, "c", 100, NULL, NULL);
	post(&c, &q);
	settle(&a);
	assert_false(has_answer(&c));
	abort_dump(&a);
	r = answer(&c);
	assert_int_equal(r->code, 0);
	assert_int_equal(r->dump->shared_groups, 0);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* The record's shared groups include those that were shared only later. */
static void sharing_is_recorded(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct grant g = begin(&a, "a", 800), h;
	struct zone z;
	struct record k;
	ZnsPb__Response *r;
	REQ(q);

	assert_int_equal(g.shared, 0);
	z = zone_get(&a, g.group[0]);
	fill(f, &z, KIB(64));
	h = begin_mode(&b, "b", 100, NULL, "dynamic");
	assert_true(h.n >= 1);
	assert_int_equal(h.shared, h.n);
	abort_dump(&b);
	record(&k, &g, &z, 1);
	q.commit = &k.c;
	r = ask(&a, &q);
	assert_int_equal(r->shared_groups, h.n);
	drop(r);
	zns_pb__request__init(&q);
	q.has_ls = q.ls = 1;
	r = ask(&a, &q);
	assert_int_equal(r->checkpoints[0]->shared_groups, h.n);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void queues(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f), e = client(f);
	struct grant g, h;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	uint32_t i;

	g = begin_mode(&a, "a", 300, NULL, "dynamic");
	assert_int_equal(g.n, 3);
	/* b waits for six groups. Meanwhile dumps may share, but where possible they leave the
	 * groups that b will get alone. */
	begin_request(&q, &d, "b", 600, "wait=20", "dynamic");
	post(&b, &q);
	settle(&a);
	assert_false(has_answer(&b));
	h = begin_mode(&c, "c", 200, NULL, "dynamic");
	assert_int_equal(h.n, 2);
	/* the five idle groups and one of a's are kept for b: two of a's are left for sharing */
	for (i = 0; i < 2; i++)
		assert_true(in(g.group, g.n, h.group[i]));
	abort_dump(&c);
	/* No dump with groups of its own overtakes b. */
	begin_request(&q, &d, "e", 100, "reject", NULL);
	refused(&e, &q, -EBUSY, "1 dumps wait already");
	begin_request(&q, &d, "e", 100, "wait=20", NULL);
	post(&e, &q);
	settle(&a);
	assert_false(has_answer(&e));
	/* A waiting client that disconnects makes room for the next. */
	zns_broker_close(&b);
	r = answer(&e);
	assert_int_equal(r->code, 0);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&c);
	zns_broker_close(&e);
}

static void caller_gone(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	int sk[2];
	pid_t pid;

	begin_mode(&a, "a", 800, "reject", NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk), 0);
	/* Our client, which ends while its request waits. */
	pid = fork();
	if (!pid) {
		close(sk[0]);
		until(nr_waiting(&a) == 1);
		_exit(0);
	}
	close(sk[1]);
	b.watch_fd = sk[0];
	begin_request(&q, &d, "b", 100, "wait=60", NULL);
	assert_int_equal(zns_broker_call(&b, &q, &r, &err), -ECANCELED);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(sk[0]);
	zns_broker_close(&b);
	settle(&a);
	assert_int_equal(nr_waiting(&a), 0);
	zns_broker_close(&a);
}

static void ceilings(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct grant g;
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;

	tenants(f,
		"uid 77 max-groups=1\nname web-* max-qos=300 max-groups=4 total-qos=500\nname * total-groups=3\n");
	begin_request(&q, &d, "web-1", 400, NULL, NULL);
	refused(&a, &q, -EDQUOT, "exceeds the ceiling of 300 MiB/s that `name web-*` has");
	begin_request(&q, &d, "web-1", 400, "wait", NULL);
	refused(&a, &q, -EDQUOT, "tenants.conf:2");
	begin_request(&q, &d, "x", 400, NULL, NULL);
	refused(&a, &q, -EDQUOT, "takes 4 groups, the ceiling of `name *` is 3, 300 MiB/s");
	begin_request(&q, &d, "web-1", 200, NULL, NULL);
	d.has_uid = 1;
	d.uid = 77;
	refused(&a, &q, -EDQUOT, "`uid 77` is 1");
	assert_int_equal(nr_reservations(&a), 0);

	/* Several dumps of one tenant: 300 of 500 are used, so 300 more are refused and 200
	 * granted. */
	begin_request(&q, &d, "web-1", 300, NULL, NULL);
	r = ask(&a, &q);
	assert_int_equal(r->dump->max_rate_mibps, 300);
	assert_int_equal(r->dump->n_groups, 3);
	drop(r);
	begin_request(&q, &d, "web-2", 300, "reject", NULL);
	refused(&b, &q, -EBUSY,
		"300 MiB/s are wanted and 200 of 500 are left to tenant `name web-*`");
	g = begin(&b, "web-2", 300);
	assert_int_equal(g.n, 2);
	assert_true(strstr(g.note, "little of the tenant's rate is left") != NULL);
	abort_dump(&b);
	g = begin_mode(&b, "web-2", 200, "reject", NULL);
	assert_int_equal(g.n, 2);
	abort_dump(&b);
	abort_dump(&a);

	g = begin(&a, "x", 200);
	assert_int_equal(g.n, 2);
	g = begin(&b, "y", 200);
	assert_int_equal(g.n, 1);
	assert_true(strstr(g.note, "little of the tenant's groups is left") != NULL);
	abort_dump(&b);
	abort_dump(&a);

	/* With an error in the file no dump is admitted, and the text names the line. */
	tenants(f, "name * max-qos=lots\n");
	begin_request(&q, &d, "x", 100, NULL, NULL);
	refused(&a, &q, -EINVAL, "tenants.conf:1: a rate reads like");
	zns_broker_close(&a);
	zns_broker_close(&b);
}

static void metadata_apart(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	uint32_t i, meta = 0, round;

	/* 4 channels, 2 ways: six groups for pages leave a channel, seven only a die. */
	for (round = 0; round < 3; round++) {
		begin_request(&q, &d, "web", 600, "reject", NULL);
		d.has_separate_metadata = d.separate_metadata = 1;
		r = ask(&a, &q);
		assert_int_equal(r->dump->n_groups, 6);
		assert_int_equal(r->dump->n_metadata_groups, 1);
		for (i = 0; i < 6; i++)
			assert_int_not_equal(r->dump->groups[i]->group % CHANNELS,
					     r->dump->metadata_groups[0]->group % CHANNELS);
		/* static: the same zone every time */
		if (round)
			assert_int_equal(r->dump->metadata_groups[0]->group, meta);
		meta = r->dump->metadata_groups[0]->group;
		drop(r);
		if (!round) {
			ZnsPb__Response *st = status(&a);
			struct zone z = zone_get(&a, meta);

			assert_int_equal(st->status->leases[0]->detail->width, 7);
			drop(st);
			assert_int_equal(z.group, meta);
		}
		abort_dump(&a);
	}
	begin_request(&q, &d, "db", 700, "reject", "dynamic");
	d.has_separate_metadata = d.separate_metadata = 1;
	r = ask(&a, &q);
	assert_int_equal(r->dump->n_groups, 7);
	assert_int_equal(r->dump->n_metadata_groups, 1);
	for (i = 0; i < 7; i++)
		assert_int_not_equal(r->dump->groups[i]->group, r->dump->metadata_groups[0]->group);
	drop(r);
	abort_dump(&a);
	begin_request(&q, &d, "db", 800, "reject", NULL);
	d.has_separate_metadata = d.separate_metadata = 1;
	refused(&a, &q, -ERANGE, "needs 9 groups");
	begin_request(&q, &d, "db", 800, NULL, NULL);
	d.has_separate_metadata = d.separate_metadata = 1;
	r = ask(&a, &q);
	assert_int_equal(r->dump->n_groups + r->dump->n_metadata_groups, 8);
	assert_int_equal(r->dump->n_metadata_groups, 1);
	drop(r);
	abort_dump(&a);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* Normal I/O writes without asking the broker: its zones are not garbage, and count towards the
 * limits. */
static void normal_io_is_left_alone(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__Reserve v = ZNS_PB__RESERVE__INIT;
	ZnsPb__ZonesReset reset = ZNS_PB__ZONES_RESET__INIT;
	struct zone z[4], other;
	ZnsPb__Response *r;
	struct grant g;
	uint32_t i, n, group[2];
	REQ(q);

	r = status(&a);
	assert_int_equal(r->status->zones_budget, 8);
	drop(r);
	q.reserve = &v;
	v.container = "io";
	v.has_groups = 1;
	v.groups = 2;
	r = ask(&a, &q);
	for (i = 0; i < 2; i++)
		group[i] = r->reservation->groups[i];
	drop(r);
	r = status(&a);
	assert_int_equal(r->status->zones_budget, 6);
	drop(r);
	zns_pb__request__init(&q);
	q.has_zones = q.zones = 1;
	r = ask(&a, &q);
	for (i = n = 0; i < ZONES && n < 4; i++)
		if (in(group, 2, r->zones[i]->group) && r->zones[i]->owner == NULL)
			z[n++] = (struct zone){ i, r->zones[i]->group, 0, CAP, 0 };
	drop(r);
	assert_int_equal(n, 4);
	for (i = 0; i < 4; i++)
		fill(f, &z[i], KIB(64));
	/* a dump begins and ends, after which the broker looks for garbage */
	g = begin(&b, "web", 0);
	other = zone_get(&b, g.group[0]);
	fill(f, &other, KIB(64));
	abort_dump(&b);
	assert_true(becomes(f, other.zone, ZNS_ZONE_EMPTY));
	zns_pb__request__init(&q);
	q.reset = &reset;
	r = ask(&a, &q);
	assert_int_equal(r->n_reset_zones, 0);
	drop(r);
	for (i = 0; i < 4; i++)
		assert_int_not_equal(state_of(f, z[i].zone), ZNS_ZONE_EMPTY);
	advance(&a, 1000);
	r = status(&a); /* four active zones of its own */
	assert_int_equal(r->status->zones_budget, 4);
	assert_int_equal(r->status->bytes_wasted, 0);
	drop(r);
	/* also by the next broker */
	kill_broker(&a);
	zns_broker_close(&b);
	a = client(f);
	settle(&a);
	for (i = 0; i < 4; i++)
		assert_int_not_equal(state_of(f, z[i].zone), ZNS_ZONE_EMPTY);
	/* The name of a reservation for normal I/O may also be a container that dumps, to other
	 * groups. */
	g = begin(&a, "io", 100);
	assert_false(in(group, 2, g.group[0]));
	abort_dump(&a);
	assert_int_equal(nr_reservations(&a), 1);
	zns_pb__request__init(&q);
	q.release = "io";
	drop(ask(&a, &q));
	for (i = 0; i < 4; i++)
		assert_true(becomes(f, z[i].zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&a);
}

/* Parked zones are finished in the background before an admission, but not while a dump asks for
 * its zones. */
static void parked_zones_make_room(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct zone z[8], y[8];
	struct grant g;
	char name[16];
	uint32_t i, full, k;

	/* budget 8, so 4 stay parked */
	for (i = 0; i < 7; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		dump(f, &a, name, KIB(64), &z[i]);
	}
	until((advance(&a, 20), nr_parked(&a)) <= 4);
	settle(&a);
	assert_int_equal(nr_parked(&a), 4);
	/* Seven zones: three parked ones must be finished, before the answer, in every mode. */
	g = begin_waiting(&b, &a, "big", 700, "reject");
	assert_int_equal(g.n, 7);
	for (i = full = 0; i < 7; i++)
		full += state_of(f, z[i].zone) == ZNS_ZONE_FULL;
	assert_int_equal(full, 6);
	for (i = 0; i < 7; i++) {
		y[i] = zone_get(&b, g.group[i]);
		fill(f, &y[i], KIB(64));
	}
	for (i = k = 0; i < 7; i++)
		k += state_of(f, z[i].zone) == ZNS_ZONE_FULL;
	assert_int_equal(k, full);
	commit(&b, &g, y, 7);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* Zones of a group wear alike: every one is used before one is used twice. */
static void wear_is_spread(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	uint32_t used[ZONES] = { 0 }, i, least = UINT32_MAX, most = 0;
	struct grant g;
	struct zone z;

	for (i = 0; i < 40; i++) {
		g = dump(f, &a, "web", KIB(64), &z);
		used[z.zone]++;
		rm(&a, g.id, 1);
		assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	}
	/* the same group every time, ten rounds over its four zones */
	for (i = 0; i < ZONES; i++) {
		if ((i < META ? 0 : (i - META) % DIES) != z.group || i < META)
			continue;
		least = zns_min(least, used[i]);
		most = zns_max(most, used[i]);
	}
	assert_int_equal(least, 10);
	assert_int_equal(most, 10);
	zns_broker_close(&a);
}

static uint64_t log_generation(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	uint64_t n = r->status->log_generation;

	drop(r);
	return n;
}

/* Dumps use every zone that may be open or active, and the log needs its next zone: each time,
 * until the log has used all of its own. */
static void log_rolls_at_the_limit(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct grant g = begin(&a, "web", 400);
	ZnsPb__Reserve v = ZNS_PB__RESERVE__INIT;
	struct zone z[8];
	ZnsPb__Response *r;
	uint64_t before;
	uint32_t i;
	char name[16];
	REQ(q);

	r = status(&b);
	assert_int_equal(r->status->zones_budget, r->status->zones_granted);
	drop(r);
	before = log_generation(&b);
	for (i = 0; i < g.n; i++) {
		z[i] = zone_get(&a, g.group[i]);
		fill(f, &z[i], KIB(64));
	}
	for (i = 0; i < 700 && (i % 32 || log_generation(&b) < before + META); i++) {
		struct zns_err err = ZNS_ERR_INIT;

		zns_pb__request__init(&q);
		snprintf(name, sizeof(name), "n%u", i);
		v.container = name;
		v.has_groups = 1;
		v.groups = 1;
		q.reserve = &v;
		if (zns_broker_call(&b, &q, &r, &err))
			fail_msg("record %u: %s", i, err.msg);
		drop(r);
		zns_pb__request__init(&q);
		q.release = name;
		if (zns_broker_call(&b, &q, &r, &err))
			fail_msg("record %u: %s", i, err.msg);
		drop(r);
	}
	assert_true(log_generation(&b) >= before + META);
	for (i = 0; i < g.n; i++)
		fill(f, &z[i], KIB(64));
	commit(&a, &g, z, g.n);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* A ticket hands over an ordinary dump only; not a join, whose checkpoint may be removed by now. */
static void ticket_of_no_dump(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	struct grant g = begin(&a, "web", 0);
	struct zone z = zone_get(&a, g.group[0]);
	ZnsPb__Origin o = ZNS_PB__ORIGIN__INIT;
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	struct record k;
	REQ(q);

	fill(f, &z, KIB(64));
	record(&k, &g, &z, 1);
	k.c.has_pages_only = k.c.pages_only = 1;
	q.commit = &k.c;
	drop(ask(&a, &q));
	begin_request(&q, &d, "web", 0, NULL, NULL);
	d.has_join = 1;
	d.join = (ProtobufCBinaryData){ ZNS_UUID_LEN, g.id };
	drop(ask(&a, &q));
	rm(&b, g.id, 1);
	begin_request(&q, &d, "web", 0, NULL, NULL);
	o.has_ticket = 1;
	o.ticket = (ProtobufCBinaryData){ ZNS_UUID_LEN, g.id };
	d.origin = &o;
	r = ask(&b, &q);
	assert_memory_not_equal(r->dump->checkpoint.data, g.id, ZNS_UUID_LEN);
	drop(r);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* The id of the dump that @b is given for @container, when it shows the ticket of @id. */
static void with_ticket(struct zns_broker *b, const char *container, uint8_t id[ZNS_UUID_LEN],
			uint8_t got[ZNS_UUID_LEN])
{
	ZnsPb__Origin o = ZNS_PB__ORIGIN__INIT;
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	ZnsPb__Request q;

	begin_request(&q, &d, container, 0, NULL, NULL);
	o.has_ticket = 1;
	o.ticket = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	d.origin = &o;
	r = ask(b, &q);
	memcpy(got, r->dump->checkpoint.data, ZNS_UUID_LEN);
	drop(r);
}

/* Two tenants: one shows the ticket of the other's dump and gets a dump of its own. */
static void ticket_of_another_container(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f);
	struct grant g = begin(&a, "web", 0);
	uint8_t got[ZNS_UUID_LEN];

	with_ticket(&b, "db", g.id, got);
	assert_memory_not_equal(got, g.id, ZNS_UUID_LEN);
	with_ticket(&c, "web", g.id, got);
	assert_memory_equal(got, g.id, ZNS_UUID_LEN);
	zns_broker_close(&c);
	zns_broker_close(&b);
	zns_broker_close(&a);
}

/* How much a dump could still write: with its zones, and without them. */
static uint64_t room_of(struct zns_broker *b, bool anew)
{
	ZnsPb__DumpRoom room = ZNS_PB__DUMP_ROOM__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	uint64_t bytes;

	room.has_anew = room.anew = anew;
	q.dump_room = &room;
	r = ask(b, &q);
	assert_int_equal(r->code, 0);
	bytes = r->room;
	drop(r);
	return bytes;
}

static void room_is_told_and_given_back(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__DumpRoom room = ZNS_PB__DUMP_ROOM__INIT;
	ZnsPb__Request q = ZNS_PB__REQUEST__INIT;
	uint64_t all = (ZONES - META) * CAP;
	struct grant g = begin(&a, "a", 100), h;
	struct zone z[2];

	assert_int_equal(room_of(&a, false), all);
	for (int i = 0; i < 2; i++)
		z[i] = zone_get(&a, g.group[0]);
	fill(f, &z[0], CAP);
	fill(f, &z[1], CAP / 4);
	/* the rest of its own zones counts, since no other dump may have them */
	assert_int_equal(room_of(&a, false), all - CAP - CAP / 4);
	h = begin(&b, "b", 100);
	assert_int_equal(room_of(&b, false), all - 2 * CAP);
	assert_int_equal(room_of(&a, true), all);
	assert_int_equal(room_of(&b, false), all);
	/* and the dump goes on */
	z[0] = zone_get(&a, g.group[0]);
	fill(f, &z[0], CAP);
	abort_dump(&b);
	/* groups that are promised to others do not count */
	h = begin_mode(&b, "b", 300, "reject", NULL);
	assert_int_equal(room_of(&a, false), all - CAP - h.n * 4 * CAP);
	q.dump_room = &room;
	abort_dump(&b);
	refused(&b, &q, -EINVAL, "without a dump");
	zns_broker_close(&a);
	zns_broker_close(&b);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, fx_setup, fx_teardown)
#define A(t) cmocka_unit_test_setup_teardown(t, setup_active, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(promise_is_kept),
		T(sharing_is_recorded),
		T(queues),
		T(caller_gone),
		T(ceilings),
		T(metadata_apart),
		T(ticket_of_no_dump),
		T(ticket_of_another_container),
		A(normal_io_is_left_alone),
		A(parked_zones_make_room),
		T(wear_is_spread),
		T(room_is_told_and_given_back),
		cmocka_unit_test_setup_teardown(log_rolls_at_the_limit, setup_open, fx_teardown),
		cmocka_unit_test_setup_teardown(log_rolls_at_the_limit, setup_tight, fx_teardown),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
