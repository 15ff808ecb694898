/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Each allocation of an operation fails in turn, from the first to the last (-Wl,--wrap). The
 * operation fails with -ENOMEM or gets over it; what is on the device is as before or as after.
 */
#include "store_open.h"
#include "stripe_fixture.h"

/* ---- allocations that fail ---- */

static atomic_ulong calls;
static atomic_ulong fail_at; /* 0: nobody counts */

static bool refused(void)
{
	unsigned long at = fail_at;

	if (!at || atomic_fetch_add(&calls, 1) + 1 != at)
		return false;
	errno = ENOMEM;
	return true;
}

#define DOOR(type, name, params, args)                        \
	type __real_##name params;                            \
	type __wrap_##name params;                            \
	type __wrap_##name params                             \
	{                                                     \
		return refused() ? NULL : __real_##name args; \
	}

DOOR(void *, malloc, (size_t n), (n))
DOOR(void *, calloc, (size_t n, size_t each), (n, each))
DOOR(void *, realloc, (void *p, size_t n), (p, n))
DOOR(void *, aligned_alloc, (size_t align, size_t n), (align, n))
DOOR(char *, strdup, (const char *s), (s))

int __real_posix_memalign(void **p, size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n);
int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
	return refused() ? ENOMEM : __real_posix_memalign(p, align, n);
}

static void arm(unsigned long nth)
{
	calls = 0;
	fail_at = nth;
}

/* Was the call reached that was to fail? */
static bool disarm(void)
{
	unsigned long at = fail_at;

	fail_at = 0;
	return calls >= at;
}

static void judge(int ret, unsigned long nth)
{
	if (ret && ret != -ENOMEM)
		fail_msg("allocation %lu: %d, %s", nth, ret, err.msg);
}

/* ---- the store ---- */

static ZnsPb__Profile *other_profile;

static int do_commit(struct zns_store *s)
{
	struct ck k;

	return zns_store_commit(s, ck_init(&k, 7, "nginx", 7, 0, 4096), NULL);
}

static int do_remove(struct zns_store *s)
{
	uint8_t id[ZNS_UUID_LEN];

	id_of(1, id);
	return zns_store_remove(s, id, "znsctl rm", NULL);
}

static int do_reserve(struct zns_store *s)
{
	return reserve(s, "nginx", 3, true);
}

static int do_release(struct zns_store *s)
{
	return zns_store_release(s, "redis", NULL);
}

static int do_profile(struct zns_store *s)
{
	return zns_store_set_profile(s, other_profile, NULL);
}

static struct memdev *with_content(void)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m);
	struct ck k;

	OK(reserve(s, "redis", 2, true));
	OK(zns_store_commit(s, ck_init(&k, 1, "redis", 5, 0, 8192), NULL));
	zns_store_close(s);
	return m;
}

static char *text_of(struct memdev *m)
{
	struct zns_store *s = open_rw(m);
	char *text = store_text(s, NZ, true);

	zns_store_close(s);
	return text;
}

static void store_changes(void **state)
{
	static int (*const change[])(struct zns_store * s) = { do_commit, do_remove, do_reserve,
							       do_release, do_profile };

	other_profile = make_profile(NZ, 2);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(change); i++) {
		struct memdev *m = with_content();
		cleanup_free char *before = text_of(m), *after = NULL;
		struct zns_store *s = open_rw(m);
		bool reached = true;

		OK(change[i](s));
		zns_store_close(s);
		after = text_of(m);
		memdev_close(&m->dev);
		assert_string_not_equal(before, after);
		for (unsigned long n = 1; reached; n++) {
			cleanup_free char *now = NULL;
			int ret;

			m = with_content();
			s = open_rw(m);
			arm(n);
			ret = change[i](s);
			reached = disarm();
			judge(ret, n);
			s = reopened(m, s); /* the reopened store shows what is on the device */
			now = store_text(s, NZ, true);
			if (strcmp(now, ret ? before : after))
				fail_msg("change %zu, allocation %lu: %d", i, n, ret);
			zns_store_close(s);
			memdev_close(&m->dev);
		}
	}
	profile_free(other_profile);
}

