/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory that is still in the checkpoint that its programs were restored from (zns/origin.h): the
 * checkpoint stays as long as the context's lock file names it, and the table of its units.
 */
#include "pages_fixture.h"
#include "zns/context.h"
#include "../../zns/memory/pages/origin_int.h"

static void rm_refused(struct zns_broker *b, const uint8_t *id, const char *part)
{
	ProtobufCBinaryData d = { ZNS_UUID_LEN, (uint8_t *)id };
	ZnsPb__Rm m = ZNS_PB__RM__INIT;
	REQ(q);

	m.checkpoints = &d;
	m.n_checkpoints = 1;
	m.by = "test";
	q.rm = &m;
	refused(b, &q, -EBUSY, part);
}

static void move_refused(struct zns_broker *b, const uint8_t *id)
{
	ZnsPb__CompactBegin c = ZNS_PB__COMPACT_BEGIN__INIT;
	REQ(q);

	c.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, (uint8_t *)id };
	q.compact_begin = &c;
	refused(b, &q, -ECANCELED, "has memory of the running program web");
}

/* The lease lives as long as any process has the lock file locked, with or without pager and
 * broker. */
static void it_stays(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	struct zns_pages *ps = opened(f, "web", NULL);
	struct zone z;
	struct grant g = dump(f, &a, "job", 65536, &z), other = dump(f, &a, "else", 65536, &z);
	int fd;

	assert_int_equal(zns_pages_fds(ps, &fd), 1);
	fd = dup(fd);
	assert_int_equal(zns_context_set_origin(fd, g.id), 0);
	rm_refused(&a, g.id, "`znsctl memory detach web`");
	move_refused(&a, g.id);
	rm(&a, other.id, 1);
	zns_pages_close(ps, false); /* the pager has died */
	rm_refused(&a, g.id, "running program web");
	kill_broker(&a);
	a = client(f);
	rm_refused(&a, g.id, "running program web");
	assert_int_equal(zns_context_set_origin(fd, NULL), 0);
	rm(&a, g.id, 1);
	close(fd);
	zns_broker_close(&a);
}

/* A context that has ended protects nothing, whatever its file says. */
static void it_goes(void **state)
{
	struct fx *f = *state;
	struct zns_broker a = client(f);
	struct zns_pages *ps = opened(f, "web", NULL);
	struct zone z;
	struct grant g = dump(f, &a, "job", 65536, &z);
	int fd;

	assert_int_equal(zns_pages_fds(ps, &fd), 1);
	assert_int_equal(zns_context_set_origin(fd, g.id), 0);
	rm_refused(&a, g.id, "running program web");
	zns_pages_close(ps, true);
	rm(&a, g.id, 1);
	zns_broker_close(&a);
}

#define P 4096ULL

static void table(void **state)
{
	/* a unit in two parts, one across a border of units, and one elsewhere in the image */
	const struct zns_origin_part some[] = { { 0, 2 * P, P },
						{ P, 5 * P, 2 * P },
						{ 9 * P, 8 * P, 10 * P } };
	const struct zns_origin_part bad[][2] = {
		{ { 0, P, P }, { P, P, P } }, /* twice */
		{ { 0, 4 * P, P }, { P, P, P } }, /* not in order */
		{ { 0, P, P }, { 20 * P, 9 * P, P } }, /* behind the image */
		{ { 0, P, P }, { 1, 9 * P, P } },      { { 0, P, P }, { P, 1ULL << 47, P } },
		{ { 0, P, P }, { P, 9 * P, 0 } },
	};
	const struct origin_record *r;
	struct origin_table t, again;
	struct zns_mem_given *u;
	size_t nr;

	assert_int_equal(origin_table_new(&t), 0);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++)
		assert_int_equal(origin_table_add(&t, 3, 20 * P, bad[i], 2, &u, &nr, NULL),
				 -EPROTO);
	assert_int_equal(t.head->nr, 0);
	assert_int_equal(origin_table_add(&t, 3, 20 * P, some, 3, &u, &nr, NULL), 0);
	assert_int_equal(nr, 2);
	assert_int_equal(u[0].addr, 0);
	assert_int_equal(u[0].pages, 0xff64);
	assert_int_equal(u[1].addr, 16 * P);
	assert_int_equal(u[1].pages, 0x3);
	assert_int_equal(origin_table_take(&again, t.fd), 0);
	assert_int_equal(origin_table_find(&again, u[0].place, &r), 2);
	assert_int_equal(r[0].pages, 0x64);
	assert_int_equal(r[1].first, 9);
	assert_int_equal(origin_table_find(&again, u[1].place, &r), 1);
	assert_int_equal(r->first, 17);
	assert_int_equal(r->image, 3);
	assert_int_equal(origin_table_find(&again, u[1].place + 1, &r), 0);
	assert_int_equal(origin_table_find(&again, 7, &r), 0);
	free(u);
	origin_table_free(&again);
	origin_table_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(it_stays, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(it_goes, fx_setup, fx_teardown),
		cmocka_unit_test(table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
