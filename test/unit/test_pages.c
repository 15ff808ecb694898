/* SPDX-License-Identifier: GPL-2.0-only */
/* The page store and the broker's memory leases, with znsd as a process of its own. */
#include "broker_fixture.h"
#include "zns/context.h"
#include "zns/pages.h"

#define U ZNS_PAGES_UNIT
#define PER_ZONE (CAP / U)

/* Content that says which unit it is. */
static void paint(uint8_t *at, uint32_t what)
{
	uint64_t x = what * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < U / 8; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy(at + i * 8, &x, 8);
	}
}

struct batch {
	uint8_t *mem;
	const void *units[ZNS_PAGES_PUT_MAX];
	struct zns_pages_ref refs[ZNS_PAGES_PUT_MAX];
	uint32_t n, from;
};

static struct batch *batch(uint32_t from, uint32_t n)
{
	struct batch *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->mem = aligned_alloc(4096, (size_t)n * U);
	assert_non_null(b->mem);
	b->n = n;
	b->from = from;
	for (uint32_t i = 0; i < n; i++) {
		/* backwards: neighbours are not neighbours in memory */
		b->units[i] = b->mem + (size_t)(n - 1 - i) * U;
		paint(b->mem + (size_t)(n - 1 - i) * U, from + i);
	}
	return b;
}

static void batch_free(struct batch *b)
{
	free(b->mem);
	free(b);
}

static struct zns_pages *opened(struct fx *f, const char *name, const int *fds)
{
	struct zns_pages_params p = { .dev = f->reg.path, .container = name, .width = 3 };
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_pages *ps;

	p.fds = fds;
	p.nr_fds = fds ? ZNS_PAGES_FDS : 0;
	if (zns_pages_open(&p, &ps, &err))
		fail_msg("%s", err.msg);
	return ps;
}

static void put(struct zns_pages *ps, struct batch *b)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_pages_put(ps, b->units, b->n, b->refs, &err))
		fail_msg("%s", err.msg);
}

static void check(struct zns_pages *ps, const struct batch *b)
{
	uint8_t *got = aligned_alloc(4096, U), *want = aligned_alloc(4096, U);
	struct zns_err err = ZNS_ERR_INIT;

	for (uint32_t i = 0; i < b->n; i++) {
		paint(want, b->from + i);
		assert_true(b->refs[i].place && b->refs[i].place >> 48 == 0);
		if (zns_pages_get(ps, b->refs[i], got, &err))
			fail_msg("unit %u: %s", i, err.msg);
		assert_memory_equal(got, want, U);
	}
	free(got);
	free(want);
}

static void drop_all(struct zns_pages *ps, const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		assert_int_equal(zns_pages_drop(ps, b->refs[i]), 0);
}

static uint32_t zones_of(struct zns_pages *ps)
{
	struct zns_pages_stat st;

	zns_pages_stat(ps, &st);
	return st.zones;
}

/* Up to 5 s. */
static bool zones_become(struct zns_pages *ps, uint32_t n)
{
	for (int i = 0; i < 500 && zones_of(ps) != n; i++)
		msleep(10);
	return zones_of(ps) == n;
}

/* -EAGAIN is what a caller tries again. Up to 10 s. */
static void put_later(struct zns_pages *ps, struct batch *b)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret = -EAGAIN;

	for (int i = 0; i < 1000 && ret == -EAGAIN; i++) {
		ret = zns_pages_put(ps, b->units, b->n, b->refs, &err);
		if (ret == -EAGAIN)
			msleep(10);
	}
	if (ret)
		fail_msg("%s", err.msg);
}

static uint32_t empty_zones(struct fx *f)
{
	uint32_t n = 0;

	for (uint32_t i = META; i < ZONES; i++)
		n += state_of(f, i) == ZNS_ZONE_EMPTY;
	return n;
}

static bool all_empty(struct fx *f)
{
	for (int i = 0; i < 500 && empty_zones(f) != ZONES - META; i++)
		msleep(10);
	return empty_zones(f) == ZONES - META;
}

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

/* The broker is killed: reads go on, nothing is reset, and later writes go on too. */
static void the_broker_dies(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct zns_pages *ps = opened(f, "web", NULL);
	struct batch *a = batch(0, 40), *c = batch(40, 40), *d = batch(80, 1);
	uint32_t empty;

	put(ps, a);
	kill_broker(&b);
	check(ps, a);
	put_later(ps, d);
	check(ps, d);
	/* The new broker resets garbage of earlier times, and these zones are none. */
	empty = empty_zones(f);
	msleep(300);
	assert_int_equal(empty_zones(f), empty);
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

/* The pager is killed; somebody else holds its descriptors, and the next one takes over. */
static void handed_over(void **state)
{
	struct fx *f = *state;
	struct zns_pages *ps;
	struct batch *a = batch(0, 40), *c = batch(40, 40);
	struct zns_broker b;
	int pair[2], fds[ZNS_PAGES_FDS], status;
	char ctl[CMSG_SPACE(sizeof(fds))];
	struct iovec io = { a->refs, sizeof(a->refs) };
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)
	};
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
		if (sendmsg(pair[1], &m, 0) != (ssize_t)sizeof(a->refs))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(recvmsg(pair[0], &m, 0), sizeof(a->refs));
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fds));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	empty = empty_zones(f);
	/* Neither this broker nor one that never saw the pager touches its zones. */
	msleep(1200);
	assert_int_equal(empty_zones(f), empty);
	b = client(f);
	kill_broker(&b);
	b = client(f);
	msleep(300);
	assert_int_equal(empty_zones(f), empty);
	zns_broker_close(&b);

	ps = opened(f, "web", fds);
	assert_int_equal(zones_of(ps), ZONES - META - empty);
	check(ps, a);
	put(ps, c);
	for (uint32_t i = 0; i < a->n; i++)
		assert_int_equal(zns_pages_hold(ps, a->refs[i]), 0);
	zns_pages_recounted(ps);
	msleep(100);
	check(ps, a);
	check(ps, c);
	drop_all(ps, a);
	drop_all(ps, c);
	assert_true(zones_become(ps, 3));
	zns_pages_close(ps, false);
	/* Its last descriptor keeps the zones; then they are garbage. */
	msleep(1200);
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

/* Nobody holds the context: a broker that comes later finds garbage. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_broker_dies, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(handed_over, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(nobody_left, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(there_and_back, fx_setup, fx_teardown),
		cmocka_unit_test_setup_teardown(wrong_refs, fx_setup, fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
