/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory contexts beside dumps: who gets groups, zones and the dies' time; full devices, failing
 * zones, and clients that do not keep to the rules. */
#include <sys/stat.h>
#include "pages_fixture.h"
#include "zns/context.h"

static int one_die(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 0, 1);
	*state = f;
	return 0;
}

/* Five open zones, one of them the log's. */
static int few_open(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 5, 0, DIES);
	*state = f;
	return 0;
}

static int few_active(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 5, DIES);
	*state = f;
	return 0;
}

/* ---- raw requests ---- */

static int lock_of(struct fx *f, uint8_t id[ZNS_UUID_LEN], const char *name)
{
	struct zns_context c = { .container = "" };
	struct zns_err err = ZNS_ERR_INIT;
	int fd;

	zns_uuid_generate(id);
	memcpy(c.id, id, ZNS_UUID_LEN);
	memcpy(c.device, f->reg.uuid, ZNS_UUID_LEN);
	snprintf(c.container, sizeof(c.container), "%s", name);
	assert_int_equal(zns_broker_run_dir(&err), 0);
	if (zns_context_create(&c, ZONES, &fd, &err))
		fail_msg("%s", err.msg);
	return fd;
}

static void begin_memory(ZnsPb__Request *q, ZnsPb__MemoryBegin *m, uint8_t *id, uint32_t width)
{
	zns_pb__request__init(q);
	zns_pb__memory_begin__init(m);
	m->context = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	m->has_width = 1;
	m->width = width;
	q->memory_begin = m;
}

static uint32_t memory_zone(struct zns_broker *b, uint32_t group)
{
	ZnsPb__MemoryZone z = ZNS_PB__MEMORY_ZONE__INIT;
	ZnsPb__Response *r;
	uint32_t zone;
	REQ(q);

	z.group = group;
	q.memory_zone = &z;
	r = ask(b, &q);
	assert_int_equal(r->zone->start, 0);
	zone = r->zone->zone;
	drop(r);
	return zone;
}

/* A dump that shares with nobody does not get a context's groups, and contexts get groups of their
 * own. */
static void groups_are_taken(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f), c = client(f);
	uint8_t ia[ZNS_UUID_LEN], ib[ZNS_UUID_LEN];
	int fa = lock_of(f, ia, "web"), fb = lock_of(f, ib, "db");
	bool taken[DIES] = { false };
	ZnsPb__MemoryBegin m;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	ZnsPb__DumpBegin d;
	struct grant g;

	begin_memory(&q, &m, ia, 100); /* it gets at most half of the groups */
	r = ask(&a, &q);
	assert_int_equal(r->memory->n_groups, DIES / 2);
	for (size_t i = 0; i < r->memory->n_groups; i++)
		taken[r->memory->groups[i]] = true;
	drop(r);
	begin_memory(&q, &m, ib, 2);
	r = ask(&b, &q);
	assert_int_equal(r->memory->n_groups, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_false(taken[r->memory->groups[i]]);
		taken[r->memory->groups[i]] = true;
	}
	drop(r);
	g = begin_mode(&c, "batch", 200, "reject", NULL);
	assert_int_equal(g.n, 2);
	for (uint32_t i = 0; i < g.n; i++)
		assert_false(taken[g.group[i]]);
	abort_dump(&c);
	begin_request(&q, &d, "batch", 300, "reject", NULL);
	refused(&c, &q, -EBUSY, "memory:web (memory, PID");
	r = status(&c);
	assert_int_equal(r->status->n_leases, 2);
	assert_string_equal(r->status->leases[0]->kind, "memory");
	assert_true(r->status->leases[0]->memory->connected);
	drop(r);
	close(fa);
	close(fb);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

