/* SPDX-License-Identifier: GPL-2.0-only */
/* Weights: which limits znsd gives to leases. The rule itself: test_weigh.c. */
#include <math.h>
#include "broker_fixture.h"
#include "zns/config.h"

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

/* Reports that it has used all that its limit allowed since the last report. */
static uint64_t busy(void)
{
	static uint64_t bytes;

	return bytes += GIB(1024);
}

static uint32_t works(struct zns_broker *b)
{
	return progress(b, busy(), NULL);
}

static void in_range(uint32_t got, double want)
{
	if (fabs(got - want) > 1 + want * 0.02)
		fail_msg("%u is not about %.1f", got, want);
}

/* A new dump fills the dies' queues, so a tenth of each group's time is left free for a moment. */
static void at_first(uint32_t got, double want)
{
	in_range(got, want * 0.9);
}

/* All eight groups of 100 MiB/s are shared by all. */
static void dumps_are_told(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	uint32_t again;

	/* without any weight no dump is limited */
	assert_int_equal(begin_weighed(&a, "a", 800, 0, "share"), 0);
	assert_int_equal(begin_weighed(&b, "b", 800, 0, "share"), 0);
	assert_int_equal(progress(&a, 0, &again), 0);
	abort_dump(&b);
	/* one dump has a weight, so all dumps it meets are limited, and are soon told of changes */
	begin_weighed(&b, "b", 800, 300, "share");
	advance(&a, 20);
	at_first(works(&b), 800 * 0.75);
	at_first(progress(&a, 0, &again), 800 * 0.25);
	assert_in_range(again, 1, 50);
	/* alone again: it may use everything */
	abort_dump(&b);
	advance(&a, 20);
	assert_int_equal(works(&a), 0);
	abort_dump(&a);
	begin_weighed(&a, "a", 800, 100, "share");
	begin_weighed(&b, "b", 800, 500, "share");
	/* two leases of one container are one tenant: together they have that tenant's part */
	begin_weighed(&c, "b", 800, 500, "share");
	advance(&a, 20);
	at_first(works(&a), 800.0 / 6);
	at_first(works(&b), 800 * 2.5 / 6);
	at_first(works(&c), 800 * 2.5 / 6);
	/* limits are valid for 20 ms */
	abort_dump(&c);
	advance(&a, 19);
	at_first(works(&b), 800 * 2.5 / 6);
	advance(&a, 1);
	at_first(works(&b), 800 * 5 / 6.0);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* A promise is kept whatever weights others have, and a dump is not limited for it where the two
 * do not meet. */
static void promises_come_first(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);

	assert_int_equal(begin_weighed(&a, "a", 400, 100, "reject"), 0);
	begin_weighed(&b, "b", 800, 10000, "share");
	begin_weighed(&c, "c", 800, 10000, "share");
	advance(&a, 20);
	assert_int_equal(works(&a), 0);
	at_first(works(&b), 200);
	at_first(works(&c), 200);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* A dump that uses less than its part leaves the rest to others, and has its whole part again when
 * it needs it. */
static void idle_share_is_given_away(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);

	begin_weighed(&a, "a", 800, 300, "share");
	begin_weighed(&b, "b", 800, 100, "share");
	for (int i = 0; i < 8; i++) {
		advance(&a, 60);
		progress(&a, 0, NULL); /* it reports no progress */
		progress(&b, (uint64_t)i * MIB(12), NULL);
	}
	assert_true(progress(&b, MIB(96), NULL) > 700);
	in_range(progress(&a, 0, NULL), 600);
	/* it works again: 100 ms later or more its limit is its part */
	for (int i = 1; i < 8; i++) {
		advance(&a, 60);
		progress(&a, (uint64_t)i * MIB(600), NULL);
		progress(&b, MIB(96) + (uint64_t)i * MIB(600), NULL);
	}
	in_range(progress(&b, MIB(96) + 8 * MIB(600), NULL), 200);
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
	advance(&a, 20);
	at_first(works(&a), 200);
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
	works(b); /* a lease that was silent for a second does not count */
	return rate;
}

static struct grant store_weighed(struct fx *f, const char *name, uint32_t qos, uint32_t weight)
{
	struct zns_broker b = client(f);
	struct grant g = begin_mode(&b, name, qos, "share", "dynamic");
	struct record k;
	struct zone z[64];
	REQ(q);

