/* SPDX-License-Identifier: GPL-2.0-only */
/* Space on a disk that small checkpoints had and others get: who may write there, and what a
 * rebuild finds. */
#include "file_fixture.h"
#include "zns/move.h"

static int setup(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open_file(f, MIB(64));
	*state = f;
	return 0;
}

struct saved {
	uint8_t id[ZNS_UUID_LEN];
	uint32_t zone;
	uint64_t start, footer;
};

static struct saved look_up(struct fx *f, const uint8_t *id)
{
	struct zns_err err = ZNS_ERR_INIT;
	const ZnsPb__Checkpoint *c;
	struct zns_store *s;
	struct saved k;

	good(zns_store_open(f->dev, ZNS_STORE_RDONLY, &s, &err), &err);
	c = zns_store_find(s, id);
	assert_non_null(c);
	memcpy(k.id, id, sizeof(k.id));
	k.zone = c->manifest->zone;
	k.start = c->zones[0]->start;
	k.footer = c->manifest->start + zns_align_up(c->manifest->len, UINT64_C(4096));
	zns_store_close(s);
	return k;
}

static struct saved save(struct fx *f, const char *name, uint64_t bytes)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint8_t id[ZNS_UUID_LEN];

	good(save_pages(f, name, 0, bytes, id, &err), &err);
	return look_up(f, id);
}

static bool footer_stands(struct fx *f, const struct saved *k)
{
	ZnsPb__Footer *foot;

	if (zns_footer_read(f->dev, k->zone, k->footer, &foot, NULL))
		return false;
	zns_pb__footer__free_unpacked(foot, NULL);
	return true;
}

/* What a store has whose log is lost. */
static size_t rebuilt(struct fx *f)
{
	struct zns_broker b;
	char args[400];
	size_t nr;

	snprintf(args, sizeof(args), "fsck --rebuild --force %s", f->dev->path);
	ctl(args);
	b = client(f);
	nr = nr_checkpoints(&b);
	zns_broker_close(&b);
	return nr;
}

/* Three in one zone, so that it stays when the middle one goes. */
static void three(struct fx *f, struct saved k[3])
{
	for (int i = 0; i < 3; i++) {
		k[i] = save(f, "c", KIB(100));
		assert_int_equal(k[i].zone, k[0].zone);
	}
}

/* Written behind the three, and not in the place of one of them. */
static void one_more(struct fx *f, const struct saved k[3])
{
	struct saved more = save(f, "more", KIB(300));

	assert_int_equal(more.zone, k[0].zone);
	assert_true(more.start > k[2].footer);
}

/* A writer whose lease has ended cannot continue in a place that other leases may have by now. */
static void late_writer(void **state)
{
	struct fx *f = *state;
	struct zns_broker b;
	ZnsPb__ZoneGet zg = ZNS_PB__ZONE_GET__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	void *buf = aligned_alloc(4096, KIB(16));
	ZnsPb__DumpBegin m;
	ZnsPb__Response *r;
	struct saved k[3];
	uint64_t start;
	REQ(q);

	three(f, k);
	b = client(f);
	rm(&b, k[1].id, 1);
	begin_request(&q, &m, "late", 0, NULL, NULL);
	m.has_min_room = m.has_expected_bytes = 1;
	m.min_room = KIB(16);
	m.expected_bytes = KIB(32);
	drop(ask(&b, &q));
	zns_pb__request__init(&q);
	q.zone_get = &zg;
	r = ask(&b, &q);
	assert_int_equal(r->zone->zone, k[0].zone);
	assert_int_equal(r->zone->start, k[1].start);
	assert_true(r->zone->has_turn);
	start = r->zone->start;
	good(zns_dev_take(f->dev, k[0].zone, start, r->zone->capacity, r->zone->turn, &err), &err);
	drop(r);
	memset(buf, 0x5a, KIB(16));
	good(zns_dev_write(f->dev, k[0].zone, start, buf, KIB(16), &err), &err);
	abort_dump(&b);
	assert_int_equal(zns_dev_write(f->dev, k[0].zone, start + KIB(16), buf, KIB(16), &err),
			 -EIO);
	zns_broker_close(&b);
	free(buf);
}

