/* SPDX-License-Identifier: GPL-2.0-only */
/* The page store and the broker's memory leases, with znsd as a process of its own. */
#include "../../zns/memory/pages/pages_int.h"
#include "pages_fixture.h"

static void there_and_back(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 50), *b = batch(50, 1), *c = batch(51, 100);
	struct zns_pages_stat st;

	put(ps, a);
	put(ps, b);
	put(ps, c);
	check(ps, a);
	check(ps, b);
	check(ps, c);
	zns_pages_stat(ps, &st);
	assert_int_equal(st.live_bytes, 151 * U);
	assert_int_equal(st.written_bytes, 151 * U);
	assert_int_equal(st.read_bytes, 151 * U);
	assert_int_equal(st.groups, 3);
	assert_true(st.zones >= 151 / PER_ZONE && st.broker);
	/* A second count on some, so these stay. */
	for (uint32_t i = 0; i < a->n; i++)
		assert_int_equal(zns_pages_hold(ps, a->refs[i]), 0);
	drop_all(ps, a);
	drop_all(ps, c);
	check(ps, a);
	zns_pages_stat(ps, &st);
	assert_int_equal(st.live_bytes, 51 * U);
	drop_all(ps, a);
	drop_all(ps, b);
	/* All that is full goes back; the three that are written stay. */
	assert_true(zones_become(ps, 3));
	zns_pages_close(ps, true);
	assert_true(all_empty(f));
	batch_free(a);
	batch_free(b);
	batch_free(c);
}

/* How many zones have units of @b, and the most that one of them has. */
static uint32_t spread(struct zns_pages *ps, const struct batch *b, uint32_t *most)
{
	uint32_t in[64] = { 0 }, zones = 0, zone, unit;

	*most = 0;
	for (uint32_t i = 0; i < b->n; i++) {
		assert_true(pages_where(ps, b->refs[i].place, &zone, &unit));
		assert_true(zone < ZNS_ARRAY_SIZE(in));
		zones += !in[zone]++;
		*most = zns_max(*most, in[zone]);
	}
	return zones;
}

/* Three groups write at once, each whole chunks and no more than its share. */
static void divided(void **state)
{
	static const uint32_t want[][3] = { /* units, zones, most units of a zone */
					    { 1, 1, 1 },
					    { CHUNK_UNITS, 1, CHUNK_UNITS },
					    { CHUNK_UNITS + 1, 2, CHUNK_UNITS },
					    { 2 * CHUNK_UNITS, 2, CHUNK_UNITS },
					    { 3 * CHUNK_UNITS, 3, CHUNK_UNITS },
					    { 3 * CHUNK_UNITS + 1, 2, 2 * CHUNK_UNITS },
					    { 6 * CHUNK_UNITS, 3, 2 * CHUNK_UNITS }
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(want); i++) {
		struct zns_pages *ps = opened(*state, "web", NULL); /* so no zone becomes full */
		struct batch *b = batch(0, want[i][0]);
		uint32_t most;

		put(ps, b);
		assert_int_equal(spread(ps, b, &most), want[i][1]);
		assert_int_equal(most, want[i][2]);
		check(ps, b);
		drop_all(ps, b);
		zns_pages_close(ps, true);
		batch_free(b);
	}
}

static void wrong_refs(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 3);
	struct zns_pages_ref r;
	void *buf = aligned_alloc(4096, U);

	put(ps, a);
	r = a->refs[0];
	r.hash ^= 1;
	assert_int_equal(zns_pages_get(ps, r, buf, NULL), -EBADMSG);
	r = a->refs[0];
	r.place += 7; /* not written yet */
	assert_int_equal(zns_pages_get(ps, r, buf, NULL), -EINVAL);
	assert_int_equal(zns_pages_drop(ps, r), -EINVAL);
	r.place = 0;
	assert_int_equal(zns_pages_get(ps, r, buf, NULL), -EINVAL);
	assert_int_equal(zns_pages_hold(ps, r), -EINVAL);
	r.place = (uint64_t)(ZONES + 1) << 24;
	assert_int_equal(zns_pages_get(ps, r, buf, NULL), -EINVAL);
	r.place = 1ull << 24; /* zone 0 is the log's */
	assert_int_equal(zns_pages_get(ps, r, buf, NULL), -ENOENT);
	assert_int_equal(zns_pages_hold(ps, r), -ENOENT);
	drop_all(ps, a);
	assert_int_equal(zns_pages_drop(ps, a->refs[0]), -ENOENT);
	free(buf);
	batch_free(a);
	zns_pages_close(ps, true);
}

