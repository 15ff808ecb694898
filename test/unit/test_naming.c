/* SPDX-License-Identifier: GPL-2.0-only */
/* Checkpoints that name units of a memory context in their places: who may do that, what counts as
 * live, and that nothing is lost in whatever order context and checkpoints end. */
#include "pages_fixture.h"
#include "store_fixture.h"
#include <sys/mman.h>
#include "zns/context.h"
#include "zns/quiesce.h"
#include "zns/packet.h"

struct ctx {
	struct zns_pages *ps;
	uint8_t id[ZNS_UUID_LEN], dev[ZNS_UUID_LEN];
};

static struct ctx context(struct fx *f, const char *name)
{
	struct ctx c = { .ps = opened(f, name, NULL) };

	zns_pages_id(c.ps, c.id, c.dev);
	assert_memory_equal(c.dev, f->reg.uuid, ZNS_UUID_LEN);
	return c;
}

static void naming_request(ZnsPb__Request *q, ZnsPb__MemoryNaming *s, uint8_t *id)
{
	zns_pb__request__init(q);
	zns_pb__memory_naming__init(s);
	s->context = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	q->memory_naming = s;
}

static void begin_naming(struct zns_broker *b, uint8_t *id)
{
	ZnsPb__MemoryNaming s;
	ZnsPb__Request q;

	naming_request(&q, &s, id);
	drop(ask(b, &q));
}

/* A record of one written zone that names all zones of a batch, up to its last unit there. */
struct named {
	struct record k;
	uint64_t end[ZONES];
	uint8_t id[ZNS_UUID_LEN];
};

static ZnsPb__Request name_units(struct named *n, const struct ctx *c, const struct batch *b,
				 struct grant *g, struct zone *z)
{
	REQ(q);

	memset(n, 0, sizeof(*n));
	record(&n->k, g, z, 1);
	memcpy(n->id, c->id, ZNS_UUID_LEN);
	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t zone;
		uint64_t off;

		assert_int_equal(zns_pages_where(c->ps, b->refs[i].place, &zone, &off), 0);
		n->end[zone] = zns_max(n->end[zone], off + U);
	}
	for (uint32_t i = 0; i < ZONES; i++) {
		ZnsPb__ZoneUse *u = &n->k.use[n->k.c.n_zones];

		if (!n->end[i])
			continue;
		zns_pb__zone_use__init(u);
		u->zone = i;
		u->len = n->end[i];
		u->has_memory = 1;
		u->memory = (ProtobufCBinaryData){ ZNS_UUID_LEN, n->id };
		n->k.up[n->k.c.n_zones++] = u;
	}
	q.commit = &n->k.c;
	return q;
}

/* A whole checkpoint of a context's units, and of one zone of its own. */
static struct grant dump_named(struct fx *f, struct ctx *c, const struct batch *b, const char *name)
{
	struct zns_broker k = client(f);
	struct named *n = malloc(sizeof(*n));
	ZnsPb__Request q;
	struct grant g;
	struct zone z;

	g = begin(&k, name, 0);
	begin_naming(&k, c->id);
	z = zone_get(&k, g.group[0]);
	fill(f, &z, KIB(128));
	q = name_units(n, c, b, &g, &z);
	drop(ask(&k, &q));
	free(n);
	zns_broker_close(&k);
	return g;
}

/* Are the units what they were, read from the device by whoever knows the places? */
static void still_there(struct fx *f, const struct batch *b)
{
	uint8_t *got = aligned_alloc(4096, U), *want = aligned_alloc(4096, U);
	struct zns_err err = ZNS_ERR_INIT;

	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t zone = (uint32_t)(b->refs[i].place >> 24) - 1;
		uint64_t off = (b->refs[i].place & 0xffffff) * U;

		paint(want, b->from + i);
		if (zns_dev_read(f->dev, zone, off, got, U, &err))
			fail_msg("unit %u: %s", i, err.msg);
		assert_memory_equal(got, want, U);
	}
	free(got);
	free(want);
}

static void end_of(struct ctx *c)
{
	zns_pages_close(c->ps, true);
	c->ps = NULL;
}

/* Like end, and the broker has released what it may. */
static void end_seen(struct ctx *c, struct zns_broker *b)
{
	end_of(c);
	until(nr_leases(b) == 0);
	settle(b);
}

/* The context ends, then the checkpoint goes. */
static void context_first(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 40);
	struct zns_broker k;
	struct grant g;

	put(c.ps, b);
	g = dump_named(f, &c, b, "web");
	k = client(f);
	end_seen(&c, &k);
	still_there(f, b);
	rm(&k, g.id, 1);
	zns_broker_close(&k);
	assert_true(all_empty(f));
	batch_free(b);
}

