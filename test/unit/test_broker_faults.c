/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd when a client or the broker dies, something is damaged, or a client breaks the rules. */
#include "broker_fixture.h"

static uint32_t open_limit, active_limit;

static int setup(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, open_limit, active_limit, DIES);
	*state = f;
	return 0;
}

/* This broker's clock runs, so that limits of waiting requests can be tested. */
static int setup_running(void **state)
{
	int ret;

	fx_still = false;
	ret = setup(state);
	fx_still = true;
	return ret;
}

static int setup_limits(void **state)
{
	int ret;

	open_limit = 5;
	active_limit = 8;
	ret = setup(state);
	open_limit = active_limit = 0;
	return ret;
}

static int setup_active(void **state)
{
	int ret;

	active_limit = 4;
	ret = setup(state);
	active_limit = 0;
	return ret;
}

/* A client in a process of its own, which writes into a zone, tells us which, and stays until it
 * is killed. */
static pid_t writer(struct fx *f, const char *container, struct zone *z, bool hold_lock)
{
	int p[2];
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct zns_broker b = client(f);
		struct grant g = begin(&b, container, 100);
		struct zone mine;

		if (hold_lock)
			lock_file(f, "writers");
		mine = zone_get(&b, g.group[0]);
		fill(f, &mine, KIB(128));
		if (write(p[1], &mine, sizeof(mine)) != sizeof(mine))
			_exit(1);
		for (;;)
			pause();
	}
	close(p[1]);
	assert_int_equal(read(p[0], z, sizeof(*z)), sizeof(*z));
	close(p[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void killed_client(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	pid_t pid = writer(f, "web", &z, false);

	assert_int_equal(nr_reservations(&b), 1);
	end(pid);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	assert_int_equal(nr_reservations(&b), 0);
	zns_broker_close(&b);
}

/* The connection is closed but the process lives: it may still be writing, so its zone is left
 * alone for a while. */
static void lost_connection(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f), c = client(f);
	struct grant g = begin(&b, "web", 100);
	struct zone z = zone_get(&b, g.group[0]);
	ZnsPb__Response *r;

	fill(f, &z, KIB(64));
	zns_broker_close(&b);
	settle(&c);
	advance(&c, 2999);
	r = status(&c);
	assert_int_equal(r->status->n_leases, 1);
	drop(r);
	assert_int_not_equal(state_of(f, z.zone), ZNS_ZONE_EMPTY);
	advance(&c, 1);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&c);
}

static void killed_broker(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone live, own, lost;
	struct grant g;
	uint32_t pid;

	g = dump(f, &b, "web", KIB(128), &live);
	begin(&b, "db", 200);
	lost = zone_get(&b, 3);
	fill(f, &lost, KIB(64));
	assert_int_equal(nr_reservations(&b), 2);
	pid = b.broker_pid;
	kill_broker(&b);

	b = client(f);
	assert_int_not_equal(b.broker_pid, pid);
	assert_int_equal(nr_checkpoints(&b), 1);
	assert_true(becomes(f, lost.zone, ZNS_ZONE_EMPTY));
	assert_int_equal(state_of(f, live.zone), ZNS_ZONE_CLOSED);
	/* The reservation of a dump that was never committed is gone; the other one is kept. */
	assert_int_equal(nr_reservations(&b), 1);
	begin(&b, "web", 0);
	own = zone_get(&b, live.group);
	assert_int_equal(own.zone, live.zone);
	assert_int_equal(own.start, KIB(128));
	abort_dump(&b);
	rm(&b, g.id, 1);
	assert_true(becomes(f, live.zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&b);
}

/* A client of a broker with a virtual clock learns which process the broker waits for. */
static void is_told_who_writes(struct fx *f, pid_t who)
{
	cleanup_free char *clock = strdup(getenv("ZNS_CLOCK"));
	struct zns_broker b;
	struct zns_err err;
	char text[64];

	zns_clock_run();
	setenv("ZNS_CLOCK", clock, 1); /* the broker's */
	snprintf(text, sizeof(text), "a dump of an earlier broker still writes (PID %d)", who);
	assert_int_equal(connect_err(f, &b, &err), -EBUSY);
	if (!strstr(err.msg, text))
		fail_msg("%s", err.msg);
}

/* A new broker serves nobody and resets nothing while a helper of the old one may still write. */
static void writers_outlive_the_broker(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zone z;
	pid_t pid = writer(f, "web", &z, true), asks;
	int status;

	kill_broker(&b);
	asks = fork();
	assert_true(asks >= 0);
	if (!asks) {
		is_told_who_writes(f, pid);
		_exit(0);
	}
	/* ten seconds after it began to wait, by its own clock */
	until((zns_clock_advance(UINT64_C(10000000000)), waitpid(asks, &status, WNOHANG)) == asks);
	assert_int_equal(status, 0);
	assert_int_not_equal(state_of(f, z.zone), ZNS_ZONE_EMPTY);
	end(pid);
	b = client(f);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&b);
}