	for (uint32_t i = 0; i < g.n; i++) {
		z[i] = zone_get(&b, g.group[i]);
		fill(f, &z[i], KIB(128));
	}
	record(&k, &g, z, g.n);
	k.c.has_weight = weight > 0;
	k.c.weight = weight;
	q.commit = &k.c;
	drop(ask(&b, &q));
	zns_broker_close(&b);
	return g;
}

static struct grant store(struct fx *f, const char *name, uint32_t qos)
{
	return store_weighed(f, name, qos, 0);
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
	advance(&a, 20);
	at_first(works(&a), 3200 * 2 / 3.0);
	at_first(works(&b), 3200 / 3.0);
	/* this restore needs a third of one die; the two others share the rest of it by weight,
	 * so by time */
	restore_of(&c, &die, 300);
	advance(&a, 20);
	at_first(works(&c), 400 * 300 / 600.0);
	at_first(works(&a), 3200 * 200 / 600.0);
	at_first(works(&b), 3200 * 100 / 600.0);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* @left: what it is promised of its QoS, if that is less. */
static void promised_restore(struct zns_broker *b, struct grant *g, uint32_t qos, const char *left)
{
	ZnsPb__RestoreBegin rb = ZNS_PB__RESTORE_BEGIN__INIT;
	ZnsPb__Response *r;
	REQ(q);

	rb.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, g->id };
	rb.has_qos_mibps = 1;
	rb.qos_mibps = qos;
	q.restore_begin = &rb;
	r = ask(b, &q);
	if (!left)
		assert_null(r->promise_note);
	else if (!r->promise_note || !strstr(r->promise_note, left))
		fail_msg("no \"%s\": %s", left, r->promise_note ? r->promise_note : "nothing");
	drop(r);
}

/* criu restore --lazy-pages and its daemon may both name the rate: it is promised once, to the
 * daemon. */
static void lazy_restore_is_promised_once(void **state)
{
	struct zns_broker criu = client(*state), daemon = client(*state);
	struct grant wide = store(*state, "wide", 800);
	ZnsPb__RestoreBegin rb = ZNS_PB__RESTORE_BEGIN__INIT;
	REQ(q);

	rb.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, wide.id };
	rb.has_qos_mibps = rb.has_half = rb.half = 1;
	rb.qos_mibps = 3000;
	q.restore_begin = &rb;
	drop(ask(&criu, &q));
	promised_restore(&daemon, &wide, 3000, NULL);
	zns_broker_close(&criu);
	zns_broker_close(&daemon);
}

static void not_promised(struct zns_broker *b, struct grant *g, uint32_t qos, const char *admission,
			 int code, const char *part)
{
	ZnsPb__RestoreBegin rb = ZNS_PB__RESTORE_BEGIN__INIT;
	REQ(q);

	rb.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, g->id };
	rb.has_qos_mibps = 1;
	rb.qos_mibps = qos;
	rb.admission = (char *)admission;
	q.restore_begin = &rb;
	refused(b, &q, code, part);
}

/* The time of its groups that a promise takes is available to no other lease, reader or writer.
 * All eight groups are read with 400 MiB/s each and written with 100. */
