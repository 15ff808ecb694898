/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The striping writer when zones fail in the middle: what is committed is what was written, byte
 * for byte, or the dump fails. Task memory can always be read again; of other bytes the writer
 * keeps only a limited amount.
 */
#include <sys/syscall.h>
#include "stripe_fixture.h"
#include "../../zns/stripe/write/writer.h"

#define UNITS 30
#define AREA (UNITS * KIB(64) + 8192)
#define SMALL 12 /* data images of one feeder, 600 KiB together */
#define FEEDERS 2

static uint8_t *area;
static struct task task;

static struct iovec word(uint32_t n)
{
	return (struct iovec){ area + n * KIB(64) + 100, 16 };
}

/* 'k': words here and there alone, as the kernel does with rseq areas. */
static void scribble(char c)
{
	if (c != 'k')
		memset(area, c, AREA);
	for (uint32_t n = 0; c == 'k' && n < UNITS; n++)
		memset(word(n).iov_base, c, word(n).iov_len);
}

static int task_begin(void **state)
{
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(area, 0, AREA, 9);
	task_start(&task, scribble);
	return stripe_begin(state);
}

static int task_finish(void **state)
{
	task_end(&task);
	munmap(area, AREA);
	return emu_end(state);
}

#define TASK(f) cmocka_unit_test_setup_teardown(f, task_begin, task_finish)

/* Waits until no worker has anything to do. */
static bool all_written(struct zns_writer *w)
{
	bool all;

	writer_lock(w);
	all = !w->queue.nr && !w->queue.nr_running;
	writer_unlock(w);
	return all;
}

/* --- one dump: task memory and small images, from several threads --- */

struct scene {
	struct rig r;
	struct image im[1 + FEEDERS * SMALL];
	uint64_t rng;
	int ret;
	struct zns_err e;
};

struct feeder {
	struct scene *s;
	uint32_t n;
	int ret;
};

static void *feeder(void *arg)
{
	struct feeder *f = arg;

	for (uint32_t i = 0; i < SMALL && !f->ret; i++)
		f->ret = feed(f->s->r.w, &f->s->im[1 + f->n * SMALL + i], KIB(20), NULL);
	return NULL;
}

/* A unit is encrypted once; if its bytes are read again they must be the same. */
static void with_key(struct rig *r)
{
	static const uint8_t id[ZNS_UUID_LEN] = { 1 };
	char spec[sizeof(test_dir) + 16], *path = spec + strlen("file:");
	struct zns_master *m;

	snprintf(spec, sizeof(spec), "file:%s/key", test_dir);
	unlink(path);
	assert_ok(zns_master_create(path, &err));
	assert_ok(zns_master_load(spec, &m, &err));
	assert_ok(zns_crypt_new(m, id, &r->crypt, &err));
	zns_master_free(m);
	unlink(path);
}

static void scene_begin(struct scene *s, struct zns_dev *d, uint64_t seed)
{
	memset(s, 0, sizeof(*s));
	s->rng = seed * 7919 + 1;
	rig_init(&s->r, d, KIB(64), 1 + rnd_of(&s->rng, 4));
	s->r.workers = 1 + rnd_of(&s->rng, 6);
	for (uint32_t i = 0; i < s->r.width; i++)
		s->r.weights[i] = 1 + rnd_of(&s->rng, 3);
	if (rnd_of(&s->rng, 3) == 0)
		s->r.limit = s->r.width + rnd_of(&s->rng, 2);
	s->im[0] = (struct image){ .name = "pages-1.img", .seed = 9, .len = AREA, .pages = true };
	for (uint32_t i = 1; i < ZNS_ARRAY_SIZE(s->im); i++)
		image_set(&s->im[i],
			  i % SMALL == 1 ? KIB(64) * 4 + rnd_of(&s->rng, KIB(64)) :
					   rnd_of(&s->rng, KIB(30)),
			  "d-%u", i);
	if (seed % 3 == 0)
		with_key(&s->r);
	rig_start(&s->r);
}