static void readers_outlive_the_broker(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__ZonesReset reset = ZNS_PB__ZONES_RESET__INIT;
	struct zone z, fresh;
	struct grant g = dump(f, &b, "web", KIB(64), &z);
	int lock = lock_file(f, "readers");
	REQ(q);

	kill_broker(&b);
	b = client(f);
	rm(&b, g.id, 1);
	q.reset = &reset;
	reset.n_zones = 1;
	reset.zones = &z.zone;
	refused(&b, &q, -EBUSY, "earlier broker");
	/* What was written to the zones later does not belong to the checkpoints. */
	begin(&b, "db", 0);
	fresh = zone_get(&b, 1);
	fill(f, &fresh, KIB(64));
	abort_dump(&b);
	assert_true(becomes(f, fresh.zone, ZNS_ZONE_EMPTY));
	assert_int_not_equal(state_of(f, z.zone), ZNS_ZONE_EMPTY);
	close(lock);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&b);
}

static void start_failures_reach_the_caller(void **state)
{
	struct fx *f = *state;
	char run[100], run2[100], path[100], moved[110];
	struct zns_registered other = f->reg;
	struct zns_broker b, c;
	struct zns_err err = ZNS_ERR_INIT;
	int fd;

	snprintf(run, sizeof(run), "%s/run", f->dir);
	snprintf(run2, sizeof(run2), "%s/run2", f->dir);
	snprintf(path, sizeof(path), "%s/dev", f->dir);
	snprintf(moved, sizeof(moved), "%s/dev.away", f->dir);

	/* Another runtime directory does not help: the device itself is locked. */
	b = client(f);
	setenv("ZNS_RUN", run2, 1);
	assert_int_equal(connect_err(f, &c, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "in use by another broker"));
	snprintf(moved, sizeof(moved), "PID %u", b.broker_pid);
	assert_non_null(strstr(err.msg, moved));
	setenv("ZNS_RUN", run, 1);
	kill_broker(&b);

	snprintf(moved, sizeof(moved), "%s/dev.away", f->dir);
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(connect_err(f, &b, &err), -ENODEV);
	assert_non_null(strstr(err.msg, path));
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, MIB(1)), 0);
	close(fd);
	assert_int_not_equal(connect_err(f, &b, &err), 0);
	assert_non_null(strstr(err.msg, path));
	unlink(path);
	assert_int_equal(rename(moved, path), 0);

	/* A device that was formatted elsewhere under another UUID. */
	other.uuid[0] ^= 0xff;
	assert_int_equal(zns_register(other.uuid, f->reg.path, &err), 0);
	assert_int_equal(zns_broker_connect(&other, &b, &err), -ENODEV);
	assert_non_null(strstr(err.msg, "znsctl register"));
	assert_int_equal(zns_broker_connect(&f->reg, &b, &err), -ENODEV); /* no longer registered */
	assert_int_equal(zns_register(f->reg.uuid, f->reg.path, &err), 0);

	/* A runtime directory that any user can write to is refused. */
	assert_int_equal(mkdir(run2, 0777) && errno != EEXIST, 0);
	assert_int_equal(chmod(run2, 0777), 0);
	setenv("ZNS_RUN", run2, 1);
	assert_int_equal(connect_err(f, &b, &err), -EPERM);
	setenv("ZNS_RUN", run, 1);
	assert_int_equal(zns_broker_connect_running(&f->reg, &b, &err), -ENOENT);
	b = client(f);
	zns_broker_close(&b);
}

static void bad_zones(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__ZoneGet zg = ZNS_PB__ZONE_GET__INIT;
	struct grant g = begin(&b, "web", 100);
	uint32_t grp = g.group[0], first = META + grp, i;
	struct zns_err err = ZNS_ERR_INIT;
	struct zone z[4], extra;
	ZnsPb__Response *r;
	REQ(q);

	/* zones of group g: META + g + DIES * k */
	zns_emu_set_zone_state(f->dev, first, ZNS_ZONE_OFFLINE, &err);
	zns_emu_set_zone_state(f->dev, first + DIES, ZNS_ZONE_READ_ONLY, &err);
	drop(status(&b)); /* the broker looks */
	for (i = 0; i < 2; i++) {
		z[i] = zone_get(&b, grp);
		assert_int_equal(z[i].group, grp);
		assert_true(z[i].zone == first + 2 * DIES || z[i].zone == first + 3 * DIES);
		fill(f, &z[i], CAP);
	}
	z[2] = zone_get(&b, grp);
	assert_int_not_equal(z[2].group, grp);
	/* The writer reports it as bad, and also a zone that it never had. */
	q.zone_get = &zg;
	zg.group = z[2].group;
	zg.n_not_zones = 2;
	zg.not_zones = (uint32_t[]){ z[2].zone, (z[2].zone - META + DIES) % (4 * DIES) + META };
	r = ask(&b, &q);
	assert_int_not_equal(r->zone->zone, zg.not_zones[0]);
	assert_int_not_equal(r->zone->zone, zg.not_zones[1]);
	drop(r);
	commit(&b, &g, z, 2);
	/* A zone that goes offline affects only the lease that has it. */
	g = begin(&b, "db", 100);
	extra = zone_get(&b, g.group[0]);
	fill(f, &extra, KIB(64));
	zns_emu_set_zone_state(f->dev, extra.zone, ZNS_ZONE_OFFLINE, &err);
	abort_dump(&b);
	assert_int_equal(nr_checkpoints(&b), 1);
	zns_broker_close(&b);
}