static void who_does_not_keep_to_the_rules(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	uint8_t id[ZNS_UUID_LEN], other[ZNS_UUID_LEN];
	ZnsPb__MemoryZone z = ZNS_PB__MEMORY_ZONE__INIT;
	ZnsPb__MemoryFree fr = ZNS_PB__MEMORY_FREE__INIT;
	ZnsPb__MemoryStep s = ZNS_PB__MEMORY_STEP__INIT;
	uint32_t mine, wild = 999, meta = 0, group, not_mine;
	struct zone dumped;
	ZnsPb__MemoryBegin m;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	char path[300];
	int fd;

	zns_uuid_generate(other);
	begin_memory(&q, &m, other, 1);
	refused(&a, &q, -ESTALE, "this memory context has ended");
	m.context.len = 3;
	refused(&a, &q, -EINVAL, "16 bytes");
	fd = lock_of(f, id, "web");
	close(fd);
	begin_memory(&q, &m, id, 1);
	refused(&a, &q, -ESTALE, "nobody holds");
	zns_pb__request__init(&q);
	q.memory_zone = &z;
	refused(&a, &q, -EINVAL, "no memory context on this connection");

	fd = lock_of(f, id, "web");
	assert_int_equal(ftruncate(fd, ZNS_CONTEXT_HEAD + ZONES + 1), 0);
	begin_memory(&q, &m, id, 1);
	refused(&a, &q, -EBADMSG, "no lock file of a memory context");
	assert_int_equal(ftruncate(fd, ZNS_CONTEXT_HEAD + ZONES), 0);
	r = ask(&a, &q);
	group = r->memory->groups[0];
	drop(r);
	refused(&a, &q, -EBUSY, "a lease already");
	mine = memory_zone(&a, group);
	assert_int_equal(zns_context_has(fd, mine), 1);

	zns_pb__request__init(&q);
	q.memory_zone = &z;
	z.group = group == 1 ? 2 : 1;
	refused(&a, &q, -EINVAL, "was not granted to this context");
	z.group = wild;
	refused(&a, &q, -EINVAL, "was not granted to this context");
	z.group = group;
	refused(&a, &q, -EBUSY, "in use"); /* one at a time was asked for */
	dump(f, &b, "batch", KIB(128), &dumped);
	not_mine = dumped.zone;
	zns_pb__request__init(&q);
	q.memory_free = &fr;
	fr.n_zones = 1;
	fr.zones = &not_mine;
	refused(&a, &q, -EINVAL, "was not granted");
	fr.zones = &meta;
	refused(&a, &q, -EINVAL, "was not granted");
	fr.zones = &wild;
	refused(&a, &q, -EINVAL, "was not granted");
	zns_pb__request__init(&q);
	q.memory_step = &s;
	s.n_groups = 1;
	s.groups = &wild;
	refused(&a, &q, -EINVAL, "no group 999");
	/* The zones in the file are not its own: a new broker uses none of it. */
	assert_int_equal(zns_context_set(fd, 0, true), 0);
	assert_int_equal(zns_context_set(fd, not_mine, true), 0);
	kill_broker(&a);
	zns_broker_close(&b);
	a = client(f);
	begin_memory(&q, &m, id, 1);
	r = ask(&a, &q);
	assert_int_equal(r->memory->n_zones, 1);
	assert_int_equal(r->memory->zones[0]->zone, mine);
	drop(r);
	assert_int_equal(nr_checkpoints(&a), 1);
	/* The zones command tells whose they are, and reset leaves them alone. */
	{
		ZnsPb__ZonesReset rs = ZNS_PB__ZONES_RESET__INIT;
		REQ(rq);

		rs.n_zones = 1;
		rs.zones = &mine;
		rq.reset = &rs;
		refused(&a, &rq, -EBUSY, "memory of running programs");
	}
	assert_int_equal(zns_context_path(f->reg.uuid, id, path, sizeof(path)), 0);
	close(fd);
	zns_broker_close(&a);
	a = client(f);
	assert_true(becomes(f, mine, ZNS_ZONE_EMPTY));
	until(access(path, F_OK));
	zns_broker_close(&a);
}