/* Feeds all images; the area in pieces of odd sizes. */
static void scene_feed(struct scene *s)
{
	struct feeder f[FEEDERS];
	struct zns_wimage *i = NULL;
	pthread_t t[FEEDERS];
	size_t len;

	for (uint32_t n = 0; n < FEEDERS; n++) {
		f[n] = (struct feeder){ .s = s, .n = n };
		assert_int_equal(pthread_create(&t[n], NULL, feeder, &f[n]), 0);
	}
	s->ret = zns_writer_image(s->r.w, s->im[0].name, true, &i, &s->e);
	for (size_t at = 0; at < AREA && !s->ret; at += len) {
		size_t some = 4096 * (1 + rnd_of(&s->rng, 70));
		struct iovec v = { area + at, zns_min(some, AREA - at) };

		len = v.iov_len;
		s->ret = zns_wimage_mem(i, task.pid, &v, 1, &s->e);
	}
	if (!s->ret)
		s->ret = zns_wimage_settle(i, &s->e);
	if (!s->ret)
		s->ret = zns_wimage_seal(i, &s->e);
	for (uint32_t n = 0; n < FEEDERS; n++) {
		pthread_join(t[n], NULL);
		s->ret = s->ret ? s->ret : f[n].ret;
	}
}

/* Commits like a dump; returns 0 only if the data on the device are right. */
static int scene_commit(struct scene *s)
{
	int ret = s->ret ? s->ret : finish_raw(&s->r, &s->e);
	struct zns_reader *rd;

	if (s->r.complaint)
		fail_msg("%s", s->r.complaint);
	if (ret)
		return ret;
	ret = zns_writer_durable(s->r.w, s->r.c, &s->e);
	if (ret)
		return ret;
	check_zones(&s->r);
	assert_ok(zns_manifest_read(s->r.d, s->r.c, &s->r.m, &err));
	assert_ok(zns_manifest_check(s->r.m, &s->r.d->geo, &err));
	rd = rig_reader(&s->r, 2, 0);
	assert_int_equal(s->r.m->n_images, ZNS_ARRAY_SIZE(s->im));
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(s->im); i++)
		check_image(rd, &s->im[i]);
	zns_reader_free(rd);
	return 0;
}

static struct zns_emu_params device_of(uint64_t seed)
{
	return roomy(100, KIB(64) * (3 + seed % 13));
}

static void inject(struct zns_dev *d, enum zns_emu_fault_kind kind, uint64_t after)
{
	struct zns_emu_rule r = { .kind = kind, .zone = ZNS_EMU_ANY_ZONE, .after = after };

	assert_ok(zns_emu_add_fault(d, &r, &err));
}

static uint32_t nr_bad(struct scene *s)
{
	struct zns_writer_stats st;

	zns_writer_stats_get(s->r.w, &st);
	assert_int_equal(st.nr_bad != 0, st.bad[0] != 0);
	return st.nr_bad;
}

/* The n-th write fails, or finds its zone read-only or offline, for every n up to the last: the
 * dump always survives. */
static void sweep(enum zns_emu_fault_kind kind)
{
	uint32_t hit = 0, idle = 0;

	for (uint64_t n = 0; idle < 3; n++) {
		struct zns_emu_params ep = device_of(n);
		struct scene s;

		unlink(dev_path);
		scene_begin(&s, make_dev(&ep), n);
		inject(s.r.d, kind, n);
		scene_feed(&s);
		if (scene_commit(&s))
			fail_msg("write %llu: %s", (unsigned long long)n, s.e.msg);
		hit += nr_bad(&s) == 1;
		idle += nr_bad(&s) == 0;
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
	}
	assert_true(hit > 30);
}

static void one_write_error(void **state)
{
	sweep(ZNS_EMU_FAIL_WRITE);
}

static void one_read_only(void **state)
{
	sweep(ZNS_EMU_WEAR_READ_ONLY);
}

static void one_offline(void **state)
{
	sweep(ZNS_EMU_WEAR_OFFLINE);
}

/* How many dumps, and the first seed: soak_writer_repair.c uses others. */
static uint64_t random_runs = 30, random_first = 1000;

/* Several zones fail at random points, in all ways; replacements fail too. */
static void many_at_random(void **state)
{
	uint32_t most = 0;

	for (uint64_t n = 0; n < random_runs; n++) {
		struct zns_emu_params ep = device_of(n);
		struct scene s;
		uint64_t k;

		unlink(dev_path);
		scene_begin(&s, make_dev(&ep), random_first + n);
		k = 2 + rnd_of(&s.rng, 8);
		while (k--)
			inject(s.r.d,
			       (const enum zns_emu_fault_kind[]){
				       ZNS_EMU_FAIL_WRITE, ZNS_EMU_WEAR_READ_ONLY,
				       ZNS_EMU_WEAR_OFFLINE }[rnd_of(&s.rng, 3)],
			       rnd_of(&s.rng, 60));
		scene_feed(&s);
		if (scene_commit(&s))
			fail_msg("run %llu: %s", (unsigned long long)n, s.e.msg);
		most = zns_max(most, nr_bad(&s));
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
	}
	print_message("up to %u zones failed in a dump\n", most);
	assert_true(most > 1);
}