static uint32_t nr_closed(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	uint32_t n = r->status->zones_by_state[ZNS_ZONE_CLOSED];

	drop(r);
	return n;
}

/* 5 open, 8 active zones, the log's among them. */
static void limits(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f), b = client(f);
	ZnsPb__ZoneGet zg = ZNS_PB__ZONE_GET__INIT;
	uint32_t i, budget;
	struct zone z[64];
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	ZnsPb__Response *r;
	struct grant g, h;
	char name[16];

	begin_request(&q, &d, "web", 800, NULL, NULL);
	refused(&a, &q, -ERANGE, "open zones x 100 MiB/s)");
	budget = 4;
	begin_request(&q, &d, "web", budget * 100 + 1, NULL, NULL);
	refused(&a, &q, -ERANGE, "at most 400 MiB/s (4 open zones x 100 MiB/s)");
	/* With less contention the note changes. */
	g = begin(&a, "web", 300);
	assert_int_equal(g.n, 3);
	h = begin(&b, "db", 300);
	assert_int_equal(h.n, 1);
	assert_true(strstr(h.note, "only 1 of 4 open zones") != NULL);
	for (i = 0; i < 3; i++) {
		z[i] = zone_get(&a, g.group[i]);
		fill(f, &z[i], KIB(64));
	}
	z[3] = zone_get(&b, h.group[0]);
	fill(f, &z[3], KIB(64));
	/* All are used: no fifth until one is full. */
	zone_refused(&a, g.group[0], -EBUSY, "all 4 zones");
	/* Or until the writer is done with one, though there is room at its end. */
	q = (ZnsPb__Request)ZNS_PB__REQUEST__INIT;
	zg.group = g.group[1];
	zg.n_done_zones = 1;
	zg.done_zones = &z[1].zone;
	q.zone_get = &zg;
	r = ask(&a, &q);
	assert_int_equal(state_of(f, z[1].zone), ZNS_ZONE_CLOSED);
	z[1] = (struct zone){ r->zone->zone, r->zone->group, r->zone->start, r->zone->capacity,
			      r->zone->start };
	drop(r);
	fill(f, &z[1], KIB(64));
	zone_refused(&a, g.group[0], -EBUSY, "all 4 zones");
	fill(f, &z[0], CAP - KIB(64));
	z[4] = zone_get(&a, g.group[0]);
	fill(f, &z[4], KIB(64));
	abort_dump(&a);
	abort_dump(&b);
	begin_request(&q, &d, "web", 100, "reject", NULL);
	begin(&a, "web", 400);
	refused(&b, &q, -EBUSY, "in use by web");
	/* A sharing dump needs at least one zone, and waits for it. */
	begin_request(&q, &d, "cache", 100, NULL, NULL);
	post(&b, &q);
	settle(&a);
	assert_false(has_answer(&b));
	abort_dump(&a);
	r = answer(&b);
	assert_int_equal(r->code, 0);
	assert_int_equal(r->dump->n_groups, 1);
	drop(r);
	abort_dump(&b);

	/* Many small checkpoints: at most half of the active zones stay parked, and there is always
	 * one to give. */
	for (i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		g = begin_waiting(&a, &b, name, 0, NULL);
		z[i] = zone_get(&a, g.group[0]);
		fill(f, &z[i], KIB(64));
		commit(&a, &g, &z[i], 1);
	}
	until((advance(&a, 20), nr_closed(&a)) <= 4);
	assert_int_equal(nr_checkpoints(&a), 12);
	/* The least recently used zone was finished first: the last one is still open for its
	 * owner. */
	begin(&a, "c11", 0);
	z[20] = zone_get(&a, z[11].group);
	assert_int_equal(z[20].zone, z[11].zone);
	assert_int_equal(z[20].start, KIB(64));
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* Active zones, none of them parked: the dump waits until the writer frees one. */
static void active_limit_alone(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	ZnsPb__ZoneGet zg = ZNS_PB__ZONE_GET__INIT;
	struct grant g = begin(&a, "web", 300);
	ZnsPb__Response *r;
	struct zone z[3];
	uint32_t i;
	REQ(q);

	assert_int_equal(g.n, 3);
	for (i = 0; i < 3; i++) {
		z[i] = zone_get(&a, g.group[i]);
		fill(f, &z[i], CAP - KIB(96));
	}
	zone_refused(&a, g.group[0], -EBUSY, "in use");
	q.zone_get = &zg;
	zg.group = g.group[0];
	zg.n_done_zones = 1;
	for (i = 0; i < 3; i++) {
		zg.done_zones = &z[i].zone;
		r = ask(&a, &q);
		assert_int_equal(state_of(f, z[i].zone), ZNS_ZONE_FULL);
		z[i].zone = r->zone->zone;
		z[i].wp = z[i].start = 0;
		drop(r);
		fill(f, &z[i], KIB(64));
	}
	commit(&a, &g, z, 3);
	zns_broker_close(&a);
}