/* A broker with another runtime directory knows of no context, and would reset what they have. */
static void another_runtime_directory(void **state)
{
	struct fx *f = *state;
	struct zns_broker a;
	struct zns_err err;
	uint8_t id[ZNS_UUID_LEN];
	int fd = lock_of(f, id, "web"), mark;
	char run[300], other[300];

	assert_int_equal(zns_context_mark(f->reg.path, &mark, &err), 0);
	snprintf(run, sizeof(run), "%s/run", f->dir);
	snprintf(other, sizeof(other), "%s/other", f->dir);
	assert_int_equal(mkdir(other, 0700), 0);
	setenv("ZNS_RUN", other, 1);
	assert_int_equal(connect_err(f, &a, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "another runtime directory"));
	assert_null(strchr(err.msg, '\n'));
	setenv("ZNS_RUN", run, 1);
	a = client(f);
	zns_broker_close(&a);
	close(mark);
	close(fd);
}

/* ---- with a page store ---- */

static void a_store_marks_its_device(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	cleanup_close int dev = open(zns_spec_path(f->reg.path), O_RDONLY | O_CLOEXEC);

	assert_true(zns_context_marked(dev));
	zns_pages_close(ps, true);
	assert_false(zns_context_marked(dev));
}

static int put_says(struct zns_pages *ps, struct batch *b, const char *part)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret = zns_pages_put(ps, b->units, b->n, b->refs, &err);

	if (ret && part && !strstr(err.msg, part))
		fail_msg("not \"%s\": %s", part, err.msg);
	for (uint32_t i = 0; ret && i < b->n; i++)
		assert_int_equal(b->refs[i].place, 0); /* no unit is kept */
	return ret;
}

/* Is a put refused for a dump's sake? The store may still go by an older answer of the broker. */
static bool gives_way(struct zns_pages *ps, struct batch *b)
{
	int ret = put_says(ps, b, "dumps");

	if (ret)
		assert_int_equal(ret, -EAGAIN);
	else
		drop_all(ps, b);
	return ret;
}

/* On the die of a dump nothing is written, and the units there are still readable. */
static void gives_way_to_dumps(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 10), *c = batch(10, 10);
	struct zns_broker b = client(f);
	struct zns_pages_stat st;

	put(ps, a);
	begin(&b, "batch", 0);
	until(gives_way(ps, c));
	zns_pages_stat(ps, &st);
	assert_int_equal(st.live_bytes, 10 * U);
	check(ps, a);
	abort_dump(&b);
	put_later(ps, c);
	check(ps, c);
	zns_pages_close(ps, true);
	zns_broker_close(&b);
	batch_free(a);
	batch_free(c);
}

/* A dump that needs more open zones than are left gets those of contexts. */
static void gives_up_open_zones(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 12), *c = batch(12, 4);
	struct zns_broker b = client(f);
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	struct zone z[4];

	put(ps, a);
	/* All four, though it would share: it is worth waiting for them. */
	begin_request(&q, &d, "batch", 400, NULL, NULL);
	r = ask(&b, &q);
	assert_int_equal(r->dump->n_groups, 4);
	for (uint32_t i = 0; i < 4; i++) {
		z[i] = zone_get(&b, r->dump->groups[i]->group);
		fill(f, &z[i], KIB(64));
	}
	drop(r);
	assert_int_equal(put_says(ps, c, NULL), -EAGAIN);
	check(ps, a);
	abort_dump(&b);
	put_later(ps, c);
	check(ps, a);
	check(ps, c);
	zns_pages_close(ps, true);
	zns_broker_close(&b);
	batch_free(a);
	batch_free(c);
}