/* A piece is checked by its own hash, and the others are not read. */
static void pieces(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 3);
	uint8_t *want = aligned_alloc(4096, U), *buf = aligned_alloc(4096, ZNS_PAGES_PIECE);
	struct zns_pages_ref r;
	struct zns_pages_stat st;

	put(ps, a);
	for (uint32_t u = 0; u < a->n; u++) {
		paint(want, u);
		for (uint32_t i = 0; i < ZNS_PAGES_PIECES; i++) {
			assert_int_equal(zns_pages_get_piece(ps, &a->refs[u], i, buf, NULL), 0);
			assert_memory_equal(buf, want + (size_t)i * ZNS_PAGES_PIECE,
					    ZNS_PAGES_PIECE);
		}
	}
	zns_pages_stat(ps, &st);
	assert_int_equal(st.read_bytes, 3 * U);
	r = a->refs[1];
	r.piece[3] ^= 0x80000000;
	assert_int_equal(zns_pages_get_piece(ps, &r, 3, buf, NULL), -EBADMSG);
	assert_int_equal(zns_pages_get_piece(ps, &r, 2, buf, NULL), 0);
	assert_int_equal(zns_pages_get_piece(ps, &r, ZNS_PAGES_PIECES, buf, NULL), -EINVAL);
	r.place = 1ull << 24;
	assert_int_equal(zns_pages_get_piece(ps, &r, 0, buf, NULL), -ENOENT);
	free(want);
	free(buf);
	batch_free(a);
	zns_pages_close(ps, true);
}

/* Three of four units die everywhere. What lives is moved until little more than that is held. */
static void cleaned(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 12 * PER_ZONE), *one = batch(0, 1);
	uint64_t first, last;
	struct zns_pages_stat st;
	uint32_t before, moved = 0;

	put(ps, a);
	assert_false(zns_pages_dead(ps, &first, &last));
	for (uint32_t i = 0; i < a->n; i++)
		if (i % 4)
			assert_int_equal(zns_pages_drop(ps, a->refs[i]), 0);
	before = zones_of(ps);
	for (uint32_t turn = 0; turn < 100 && zns_pages_dead(ps, &first, &last); turn++) {
		uint64_t next;

		for (uint32_t i = 0; i < a->n; i += 4) {
			struct zns_pages_ref old = a->refs[i];

			if (old.place < first || old.place > last)
				continue;
			assert_int_equal(zns_pages_get(ps, old, one->mem, NULL), 0);
			put(ps, one);
			a->refs[i] = one->refs[0];
			assert_int_equal(a->refs[i].hash, old.hash);
			assert_int_equal(zns_pages_drop(ps, old), 0);
			moved++;
		}
		until(!zns_pages_dead(ps, &next, &last) || next != first);
	}
	/* 1.3 times, one zone, and the three that are written */
	until(zones_of(ps) <= 3 * 13 / 10 + 1 + 3);
	zns_pages_stat(ps, &st);
	assert_true(moved && moved < a->n / 4 * 3);
	assert_int_equal(st.live_bytes, (uint64_t)a->n / 4 * U);
	assert_true(st.zones < before);
	for (uint32_t i = 0; i < a->n; i += 4) {
		struct batch *w = batch(i, 1);

		w->refs[0] = a->refs[i];
		check(ps, w);
		batch_free(w);
	}
	batch_free(a);
	batch_free(one);
	zns_pages_close(ps, true);
}

static void written(struct fx *f, const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		assert_int_not_equal(state_of(f, (uint32_t)(b->refs[i].place >> 24) - 1),
				     ZNS_ZONE_EMPTY);
}

/* The context has ended, and a broker has reset its zone: this broker or the next one. */
static void gone(struct fx *f, struct canary c)
{
	struct zns_broker b;

	zns_pages_close(c.ps, false);
	b = client(f);
	until(state_of(f, c.zone) == ZNS_ZONE_EMPTY);
	zns_broker_close(&b);
}

