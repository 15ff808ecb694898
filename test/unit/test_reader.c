/* SPDX-License-Identifier: GPL-2.0-only */
/* The striping reader: any range into memory or a file, verified; many at once. */
#include <fcntl.h>
#include "reader_fixture.h"

static void into_memory(struct zns_reader *rd, uint32_t unit, uint64_t *rng, int rounds)
{
	for (int n = 0; n < rounds; n++) {
		const struct image *i = &im[rnd_of(rng, NR_IMAGES)];
		cleanup_free uint8_t *got = NULL, *want = NULL;
		struct zns_err e = ZNS_ERR_INIT;
		uint64_t off, len;

		random_range(i, unit, rng, &off, &len);
		got = malloc(len + 2);
		want = malloc(len + 2);
		memset(got, 0xaa, len + 2);
		memset(want, 0xaa, len + 2);
		fill(want + 1, off, len, i->seed);
		if (zns_rimage_read(zns_reader_find(rd, i->name), off, got + 1, len, &e))
			fail_msg("%s", e.msg);
		if (memcmp(got, want, len + 2))
			fail_msg("%s: %llu bytes at %llu differ", i->name, (unsigned long long)len,
				 (unsigned long long)off);
	}
}

static void ranges_into_memory(void **state)
{
	static const uint32_t units[] = { KIB(64), KIB(100), KIB(256), MIB(1), MIB(4) };

	for (size_t u = 0; u < ZNS_ARRAY_SIZE(units); u++) {
		struct zns_reader *rd;
		uint64_t rng = 99 + u;

		make_checkpoint(units[u], 1 + u, u & 1);
		rd = rig_reader(&rig, u % 3, u % 4);
		into_memory(rd, units[u], &rng, units[u] > MIB(1) ? 60 : 300);
		zns_reader_free(rd);
		drop_checkpoint();
	}
}

/* --- into a file --- */

static void into_a_file(void **state)
{
	struct zns_reader *rd;

	make_checkpoint(KIB(64), 3, false);
	rd = rig_reader(&rig, 3, 0);
	for (int n = 0; n < NR_IMAGES; n++) {
		cleanup_free uint8_t *want = calloc(1, im[n].len + 1),
				     *got = calloc(1, im[n].len + 1);
		int fd = memfd_create("test", MFD_CLOEXEC);
		struct zns_rimage *i = zns_reader_find(rd, im[n].name);
		uint64_t off, len;

		assert_int_equal(ftruncate(fd, (off_t)im[n].len), 0);
		for (int k = 0; k < 10; k++) {
			random_range(&im[n], KIB(64), &rng_state, &off, &len);
			assert_ok(zns_rimage_to_fd(i, off, len, fd, &err));
			fill(want + off, off, len, im[n].seed);
		}
		assert_int_equal(zns_pread_all(fd, got, im[n].len, 0), 0);
		assert_memory_equal(got, want, im[n].len); /* what was not asked for is a hole */
		assert_fails(zns_rimage_to_fd(i, im[n].len, 1, fd, &err), -ENODATA, "ends at");
		close(fd);
		if (im[n].len)
			assert_fails(zns_rimage_to_fd(i, 0, im[n].len, -1, &err), -EBADF,
				     "its copy");
	}
	zns_reader_free(rd);
	drop_checkpoint();
}

static void beyond_the_end(void **state)
{
	const uint64_t far[] = { 1, 4096, 1ull << 40, 1ull << 63 };
	struct zns_reader *rd;
	uint8_t byte = 0xaa;

	make_checkpoint(KIB(64), 2, false);
	rd = rig_reader(&rig, 1, 0);
	for (uint32_t n = 0; n < NR_IMAGES; n++) {
		struct zns_rimage *i = zns_reader_image(rd, n);

		assert_ok(zns_rimage_read(i, im[n].len, &byte, 0, &err));
		assert_fails(zns_rimage_read(i, im[n].len, &byte, 1, &err), -ENODATA, im[n].name);
		for (size_t k = 0; k < ZNS_ARRAY_SIZE(far); k++) {
			assert_int_equal(zns_rimage_read(i, im[n].len + far[k], &byte, 1, NULL),
					 -ENODATA);
			assert_int_equal(zns_rimage_read(i, 0, &byte, im[n].len + far[k], NULL),
					 -ENODATA);
			assert_int_equal(zns_rimage_read(i, im[n].len, &byte, far[k], NULL),
					 -ENODATA);
		}
		assert_int_equal(zns_rimage_read(i, UINT64_MAX, &byte, 1, NULL), -ENODATA);
		assert_int_equal(zns_rimage_read(i, 0, &byte, SIZE_MAX, NULL), -ENODATA);
		assert_int_equal(zns_rimage_read(i, UINT64_MAX, &byte, SIZE_MAX, NULL), -ENODATA);
		assert_int_equal(byte, 0xaa);
	}
	zns_reader_free(rd);
	drop_checkpoint();
}

/* --- many at once --- */

static void *read_lots(void *arg)
{
	uint64_t rng = 7 + (uintptr_t)&rng;

	into_memory(arg, rig.unit, &rng, 250);
	return NULL;
}