static uint64_t room_of(struct zns_broker *b)
{
	ZnsPb__DumpRoom m = ZNS_PB__DUMP_ROOM__INIT;
	ZnsPb__Response *r;
	uint64_t room;
	REQ(q);

	q.dump_room = &m;
	r = ask(b, &q);
	room = r->room;
	drop(r);
	return room;
}

/* A small dump is offered space between checkpoints, a larger one is not. */
static void room_between(void **state)
{
	struct fx *f = *state;
	struct zns_broker b, small, large;
	uint64_t before[2];
	ZnsPb__DumpBegin m;
	struct saved k[3];
	REQ(q);

	three(f, k);
	b = client(f);
	small = client(f);
	large = client(f);
	begin_request(&q, &m, "large", 0, NULL, NULL);
	m.has_expected_bytes = 1;
	m.expected_bytes = MIB(30);
	drop(ask(&large, &q));
	m.container = "small";
	m.expected_bytes = MIB(1);
	drop(ask(&small, &q));
	before[0] = room_of(&small);
	before[1] = room_of(&large);
	rm(&b, k[1].id, 1);
	assert_int_equal(room_of(&small), before[0] + KIB(64)); /* of 104: its unit is 64 KiB */
	assert_int_equal(room_of(&large), before[1]);
	zns_broker_close(&large);
	zns_broker_close(&small);
	zns_broker_close(&b);
}

/* A full store whose removed checkpoints left 24 to 31 KiB each: enough for a scattered dump of 1 MiB, which
 * writes 8 KiB in one run, and nothing for one of 4 MiB, which writes 32 KiB. */
static void places_shorter_than_a_unit(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint8_t id[640][ZNS_UUID_LEN];
	struct fx *f = *state;
	struct zns_broker b;
	ZnsPb__DumpBegin m;
	uint32_t nr = 0;
	REQ(q);

	save(f, "large", MIB(36));
	while (nr < 640 && !save_pages(f, "small", 0, KIB(20), id[nr], &err))
		nr++;
	assert_in_range(nr, 400, 639);
	b = client(f);
	for (uint32_t i = 0; i < nr; i += 2)
		rm(&b, id[i], 1);
	begin_request(&q, &m, "late", 0, "reject", NULL);
	m.has_expected_bytes = 1;
	m.expected_bytes = MIB(1);
	drop(ask(&b, &q));
	abort_dump(&b);
	m.expected_bytes = MIB(4);
	refused(&b, &q, -ENOSPC, "is full");
	zns_broker_close(&b);
}