/* A zone fails while the broker, which believes it good, takes time to answer that the limit is
 * reached: the writer asks again. */
static uint32_t refused_late;

static int late_zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			 struct zns_err *e)
{
	int ret = rig_zone_get(arg, wish, out, e);

	if (ret == -EBUSY) {
		refused_late++;
		until(all_written(((struct rig *)arg)->w));
	}
	return ret;
}

static void fails_while_asked(void **state)
{
	uint32_t hit = 0;

	refused_late = 0;
	for (uint64_t n = 0; n < 12; n++) {
		struct zns_emu_params ep = roomy(60, KIB(64) * 8);
		struct zns_emu_rule rule = { .kind = n % 2 ? ZNS_EMU_FAIL_WRITE :
							     ZNS_EMU_WEAR_READ_ONLY,
					     .after = 7 };
		struct scene s;

		unlink(dev_path);
		scene_begin(&s, make_dev(&ep), 7000 + n);
		zns_writer_free(s.r.w);
		s.r.width = s.r.limit = 1;
		s.r.workers = 1;
		s.r.zone_get = late_zone_get;
		rig_start(&s.r);
		/* the last write to this one, when the next one is asked for */
		rule.zone = s.r.next + n / 2;
		assert_ok(zns_emu_add_fault(s.r.d, &rule, &err));
		scene_feed(&s);
		if (scene_commit(&s))
			fail_msg("run %llu: %s", (unsigned long long)n, s.e.msg);
		hit += nr_bad(&s) == 1;
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
	}
	assert_true(refused_late > 0 && hit > 6);
}

/* --- a zone that hides its state: read-only, but part of the acknowledged data is gone --- */

struct liar {
	struct zns_dev dev;
	struct zns_dev *inner;
	uint32_t zone; /* UINT32_MAX: none yet */
	uint64_t from; /* the zone has lost its data from here on */
	atomic_uint writes, until;
	bool garbage; /* reads as something else; otherwise as an error */
};

static int liar_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
		       struct zns_err *e)
{
	return zns_dev_report(((struct liar *)d)->inner, first, nr, out, e);
}

static int liar_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		      struct zns_err *e)
{
	struct liar *l = (struct liar *)d;

	if (atomic_fetch_add(&l->writes, 1) == atomic_load(&l->until)) {
		assert_int_equal(zns_emu_set_zone_state(l->inner, zone, ZNS_ZONE_READ_ONLY, e), 0);
		l->from = off / KIB(64) / 2 * KIB(64);
		l->zone = zone;
	}
	return zns_dev_write(l->inner, zone, off, buf, len, e);
}

static int liar_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		     struct zns_err *e)
{
	struct liar *l = (struct liar *)d;
	int ret = zns_dev_read(l->inner, zone, off, buf, len, e);

	if (ret || zone != l->zone || off + len <= l->from)
		return ret;
	if (!l->garbage)
		return zns_fail(e, -EIO, "the write buffer is gone");
	memset(buf, 0x5a, len);
	return 0;
}

static int liar_flush(struct zns_dev *d, struct zns_err *e)
{
	return zns_dev_flush(((struct liar *)d)->inner, e);
}

static void lost_write_buffer(void **state)
{
	static const struct zns_dev_ops ops = { .name = "liar",
						.report = liar_report,
						.write = liar_write,
						.read = liar_read,
						.flush = liar_flush };

	for (uint64_t n = 0; n < 60; n++) {
		struct zns_emu_params ep = device_of(n);
		struct liar l = { .dev.ops = &ops, .zone = UINT32_MAX, .garbage = n % 2 };
		struct scene s;

		unlink(dev_path);
		l.inner = make_dev(&ep);
		l.dev.geo = l.inner->geo;
		atomic_store(&l.until, n % 40);
		scene_begin(&s, &l.dev, 2000 + n);
		scene_feed(&s);
		if (scene_commit(&s))
			fail_msg("run %llu: %s", (unsigned long long)n, s.e.msg);
		assert_int_equal(nr_bad(&s), 1);
		/* Data that the zone lost are not used. */
		for (size_t i = 0; i < s.r.c->n_zones; i++)
			if (s.r.c->zones[i]->zone == l.zone)
				assert_true(s.r.c->zones[i]->start + s.r.c->zones[i]->len <=
					    l.from);
		rig_drop(&s.r);
		zns_dev_close(l.inner);
	}
}