static void concurrent_readers(void **state)
{
	pthread_t t[8];

	make_checkpoint(KIB(64), 4, true);
	for (uint32_t round = 0; round < 4; round++) {
		struct zns_reader *rd = rig_reader(&rig, 1 + round * 2, 1 + round * 4);

		for (int n = 0; n < 8; n++)
			assert_int_equal(pthread_create(&t[n], NULL, read_lots, rd), 0);
		for (int n = 0; n < 8; n++)
			pthread_join(t[n], NULL);
		zns_reader_free(rd);
	}
	drop_checkpoint();
}

/* Page by page, as a forked child's memory is read: the device is asked once for each unit, not for
 * each page. */
static void pages_come_from_the_cache(void **state)
{
	struct zns_reader *rd;
	struct proxy p;
	uint8_t got[4096], want[4096];

	make_checkpoint(KIB(64), 2, false);
	proxy_init(&p, rig.d);
	rig.d = &p.dev;
	rd = rig_reader(&rig, 2, 0);
	for (uint64_t off = 0; off < im[9].len; off += 4096) {
		assert_ok(zns_rimage_read(zns_reader_image(rd, 9), off, got, 4096, &err));
		fill(want, off, 4096, im[9].seed);
		assert_memory_equal(got, want, 4096);
	}
	assert_int_equal(atomic_load(&p.read), 20);
	zns_reader_free(rd);
	rig.d = p.inner;
	drop_checkpoint();
}

/* The first read goes on when there is a second one: the test's thread waits for it. */
static void *first_read(void *arg)
{
	struct proxy *p = arg;

	until(atomic_load(&p->reads.waiting) && is_waiting(getpid()));
	atomic_store(&p->reads.room, 9);
	return NULL;
}

/* One task's large read does not make another one's page wait for its end. */
static void small_reads_overtake(void **state)
{
	struct zns_reader *rd;
	struct iovec v = { NULL, 0 };
	struct proxy p;
	uint8_t byte;
	uint64_t bytes, us;
	pthread_t t;
	void *big;

	make_checkpoint(KIB(64), 2, false);
	big = malloc(im[9].len);
	proxy_init(&p, rig.d);
	atomic_store(&p.reads.room, 0);
	rig.d = &p.dev;
	rd = rig_reader(&rig, 1, 0);
	v = (struct iovec){ big, im[9].len };
	zns_rimage_read_task(zns_reader_image(rd, 9), 0, ZNS_TASK(getpid()), &v, 1, on_done,
			     done_new());
	assert_int_equal(pthread_create(&t, NULL, first_read, &p), 0);
	/* among the first nine reads of the device, or it never ends */
	assert_ok(zns_rimage_read(zns_reader_image(rd, 7), 0, &byte, 1, &err));
	pthread_join(t, NULL);
	atomic_store(&p.reads.room, OPEN);
	/* free waits for what is running, and every request is answered once */
	zns_reader_stats(rd, &bytes, &us);
	assert_int_equal(bytes % KIB(64), 1); /* the small one, and whole units of the other */
	zns_reader_free(rd);
	assert_int_equal(done_sync.nr, 1);
	assert_int_equal(done_sync.code, 0);
	assert_int_equal(atomic_load(&p.read), 21);
	rig.d = p.inner;
	free(big);
	drop_checkpoint();
}

/* No worker waits for another one's read. One zone is enough: it may be a part of a fast disk. */
static void each_worker_reads(void **state)
{
	struct zns_reader *rd;
	struct iovec v;
	struct proxy p;
	void *big;

	make_checkpoint(KIB(64), 1, false);
	big = malloc(im[9].len);
	proxy_init(&p, rig.d);
	atomic_store(&p.reads.room, 0);
	rig.d = &p.dev;
	rd = rig_reader(&rig, 0, 0);
	v = (struct iovec){ big, im[9].len };
	zns_rimage_read_task(zns_reader_image(rd, 9), 0, ZNS_TASK(getpid()), &v, 1, on_done,
			     done_new());
	until(atomic_load(&p.reads.waiting) == 8);
	atomic_store(&p.reads.room, OPEN);
	assert_int_equal(done_wait(&done_sync, 1), 0);
	zns_reader_free(rd);
	rig.d = p.inner;
	free(big);
	drop_checkpoint();
}

/* --- the list of images --- */

static void looking_up(void **state)
{
	struct zns_reader *rd;

	make_checkpoint(KIB(64), 2, false);
	rd = rig_reader(&rig, 0, 0);
	for (uint32_t n = 0; n < NR_IMAGES; n++) {
		struct zns_rimage *i = zns_reader_find(rd, im[n].name);

		assert_non_null(i);
		assert_ptr_equal(i, zns_reader_image(rd, zns_rimage_index(i)));
		assert_string_equal(zns_rimage_name(i), im[n].name);
		assert_string_equal(rig.m->images[zns_rimage_index(i)]->name, im[n].name);
		assert_int_equal(zns_rimage_size(i), im[n].len);
	}
	assert_null(zns_reader_find(rd, ""));
	assert_null(zns_reader_find(rd, "pages-1"));
	assert_null(zns_reader_find(rd, "pages-1.imgx"));
	assert_null(zns_reader_image(rd, NR_IMAGES));
	assert_null(zns_reader_image(rd, UINT32_MAX));
	zns_reader_free(rd);
	zns_reader_free(NULL);
	drop_checkpoint();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ranges_into_memory),
		T(into_a_file),
		T(beyond_the_end),
		T(concurrent_readers),
		T(pages_come_from_the_cache),
		T(small_reads_overtake),
		T(each_worker_reads),
		T(looking_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