static void store_open(void **state)
{
	struct memdev *m = with_content();
	cleanup_free char *want = text_of(m);
	bool reached = true;

	for (unsigned flags = 0; flags <= ZNS_STORE_RDONLY; flags += ZNS_STORE_RDONLY) {
		reached = true;
		for (unsigned long n = 1; reached; n++) {
			cleanup_free char *now = NULL;
			struct zns_store *s = NULL;
			int ret;

			arm(n);
			ret = zns_store_open(&m->dev, flags, &s, NULL);
			reached = disarm();
			judge(ret, n);
			if (ret)
				continue;
			now = store_text(s, NZ, true);
			assert_string_equal(now, want);
			zns_store_close(s);
		}
	}
	memdev_close(&m->dev);
}

/* ---- a checkpoint ---- */

static int try_checkpoint(struct rig *r, ZnsPb__ExtentRef *ref, const struct image *im, size_t nr)
{
	uint32_t groups[RIG_WIDTH] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct zns_writer_params p = { .dev = r->d,
				       .unit = r->unit,
				       .nr_groups = r->width,
				       .groups = groups,
				       .weights = r->weights,
				       .zone_get = r->zone_get,
				       .arg = r,
				       .crypt = r->crypt };
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	uint8_t uuid[ZNS_UUID_LEN] = { 1, 2, 3 };
	int ret = zns_writer_new(&p, &r->w, &err);

	for (size_t i = 0; i < nr && !ret; i++) {
		static uint8_t buf[KIB(400)];
		struct zns_wimage *wi;

		ret = zns_writer_image(r->w, im[i].name, im[i].pages, &wi, &err);
		fill(buf, 0, im[i].len, im[i].seed);
		if (!ret)
			ret = zns_wimage_data(wi, buf, im[i].len, &err);
		if (!ret)
			ret = zns_wimage_seal(wi, &err);
	}
	m.device.data = uuid;
	m.device.len = ZNS_UUID_LEN;
	m.checkpoint = r->c;
	if (!ret)
		ret = zns_writer_finish(r->w, &m, ref, &err);
	zns_writer_free(ret ? r->w : NULL);
	r->w = ret ? NULL : r->w;
	return ret;
}

static void read_back(struct rig *r, const struct image *im, size_t nr)
{
	struct zns_reader *rd;

	zns_writer_free(r->w);
	r->w = NULL;
	assert_int_equal(r->c->n_zones, r->nr_given);
	check_zones(r);
	assert_ok(zns_manifest_read(r->d, r->c, &r->m, &err));
	rd = rig_reader(r, 2, 0);
	for (size_t i = 0; i < nr; i++)
		check_image(rd, &im[i]);
	zns_reader_free(rd);
}

static void write_with(bool encrypt)
{
	struct zns_emu_params p = roomy(64, KIB(960));
	struct image im[3];
	struct zns_dev *d = make_dev(&p);
	uint32_t next = zns_store_meta_zones(&d->geo);
	struct zns_master *master = NULL;
	bool reached = true;
	unsigned done = 0;
	char key[160];

	if (encrypt) {
		snprintf(key, sizeof(key), "file:%s/key", test_dir);
		assert_ok(zns_master_create(key + 5, &err));
		assert_ok(zns_master_load(key, &master, &err));
	}
	image_set(&im[0], 100, "small-%u.img", 0);
	image_set(&im[1], KIB(300), "pages-%u.img", 1);
	image_set(&im[2], KIB(64) + 1, "other-%u.img", 2);
	im[1].pages = true;
	for (unsigned long n = 1; reached; n++) {
		ZnsPb__ExtentRef *ref = malloc(sizeof(*ref));
		struct rig r;
		int ret;

		zns_pb__extent_ref__init(ref);
		rig_init(&r, d, KIB(64), 3);
		r.next = next;
		r.c = new_checkpoint();
		if (encrypt)
			assert_ok(zns_crypt_new(master, r.c->id.data, &r.crypt, &err));
		arm(n);
		ret = try_checkpoint(&r, ref, im, 3);
		reached = disarm();
		r.c->manifest = ref;
		judge(ret, n);
		if (!ret)
			read_back(&r, im, 3);
		done += !ret;
		rig_drop(&r);
		for (uint32_t z = next; z < r.next; z++)
			assert_ok(zns_dev_reset(d, &z, 1, &err));
	}
	assert_true(done);
	zns_master_free(master);
	zns_dev_close(d);
}

