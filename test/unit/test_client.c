/* SPDX-License-Identifier: GPL-2.0-only */
/* The library's client beside a real znsd: a checkpoint is written, read, moved and removed, and
 * the broker dies during a commit. */
#include <sys/mman.h>

#include "broker_fixture.h"
#include "../../zns/client/call.c"
#include "zns/handle.h"
#include "zns/move.h"
#include "zns/save.h"

#define PAGES 300000 /* bytes: some units, and a part of one */

struct dump_of {
	struct zns_session s;
	struct zns_save v;
	uint8_t pages[PAGES];
};

static int setup(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 0, DIES);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	fx_close(*state);
	free(*state);
	return 0;
}

static void good(int ret, const struct zns_err *err)
{
	if (ret)
		fail_msg("%d: %s", ret, err->msg);
}

static void put(struct zns_save *v, const char *name, const void *data, size_t len)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_wimage *img;

	good(zns_writer_image(v->w, name, !strncmp(name, "pages-", 6), &img, &err), &err);
	good(zns_wimage_data(img, data, len, &err), &err);
	good(zns_wimage_seal(img, &err), &err);
}

/* Writes everything except the record. */
static struct dump_of *written(struct fx *f, const char *container)
{
	ZnsPb__DumpBegin q = ZNS_PB__DUMP_BEGIN__INIT;
	struct dump_of *d = calloc(1, sizeof(*d));
	struct zns_err err = ZNS_ERR_INIT;

	d->s = (struct zns_session)ZNS_SESSION_INIT;
	good(zns_session_open(&d->s, &f->reg, ZNS_WRITES, &err), &err);
	d->v = (struct zns_save){ .s = &d->s };
	q.container = (char *)container;
	q.qos_mibps = 100;
	good(zns_save_begin(&d->v, &q, &err), &err);
	for (size_t i = 0; i < PAGES; i++)
		d->pages[i] = (uint8_t)(i * 31 + (i >> 9));
	put(&d->v, "pages-1.img", d->pages, PAGES);
	put(&d->v, "core-1.img", container, strlen(container));
	good(zns_save_finish(&d->v, &err), &err);
	good(zns_save_durable(&d->v, &err), &err);
	return d;
}

static struct dump_of *committed(struct fx *f, const char *container)
{
	struct dump_of *d = written(f, container);
	struct zns_err err = ZNS_ERR_INIT;

	good(zns_save_commit(&d->v, &err), &err);
	return d;
}

static void end(struct dump_of *d)
{
	zns_save_end(&d->v);
	zns_session_close(&d->s);
	free(d);
}

static size_t nr_listed(struct fx *f)
{
	struct zns_broker b = client(f);
	size_t n = nr_checkpoints(&b);

	zns_broker_close(&b);
	return n;
}

/* Opens it by its id and its handle; @h NULL: by its id alone. */
static int read_back(struct fx *f, const uint8_t *id, const ZnsPb__Handle *h,
		     const struct dump_of *d, struct zns_err *err)
{
	struct zns_session s = ZNS_SESSION_INIT;
	struct zns_reader_params p = { 0 };
	struct zns_chain *chain = NULL;
	uint8_t *buf = malloc(PAGES);
	ZnsPb__Response *r;
	int ret;

	good(zns_session_open(&s, &f->reg, ZNS_READS, err), err);
	good(zns_session_lease(&s, id, true, &r, err), err);
	ret = zns_session_chain(&s, r, h, &p, &chain, err);
	if (!ret) {
		assert_int_equal(zns_chain_levels(chain), 1);
		good(zns_rimage_read(zns_chain_find(chain, 0, "pages-1.img"), 0, buf, PAGES, err),
		     err);
		assert_memory_equal(buf, d->pages, PAGES);
	}
	zns_chain_close(chain);
	drop(r);
	zns_session_close(&s);
	free(buf);
	return ret;
}

static void saved(void **state)
{
	struct fx *f = *state;
	struct dump_of *a = committed(f, "web"), *b = committed(f, "db");
	int dir = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Handle *h;

	good(zns_save_copy(&a->v, "core-1.img", 3, zns_hash("web", 3), &err), &err);
	good(zns_save_handle(&a->v, dir, &err), &err);
	good(zns_handle_read(dir, &h, &err), &err);
	assert_int_equal(h->n_copies, 1);
	assert_string_equal(h->container, "web");
	assert_int_equal(a->v.c->nr_images, 2);
	assert_true(a->v.c->created_ns > 0);
	good(read_back(f, a->v.id, h, a, &err), &err);
	good(read_back(f, b->v.id, NULL, b, &err), &err);
	/* the handle of another checkpoint */
	assert_int_equal(read_back(f, b->v.id, h, b, &err), -EXDEV);
	zns_pb__handle__free_unpacked(h, NULL);
	close(dir);
	end(a);
	end(b);
}