/* The checkpoint goes while the context lives. */
static void checkpoint_first(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 40);
	struct zns_broker k;
	struct grant g;

	put(c.ps, b);
	g = dump_named(f, &c, b, "web");
	k = client(f);
	rm(&k, g.id, 1);
	settle(&k);
	check(c.ps, b);
	end_of(&c);
	zns_broker_close(&k);
	assert_true(all_empty(f));
	batch_free(b);
}

/* Two checkpoints refer to the same bytes, the second one to more of them; the context continues to
 * write. */
static void twice(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 20), *more = batch(100, 20);
	struct zns_broker k = client(f);
	struct grant g, h;

	put(c.ps, b);
	g = dump_named(f, &c, b, "web");
	put(c.ps, more);
	h = dump_named(f, &c, more, "web");
	drop_all(c.ps, b);
	rm(&k, h.id, 1);
	drop_all(c.ps, more);
	end_seen(&c, &k);
	still_there(f, b);
	assert_int_equal(nr_checkpoints(&k), 1);
	rm(&k, g.id, 1);
	zns_broker_close(&k);
	assert_true(all_empty(f));
	batch_free(b);
	batch_free(more);
}

/* Units that the context has no use for any more stay while a dump that will name them runs. */
static void given_back_meanwhile(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 3 * PER_ZONE), *own = batch(900, 8);
	struct named *n = malloc(sizeof(*n));
	struct zns_broker k = client(f);
	ZnsPb__Request q;
	struct grant g;
	struct zone z;

	put(c.ps, b);
	put(c.ps, own); /* the first zones are full, and written no more */
	g = begin(&k, "web", 0);
	begin_naming(&k, c.id);
	drop_all(c.ps, b);
	assert_true(zones_become(c.ps, 3));
	settle(&k);
	still_there(f, b);
	z = zone_get(&k, g.group[0]);
	fill(f, &z, KIB(128));
	q = name_units(n, &c, b, &g, &z);
	drop(ask(&k, &q));
	settle(&k);
	still_there(f, b);
	end_of(&c);
	rm(&k, g.id, 1);
	zns_broker_close(&k);
	assert_true(all_empty(f));
	free(n);
	batch_free(b);
	batch_free(own);
}

/* The control: a dump that did not announce which units it will name finds them gone. */
static void without_naming(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 3 * PER_ZONE), *own = batch(900, 8);
	struct zns_broker k = client(f);
	uint32_t before;

	put(c.ps, b);
	put(c.ps, own);
	begin(&k, "web", 0);
	before = empty_zones(f);
	drop_all(c.ps, b);
	until(empty_zones(f) > before);
	abort_dump(&k);
	end_of(&c);
	zns_broker_close(&k);
	batch_free(b);
	batch_free(own);
}

/* The dump fails: nothing is kept for it. */
static void dump_fails(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 3 * PER_ZONE), *own = batch(900, 8);
	struct zns_broker k = client(f);
	uint32_t before;

	put(c.ps, b);
	put(c.ps, own);
	before = empty_zones(f);
	begin(&k, "web", 0);
	begin_naming(&k, c.id);
	drop_all(c.ps, b);
	assert_true(zones_become(c.ps, 3));
	settle(&k);
	assert_int_equal(empty_zones(f), before);
	abort_dump(&k);
	until(empty_zones(f) > before);
	end_of(&c);
	zns_broker_close(&k);
	batch_free(b);
	batch_free(own);
}

static void broker_dies(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web");
	struct batch *b = batch(0, 40), *more = batch(100, 40);
	struct zns_broker k;
	struct grant g;

	put(c.ps, b);
	g = dump_named(f, &c, b, "web");
	k = client(f);
	kill_broker(&k);
	k = client(f);
	check(c.ps, b);
	put_later(c.ps, more);
	check(c.ps, more);
	still_there(f, b);
	rm(&k, g.id, 1);
	kill_broker(&k);
	k = client(f);
	check(c.ps, b);
	check(c.ps, more);
	end_of(&c);
	zns_broker_close(&k);
	assert_true(all_empty(f));
	batch_free(b);
	batch_free(more);
}