/* The broker is killed: reads continue, no zone is reset, and later writes work, too. */
static void the_broker_dies(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 40), *c = batch(40, 40), *d = batch(80, 1);
	struct canary other;

	put(ps, a);
	other = canary(f, "other");
	kill_broker(&b);
	zns_pages_close(other.ps, false);
	check(ps, a);
	put_later(ps, d);
	check(ps, d);
	/* The new broker resets garbage of earlier times, and these zones are none. */
	until(state_of(f, other.zone) == ZNS_ZONE_EMPTY);
	written(f, a);
	written(f, d);
	put(ps, c);
	check(ps, a);
	check(ps, c);
	drop_all(ps, a);
	drop_all(ps, c);
	drop_all(ps, d);
	assert_true(zones_become(ps, 3));
	zns_pages_close(ps, true);
	assert_true(all_empty(f));
	batch_free(a);
	batch_free(c);
	batch_free(d);
}

/* The pager is killed; another process holds its descriptors, and the next pager takes over. */
static void handed_over(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps;
	struct batch *a = batch(0, 40), *c = batch(40, 40);
	struct zns_broker b;
	int pair[2], fds[ZNS_PAGES_FDS], status;
	char ctl[CMSG_SPACE(sizeof(fds))];
	struct iovec io = { a->refs, a->n * sizeof(a->refs[0]) };
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)
	};
	struct canary other;
	uint32_t empty;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);

		ps = opened(f, "web", NULL);
		put(ps, a);
		zns_pages_fds(ps, fds);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(fds));
		memcpy(CMSG_DATA(h), fds, sizeof(fds));
		if (sendmsg(pair[1], &m, 0) != (ssize_t)io.iov_len)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(recvmsg(pair[0], &m, 0), io.iov_len);
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fds));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	/* Neither this broker nor one that never saw the pager touches its zones. */
	gone(f, canary(f, "other"));
	written(f, a);
	other = canary(f, "another");
	b = client(f);
	kill_broker(&b);
	gone(f, other);
	written(f, a);
	empty = empty_zones(f);

	ps = opened(f, "web", fds);
	assert_int_equal(zones_of(ps), ZONES - META - empty);
	check(ps, a);
	put(ps, c);
	for (uint32_t i = 0; i < a->n; i++)
		assert_int_equal(zns_pages_hold(ps, a->refs[i]), 0);
	zns_pages_recounted(ps);
	check(ps, a);
	check(ps, c);
	drop_all(ps, c);
	gone(f, canary(f, "other"));
	check(ps, a);
	drop_all(ps, a);
	assert_true(zones_become(ps, 3));
	zns_pages_close(ps, false);
	/* The last descriptor protects the zones; after it they are garbage. */
	gone(f, canary(f, "other"));
	assert_true(empty_zones(f) < ZONES - META);
	close(fds[0]);
	b = client(f);
	assert_true(all_empty(f));
	zns_broker_close(&b);
	close(pair[0]);
	close(pair[1]);
	batch_free(a);
	batch_free(c);
}

/* No process holds the context: a later broker finds garbage. */
static void nobody_left(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps = opened(f, "web", NULL);
	struct zns_broker b = client(f);
	struct batch *a = batch(0, 40);

	put(ps, a);
	kill_broker(&b);
	zns_pages_close(ps, false);
	b = client(f);
	assert_true(all_empty(f));
	zns_broker_close(&b);
	batch_free(a);
}

/* 8 zones may be active, so three of contexts: all of seven get to write, in turns. */
static int setup_few(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 8, DIES);
	*state = f;
	return 0;
}

static void more_contexts_than_zones(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps[7];
	struct batch *b[ZNS_ARRAY_SIZE(ps)];
	char name[16];

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(ps); i++) {
		snprintf(name, sizeof(name), "web%u", i);
		ps[i] = opened(f, name, NULL);
		b[i] = batch(i * 100, 5);
		put_later(ps[i], b[i]);
	}
	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(ps); i++) {
		check(ps[i], b[i]);
		drop_all(ps[i], b[i]);
		zns_pages_close(ps[i], true);
		batch_free(b[i]);
	}
	assert_true(all_empty(f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_broker_dies, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(handed_over, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(nobody_left, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(there_and_back, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(divided, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(cleaned, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(pieces, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(wrong_refs, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(more_contexts_than_zones, setup_few, fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
