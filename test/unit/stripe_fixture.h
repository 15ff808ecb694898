/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef STRIPE_FIXTURE_H
#define STRIPE_FIXTURE_H
/*
 * Tests of the striping writer and reader: a fake broker that gives out zones, images whose bytes
 * follow from a seed, and functions that read with a reader what a finished writer has left on the
 * device.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "emu_common.h"
#include "until.h"
#include "zns/crypt.h"
#include "zns/reader.h"
#include "zns/store.h"
#include "zns/layout.h"
#include "zns/writer.h"

#define RIG_WIDTH 8
#define RIG_ZONES 512

struct rig {
	struct zns_dev *d;
	struct zns_writer *w;
	uint32_t unit, width, workers, zone_mibps;
	uint32_t weights[RIG_WIDTH];
	const uint32_t *metadata_group;
	struct zns_crypt *crypt; /* owned; NULL: not encrypted */
	bool has_id; /* the checkpoint gets this id */
	uint8_t id[ZNS_UUID_LEN];
	const uint8_t *parent; /* its parent's id, or NULL */
	/* the fake broker: gives out the zones [next, last), one group per lane */
	uint32_t next, last;
	/* how many zones may be open that are neither full nor done; 0: any number */
	uint32_t limit;
	bool finish_done; /* finishes zones that are done, as the broker does under pressure */
	bool given[RIG_ZONES], done[RIG_ZONES];
	uint64_t done_wp[RIG_ZONES];
	uint32_t group_of[RIG_ZONES]; /* given for */
	uint32_t nr_given, nr_done, nr_busy;
	atomic_int inside;
	bool bad[RIG_ZONES];
	/* nr_bad: zones that were reported as failed; nr_failed: failed zones that the writer
	 * knew at the end */
	uint32_t nr_bad, nr_failed;
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			struct zns_err *e);
	const char *complaint; /* misbehaviour of the writer, noticed in its threads */
	/* after rig_finish */
	ZnsPb__Checkpoint *c;
	ZnsPb__Manifest *m;
};

/* --- bytes from a seed --- */

static inline uint64_t word_of(uint64_t seed, uint64_t n)
{
	uint64_t x = (n + seed * 0x100000001b3ull) * 0x9e3779b97f4a7c15ull;

	return x ^ x >> 29;
}

static inline void fill(void *buf, uint64_t off, size_t len, uint64_t seed)
{
	uint8_t *p = buf;

	while (len) {
		uint64_t w = word_of(seed, off / 8);
		size_t skip = off % 8, n = zns_min(len, 8 - skip);

		memcpy(p, (uint8_t *)&w + skip, n);
		p += n;
		off += n;
		len -= n;
	}
}

struct image {
	char name[32];
	uint64_t seed, len;
	bool pages;
};

static uint64_t rng_state = 88172645463325252ull;

static inline uint64_t rnd_of(uint64_t *s, uint64_t below)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (*s >> 11) % below;
}

static inline uint64_t rnd(uint64_t below)
{
	return rnd_of(&rng_state, below);
}

/* --- device and broker --- */

static inline struct zns_emu_params roomy(uint32_t nr_zones, uint64_t capacity)
{
	struct zns_emu_params p = small();

	p.nr_zones = nr_zones;
	p.zone_capacity = capacity;
	p.zone_size = MIB(1);
	while (p.zone_size < capacity)
		p.zone_size *= 2;
	p.max_open = p.max_active = 0;
	return p;
}

static inline int complain(struct rig *r, const char *what, struct zns_err *e)
{
	r->complaint = what;
	return zns_fail(e, -EFAULT, "%s", what);
}

static inline bool rig_full(struct rig *r)
{
	uint32_t n = 0;

	for (uint32_t z = 0; r->limit && z < r->d->geo.nr_zones; z++) {
		struct zns_zone rep;

		if (r->given[z] && !r->done[z] && !r->bad[z] &&
		    !zns_dev_report(r->d, z, 1, &rep, NULL))
			n += rep.state != ZNS_ZONE_FULL;
	}
	return r->limit && n >= r->limit;
}