/* A dump takes the rest; its error then says which context has the room. */
static void take_the_rest(struct fx *f, struct zns_broker *b, uint32_t group)
{
	for (uint32_t i = 0; i <= ZONES; i++) {
		ZnsPb__ZoneGet get = ZNS_PB__ZONE_GET__INIT;
		struct zns_err err = ZNS_ERR_INIT;
		ZnsPb__Response *r;
		struct zone z;
		REQ(q);
		int ret;

		get.group = group;
		q.zone_get = &get;
		ret = zns_broker_call(b, &q, &r, &err);
		if (ret) {
			assert_int_equal(ret, -ENOSPC);
			assert_non_null(strstr(err.msg, "zones with memory of running programs"));
			assert_non_null(strstr(err.msg, "the most of them `web`"));
			assert_non_null(strstr(err.msg, "znsctl memory detach"));
			return;
		}
		z = (struct zone){ r->zone->zone, r->zone->group, r->zone->start, r->zone->capacity,
				   r->zone->start };
		drop(r);
		fill(f, &z, CAP);
	}
	fail_msg("the device has no end");
}

/* Contexts get half of a full device and no more: their units stay in memory, what is on zones
 * stays there, and dumps use the other half. */
static void a_full_device(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *b[ZONES] = { NULL }, *last = batch(5000, 64);
	struct zns_broker d = client(f);
	struct grant g = begin(&d, "batch", 200);
	uint32_t n = 0;
	int ret = 0;

	while (!ret && n < ZONES) {
		b[n] = batch(n * PER_ZONE, PER_ZONE);
		ret = put_says(ps, b[n], NULL);
		n += !ret;
	}
	assert_int_equal(ret, -ENOSPC);
	assert_int_equal(put_says(ps, last, "half of"), -ENOSPC);
	assert_true(n >= (ZONES - META) / 2 - 1 && n <= (ZONES - META) / 2);
	for (uint32_t i = 0; i < g.n; i++) {
		struct zone z = zone_get(&d, g.group[i]);

		fill(f, &z, CAP);
	}
	take_the_rest(f, &d, g.group[0]);
	for (uint32_t i = 0; i < n; i++)
		check(ps, b[i]);
	/* Room comes back as units are dropped. */
	abort_dump(&d);
	for (uint32_t i = 0; i < n; i++)
		drop_all(ps, b[i]);
	until((ret = put_says(ps, last, NULL)) != -ENOSPC);
	assert_int_equal(ret, 0);
	check(ps, last);
	zns_pages_close(ps, true);
	assert_true(all_empty(f));
	zns_broker_close(&d);
	for (uint32_t i = 0; i < ZONES; i++)
		if (b[i])
			batch_free(b[i]);
	batch_free(last);
}