static void what_may_not_be_named(void **state)
{
	struct fx *f = *state;
	struct ctx c = context(f, "web"), other = context(f, "db");
	struct batch *b = batch(0, 20);
	struct named *n = malloc(sizeof(*n));
	struct zns_broker k = client(f);
	uint8_t wild[ZNS_UUID_LEN] = { 1 };
	ZnsPb__MemoryNaming s;
	ZnsPb__Request q;
	struct grant g;
	struct zone z;

	put(c.ps, b);
	naming_request(&q, &s, c.id);
	refused(&k, &q, -EINVAL, "without a dump on this connection");
	g = begin(&k, "web", 0);
	naming_request(&q, &s, wild);
	refused(&k, &q, -ENOENT, "zones of another device");
	s.context.len = 3;
	refused(&k, &q, -EINVAL, "16 bytes");
	z = zone_get(&k, g.group[0]);
	fill(f, &z, KIB(128));
	q = name_units(n, &c, b, &g, &z);
	refused(&k, &q, -EINVAL, "holds no memory that this dump may refer to");
	begin_naming(&k, other.id);
	refused(&k, &q, -EINVAL, "holds no memory that this dump may refer to");
	begin_naming(&k, c.id);
	memcpy(n->id, other.id, ZNS_UUID_LEN);
	refused(&k, &q, -EINVAL, "holds no memory that this dump may refer to");
	memcpy(n->id, c.id, ZNS_UUID_LEN);
	n->k.use[1].len += MIB(1);
	refused(&k, &q, -EINVAL, "are not what the context wrote");
	n->k.use[1].len -= MIB(1);
	n->k.m.zone = n->k.use[1].zone;
	n->k.m.start = 0;
	refused(&k, &q, -EINVAL, "the manifest is outside");
	n->k.m.zone = z.zone;
	n->k.m.start = z.wp - 4096;
	drop(ask(&k, &q));
	rm(&k, g.id, 1);
	end_of(&c);
	end_of(&other);
	zns_broker_close(&k);
	free(n);
	batch_free(b);
}

/* ---- the store alone ---- */

static ZnsPb__Checkpoint *with_memory(struct ck *k, unsigned n, uint32_t zone, uint64_t len,
				      uint8_t *context)
{
	ck_init(k, n, "web", 20 + n, 0, 8192);
	k->use[1].zone = zone;
	k->use[1].len = len;
	k->use[1].has_memory = 1;
	k->use[1].memory = (ProtobufCBinaryData){ ZNS_UUID_LEN, context };
	k->c.n_zones = 2;
	return &k->c;
}

static struct zns_store *reopen(struct fx *f, struct zns_store *s)
{
	struct zns_err err = ZNS_ERR_INIT;

	zns_store_close(s);
	if (zns_store_open(f->dev, false, &s, &err))
		fail_msg("%s", err.msg);
	return s;
}

static void catalogue(void **state)
{
	struct fx *f = *state;
	uint8_t a[ZNS_UUID_LEN] = { 1 }, b[ZNS_UUID_LEN] = { 2 }, id[ZNS_UUID_LEN];
	struct zns_store *s = reopen(f, NULL);
	struct ck k;

	OK(zns_store_commit(s, with_memory(&k, 1, 5, CAP - 4096, a), NULL));
	OK(zns_store_commit(s, with_memory(&k, 2, 5, CAP / 2, a), NULL));
	s = reopen(f, s);
	assert_int_equal(zns_store_zone_live(s, 5), CAP - 4096);
	/* another context cannot have had the zone */
	assert_int_equal(zns_store_commit(s, with_memory(&k, 3, 5, CAP / 2, b), NULL), -EINVAL);
	/* what others may not name adds up with it */
	assert_int_equal(zns_store_commit(s, ck_init(&k, 3, "web", 5, CAP - 8192, 8192), NULL),
			 -EINVAL);
	OK(zns_store_commit(s, ck_init(&k, 3, "web", 5, CAP - 4096, 4096), NULL));
	assert_int_equal(zns_store_zone_live(s, 5), CAP);
	id_of(1, id);
	OK(zns_store_remove(s, id, "test", NULL));
	assert_int_equal(zns_store_zone_live(s, 5), CAP / 2 + 4096);
	s = reopen(f, s);
	assert_int_equal(zns_store_zone_live(s, 5), CAP / 2 + 4096);
	assert_memory_equal(zns_store_zone_memory(s, 5)->memory.data, a, ZNS_UUID_LEN);
	id_of(3, id);
	OK(zns_store_remove(s, id, "test", NULL));
	id_of(2, id);
	OK(zns_store_remove(s, id, "test", NULL));
	assert_int_equal(zns_store_zone_live(s, 5), 0);
	assert_null(zns_store_zone_memory(s, 5));
	with_memory(&k, 4, 5, 4096, a);
	k.use[1].start = 4096;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	with_memory(&k, 4, 5, 4096, a);
	k.use[1].memory.len = 15;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	zns_store_close(s);
}

/* ---- what a pager sends ---- */