static void writer(void **state)
{
	write_with(false);
}

static void sealing(void **state)
{
	write_with(true);
}

static int try_read(struct rig *r, const struct image *im, uint8_t *buf)
{
	struct zns_reader_params p = { .dev = r->d, .workers = 2 };
	struct zns_reader *rd = NULL;
	ZnsPb__Manifest *m = NULL;
	int ret = zns_manifest_read(r->d, r->c, &m, &err);

	if (!ret)
		ret = zns_reader_new(&p, m, &rd, &err);
	if (!ret)
		ret = zns_rimage_read(zns_reader_find(rd, im->name), 0, buf, im->len, &err);
	zns_reader_free(rd);
	if (m)
		zns_pb__manifest__free_unpacked(m, NULL);
	return ret;
}

static void reader(void **state)
{
	struct zns_emu_params p = roomy(64, KIB(960));
	cleanup_free uint8_t *buf = malloc(KIB(300)), *want = malloc(KIB(300));
	struct image im;
	bool reached = true;
	struct rig r;

	image_set(&im, KIB(300), "pages-%u.img", 1);
	fill(want, 0, im.len, im.seed);
	rig_init(&r, make_dev(&p), KIB(64), 3);
	rig_start(&r);
	assert_ok(feed(r.w, &im, KIB(100), &err));
	rig_finish(&r);
	for (unsigned long n = 1; reached; n++) {
		int ret;

		memset(buf, 0, im.len);
		arm(n);
		ret = try_read(&r, &im, buf);
		reached = disarm();
		judge(ret, n);
		if (!ret)
			assert_memory_equal(buf, want, im.len);
	}
	rig_drop(&r);
	zns_dev_close(r.d);
}

/* ---- the device ---- */

static int try_device(void)
{
	static const uint32_t zone[] = { 1, 0, 1 };
	static uint8_t buf[8192] __attribute__((aligned(4096)));
	struct zns_dev *d = NULL;
	struct zns_zone z[16];
	int ret = zns_dev_open(dev_spec, 0, &d, &err);

	if (ret)
		return ret;
	ret = zns_dev_reset(d, zone, 3, &err); /* what an earlier try has left */
	if (!ret)
		ret = zns_dev_write(d, 0, 0, buf, sizeof(buf), &err);
	if (!ret)
		ret = zns_dev_write(d, 1, 0, buf + 1, 4096, &err); /* not aligned */
	if (!ret)
		ret = zns_dev_flush_zones(d, zone, 2, &err);
	if (!ret)
		ret = zns_dev_flush(d, &err);
	if (!ret)
		ret = zns_dev_reset(d, zone, 3, &err);
	if (!ret)
		ret = zns_dev_report(d, 0, 16, z, &err);
	zns_dev_close(d);
	return ret;
}

static void device(void **state)
{
	bool reached = true;

	zns_dev_close(make_small());
	for (unsigned long n = 1; reached; n++) {
		int ret;

		arm(n);
		ret = try_device();
		reached = disarm();
		judge(ret, n);
	}
}

static void device_made(void **state)
{
	struct zns_emu_params p = small();
	bool reached = true;

	for (unsigned long n = 1; reached; n++) {
		int ret;

		unlink(dev_path);
		arm(n);
		ret = zns_emu_create(dev_path, &p, false, &err);
		reached = disarm();
		judge(ret, n);
		if (!ret)
			zns_dev_close(open_dev());
		else
			assert_int_equal(access(dev_path, F_OK), -1); /* nothing is left */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { T(store_changes), T(store_open), T(writer),
					    T(sealing),       T(reader),     T(device),
					    T(device_made) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