static inline int rig_zone_get(void *arg, const struct zns_zone_wish *wish,
			       struct zns_zone_slot *out, struct zns_err *e)
{
	const uint32_t *done = wish->done, nr_done = wish->nr_done;
	struct rig *r = arg;
	struct zns_zone z;
	int ret = 0;

	if (atomic_fetch_add(&r->inside, 1))
		ret = complain(r, "asked twice at once", e);
	for (uint32_t i = 0; i < nr_done && !ret; i++) {
		if (done[i] >= r->d->geo.nr_zones || !r->given[done[i]] || r->done[done[i]])
			ret = complain(r, "done with a zone that was not given, or twice", e);
		else
			ret = zns_dev_report(r->d, done[i], 1, &z, e);
		if (ret)
			break;
		r->done[done[i]] = true;
		r->done_wp[done[i]] = z.wp;
		r->nr_done++;
		if (r->finish_done && z.wp < z.capacity)
			ret = zns_dev_finish(r->d, done[i], e);
	}
	for (uint32_t i = 0; i < wish->nr_bad && !ret; i++) {
		if (wish->bad[i] >= r->d->geo.nr_zones || !r->given[wish->bad[i]])
			ret = complain(r, "bad is a zone that was not given", e);
		r->nr_bad += !ret && !r->bad[wish->bad[i]];
		r->bad[wish->bad[i]] = !ret;
	}
	if (!ret && rig_full(r)) {
		r->nr_busy++;
		ret = zns_fail(e, -EBUSY, "all %u zones are in use", r->limit);
	}
	if (!ret && r->next == r->last)
		ret = zns_fail(e, -ENOSPC, "the device is full");
	if (!ret)
		ret = zns_dev_report(r->d, r->next, 1, &z, e);
	if (!ret) {
		*out = (struct zns_zone_slot){
			.zone = r->next, .group = wish->group, .start = z.wp, .capacity = z.capacity
		};
		r->group_of[r->next] = wish->group;
		r->given[r->next++] = true;
		r->nr_given++;
	}
	atomic_fetch_sub(&r->inside, 1);
	return ret;
}

/* Makes a writer over @d, which may have all zones except metadata zones. */
static inline void rig_init(struct rig *r, struct zns_dev *d, uint32_t unit, uint32_t width)
{
	memset(r, 0, sizeof(*r));
	r->d = d;
	r->unit = unit;
	r->width = width;
	r->zone_get = rig_zone_get;
	r->next = zns_store_meta_zones(&d->geo);
	r->last = d->geo.nr_zones;
	for (uint32_t i = 0; i < RIG_WIDTH; i++)
		r->weights[i] = 1;
	assert_true(d->geo.nr_zones <= RIG_ZONES);
}

static inline void rig_start(struct rig *r)
{
	uint32_t groups[RIG_WIDTH] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct zns_writer_params p = { .dev = r->d,
				       .unit = r->unit,
				       .workers = r->workers,
				       .nr_groups = r->width,
				       .zone_mibps = r->zone_mibps,
				       .groups = groups,
				       .weights = r->weights,
				       .metadata_group = r->metadata_group,
				       .zone_get = r->zone_get,
				       .arg = r,
				       .crypt = r->crypt };

	err = (struct zns_err)ZNS_ERR_INIT;
	assert_ok(zns_writer_new(&p, &r->w, &err));
}

static inline ZnsPb__Checkpoint *new_checkpoint(void)
{
	ZnsPb__Checkpoint *c = malloc(sizeof(*c));

	zns_pb__checkpoint__init(c);
	c->id.data = malloc(ZNS_UUID_LEN);
	c->id.len = ZNS_UUID_LEN;
	assert_int_equal(zns_uuid_generate(c->id.data), 0);
	c->container = strdup("test");
	return c;
}