/* --- a zone turns when nobody writes to it --- */

static uint32_t some_zone(struct scene *s)
{
	uint32_t z;

	do
		z = zns_store_meta_zones(&s->r.d->geo) + rnd_of(&s->rng, s->r.nr_given);
	while (!zone_of(s->r.d, z).wp);
	return z;
}

static void before_finish(void **state)
{
	for (uint64_t n = 0; n < 30; n++) {
		struct zns_emu_params ep = device_of(n);
		struct scene s;

		unlink(dev_path);
		scene_begin(&s, make_dev(&ep), 3000 + n);
		scene_feed(&s);
		assert_int_equal(s.ret, 0);
		until(all_written(s.r.w));
		assert_ok(zns_emu_set_zone_state(
			s.r.d, some_zone(&s), n % 2 ? ZNS_ZONE_OFFLINE : ZNS_ZONE_READ_ONLY, &err));
		if (scene_commit(&s))
			fail_msg("run %llu: %s", (unsigned long long)n, s.e.msg);
		assert_int_equal(nr_bad(&s), 1);
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
	}
}

/* After the manifest: a read-only zone is checked and accepted, an offline one fails the dump. */
static void before_commit(void **state)
{
	for (uint64_t n = 0; n < 12; n++) {
		struct zns_emu_params ep = device_of(n);
		struct scene s;
		int ret;

		unlink(dev_path);
		scene_begin(&s, make_dev(&ep), 4000 + n);
		scene_feed(&s);
		assert_int_equal(s.ret, 0);
		assert_ok(finish_raw(&s.r, &err));
		for (size_t i = 0; i < (n % 3 ? 1 : s.r.c->n_zones); i++)
			assert_ok(zns_emu_set_zone_state(
				s.r.d, s.r.c->zones[i]->zone,
				n % 2 ? ZNS_ZONE_OFFLINE : ZNS_ZONE_READ_ONLY, &err));
		ret = zns_writer_durable(s.r.w, s.r.c, &err);
		assert_int_equal(ret, n % 2 ? -ENXIO : 0);
		if (n % 2)
			assert_says("turned offline just before the commit");
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
	}
}

/* --- data that cannot be read again --- */

/* The task ran on after settle: its memory may differ from the dump, and must not be used. */
static void memory_has_changed(void **state)
{
	struct zns_emu_params ep = roomy(60, MIB(1));

	for (int n = 0; n < 2; n++) {
		struct scene s;

		unlink(dev_path);
		fill(area, 0, AREA, 9);
		scene_begin(&s, make_dev(&ep), 5000);
		scene_feed(&s);
		assert_int_equal(s.ret, 0);
		task_do(&task, 'x');
		until(all_written(s.r.w));
		assert_ok(zns_emu_set_zone_state(s.r.d, some_zone(&s),
						 n ? ZNS_ZONE_OFFLINE : ZNS_ZONE_READ_ONLY, &err));
		assert_int_equal(scene_commit(&s), n ? -EIO : 0);
		if (n)
			assert_non_null(
				strstr(s.e.msg, "which cannot be had again; run the dump again"));
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
		task_end(&task);
		fill(area, 0, AREA, 9);
		task_start(&task, scribble);
	}
}

/* Words that the kernel changed in between: the unit is written with its first content,
 * encrypted or not, if the writer was told of them. */
static void kernel_wrote_words(void **state)
{
	struct zns_emu_params ep = roomy(60, MIB(1));

	for (uint64_t n = 0; n < 12; n++) {
		const bool told = n % 4;
		struct scene s;

		unlink(dev_path);
		scene_begin(&s, make_dev(&ep), 8000 + n);
		for (uint32_t i = 0; i < UNITS && told; i++)
			assert_ok(zns_writer_unsteady(s.r.w, task.pid, (struct iovec[]){ word(i) },
						      1));
		/* another task's */
		assert_ok(zns_writer_unsteady(s.r.w, task.pid + 1, (struct iovec[]){ word(0) }, 1));
		/* not dumped */
		assert_ok(zns_writer_unsteady(s.r.w, task.pid,
					      (struct iovec[]){ { (void *)4096, 32 } }, 1));
		scene_feed(&s);
		assert_int_equal(s.ret, 0);
		task_do(&task, 'k');
		until(all_written(s.r.w));
		for (uint32_t z = 0; z < s.r.nr_given; z++)
			if (zone_of(s.r.d, zns_store_meta_zones(&s.r.d->geo) + z).wp)
				assert_ok(zns_emu_set_zone_state(
					s.r.d, zns_store_meta_zones(&s.r.d->geo) + z,
					ZNS_ZONE_OFFLINE, &err));
		assert_int_equal(scene_commit(&s), told ? 0 : -EIO);
		if (!told)
			assert_non_null(strstr(s.e.msg, "which cannot be had again"));
		rig_drop(&s.r);
		zns_dev_close(s.r.d);
		task_end(&task);
		fill(area, 0, AREA, 9);
		task_start(&task, scribble);
	}
}