static void dropped(void **state)
{
	struct fx *f = *state;
	struct dump_of *d = written(f, "web");
	struct zns_broker b;

	end(d);
	b = client(f);
	assert_int_equal(nr_checkpoints(&b), 0);
	zns_broker_close(&b);
}

static void rolled_back(void **state)
{
	struct fx *f = *state;
	struct dump_of *d = committed(f, "web");
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(nr_listed(f), 1);
	zns_save_roll_back(&d->v, "a test", &err);
	assert_string_equal(err.msg, "");
	assert_int_equal(nr_listed(f), 0);
	end(d);
}

/* Forwards the requests, and kills the broker before or after it gets the commit. */
struct killer {
	struct zns_session *s;
	bool after;
};

static int ask_and_kill(void *arg, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	const struct killer *k = arg;
	struct zns_broker *b = &k->s->broker;

	if (!req->commit)
		return zns_broker_call(b, req, resp, err);
	if (k->after)
		drop(ask(b, req));
	kill_broker(b);
	return -EPIPE;
}

static int settled(struct fx *f, bool after, struct zns_err *err)
{
	struct dump_of *d = written(f, "web");
	struct killer k = { &d->s, after };
	int ret;

	d->s.ask = ask_and_kill;
	d->s.ask_arg = &k;
	assert_int_equal(zns_save_commit(&d->v, err), -EPIPE);
	ret = zns_save_settle(&d->v, err);
	if (!ret)
		good(read_back(f, d->v.id, NULL, d, err), err);
	end(d);
	assert_int_equal(nr_listed(f), after);
	return ret;
}

static void dies_after_commit(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	good(settled(*state, true, &err), &err);
}

static void dies_before_commit(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(settled(*state, false, &err), -EPIPE);
	assert_non_null(strstr(err.msg, "the dump was dropped, run it again"));
}

/* A mover of @d's first zone, and what it needs. */
struct mover {
	struct zns_session s;
	uint32_t group[ZONES], victim;
	bool to[ZONES];
	struct zns_move m;
};

static void mover_open(struct mover *v, struct fx *f, struct dump_of *d)
{
	struct zns_err err = ZNS_ERR_INIT;

	*v = (struct mover){ .s = ZNS_SESSION_INIT, .victim = d->v.c->zones[0]->zone };
	for (uint32_t i = 0; i < ZONES; i++)
		v->group[i] = i < META ? 0 : (i - META) % DIES;
	zns_broker_close(&d->s.broker); /* its zones are parked now */
	good(zns_session_open(&v->s, &f->reg, ZNS_WRITES, &err), &err);
	v->m = (struct zns_move){ .s = &v->s,
				  .dev = v->s.dev,
				  .victims = &v->victim,
				  .nr_victims = 1,
				  .zone_group = v->group,
				  .written = v->to };
}

static void mover_close(struct mover *v)
{
	zns_move_end(&v->m);
	zns_session_close(&v->s);
}

static void moved(void **state)
{
	struct fx *f = *state;
	struct dump_of *d = committed(f, "web");
	struct zns_err err = ZNS_ERR_INIT;
	struct mover v;

	mover_open(&v, f, d);
	good(zns_move_copy(&v.m, d->v.id, &err), &err);
	good(zns_move_durable(&v.m, &err), &err);
	good(zns_move_commit(&v.m, &err), &err);
	assert_false(v.to[v.victim]);
	for (size_t i = 0; i < v.m.next->n_zones; i++)
		assert_int_not_equal(v.m.next->zones[i]->zone, v.victim);
	assert_true(v.m.bytes > 0);
	assert_int_equal(v.m.waited_ns, 0);
	mover_close(&v);
	good(read_back(f, d->v.id, NULL, d, &err), &err);
	end(d);
}

#define BUSY_MS 20

/* Forwards the requests. To the first @busy questions of a mover the answer is: wait. */
struct busy {
	struct zns_session *s;
	unsigned busy, asked, told;
	uint64_t since_ns, shortest_ns;
};

static int ask_busy(void *arg, ZnsPb__Request *req, ZnsPb__Response **resp, struct zns_err *err)
{
	struct busy *w = arg;
	uint64_t now = zns_mono_ns();
	int ret = zns_broker_call(&w->s->broker, req, resp, err);

	if (ret || !req->compact_step)
		return ret;
	if (w->asked && w->asked <= w->busy)
		w->shortest_ns = zns_min(w->shortest_ns, now - w->since_ns);
	if (w->asked++ < w->busy)
		(*resp)->wait_ms = BUSY_MS;
	w->since_ns = zns_mono_ns();
	return 0;
}