static inline int finish_raw(struct rig *r, struct zns_err *e)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef *ref = malloc(sizeof(*ref));
	uint8_t uuid[ZNS_UUID_LEN] = { 1, 2, 3 };
	struct zns_writer_stats st;
	int ret;

	zns_pb__extent_ref__init(ref);
	if (r->c)
		zns_pb__checkpoint__free_unpacked(r->c, NULL);
	r->c = new_checkpoint();
	if (r->has_id)
		memcpy(r->c->id.data, r->id, ZNS_UUID_LEN);
	if (r->parent) {
		r->c->has_parent = 1;
		r->c->parent.len = ZNS_UUID_LEN;
		r->c->parent.data = malloc(ZNS_UUID_LEN);
		memcpy(r->c->parent.data, r->parent, ZNS_UUID_LEN);
	}
	m.device.data = uuid;
	m.device.len = ZNS_UUID_LEN;
	m.checkpoint = r->c;
	ret = zns_writer_finish(r->w, &m, ref, e);
	zns_writer_stats_get(r->w, &st);
	r->nr_failed = st.nr_bad;
	r->c->manifest = ref;
	return ret;
}

static inline void rig_drop(struct rig *r)
{
	zns_writer_free(r->w);
	if (r->c)
		zns_pb__checkpoint__free_unpacked(r->c, NULL);
	if (r->m)
		zns_pb__manifest__free_unpacked(r->m, NULL);
	zns_crypt_free(r->crypt);
	r->w = NULL;
	r->c = NULL;
	r->m = NULL;
	r->crypt = NULL;
}

/* Checks that the checkpoint's record of used zones matches the device, and that nothing was
 * written to a zone after "done". */
static inline void check_zones(struct rig *r)
{
	for (size_t i = 0; i < r->c->n_zones; i++) {
		const ZnsPb__ZoneUse *u = r->c->zones[i];
		struct zns_zone z = zone_of(r->d, u->zone);

		assert_true(r->given[u->zone]);
		assert_true(u->len > 0);
		if (r->bad[u->zone] || r->nr_failed > r->nr_bad)
			assert_true(z.wp >= u->start + u->len);
		else if (!r->finish_done || z.wp < z.capacity)
			assert_int_equal(z.wp, u->start + u->len);
		if (r->done[u->zone] && !r->bad[u->zone])
			assert_int_equal(r->done_wp[u->zone], u->start + u->len);
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(r->c->zones[k]->zone, u->zone);
	}
}

/* Finishes, then reads the manifest back from the device and checks it as a restore does. */
static inline void rig_finish(struct rig *r)
{
	const ZnsPb__ExtentRef *ref;
	ZnsPb__Footer *f = NULL;

	assert_ok(finish_raw(r, &err));
	if (r->complaint)
		fail_msg("%s", r->complaint);
	assert_ok(zns_writer_error(r->w, &err));
	zns_writer_free(r->w);
	r->w = NULL;
	assert_ok(zns_dev_flush(r->d, &err));
	check_zones(r);
	assert_ok(zns_manifest_read(r->d, r->c, &r->m, &err));
	assert_ok(zns_manifest_check(r->m, &r->d->geo, &err));
	ref = r->c->manifest;
	assert_ok(zns_footer_read(r->d, ref->zone,
				  ref->start + zns_align_up(ref->len, r->d->geo.block_size), &f,
				  &err));
	assert_memory_equal(f->checkpoint.data, r->c->id.data, ZNS_UUID_LEN);
	zns_pb__footer__free_unpacked(f, NULL);
}

static inline struct zns_reader *rig_reader(struct rig *r, uint32_t workers, uint32_t cache)
{
	struct zns_reader_params p = {
		.dev = r->d, .workers = workers, .cache_units = cache, .crypt = r->crypt
	};
	struct zns_reader *rd = NULL;

	assert_ok(zns_reader_new(&p, r->m, &rd, &err));
	return rd;
}