static void restores_have_promises(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	struct grant wide = store(*state, "wide", 800), other = store(*state, "other", 800),
		     die = store(*state, "die", 100);

	begin_weighed(&b, "writes", 800, 0, "share");
	assert_int_equal(works(&b), 0);
	promised_restore(&a, &wide, 1600, NULL);
	advance(&a, 20);
	in_range(works(&b), 800 * (0.9 - 0.5));
	assert_int_equal(works(&a), 0); /* no other lease has a promise */
	abort_dump(&b);
	restore_of(&b, &other, 0);
	advance(&a, 20);
	in_range(works(&b), 3200 * (0.9 - 0.5));
	/* no promise is given twice */
	not_promised(&c, &die, 300, "reject", -EBUSY, "180 MiB/s of 300 are left");
	not_promised(&c, &die, 500, "reject", -EBUSY, "180 MiB/s of 380 are left");
	not_promised(&c, &die, 300, "perhaps", -EINVAL, "\"perhaps\"");
	promised_restore(&c, &die, 300, "180 MiB/s of 300");
	assert_int_equal(works(&a), 1600);
	assert_int_equal(works(&c), 180);
	zns_broker_close(&c);
	c = client(*state);
	tenants(*state, "name die max-qos=100\n");
	not_promised(&c, &die, 300, "reject", -EDQUOT, "ceiling of 100 MiB/s");
	promised_restore(&c, &die, 300, "100 MiB/s of 300: the ceiling of `name die`");
	/* when it ends, everything is shared again */
	zns_broker_close(&c);
	zns_broker_close(&a);
	a = client(*state);
	advance(&a, 20);
	assert_int_equal(works(&b), 0);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* tenants.conf gives a weight to leases that ask for none: a dump by container name or user, a
 * restore without a weight in its record by name. */
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
	advance(&a, 20);
	at_first(works(&a), 600);
	at_first(works(&b), 200);
	abort_dump(&a);
	abort_dump(&b);
	/* an explicit weight counts, and the ceiling bounds it */
	begin_weighed(&a, "web-1", 800, 100, "share");
	begin_weighed(&b, "db", 800, 300, "share");
	advance(&a, 20);
	at_first(works(&a), 200);
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
	advance(&a, 20);
	at_first(works(&a), 560);
	at_first(works(&b), 240);
	abort_dump(&a);
	abort_dump(&b);
	/* restores */
	restore_of(&a, &web, 0);
	restore_of(&b, &db, 0);
	advance(&a, 20);
	at_first(works(&a), 3200 * 0.75);
	at_first(works(&b), 3200 * 0.25);
	zns_broker_close(&a);
	zns_broker_close(&b);
	a = client(*state);
	b = client(*state);
	restore_of(&a, &web, 1000); /* gets the ceiling */
	restore_of(&b, &db, 100);
	advance(&a, 20);
	at_first(works(&a), 3200 * 0.8);
	at_first(works(&b), 3200 * 0.2);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* A ceiling is not a weight: if no lease has a weight, none is limited because of a ceiling. */
static void a_ceiling_says_nothing(void **state)
{
	struct zns_broker a = client(*state), b = client(*state);
	struct grant web = store(*state, "web-1", 800), db = store(*state, "db", 800);

	tenants(*state, "name web-* max-weight=400\n");
	restore_of(&a, &web, 0);
	restore_of(&b, &db, 0);
	advance(&a, 20);
	assert_int_equal(works(&a), 0);
	assert_int_equal(works(&b), 0);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* A flattening has the weight of the checkpoint that it writes anew, under its container's
 * ceiling, or that of a separate class. */
static void flatten_begins(struct zns_broker *b, struct grant *g, uint32_t weight)
{
	ZnsPb__DumpBegin d;
	REQ(q);

	begin_request(&q, &d, g->container, 800, "share", NULL);
	d.has_flatten = 1;
	d.flatten = (ProtobufCBinaryData){ ZNS_UUID_LEN, g->id };
	d.has_weight = d.has_own_class = d.own_class = weight > 0;
	d.weight = weight;
	drop(ask(b, &q));
}

static void flattening_is_told(void **state)
{
	struct zns_broker a = client(*state), b = client(*state), c = client(*state);
	struct grant g = store_weighed(*state, "web", 800, 400);

	flatten_begins(&a, &g, 0);
	begin_weighed(&b, "other", 800, 0, "share");
	advance(&a, 20);
	at_first(works(&a), 640);
	at_first(works(&b), 160);
	/* charged to its container: a dump of that container takes half of the part */
	begin_weighed(&c, "web", 800, 0, "share");
	advance(&a, 20);
	at_first(works(&a), 320);
	at_first(works(&b), 160);
	abort_dump(&a);
	abort_dump(&c);
	/* a separate class: the container keeps its part */
	flatten_begins(&a, &g, 300);
	begin_weighed(&c, "web", 800, 400, "share");
	advance(&a, 20);
	at_first(works(&a), 300);
	at_first(works(&b), 100);
	at_first(works(&c), 400);
	abort_dump(&a);
	abort_dump(&c);
	/* a tenant's ceiling applies although nothing is refused; a separate class has no such
	 * ceiling */
	tenants(*state, "name web max-weight=300\n");
	flatten_begins(&a, &g, 0);
	advance(&a, 20);
	at_first(works(&a), 600);
	abort_dump(&a);
	flatten_begins(&a, &g, 700);
	advance(&a, 20);
	at_first(works(&a), 700);
	zns_broker_close(&a);
	zns_broker_close(&b);
	zns_broker_close(&c);
}

/* ---- moves ---- */

enum { GIVES_WAY = -1, OWNER = 0 };

static void move_begins(struct zns_broker *b, struct grant *g, int weight)
{
	ZnsPb__CompactBegin c = ZNS_PB__COMPACT_BEGIN__INIT;
	REQ(q);

	c.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, g->id };
	c.has_weight = weight != GIVES_WAY;
	c.weight = weight > 0 ? (uint32_t)weight : 0;
	q.compact_begin = &c;
	drop(ask(b, &q));
}

/* It reads group 0 and writes group 1: returns its limit for both together. */
static uint32_t moves(struct zns_broker *b, bool *waits)
{
	ZnsPb__CompactStep c = ZNS_PB__COMPACT_STEP__INIT;
	uint32_t at[] = { 0, 1 }, rate;
	ZnsPb__Response *r;
	REQ(q);

	c.groups = at;
	c.n_groups = 2;
	c.has_bytes = 1;
	c.bytes = busy();
	q.compact_step = &c;
	r = ask(b, &q);
	rate = r->rate_mibps;
	*waits = r->wait_ms > 0;
	drop(r);
	return rate;
}

/* Reports which zones it reads and writes, and returns the limit in the next answer. */
static void moves_at(struct zns_broker *b, double part)
{
	bool waits;

	moves(b, &waits);
	advance(b, 20);
	/* half of its bytes are written to group 1, with 100 MiB/s at most */
	at_first(moves(b, &waits), 200 * part);
	assert_false(waits);
}

static void moves_are_charged(void **state)
{
	struct zns_broker m = client(*state), a = client(*state), b = client(*state),
			  n = client(*state);
	struct grant web = store_weighed(*state, "web", 800, 300),
		     old = store_weighed(*state, "web", 800, 300), db = store(*state, "db", 800);
	bool waits;

	/* a move that gives way waits for a dump on its groups, and has no limit */
	begin_weighed(&b, "db", 800, 0, "share");
	move_begins(&m, &web, GIVES_WAY);
	assert_int_equal(moves(&m, &waits), 0);
	assert_true(waits);
	zns_broker_close(&m);
	m = client(*state);
	abort_dump(&b);
	/* with its owner's part: 3 of 4 */
	restore_of(&b, &db, 0);
	move_begins(&m, &web, OWNER);
	moves_at(&m, 0.75);
	at_first(works(&b), 3200 / 4.0);
	/* the owner's restore divides that part with the move, and the neighbour loses nothing */
	restore_of(&a, &old, 0);
	moves_at(&m, 0.375);
	at_first(works(&a), 3200 * 0.375);
	at_first(works(&b), 3200 / 4.0);
	zns_broker_close(&m);
	m = client(*state);
	/*
	 * in a separate class: all others lose by their weights, and the owner does not lose more
	 */
	move_begins(&m, &web, 100);
	moves_at(&m, 0.2);
	at_first(works(&a), 3200 * 0.6);
	at_first(works(&b), 3200 * 0.2);
	/* all moves of that class have one part together, whoever owns the data */
	move_begins(&n, &db, 100);
	moves(&n, &waits);
	moves_at(&m, 0.1);
	moves_at(&n, 0.1);
	at_first(works(&a), 3200 * 0.6);
	zns_broker_close(&m);
	zns_broker_close(&n);
	zns_broker_close(&a);
	zns_broker_close(&b);
}

/* The owner's weight may come from tenants.conf. */
static void moves_of_a_tenant(void **state)
{
	struct zns_broker m = client(*state), b = client(*state);
	struct grant web = store(*state, "web", 800), db = store(*state, "db", 800);

	tenants(*state, "name web weight=400\n");
	restore_of(&b, &db, 0);
	move_begins(&m, &web, OWNER);
	moves_at(&m, 0.8);
	at_first(works(&b), 3200 * 0.2);
	zns_broker_close(&m);
	zns_broker_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(dumps_are_told, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(promises_come_first, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(idle_share_is_given_away, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(bad_weights, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(restores_are_told, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(lazy_restore_is_promised_once, fx_setup,
						fx_teardown),
		cmocka_unit_test_setup_teardown(restores_have_promises, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(tenants_give_weights, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(a_ceiling_says_nothing, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(flattening_is_told, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(moves_are_charged, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(moves_of_a_tenant, fx_setup, fx_teardown),
	};

	fx_still = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