/* Far more bytes than are kept: the result is right, or the dump fails cleanly, and both happen. */
static void bytes_without_a_source(void **state)
{
	int won = 0, lost = 0;

	for (uint64_t n = 0; n < 30; n++) {
		struct zns_emu_params ep = roomy(60, MIB(1));
		struct image im;
		struct rig r;
		int ret;

		unlink(dev_path);
		rig_init(&r, make_dev(&ep), KIB(64), 3);
		inject(r.d, ZNS_EMU_WEAR_OFFLINE, n * 5);
		rig_start(&r);
		image_set(&im, MIB(8), "i-%u", n);
		ret = feed(r.w, &im, KIB(100), &err);
		if (!ret)
			ret = finish_raw(&r, &err);
		if (ret) {
			assert_int_equal(ret, -EIO);
			assert_says("cannot be had again");
			lost++;
		} else {
			rig_verify(&r, &im, 1);
			won++;
		}
		rig_drop(&r);
		zns_dev_close(r.d);
	}
	assert_true(won && lost);
}

/* A read-only zone can be read, so no source is needed. */
static void bytes_on_read_only_zones(void **state)
{
	for (uint64_t n = 0; n < 30; n++) {
		struct zns_emu_params ep = roomy(60, MIB(1));
		struct image im;
		struct rig r;

		unlink(dev_path);
		rig_init(&r, make_dev(&ep), KIB(64), 3);
		inject(r.d, n % 2 ? ZNS_EMU_WEAR_READ_ONLY : ZNS_EMU_FAIL_WRITE, n * 4);
		inject(r.d, ZNS_EMU_WEAR_READ_ONLY, n * 4 + 11);
		rig_start(&r);
		image_set(&im, MIB(8), "i-%u", n);
		assert_ok(feed(r.w, &im, KIB(100), &err));
		rig_verify(&r, &im, 1);
		rig_drop(&r);
		zns_dev_close(r.d);
	}
}

/* The flush after a failed zone fails: no data are known to be durable any more. */
static int no_flush(struct zns_dev *d, struct zns_err *e)
{
	return zns_fail(e, -EIO, "the cache is lost");
}

static void flush_fails(void **state)
{
	static const struct zns_dev_ops ops = { .name = "liar",
						.report = liar_report,
						.write = liar_write,
						.read = liar_read,
						.flush = no_flush };
	struct zns_emu_params ep = roomy(40, MIB(1));
	struct liar l = { .dev.ops = &ops, .zone = UINT32_MAX };
	struct scene s;

	l.inner = make_dev(&ep);
	l.dev.geo = l.inner->geo;
	atomic_store(&l.until, 20);
	scene_begin(&s, &l.dev, 6000);
	scene_feed(&s);
	assert_int_equal(scene_commit(&s), -EIO);
	assert_string_equal(s.e.msg, "the cache is lost");
	rig_drop(&s.r);
	zns_dev_close(l.inner);
}

/* No zone is left for the replacement: one line that says both. */
static void no_zone_left(void **state)
{
	struct zns_emu_params ep = roomy(40, MIB(1));
	struct image im;
	struct rig r;

	rig_init(&r, make_dev(&ep), KIB(64), 2);
	r.last = r.next + 2;
	inject(r.d, ZNS_EMU_WEAR_READ_ONLY, 5);
	rig_start(&r);
	image_set(&im, MIB(1), "i-%u", 1);
	if (!feed(r.w, &im, KIB(100), &err))
		assert_int_equal(finish_raw(&r, &err), -ENOSPC);
	assert_says("the device is full; 1 zone failed before: ");
	rig_drop(&r);
	zns_dev_close(r.d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TASK(one_write_error),    TASK(one_read_only),       TASK(one_offline),
		TASK(many_at_random),     TASK(fails_while_asked),   TASK(lost_write_buffer),
		TASK(before_finish),      TASK(before_commit),       TASK(memory_has_changed),
		TASK(kernel_wrote_words), T(bytes_without_a_source), T(bytes_on_read_only_zones),
		TASK(flush_fails),        T(no_zone_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