static inline void check_image(struct zns_reader *rd, const struct image *im)
{
	struct zns_rimage *i = zns_reader_find(rd, im->name);
	cleanup_free uint8_t *got = malloc(im->len + 1), *want = malloc(im->len + 1);

	if (!i)
		fail_msg("no image %s", im->name);
	assert_int_equal(zns_rimage_size(i), im->len);
	assert_ok(zns_rimage_read(i, 0, got, im->len, &err));
	fill(want, 0, im->len, im->seed);
	if (memcmp(got, want, im->len))
		fail_msg("image %s came back different", im->name);
}

/* Finishes and verifies: exactly these images, with these bytes. */
static inline void rig_verify(struct rig *r, const struct image *im, size_t nr)
{
	uint64_t bytes = 0, page_bytes = 0;
	struct zns_reader *rd;

	rig_finish(r);
	rd = rig_reader(r, 3, 0);
	assert_int_equal(r->m->n_images, nr);
	assert_int_equal(r->c->nr_images, nr);
	for (size_t i = 0; i < nr; i++) {
		check_image(rd, &im[i]);
		bytes += im[i].len;
		page_bytes += im[i].pages ? im[i].len : 0;
	}
	assert_int_equal(r->c->bytes, bytes);
	assert_int_equal(r->c->page_bytes, page_bytes);
	zns_reader_free(rd);
}

/* --- feeding --- */

/* Writes data in pieces of at most @piece bytes. Returns 0 or the writer's error. */
static inline int feed(struct zns_writer *w, const struct image *im, size_t piece,
		       struct zns_err *e)
{
	cleanup_free uint8_t *buf = malloc(piece);
	struct zns_wimage *i = NULL;
	int ret = zns_writer_image(w, im->name, im->pages, &i, e);

	for (uint64_t off = 0; off < im->len && !ret; off += piece) {
		size_t len = zns_min((uint64_t)piece, im->len - off);

		fill(buf, off, len, im->seed);
		ret = zns_wimage_data(i, buf, len, e);
	}
	return ret ? ret : zns_wimage_seal(i, e);
}

static inline void image_set(struct image *im, uint64_t len, const char *fmt, uint64_t n)
{
	memset(im, 0, sizeof(*im));
	snprintf(im->name, sizeof(im->name), fmt, (unsigned)n);
	im->seed = n + 1;
	im->len = len;
}

/* --- a device that delays commands to another device, or discards data if there is none --- */

#define OPEN (-1)

/* How many commands may pass; others wait until the number is changed. OPEN: all. */
struct gate {
	atomic_int room, waiting;
};

static inline bool gate_try(struct gate *g)
{
	int room = atomic_load(&g->room);

	while (room > 0 && !atomic_compare_exchange_weak(&g->room, &room, room - 1))
		;
	return room;
}

static inline void gate_pass(struct gate *g)
{
	if (gate_try(g))
		return;
	atomic_fetch_add(&g->waiting, 1);
	until(gate_try(g));
	atomic_fetch_sub(&g->waiting, 1);
}

struct proxy {
	struct zns_dev dev;
	struct zns_dev *inner;
	unsigned read_us;
	struct gate writes, reads;
	atomic_int written, read;
	void (*at_write)(struct proxy *p, uint32_t zone, uint64_t end);
	void *arg;
};

static inline int proxy_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
			       struct zns_err *e)
{
	struct proxy *p = (struct proxy *)d;

	if (p->inner)
		return zns_dev_report(p->inner, first, nr, out, e);
	for (uint32_t i = 0; i < nr; i++)
		out[i] = (struct zns_zone){ .index = first + i, .capacity = d->geo.zone_capacity };
	return 0;
}