/* A client of the next broker, which gets these faults (controls.h). */
static struct zns_broker client_with(struct fx *f, const char *faults)
{
	struct zns_broker b;

	/* it takes only those variables of our environment that are listed */
	setenv("ZNS_EMU_FAULT", faults, 1);
	setenv("ZNSD_KEEP_ENV", "ZNS_EMU_FAULT", 1);
	b = client(f);
	unsetenv("ZNSD_KEEP_ENV");
	unsetenv("ZNS_EMU_FAULT");
	return b;
}

/* The drive suddenly belongs to another host: no zone is called bad, and the broker exits. */
static void reserved_by_another_host(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct grant g;
	struct record k;
	struct zone live, z;
	uint32_t pid = b.broker_pid;
	REQ(q);

	g = dump(f, &b, "web", KIB(128), &live);
	kill_broker(&b);
	b = client_with(f, "conflict-after=0x*");
	assert_int_not_equal(b.broker_pid, pid);
	pid = b.broker_pid;
	g = begin_mode(&b, "db", 0, NULL, "dynamic");
	z = zone_get(&b, g.group[0]);
	fill(f, &z, KIB(128));
	record(&k, &g, &z, 1);
	q.commit = &k.c;
	refused(&b, &q, -EBADE, "another host has reserved");
	zns_broker_close(&b);

	b = client(f);
	assert_int_not_equal(b.broker_pid, pid);
	assert_int_equal(nr_checkpoints(&b), 1);
	assert_true(becomes(f, z.zone, ZNS_ZONE_EMPTY));
	dump(f, &b, "db", KIB(128), &z);
	assert_int_equal(nr_checkpoints(&b), 2);
	zns_broker_close(&b);
}

/*
 * Two removals in one request, and the log cannot be written: neither has happened. The broker has
 * removed them from its memory already, so it must not reset zones that the next broker will find
 * in use.
 */
static void removals_not_written(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct pollfd gone = { .events = POLLIN };
	ProtobufCBinaryData id[2];
	ZnsPb__Rm m = ZNS_PB__RM__INIT;
	struct grant g[2];
	struct zone z[2];
	REQ(q);

	for (int i = 0; i < 2; i++) {
		g[i] = dump(f, &b, i ? "db" : "web", KIB(128), &z[i]);
		id[i] = (ProtobufCBinaryData){ ZNS_UUID_LEN, g[i].id };
	}
	assert_int_not_equal(z[0].zone, z[1].zone);
	kill_broker(&b);
	b = client_with(f, "write-after=0@0x*,write-after=0@1x*,write-after=0@2x*");
	gone.fd = pidfd_of(b.broker_pid);
	m.checkpoints = id;
	m.n_checkpoints = 2;
	m.by = "test";
	q.rm = &m;
	refused(&b, &q, -EIO, "media error (injected)");
	zns_broker_close(&b);
	assert_int_equal(poll(&gone, 1, 60000), 1);
	close(gone.fd);

	for (int i = 0; i < 2; i++)
		assert_int_not_equal(state_of(f, z[i].zone), ZNS_ZONE_EMPTY);
	b = client(f);
	assert_int_equal(nr_checkpoints(&b), 2);
	zns_broker_close(&b);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(killed_client),
		T(lost_connection),
		T(killed_broker),
		T(writers_outlive_the_broker),
		T(readers_outlive_the_broker),
		cmocka_unit_test_setup_teardown(start_failures_reach_the_caller, setup_running,
						fx_teardown),
		T(reserved_by_another_host),
		T(removals_not_written),
		T(bad_zones),
		cmocka_unit_test_setup_teardown(limits, setup_limits, fx_teardown),
		cmocka_unit_test_setup_teardown(active_limit_alone, setup_active, fx_teardown),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