static void on_told(void *arg, uint64_t bytes)
{
	struct busy *w = arg;

	w->told++;
}

static void move_waits(void **state)
{
	struct fx *f = *state;
	struct dump_of *d = committed(f, "web");
	struct zns_err err = ZNS_ERR_INIT;
	struct busy w = { .busy = 3, .shortest_ns = UINT64_MAX };
	struct mover v;

	mover_open(&v, f, d);
	w.s = &v.s;
	v.s.ask = ask_busy;
	v.s.ask_arg = &w;
	v.m.tell = on_told;
	v.m.arg = &w;
	good(zns_move_copy(&v.m, d->v.id, &err), &err);
	assert_true(w.asked > w.busy);
	assert_true(w.told > w.busy); /* its caller hears of it in each wait, too */
	assert_true(w.shortest_ns >= BUSY_MS * UINT64_C(1000000));
	assert_true(v.m.waited_ns >= w.busy * BUSY_MS * UINT64_C(1000000));
	zns_move_abort(&v.m);
	mover_close(&v);
	end(d);
}

/* As long as nothing is moved, a mover that defers does not wait, and a rude one does not ask twice. */
static void move_does_not_wait(void **state)
{
	struct fx *f = *state;
	struct dump_of *d = committed(f, "web");
	struct zns_err err = ZNS_ERR_INIT;
	struct busy w = { .busy = UINT_MAX };
	struct mover v;

	mover_open(&v, f, d);
	w.s = &v.s;
	v.s.ask = ask_busy;
	v.s.ask_arg = &w;
	v.m.defer = true;
	assert_int_equal(zns_move_copy(&v.m, d->v.id, &err), -EAGAIN);
	assert_int_equal(w.asked, 1);
	zns_move_abort(&v.m);
	mover_close(&v);
	mover_open(&v, f, d);
	w.s = &v.s;
	v.s.ask = ask_busy;
	v.s.ask_arg = &w;
	v.m.rude = true;
	good(zns_move_copy(&v.m, d->v.id, &err), &err);
	assert_int_equal(v.m.waited_ns, 0);
	zns_move_abort(&v.m);
	mover_close(&v);
	end(d);
}

/* ---- a broker that shows no sign of life ---- */

static void beats(const struct zns_broker *b, uint64_t beat)
{
	assert_int_equal(pwrite(b->alive_fd, &beat, sizeof(beat), 0), sizeof(beat));
}

/* Looks that make up @s seconds, and as much time. True: the last one found that it is silent. */
static bool silent_for(struct call *c, unsigned int s)
{
	bool silent = false;

	c->silent_ns -= s * 1000000000ull;
	for (unsigned int ms = 0; ms < s * 1000 && !silent; ms += ZNS_ALIVE_MS)
		silent = shows_nothing(c);
	return silent;
}

static void silent(void **state)
{
	struct zns_broker b = { .alive_fd = memfd_create("alive", MFD_CLOEXEC), .deadline_s = 5 };
	struct call c = { .b = &b };

	assert_false(shows_nothing(&c)); /* it was never seen: an empty file */
	assert_int_equal(c.silent_ns, 0);
	beats(&b, 7);
	assert_false(shows_nothing(&c));
	assert_false(silent_for(&c, 4));
	beats(&b, 8); /* in time, so all begins again */
	assert_false(shows_nothing(&c));
	assert_false(silent_for(&c, 4));
	assert_true(silent_for(&c, 1));
	/* this process stood still itself: time has passed, but it has not looked */
	beats(&b, 9);
	assert_false(shows_nothing(&c));
	c.silent_ns -= 3600 * 1000000000ull;
	assert_false(shows_nothing(&c));
	/* many looks in a short time */
	beats(&b, 10);
	assert_false(shows_nothing(&c));
	c.silent_ms = 3600 * 1000;
	assert_false(shows_nothing(&c));
	b.deadline_s = 0; /* it has none */
	assert_false(silent_for(&c, 10));
	close(b.alive_fd);
	b.alive_fd = -1;
	b.deadline_s = 1;
	assert_false(silent_for(&c, 10));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silent),
		cmocka_unit_test_setup_teardown(saved, setup, teardown),
		cmocka_unit_test_setup_teardown(dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(rolled_back, setup, teardown),
		cmocka_unit_test_setup_teardown(dies_after_commit, setup, teardown),
		cmocka_unit_test_setup_teardown(dies_before_commit, setup, teardown),
		cmocka_unit_test_setup_teardown(moved, setup, teardown),
		cmocka_unit_test_setup_teardown(move_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(move_does_not_wait, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