struct pager {
	struct zns_quiesce_answer a;
	struct zns_quiesce_unit u;
	size_t len; /* of its answer, and of its list */
	uint64_t list;
	bool writable, no_list, dies;
};

/* Begins, and answers one more request so. */
static void lie(int listener, const struct pager *p)
{
	struct zns_quiesce_answer a = { 0 };
	struct iovec yes = { &a, sizeof(a) }, iov = { (void *)&p->a, p->len };
	char q[65536];
	int sk = accept(listener, NULL, NULL), fd = memfd_create("list", MFD_ALLOW_SEALING);

	memcpy(a.device, p->a.device, ZNS_UUID_LEN);
	memcpy(a.context, p->a.context, ZNS_UUID_LEN);
	if (recv(sk, q, sizeof(q), 0) <= 0 || zns_packet_send(sk, &yes, 1, NULL, 0) ||
	    recv(sk, q, sizeof(q), 0) <= 0 || p->dies)
		_exit(1);
	if (zns_pwrite_all(fd, &p->u, p->list, 0) ||
	    (!p->writable && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK)))
		_exit(2);
	_exit(zns_packet_send(sk, &iov, 1, &fd, !p->no_list));
}

static int ask_liar(const struct pager *p, size_t *nr, struct zns_err *err)
{
	int dir = zns_run_subdir("memory", err), listener, ret;
	struct zns_quiesce_unit *u = NULL;
	struct zns_quiesce *s;
	struct sockaddr_un a;
	pid_t child, me = getpid();

	assert_true(dir >= 0);
	zns_run_address(dir, "liar.seal", &a);
	unlinkat(dir, "liar.seal", 0);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	child = fork();
	if (!child)
		lie(listener, p);
	close(listener);
	assert_int_equal(zns_quiesce_begin(&me, 1, &s, err), 0);
	assert_non_null(s);
	assert_string_equal(zns_quiesce_name(s), "liar");
	assert_memory_equal(zns_quiesce_device(s), p->a.device, ZNS_UUID_LEN);
	assert_memory_equal(zns_quiesce_context(s), p->a.context, ZNS_UUID_LEN);
	ret = zns_quiesce_units(s, me, &u, nr, err);
	zns_quiesce_end(s);
	free(u);
	waitpid(child, NULL, 0);
	unlinkat(dir, "liar.seal", 0);
	close(dir);
	return ret;
}

static struct pager honest(void)
{
	struct pager p = { .len = sizeof(p.a), .list = sizeof(p.u) };

	p.a.nr = 1;
	memset(p.a.device, 7, ZNS_UUID_LEN);
	memset(p.a.context, 9, ZNS_UUID_LEN);
	p.u = (struct zns_quiesce_unit){ .addr = 1 << 20, .off = U, .zone = 5, .mask = 1 };
	return p;
}

static void lies(void **state)
{
	static const char list[] = "impossible list";
	struct zns_err err = ZNS_ERR_INIT;
	struct pager p = honest();
	size_t nr;

	assert_int_equal(ask_liar(&p, &nr, &err), 0);
	assert_int_equal(nr, 1);
#define LIE(what, want, text)                                                          \
	do {                                                                           \
		p = honest();                                                          \
		what;                                                                  \
		err = (struct zns_err)ZNS_ERR_INIT;                                    \
		if (ask_liar(&p, &nr, &err) != (want) || nr || !strstr(err.msg, text)) \
			fail_msg("%s: %d %s", #what, err.code, err.msg);               \
	} while (0)
	LIE(p.a.nr = 2, -EPROTO, list);
	LIE(p.a.nr = UINT32_MAX, -EPROTO, list);
	LIE(p.list -= 8, -EPROTO, list);
	LIE(p.writable = true, -EPROTO, list);
	LIE(p.no_list = true, -EPROTO, list);
	LIE(p.u.addr += 1, -EPROTO, list);
	LIE(p.u.addr = 1ull << 47, -EPROTO, list);
	LIE(p.u.off += 4096, -EPROTO, list);
	LIE(p.u.mask = 0, -EPROTO, list);
	LIE(p.u.clean = 1, -EPROTO, list);
	LIE(p.len -= 1, -EPROTO, "the pager of memory context liar");
	LIE(p.a.code = 7, -EPROTO, "the pager of memory context liar");
	LIE(p.a.code = -ENOENT; memset(p.a.msg, 'x', sizeof(p.a.msg)), -ENOENT, "xxx");
	LIE(p.dies = true, -EPIPE, "died");
	(void)state;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(context_first), T(checkpoint_first),
		T(twice),         T(given_back_meanwhile),
		T(dump_fails),    T(without_naming),
		T(broker_dies),   T(what_may_not_be_named),
		T(catalogue),     T(lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