/* A dump that has begun finds room for all that it said it would write. */
static void a_running_dump_keeps_its_room(void **state)
{
	const uint32_t wanted = (ZONES - META) * 3 / 4;
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *b[ZONES] = { NULL };
	struct zns_broker d = client(f);
	ZnsPb__DumpBegin ask_for;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	struct grant g;
	uint32_t n = 0;
	int ret = 0;

	begin_request(&q, &ask_for, "batch", 200, NULL, NULL);
	ask_for.has_expected_bytes = 1;
	ask_for.expected_bytes = wanted * CAP;
	r = ask(&d, &q);
	g = grant_of(r, "batch");
	drop(r);
	for (; !ret && n < ZONES; n++) {
		b[n] = batch(n * PER_ZONE, PER_ZONE);
		ret = put_says(ps, b[n], NULL);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_int_equal(n - 1, ZONES - META - wanted); /* and the context has all else */
	for (uint32_t i = 0; i < wanted; i++) {
		struct zone z = zone_get(&d, g.group[i % g.n]);

		fill(f, &z, CAP);
	}
	abort_dump(&d);
	zns_pages_close(ps, true);
	zns_broker_close(&d);
	while (n--)
		batch_free(b[n]);
}

static char *step_says(struct zns_broker *b, uint64_t live, uint64_t group_limit, uint64_t *room)
{
	ZnsPb__MemoryStep s = ZNS_PB__MEMORY_STEP__INIT;
	ZnsPb__Response *r;
	char *says;
	REQ(q);

	s.has_live = s.has_group_limit = 1;
	s.live = live;
	s.group_limit = group_limit;
	q.memory_step = &s;
	r = ask(b, &q);
	says = r->refused ? strdup(r->refused) : NULL;
	*room = r->may_write;
	drop(r);
	return says;
}

/* A context with little DRAM may not use the whole device instead, unless the administrator allows
 * it. */
static void a_cgroups_limit_bounds(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	uint8_t id[ZNS_UUID_LEN];
	int fd = lock_of(f, id, "web");
	ZnsPb__MemoryBegin m;
	ZnsPb__Request q;
	uint64_t room;
	char *says;

	begin_memory(&q, &m, id, 1);
	drop(ask(&a, &q));
	assert_null(step_says(&a, MIB(15), MIB(4), &room));
	assert_int_equal(room, MIB(1));
	says = step_says(&a, MIB(16), MIB(4), &room);
	assert_non_null(says);
	assert_non_null(strstr(says, "4 times the 4 MiB that its cgroup may use"));
	assert_non_null(strstr(says, "max-memory"));
	free(says);
	assert_null(step_says(&a, MIB(16), 0, &room)); /* it has no limit */
	close(fd);
	zns_broker_close(&a);
}

/* What is cut off by the limits of the device is asked for again later, and never lost. */
static void active_zones(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *b[30];

	for (uint32_t i = 0; i < 12; i++) {
		b[i] = batch(i * 20, 20);
		put_later(ps, b[i]);
	}
	for (uint32_t i = 0; i < 12; i++) {
		check(ps, b[i]);
		drop_all(ps, b[i]);
		batch_free(b[i]);
	}
	zns_pages_close(ps, true);
	assert_true(all_empty(f));
}

/* Zones that are given up half full do not stay active for ever. */
static void half_full_zones(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct zns_broker b = client(f);
	struct batch *a[5];

	/* one more than may be active */
	for (uint32_t i = 0; i < 5; i++) {
		a[i] = batch(i, 1);
		put_later(ps, a[i]);
		begin(&b, "batch", 400); /* this dump takes all zones that may be active */
		abort_dump(&b);
	}
	for (uint32_t i = 0; i < 5; i++) {
		check(ps, a[i]);
		batch_free(a[i]);
	}
	zns_pages_close(ps, true);
	assert_true(all_empty(f));
	zns_broker_close(&b);
}

static struct zns_pages *faulty(struct fx *f, const char *fault)
{
	struct zns_pages *ps;

	setenv("ZNS_EMU_FAULT", fault, 1);
	ps = opened(f, "web", NULL);
	unsetenv("ZNS_EMU_FAULT");
	return ps;
}

static uint32_t nr_suspect(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	uint32_t n = r->status->suspect_zones;

	drop(r);
	return n;
}

/* Zones fail writes or turn read-only: other zones replace them, and all units that were put are
 * readable. */
static void zones_fail(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = faulty(f, "write-after=5,write-after=9,read-only-after=14");
	struct batch *a = batch(0, 48), *c = batch(48, 48);
	struct zns_pages_stat st;
	struct zns_broker b = client(f);

	put(ps, a);
	put(ps, c);
	check(ps, a);
	check(ps, c);
	zns_pages_stat(ps, &st);
	assert_int_equal(st.failed_zones, 3);
	assert_int_equal(st.live_bytes, 96 * U);
	put_later(ps, c); /* the broker learns of them with the next request */
	until(nr_suspect(&b) == 2); /* the third one is known by its state */
	zns_pages_close(ps, true);
	zns_broker_close(&b);
	batch_free(a);
	batch_free(c);
}

/* A zone whose first write fails holds nothing and is given back at once: the broker still learns
 * that it failed. */
static void empty_zones_fail(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = faulty(f, "write-after=0x*");
	struct batch *a = batch(0, 1);
	struct zns_broker b = client(f);

	assert_int_equal(put_says(ps, a, NULL), -EIO);
	until(nr_suspect(&b) == 4); /* a put tries four, and asks for none after the last */
	zns_pages_close(ps, true);
	zns_broker_close(&b);
	batch_free(a);
}

/* The broker that knew of the failed zone is killed, and the next one is told, too. */
static void the_next_broker_learns(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = faulty(f, "write-after=5");
	/* first one write in each lane: an empty zone would be given back and forgotten */
	struct batch *a = batch(0, 12), *c = batch(12, 52);
	struct zns_broker b = client(f);

	put(ps, a);
	put(ps, c);
	until(nr_suspect(&b) == 1);
	kill_broker(&b);
	b = client(f);
	until(nr_suspect(&b) == 1); /* without another put */
	check(ps, a);
	check(ps, c);
	zns_pages_close(ps, true);
	zns_broker_close(&b);
	batch_free(a);
	batch_free(c);
}

/* A zone goes offline: exactly its units are reported lost. */
static void a_zone_goes(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = faulty(f, "offline-after=3");
	struct batch *a = batch(0, 12), *c = batch(12, 52); /* first one write in each lane */
	uint8_t *got = aligned_alloc(4096, U), *want = aligned_alloc(4096, U);
	uint32_t lost = 0;

	put(ps, a);
	put(ps, c);
	check(ps, c);
	for (uint32_t i = 0; i < a->n; i++) {
		int ret = zns_pages_get(ps, a->refs[i], got, NULL);

		paint(want, i);
		assert_true(ret == 0 || ret == -EIO);
		lost += ret != 0;
		if (!ret)
			assert_memory_equal(got, want, U);
	}
	assert_int_equal(lost, 4);
	drop_all(ps, a);
	drop_all(ps, c);
	zns_pages_close(ps, true);
	free(got);
	free(want);
	batch_free(a);
	batch_free(c);
}

static void nothing_works(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = faulty(f, "write-after=4x*,read-after=2x*");
	struct batch *a = batch(0, 3), *c = batch(3, 100);
	void *buf = aligned_alloc(4096, U);
	struct zns_pages_stat st;

	put(ps, a);
	assert_int_equal(put_says(ps, c, NULL), -EIO);
	zns_pages_stat(ps, &st);
	assert_int_equal(st.live_bytes, 3 * U);
	assert_int_equal(zns_pages_get(ps, a->refs[0], buf, NULL), 0);
	assert_int_equal(zns_pages_get(ps, a->refs[1], buf, NULL), 0);
	assert_int_equal(zns_pages_get(ps, a->refs[2], buf, NULL), -EIO);
	zns_pages_close(ps, true);
	free(buf);
	batch_free(a);
	batch_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(groups_are_taken, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(who_does_not_keep_to_the_rules, fx_setup,
						fx_teardown),
		cmocka_unit_test_setup_teardown(another_runtime_directory, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(a_store_marks_its_device, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(gives_way_to_dumps, one_die, fx_teardown),
		cmocka_unit_test_setup_teardown(gives_up_open_zones, few_open, fx_teardown),
		cmocka_unit_test_setup_teardown(a_full_device, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(a_running_dump_keeps_its_room, fx_setup,
						fx_teardown),
		cmocka_unit_test_setup_teardown(a_cgroups_limit_bounds, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(active_zones, few_active, fx_teardown),
		cmocka_unit_test_setup_teardown(half_full_zones, few_active, fx_teardown),
		cmocka_unit_test_setup_teardown(zones_fail, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(empty_zones_fail, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(the_next_broker_learns, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(a_zone_goes, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(nothing_works, fx_setup, fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