static uint64_t blocks_of(struct fx *f)
{
	struct stat st;

	assert_int_equal(stat(f->dev->path + strlen("file:"), &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static struct zone begin_with_a_zone(struct zns_broker *b, const char *name, uint64_t expected)
{
	ZnsPb__DumpBegin m;
	REQ(q);

	begin_request(&q, &m, name, 0, NULL, NULL);
	m.has_expected_bytes = expected > 0;
	m.expected_bytes = expected;
	drop(ask(b, &q));
	return zone_get(b, 0);
}

/* The broker begins its search somewhere, and a run ends where the store does. */
static void search_from_the_beginning(struct zns_broker *b)
{
	struct zone z = begin_with_a_zone(b, "small", MIB(1));

	while (z.zone > 20)
		z = zone_get(b, 0);
	abort_dump(b);
}

static bool about(struct fx *f, uint64_t bytes)
{
	uint64_t now = blocks_of(f);

	return now >= bytes && now < bytes + KIB(512);
}

/* Zones have their blocks before dumps write. All dumps draw from one run of such zones, and the last
 * lease that ends gives back what nobody wrote. */
static void blocks_ahead(void **state)
{
	struct fx *f = *state;
	struct zns_broker one = client(f), two = client(f);
	uint64_t had = blocks_of(f);
	struct zone a;
	int i;

	search_from_the_beginning(&one);
	begin_with_a_zone(&one, "small", MIB(1));
	assert_true(about(f, had));
	abort_dump(&one);
	a = begin_with_a_zone(&one, "one", MIB(6));
	assert_true(about(f, had + MIB(6)));
	assert_int_equal(begin_with_a_zone(&two, "two", MIB(9)).zone, a.zone + 1);
	for (i = 2; i < 6; i++) /* in turns */
		zone_get(i % 2 ? &one : &two, 0);
	assert_true(about(f, had + MIB(6)));
	zone_get(&two, 0); /* its rest is 6 MiB */
	assert_true(about(f, had + MIB(12)));
	abort_dump(&one);
	assert_true(about(f, had + MIB(9)));
	abort_dump(&two);
	assert_true(about(f, had));
	begin_with_a_zone(&one, "none announced", 0);
	for (i = 1; i < 4; i++)
		zone_get(&one, 0);
	assert_true(about(f, had));
	zone_get(&one, 0); /* as much again as it has */
	assert_true(about(f, had + MIB(4)));
	abort_dump(&one);
	assert_true(about(f, had));
	zns_broker_close(&two);
	zns_broker_close(&one);
}

/* A broker that ends gives back what it took for zones that no writer has. */
static void blocks_ahead_of_an_end(void **state)
{
	struct pollfd p = { .events = POLLIN };
	struct fx *f = *state;
	struct zns_broker b = client(f);
	uint64_t had = blocks_of(f);

	search_from_the_beginning(&b);
	begin_with_a_zone(&b, "one", MIB(6));
	assert_true(about(f, had + MIB(6)));
	p.fd = pidfd_of(b.broker_pid);
	assert_int_equal(kill((pid_t)b.broker_pid, SIGTERM), 0);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_true(about(f, had + MIB(1)));
	close(p.fd);
	zns_broker_close(&b);
}

/* While a restore reads the zone, a removed checkpoint keeps its footer; the footer is overwritten
 * when the restore has ended. */
static void removed_beside_a_reader(void **state)
{
	struct fx *f = *state;
	struct zns_broker b, reader;
	ZnsPb__RestoreBegin rb;
	ZnsPb__Request q;
	struct saved k[3];

	three(f, k);
	b = client(f);
	reader = client(f);
	restore_request(&q, &rb, k[0].id);
	drop(ask(&reader, &q));
	rm(&b, k[1].id, 1);
	settle(&b);
	assert_true(footer_stands(f, &k[1]));
	zns_broker_close(&reader);
	until((settle(&b), !footer_stands(f, &k[1])));
	zns_broker_close(&b);
	one_more(f, k);
	assert_int_equal(rebuilt(f), 3);
}

/* So it is beside a writer, which goes on with the place that it was given. */
static void removed_beside_a_writer(void **state)
{
	struct fx *f = *state;
	struct zns_broker b, writer;
	ZnsPb__DumpBegin m;
	struct saved k[3];
	struct zone z;
	REQ(q);

	three(f, k);
	b = client(f);
	writer = client(f);
	begin_request(&q, &m, "writer", 0, NULL, NULL);
	m.has_min_room = m.has_expected_bytes = 1;
	m.min_room = KIB(16);
	m.expected_bytes = KIB(300);
	drop(ask(&writer, &q));
	z = zone_get(&writer, 0);
	assert_int_equal(z.zone, k[0].zone);
	rm(&b, k[1].id, 1);
	assert_true(footer_stands(f, &k[1]));
	abort_dump(&writer);
	settle(&b);
	assert_false(footer_stands(f, &k[1]));
	zns_broker_close(&writer);
	zns_broker_close(&b);
	one_more(f, k);
	assert_int_equal(rebuilt(f), 3);
}

/* Removes k[1], which a reader of an earlier broker may still read. Closing the result ends that. */
static int removed_while_read(struct fx *f, struct saved k[3], struct zns_broker *b)
{
	int reader;

	three(f, k);
	*b = client(f);
	reader = lock_file(f, "readers");
	kill_broker(b);
	*b = client(f);
	rm(b, k[1].id, 1);
	settle(b);
	assert_true(footer_stands(f, &k[1]));
	return reader;
}

/*
 * Zones that an earlier broker let a client read may still be read; the client need not ask again.
 */
static void removed_after_a_crash(void **state)
{
	struct fx *f = *state;
	struct zns_broker b;
	struct saved k[3];
	int reader;

	reader = removed_while_read(f, k, &b);
	close(reader);
	until((advance(&b, 500), !footer_stands(f, &k[1])));
	zns_broker_close(&b);
}

/* A broker that ends overwrites the footers that still wait for readers: its successor would not know
 * of them. */
static void removed_and_left(struct fx *f, bool asked)
{
	struct pollfd p = { .events = POLLIN };
	struct zns_broker b;
	struct saved k[3];
	int reader;
	REQ(q);

	reader = removed_while_read(f, k, &b);
	p.fd = pidfd_of(b.broker_pid);
	q.has_quit = q.quit = 1;
	if (asked)
		drop(ask(&b, &q));
	else
		assert_int_equal(kill((pid_t)b.broker_pid, SIGTERM), 0);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_false(footer_stands(f, &k[1]));
	assert_true(footer_stands(f, &k[0]));
	close(p.fd);
	close(reader);
	zns_broker_close(&b);
	assert_int_equal(rebuilt(f), 2);
}

static void asked_to_leave(void **state)
{
	removed_and_left(*state, true);
}

static void left_by_a_signal(void **state)
{
	removed_and_left(*state, false);
}

static void move(struct fx *f, const struct saved *k)
{
	struct zns_session s = ZNS_SESSION_INIT;
	cleanup_free uint32_t *groups = calloc(f->dev->geo.nr_zones, sizeof(*groups));
	struct zns_move m = {
		.s = &s, .victims = &k->zone, .nr_victims = 1, .zone_group = groups, .rude = true
	};
	struct zns_err err = ZNS_ERR_INIT;

	good(zns_session_open(&s, &f->reg, ZNS_WRITES, &err), &err);
	m.dev = s.dev;
	good(zns_move_copy(&m, k->id, &err), &err);
	good(zns_move_durable(&m, &err), &err);
	good(zns_move_commit(&m, &err), &err);
	zns_move_end(&m);
	zns_session_close(&s);
}

/* The footer of an earlier version is invalidated, too. Otherwise that version would come back once
 * the checkpoint is removed and its tombstone is overwritten. */
static void moved_and_removed(void **state)
{
	struct fx *f = *state;
	struct zns_broker b;
	struct saved k[3], now;

	three(f, k);
	move(f, &k[1]);
	b = client(f);
	until((settle(&b), !footer_stands(f, &k[1])));
	now = look_up(f, k[1].id);
	assert_int_not_equal(now.zone, k[1].zone);
	assert_true(footer_stands(f, &now));
	assert_int_equal(nr_checkpoints(&b), 3);
	rm(&b, k[1].id, 1);
	assert_true(becomes(f, now.zone, ZNS_ZONE_EMPTY));
	zns_broker_close(&b);
	one_more(f, k);
	assert_int_equal(rebuilt(f), 3);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(late_writer),
		T(room_between),
		T(places_shorter_than_a_unit),
		T(blocks_ahead),
		T(blocks_ahead_of_an_end),
		T(removed_beside_a_reader),
		T(removed_beside_a_writer),
		T(removed_after_a_crash),
		T(asked_to_leave),
		T(left_by_a_signal),
		T(moved_and_removed),
	};

	fx_still = fx_on_disk = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
