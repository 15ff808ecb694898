/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights that change while a dump runs (stripe/write/weights.c): whatever is dealt out anew, every
 * byte comes back. How much it helps is test_rates' matter. Time is virtual.
 */
#include <pthread.h>
#include "../../zns/stripe/write/workers.c"
#include "stripe_fixture.h"
#include "vtime.h"
#include "../../zns/stripe/write/weights.c"

#define AREA MIB(24)
#define FAST_NS 300000
#define SLOW_NS 2400000

static uint8_t *area;
static atomic_uint slow; /* writes to zones of this group take long */
static struct rig rig;

static int write_slowly(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
			struct zns_err *e)
{
	vt_sleep_until(vt.now_ns + (rig.group_of[zone] == atomic_load(&slow) ? SLOW_NS : FAST_NS));
	return zns_dev_write(((struct proxy *)d)->inner, zone, off, buf, len, e);
}

/* Each image is a part of the area; no unit of it is the same as another. */
static void feed_memory(struct image *m, uint64_t at)
{
	struct zns_wimage *i;
	uint64_t off;

	m->pages = true;
	assert_ok(zns_writer_image(rig.w, m->name, true, &i, &err));
	for (off = 0; off < m->len; off += MIB(8)) {
		struct iovec v[2] = { { area + at + off, zns_min(m->len - off, MIB(8)) } };

		assert_ok(zns_wimage_mem(i, getpid(), v, 1, &err));
	}
	assert_ok(zns_wimage_settle(i, &err));
	assert_ok(zns_wimage_seal(i, &err));
}

static struct image small_images[200];
static size_t nr_small;
static atomic_bool enough;

static void *feed_small_ones(void *arg)
{
	struct zns_err e = ZNS_ERR_INIT;

	while (!atomic_load(&enough) && nr_small < ZNS_ARRAY_SIZE(small_images)) {
		image_set(&small_images[nr_small], 100 + nr_small * 977, "small-%u", nr_small);
		if (feed(rig.w, &small_images[nr_small++], KIB(100), &e))
			return arg;
		vt_sleep_until(vt.now_ns + 1000000);
	}
	return NULL;
}

/* @shift: the slow group is another one for each image; @beside: small images come from another
 * thread meanwhile. */
static void run(uint32_t width, uint64_t capacity, bool shift, bool beside)
{
	struct zns_emu_params p = roomy(256, capacity);
	struct image all[ZNS_ARRAY_SIZE(small_images) + 8];
	static struct zns_dev_ops ops;
	struct zns_writer_stats st;
	size_t segments = 0, nr = 0;
	struct proxy proxy;
	struct zns_dev *d;
	void *failed = NULL;
	pthread_t t;

	unlink(dev_path);
	d = make_dev(&p);
	proxy_init(&proxy, d);
	ops = *proxy.dev.ops;
	ops.write = write_slowly;
	proxy.dev.ops = &ops;
	rig_init(&rig, &proxy.dev, KIB(64), width);
	atomic_store(&slow, 1);
	atomic_store(&enough, false);
	nr_small = 0;
	vt_begin();
	rig_start(&rig);
	if (beside)
		assert_int_equal(pthread_create(&t, NULL, feed_small_ones, &rig), 0);
	for (uint32_t n = 0; n < 3; n++, nr++) {
		image_set(&all[nr], AREA / 3 - n * 7777, "pages-%u", n);
		/* fill() is of the offset in the image */
		fill(area + n * (AREA / 3), 0, all[nr].len, all[nr].seed);
		feed_memory(&all[nr], n * (AREA / 3));
		if (shift)
			atomic_store(&slow, (n + 2) % width);
	}
	atomic_store(&enough, true);
	if (beside)
		pthread_join(t, &failed);
	assert_null(failed);
	for (size_t i = 0; i < nr_small; i++)
		all[nr++] = small_images[i];
	zns_writer_stats_get(rig.w, &st);
	rig_verify(&rig, all, nr);
	for (size_t i = 0; i < rig.m->n_images; i++)
		segments += rig.m->images[i]->n_segments;
	print_message(
		"%u lanes, zones of %llu KiB: new weights %u times, %zu segments of %zu images\n",
		width, (unsigned long long)(capacity >> 10), st.nr_reweighed, segments, nr);
	assert_in_range(st.nr_reweighed, 1, 150);
	rig_drop(&rig);
	vt_end();
	zns_dev_close(d);
}

static void one_slow_lane(void **state)
{
	run(4, MIB(16), false, false);
}

static void slow_ones_in_turn(void **state)
{
	run(5, MIB(16), true, false);
	run(2, MIB(16), true, false);
}

static void beside_small_images(void **state)
{
	run(4, MIB(16), true, true);
}

static void small_zones(void **state)
{
	run(4, MIB(1), true, true);
	run(8, MIB(1) + KIB(320), true, false);
}

/*
 * Of two lanes one is saturated. The other one counts as fast as that, unless something else holds
 * both of them up: a bucket that has a rate.
 */
static void unsaturated_lane(void **state)
{
	struct lane l[2] = { { .ns_per_byte = 10, .row = 0xf }, { .ns_per_byte = 5 } };
	struct zns_writer w = { .lanes = { .v = l, .nr = 2 }, .zone_mibps = 1000 };
	double rate[2], chance;

	for (uint32_t mibps = 0; mibps < 3; mibps++) {
		if (mibps)
			zns_bucket_set(w.bucket, mibps - 1);
		assert_true(rates(&w, rate, &chance));
		assert_true(rate[0] == 0.1 && rate[1] == (mibps < 2 ? 0.1 : 0.2));
		if (!mibps)
			w.bucket = zns_bucket_new();
	}
	zns_bucket_free(w.bucket);
}

/* No more workers than units are expected, the last of which may be shorter, and two at least. */
static void workers_for_units(void **state)
{
	struct zns_writer_params p = { .unit = KIB(256), .nr_groups = 8 };
	uint32_t most = choose_workers(&p);

	assert_true(most > 4);
	for (uint32_t nr = 0; nr < 2 * most; nr++) {
		p.expected = (uint64_t)nr * p.unit + 1;
		assert_int_equal(choose_workers(&p), zns_min(zns_max(nr + 1, 2u), most));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_slow_lane), T(slow_ones_in_turn), T(beside_small_images),
		T(small_zones),   T(unsaturated_lane),  T(workers_for_units),
	};
	int rc;

	area = malloc(AREA);
	alarm(240);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	free(area);
	return rc;
}