static inline int proxy_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf,
			      size_t len, struct zns_err *e)
{
	struct proxy *p = (struct proxy *)d;
	int ret;

	gate_pass(&p->writes);
	if (p->at_write)
		p->at_write(p, zone, off + len);
	ret = p->inner ? zns_dev_write(p->inner, zone, off, buf, len, e) : 0;
	atomic_fetch_add(&p->written, 1);
	return ret;
}

static inline int proxy_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
			     struct zns_err *e)
{
	struct proxy *p = (struct proxy *)d;

	if (p->read_us)
		usleep(p->read_us);
	gate_pass(&p->reads);
	atomic_fetch_add(&p->read, 1);
	return zns_dev_read(p->inner, zone, off, buf, len, e);
}

static inline int proxy_flush(struct zns_dev *d, struct zns_err *e)
{
	return zns_dev_flush(((struct proxy *)d)->inner, e);
}

static inline int proxy_finish(struct zns_dev *d, uint32_t zone, struct zns_err *e)
{
	return zns_dev_finish(((struct proxy *)d)->inner, zone, e);
}

static inline struct zns_dev *proxy_init(struct proxy *p, struct zns_dev *inner)
{
	static const struct zns_dev_ops ops = { .name = "proxy",
						.report = proxy_report,
						.write = proxy_write,
						.read = proxy_read,
						.flush = proxy_flush,
						.finish = proxy_finish };

	memset(p, 0, sizeof(*p));
	atomic_store(&p->writes.room, OPEN);
	atomic_store(&p->reads.room, OPEN);
	p->dev.ops = &ops;
	p->inner = inner;
	if (inner)
		p->dev.geo = inner->geo;
	else
		p->dev.geo = (struct zns_geometry){ .nr_zones = RIG_ZONES,
						    .block_size = 4096,
						    .zone_size = MIB(64),
						    .zone_capacity = MIB(64),
						    .max_io_bytes = KIB(512),
						    .mem_align = 4096 };
	return &p->dev;
}

/* --- a task whose memory is read or written --- */

struct task {
	pid_t pid;
	int to, from; /* pipes: one byte asks, one byte answers */
};

/* @fn runs in the child for every byte sent, until the pipe closes. */
static inline void task_start(struct task *t, void (*fn)(char))
{
	int a[2], b[2];
	char c;

	assert_int_equal(pipe2(a, O_CLOEXEC), 0);
	assert_int_equal(pipe2(b, O_CLOEXEC), 0);
	t->pid = fork();
	assert_true(t->pid >= 0); /* -1 would signal every process */
	if (!t->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(a[1]);
		close(b[0]);
		while (read(a[0], &c, 1) == 1) {
			if (fn)
				fn(c);
			if (write(b[1], &c, 1) != 1)
				break;
		}
		_exit(0);
	}
	assert_true(t->pid > 0);
	close(a[0]);
	close(b[1]);
	t->to = a[1];
	t->from = b[0];
}

static inline void task_do(struct task *t, char c)
{
	char back = 0;

	assert_int_equal(write(t->to, &c, 1), 1);
	assert_int_equal(read(t->from, &back, 1), 1);
	assert_int_equal(back, c);
}

static inline void task_end(struct task *t)
{
	close(t->to);
	close(t->from);
	if (t->pid <= 0) /* it was never started; kill(-1) would hit every process */
		return;
	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
}

/* A hang is a failure: SIGALRM ends the program, and cmocka's output shows which test it was. */
static inline int stripe_begin(void **state)
{
	alarm(600);
	return emu_begin(state);
}

#undef T
#define T(f) cmocka_unit_test_setup_teardown(f, stripe_begin, emu_end)

/* The image in a file in memory; the position is at its end, as criu leaves it. */
static inline int memfd_of(const struct image *i)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	cleanup_free uint8_t *buf = malloc(i->len + 1);

	fill(buf, 0, i->len, i->seed);
	assert_int_equal(zns_write_all(fd, buf, i->len), 0);
	return fd;
}

#endif
