/* SPDX-License-Identifier: GPL-2.0-only */
/* The store: what it remembers, how it rolls, what it refuses. Crashes: test_store_crash.c. */
#include <math.h>
#include "../../zns/store/store_int.h"
#include "store_open.h"

static void every_operation_reopens(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m);
	ZnsPb__Profile *p;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	assert_int_equal(zns_store_nr_meta(s), 3);
	assert_int_equal(zns_store_nr_checkpoints(s), 0);
	assert_null(zns_store_checkpoint(s, 0));
	s = reopened(m, s);
	OK(reserve(s, "redis", 2, false));
	s = reopened(m, s);
	OK(zns_store_commit(s, ck_init(&k, 1, "redis", 5, 0, 8192), NULL));
	s = reopened(m, s);
	ck_init(&k, 2, "redis", 5, 8192, 4096);
	k.c.n_zones = 2;
	OK(zns_store_commit(s, &k.c, NULL));
	s = reopened(m, s);
	OK(zns_store_commit(s, ck_init(&k, 3, "nginx", 7, 0, 4096), NULL));
	s = reopened(m, s);
	assert_int_equal(zns_store_zone_live(s, 5), 12288);
	assert_int_equal(zns_store_zone_live(s, 6), 4096);
	assert_string_equal(zns_store_zone_owner(s, 5), "redis");
	assert_string_equal(zns_store_zone_owner(s, 7), "nginx");
	assert_null(zns_store_zone_owner(s, 8));
	assert_int_equal(zns_store_zone_live(s, 999), 0);
	assert_null(zns_store_zone_owner(s, 999));

	id_of(1, id);
	OK(zns_store_remove(s, id, "znsctl rm", NULL));
	s = reopened(m, s);
	assert_null(zns_store_find(s, id));
	assert_string_equal(zns_store_find_tombstone(s, id)->by, "znsctl rm");
	assert_string_equal(zns_store_find_tombstone(s, id)->container, "redis");
	assert_int_equal(zns_store_find_tombstone(s, id)->created_ns, 1001);
	assert_int_equal(zns_store_zone_live(s, 5), 4096);
	assert_non_null(zns_store_find_reservation(s, "redis")); /* one checkpoint is left */
	id_of(2, id);
	OK(zns_store_remove(s, id, "gc", NULL));
	assert_null(zns_store_find_reservation(s, "redis"));
	assert_int_equal(zns_store_zone_live(s, 5), 0);
	s = reopened(m, s);

	p = make_profile(NZ, 2);
	OK(zns_store_set_profile(s, p, NULL));
	profile_free(p);
	s = reopened(m, s);
	assert_int_equal(zns_store_profile(s)->n_groups, 2);
	OK(reserve(s, "io", 1, true));
	s = reopened(m, s);
	OK(zns_store_release(s, "io", NULL));
	s = reopened(m, s);
	assert_int_equal(zns_store_release(s, "io", NULL), -ENOENT);
	assert_int_equal(zns_store_release(s, "nobody", NULL), -ENOENT);
	zns_store_close(s);
	memdev_close(&m->dev);
}

static void refusals(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m), *ro;
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	char *before, *after, longname[300];
	ZnsPb__Profile *p;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	OK(zns_store_commit(s, ck_init(&k, 1, "a", 5, 0, 8192), NULL));
	before = store_text(s, NZ, true);
	assert_int_equal(zns_store_commit(s, &k.c, &err), -EEXIST);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "", 5, 8192, 4096), NULL), -EINVAL);
	memset(longname, 'x', sizeof(longname));
	longname[299] = 0;
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, longname, 5, 8192, 4096), NULL),
			 -EINVAL);
	/* metadata */
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 2, 0, 4096), NULL), -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", NZ, 0, 4096), NULL), -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", UINT32_MAX, 0, 4096), NULL),
			 -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 5, CAP, 4096), NULL), -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 5, UINT64_MAX - 4095, 4096), NULL),
			 -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 5, 4096, UINT64_MAX), NULL),
			 -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 5, 0, 0), NULL), -EINVAL);
	/* too much live */
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 5, 0, CAP), NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, CAP / 2 + 1);
	k.c.n_zones = 2;
	k.use[1].zone = 6;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.manifest = NULL;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.ref.zone = 7; /* its zone would be reset under it */
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.ref.len = 48;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.ref.start = 4000;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.id.len = 15;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.group = 4;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	k.c.groups = (uint32_t[]){ 0, 1, 2, 3, 0 }; /* more than there are */
	k.c.n_groups = 5;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.has_parent = 1;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	k.c.parent = k.c.id; /* its own */
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	/* no whole blocks */
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 6, 1, 4095), NULL), -EINVAL);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 2, "a", 6, 0, 100), NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 8192); /* one block twice */
	k.c.n_zones = 2;
	k.use[1].zone = 6;
	k.use[1].start = 4096;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.created_ns = -1;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	k.c.created_ns = INT64_MAX;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.has_qos_achieved_mibps = 1;
	k.c.qos_achieved_mibps = NAN;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.metadata_groups = &k.group;
	k.c.n_metadata_groups = 1;
	k.c.n_groups = 0;
	k.group = 99;
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	ck_init(&k, 2, "a", 6, 0, 4096);
	k.c.origin = &origin;
	origin.has_layer = 1;
	origin.layer = (ProtobufCBinaryData){ ZNS_UUID_LEN, id };
	assert_int_equal(zns_store_commit(s, &k.c, NULL), -EINVAL);
	id_of(9, id);
	assert_int_equal(zns_store_remove(s, id, "x", NULL), -ENOENT);
	id_of(1, id);
	assert_int_equal(zns_store_remove(s, id, "", NULL), -EINVAL);
	assert_int_equal(zns_store_remove(s, id, NULL, NULL), -EINVAL);
	assert_int_equal(reserve(s, "a", 4, false), -EINVAL);
	p = make_profile(NZ - 1, 4);
	assert_int_equal(zns_store_set_profile(s, p, NULL), -EINVAL);
	profile_free(p);
	p = make_profile(NZ, 4);
	p->zone_group[3] = 4;
	assert_int_equal(zns_store_set_profile(s, p, NULL), -EINVAL);
	profile_free(p);
	p = make_profile(NZ, 4);
	p->group_write_mibps = calloc(3, sizeof(*p->group_write_mibps));
	p->n_group_write_mibps = 3;
	assert_int_equal(zns_store_set_profile(s, p, NULL), -EINVAL);
	profile_free(p);
	p = make_profile(NZ, 4);
	p->group_read_mibps = calloc(5, sizeof(*p->group_read_mibps));
	p->n_group_read_mibps = 5;
	assert_int_equal(zns_store_set_profile(s, p, NULL), -EINVAL);
	profile_free(p);
	p = make_profile(NZ, 4);
	p->has_load = true;
	p->load = NAN;
	assert_int_equal(zns_store_set_profile(s, p, NULL), -EINVAL);
	profile_free(p);

	OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &ro, NULL));
	assert_int_equal(zns_store_commit(ro, ck_init(&k, 2, "a", 6, 0, 4096), NULL), -EROFS);
	assert_int_equal(zns_store_remove(ro, id, "x", NULL), -EROFS);
	assert_int_equal(reserve(ro, "a", 0, false), -EROFS);
	zns_store_close(ro);
	after = store_text(s, NZ, true);
	assert_string_equal(before, after);
	free(before);
	free(after);
	s = reopened(m, s);
	zns_store_close(s);
	memdev_close(&m->dev);
}

static void reservation_lifetime(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 512);
	struct zns_store *s = open_rw(m);
	ZnsPb__Profile *p;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	/* Implicit: from the first dump to the last checkpoint. */
	OK(reserve(s, "a", 1, false));
	s = reopened(m, s);
	assert_int_equal(zns_store_nr_reservations(s), 1);
	OK(zns_store_commit(s, ck_init(&k, 1, "a", 5, 0, 4096), NULL));
	id_of(1, id);
	OK(zns_store_remove(s, id, "x", NULL));
	assert_int_equal(zns_store_nr_reservations(s), 0);
	s = reopened(m, s);
	/* Explicit: until released. */
	OK(reserve(s, "a", 1, true));
	OK(zns_store_commit(s, ck_init(&k, 2, "a", 5, 0, 4096), NULL));
	id_of(2, id);
	OK(zns_store_remove(s, id, "x", NULL));
	assert_non_null(zns_store_find_reservation(s, "a"));
	s = reopened(m, s);
	/* Replaced: the order stays, explicit becomes implicit. */
	OK(reserve(s, "b", 0, true));
	OK(reserve(s, "a", 3, false));
	assert_int_equal(zns_store_nr_reservations(s), 2);
	assert_string_equal(zns_store_reservation(s, 0)->container, "a");
	assert_int_equal(zns_store_reservation(s, 0)->groups[0], 3);
	assert_null(zns_store_reservation(s, 2));
	s = reopened(m, s);
	/* Another container's removal leaves it alone. */
	OK(zns_store_commit(s, ck_init(&k, 3, "c", 5, 0, 4096), NULL));
	id_of(3, id);
	OK(zns_store_remove(s, id, "x", NULL));
	assert_int_equal(zns_store_nr_reservations(s), 2);
	/* A profile with fewer groups ends what cannot be meant any more. */
	p = make_profile(NZ, 2);
	OK(zns_store_set_profile(s, p, NULL));
	profile_free(p);
	assert_int_equal(zns_store_nr_reservations(s), 1);
	assert_string_equal(zns_store_reservation(s, 0)->container, "b");
	s = reopened(m, s);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* A checkpoint whose groups belong to an earlier profile must not make the store unreadable, over
 * rolls too. */
static void old_groups_stay_readable(void **state)
{
	struct memdev *m = formatted(8, KIB(64), 4096);
	struct zns_store *s = open_rw(m);
	ZnsPb__Profile *p = make_profile(8, 1);
	struct ck k;

	ck_init(&k, 1, "a", 5, 0, 4096);
	k.group = 3;
	OK(zns_store_commit(s, &k.c, NULL));
	for (int i = 0; i < 30; i++)
		OK(zns_store_set_profile(s, p, NULL));
	assert_true(zns_store_generation(s) > 1);
	s = reopened(m, s);
	profile_free(p);
	zns_store_close(s);
	memdev_close(&m->dev);
}

static void shared_zone_owner(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m);
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	OK(zns_store_commit(s, ck_init(&k, 1, "a", 5, 0, 4096), NULL));
	OK(zns_store_commit(s, ck_init(&k, 2, "b", 5, 4096, 4096), NULL));
	OK(zns_store_commit(s, ck_init(&k, 3, "c", 5, 8192, 4096), NULL));
	assert_string_equal(zns_store_zone_owner(s, 5), "c");
	s = reopened(m, s);
	id_of(3, id);
	OK(zns_store_remove(s, id, "x", NULL));
	assert_string_equal(zns_store_zone_owner(s, 5), "b");
	id_of(1, id);
	OK(zns_store_remove(s, id, "x", NULL));
	assert_string_equal(zns_store_zone_owner(s, 5), "b");
	s = reopened(m, s);
	id_of(2, id);
	OK(zns_store_remove(s, id, "x", NULL));
	assert_null(zns_store_zone_owner(s, 5));
	/* The same id again, as import does. */
	OK(zns_store_commit(s, ck_init(&k, 2, "b", 5, 4096, 4096), NULL));
	assert_null(zns_store_find_tombstone(s, id));
	s = reopened(m, s);
	zns_store_close(s);
	memdev_close(&m->dev);
}

static void many_rolls(void **state)
{
	struct memdev *m = formatted(8, KIB(64), 4096);
	struct zns_store *s = open_rw(m);
	uint64_t last = 1;
	struct ck k;

	for (unsigned n = 0; n < 400; n++) {
		uint8_t id[ZNS_UUID_LEN];

		OK(zns_store_commit(s, ck_init(&k, n, n % 2 ? "odd" : "even", 3 + n % 5, 0, 4096),
				    NULL));
		if (n >= 4) {
			id_of(n - 4, id);
			OK(zns_store_remove(s, id, "gc", NULL));
		}
		assert_true(zns_store_generation(s) <= last + 1);
		last = zns_store_generation(s);
		if (n % 7 == 0)
			s = reopened(m, s);
	}
	assert_int_equal(zns_store_nr_checkpoints(s), 4);
	assert_true(last > 50);
	/* No more than the log and the generation before it hold active zones. */
	for (uint32_t i = 0, used = 0; i < 3; i++) {
		used += m->z[i].wp != 0;
		assert_true(used <= 2);
	}
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* In a completely full store, checkpoints can still be removed. */
static void full_catalogue(void **state)
{
	struct memdev *m = formatted(8, KIB(64), 4096);
	struct zns_store *s = open_rw(m);
	struct zns_err err = ZNS_ERR_INIT;
	unsigned n, round, nr = 0;
	uint8_t id[ZNS_UUID_LEN];
	uint64_t left;
	struct ck k;

	for (round = 0; round < 5; round++) {
		for (n = 0; n < 100; n++) {
			int rc = zns_store_commit(
				s, ck_init(&k, round * 100 + n, "a", 3, n * 4096, 4096), &err);

			if (rc) {
				assert_int_equal(rc, -ENOSPC);
				assert_non_null(strstr(err.msg, "remove checkpoints"));
				break;
			}
		}
		assert_in_range(n, 8, 15);
		left = s->min_cap - zns_store_snapshot_bytes(s) -
		       zns_frame_size(3 * (ZNS_NAME_LEN_MAX + 8), 4096); /* for what removes */
		OK(zns_store_may_grow(s, left, NULL));
		assert_int_equal(zns_store_may_grow(s, left + 1, NULL), -ENOSPC);
		assert_true(!round || n == nr);
		nr = n;
		s = reopened(m, s);
		while (n--) {
			id_of(round * 100 + n, id);
			OK(zns_store_remove(s, id, "gc", NULL));
		}
		assert_int_equal(zns_store_zone_live(s, 3), 0);
		s = reopened(m, s);
	}
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* What the functions of one kind do, by the number of the kind. */
static void any_kind(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m);
	ZnsPb__Retention r = ZNS_PB__RETENTION__INIT;
	const ZnsPb__Retention *got;

	r.container = (char *)"web";
	r.has_keep = 1;
	r.keep = 3;
	OK(zns_store_put(s, ZNS_FRAME_RETENTION, &r.base, NULL));
	assert_int_equal(zns_store_find_retention(s, "web")->keep, 3);
	r.keep = 4;
	OK(zns_store_put(s, ZNS_FRAME_RETENTION, &r.base, NULL));
	s = reopened(m, s);
	got = (const ZnsPb__Retention *)zns_store_record(s, ZNS_FRAME_RETENTION, 0);
	assert_int_equal(got->keep, 4);
	assert_null(zns_store_record(s, ZNS_FRAME_RETENTION, 1));
	assert_ptr_equal(zns_store_record(s, ZNS_FRAME_PROFILE, 0), zns_store_profile(s));
	/* Not kept, no record of the catalogue, unknown. */
	assert_null(zns_store_record(s, ZNS_FRAME_RELEASE, 0));
	assert_null(zns_store_record(s, ZNS_FRAME_SUPERBLOCK, 0));
	assert_null(zns_store_record(s, 999, 0));
	assert_int_equal(zns_store_put(s, ZNS_FRAME_SUPERBLOCK, &r.base, NULL), -EINVAL);
	assert_int_equal(zns_store_put(s, 999, &r.base, NULL), -EINVAL);
	/* A message of another kind. */
	assert_int_equal(zns_store_put(s, ZNS_FRAME_MARK, &r.base, NULL), -EINVAL);
	r.container = (char *)"";
	assert_int_equal(zns_store_put(s, ZNS_FRAME_RETENTION, &r.base, NULL), -EINVAL);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* The clock was ahead when it was written: its removal is not earlier, or a rebuild finds it again. */
static void removed_before_it_was_made(void **state)
{
	const int64_t ahead = INT64_MAX - 1000;
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	OK(zns_store_open(&m->dev, 0, &s, NULL));
	ck_init(&k, 1, "redis", 5, 0, 8192)->created_ns = ahead;
	OK(zns_store_commit(s, &k.c, NULL));
	id_of(1, id);
	OK(zns_store_remove(s, id, "znsctl rm", NULL));
	assert_true(zns_store_find_tombstone(s, id)->deleted_ns >= ahead);
	zns_store_close(s);
	memdev_close(&m->dev);
}

static void tombstone_limit(void **state)
{
	struct memdev *m = formatted(8, MIB(1), 512); /* 2048 records a zone */
	struct zns_store *s = open_rw(m);
	unsigned n, first = 0;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	for (n = 0; n < 3000; n++) {
		OK(zns_store_commit(s, ck_init(&k, n, "a", 3, 0, 4096), NULL));
		id_of(n, id);
		OK(zns_store_remove(s, id, "gc", NULL));
	}
	for (first = 0; first < 3000; first++) {
		id_of(first, id);
		if (zns_store_find_tombstone(s, id))
			break;
	}
	/* At least as many as promised, the newest, without a gap. */
	assert_true(first > 0 && 3000 - first >= ZNS_TOMBSTONES_MAX);
	for (n = first; n < 3000; n++) {
		id_of(n, id);
		assert_non_null(zns_store_find_tombstone(s, id));
	}
	s = reopened(m, s);
	zns_store_close(s);
	memdev_close(&m->dev);
}

static void many_checkpoints(void **state)
{
	struct memdev *m = formatted(64, MIB(64), 4096);
	struct zns_store *s = open_rw(m);
	uint64_t t0 = zns_mono_ns(), t1, t2;
	char name[32];
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	for (unsigned n = 0; n < 5000; n++) {
		snprintf(name, sizeof(name), "container-%u", n % 500);
		OK(zns_store_commit(s, ck_init(&k, n, name, 3 + n % 60, n / 60 * 4096, 4096),
				    NULL));
	}
	zns_store_close(s);
	t1 = zns_mono_ns();
	s = open_rw(m);
	t2 = zns_mono_ns();
	assert_int_equal(zns_store_nr_checkpoints(s), 5000);
	print_message("5000 commits %.1f ms, open %.1f ms\n", (double)(t1 - t0) / 1e6,
		      (double)(t2 - t1) / 1e6);
	t1 = zns_mono_ns();
	for (unsigned n = 0; n < 5000; n++) {
		id_of(n, id);
		assert_non_null(zns_store_find(s, id));
	}
	print_message("5000 look-ups %.2f ms\n", (double)(zns_mono_ns() - t1) / 1e6);
	/* Removal in the middle keeps the order of commit. */
	id_of(2500, id);
	OK(zns_store_remove(s, id, "gc", NULL));
	for (unsigned n = 0; n < 4999; n++)
		assert_int_equal(zns_store_checkpoint(s, n)->created_ns, 1000 + n + (n >= 2500));
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* A mark counts while it says something: pinned, or since when the handle is gone. */
static void marks(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m);
	ZnsPb__Mark mark = ZNS_PB__MARK__INIT;
	struct ck k;

	OK(zns_store_commit(s, ck_init(&k, 1, "web", 4, 0, 8192), NULL));
	mark.checkpoint = k.c.id;
	mark.has_gone_ns = 1;
	mark.gone_ns = 77;
	for (int n = 0; n < 4; n++) { /* gone, both, pinned, neither */
		OK(zns_store_set_mark(s, &mark, NULL));
		s = reopened(m, s);
		assert_int_equal(zns_store_nr_marks(s), n < 3);
		if (n < 3) {
			const ZnsPb__Mark *got = zns_store_find_mark(s, k.c.id.data);

			assert_int_equal(got->pinned, n > 0);
			assert_int_equal(got->gone_ns, n < 2 ? 77 : 0);
		}
		mark.has_pinned = mark.pinned = n < 2;
		mark.has_gone_ns = n < 1;
		mark.gone_ns = n < 1 ? 77 : 0;
	}
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* A move changes places and nothing else, also when the log is read again and when it rolls. */
static void moves(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m);
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Mark mark = ZNS_PB__MARK__INIT;
	uint8_t parent[ZNS_UUID_LEN];
	struct ck a, b, c, other;
	uint64_t gen;

	id_of(1, parent);
	OK(zns_store_commit(s, ck_init(&a, 1, "web", 4, 0, 8192), NULL));
	ck_init(&b, 2, "web", 5, 0, 8192);
	b.c.has_parent = 1;
	b.c.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, parent };
	OK(zns_store_commit(s, &b.c, NULL));
	OK(zns_store_commit(s, ck_init(&c, 3, "db", 6, 0, 4096), NULL));
	mark.checkpoint = a.c.id;
	mark.has_pinned = mark.pinned = 1;
	OK(zns_store_set_mark(s, &mark, NULL));

	/* Not without a later version; not of another container; not of what is not there; not over
	 * the edge; not more than it had. */
	assert_int_equal(zns_store_move(s, &a.c, &err), -ESTALE);
	ck_init(&other, 1, "db", 7, 0, 8192);
	other.c.moved = 1;
	assert_int_equal(zns_store_move(s, &other.c, &err), -EINVAL);
	ck_init(&other, 9, "web", 7, 0, 8192);
	other.c.moved = 1;
	assert_int_equal(zns_store_move(s, &other.c, &err), -ENOENT);
	ck_init(&other, 1, "web", 7, CAP - 4096, 8192);
	other.c.moved = 1;
	assert_int_equal(zns_store_move(s, &other.c, &err), -EINVAL);
	ck_init(&other, 1, "web", 7, 0, 12288);
	other.c.bytes = a.c.bytes + 1;
	other.c.moved = 1;
	assert_int_equal(zns_store_move(s, &other.c, &err), -EINVAL);
	assert_true(zns_store_zone_live(s, 4) == 8192 && !zns_store_zone_live(s, 7));

	for (uint32_t n = 1; n <= 20; n++) {
		struct ck *k = n % 2 ? &a : &b;
		uint32_t from = k->use[0].zone, to = 8 + n % 5;

		k->use[0].zone = k->ref.zone = to;
		k->use[0].start = k->ref.start = n * 16384;
		k->c.has_moved = k->c.has_moved_ns = 1;
		k->c.moved++;
		k->c.moved_ns = n;
		OK(zns_store_move(s, &k->c, NULL));
		assert_true(!zns_store_zone_live(s, from) || from == to ||
			    zns_store_zone_live(s, from) == 8192);
		assert_non_null(zns_store_zone_owner(s, to));
		s = reopened(m, s);
	}
	assert_int_equal(zns_store_nr_checkpoints(s), 3);
	for (unsigned i = 0; i < 3; i++) { /* in the order of their commits still */
		uint8_t id[ZNS_UUID_LEN];

		id_of(i + 1, id);
		assert_memory_equal(zns_store_checkpoint(s, i)->id.data, id, ZNS_UUID_LEN);
	}
	assert_true(zns_store_find_mark(s, a.c.id.data)->pinned);
	assert_memory_equal(zns_store_find(s, b.c.id.data)->parent.data, parent, ZNS_UUID_LEN);
	assert_int_equal(zns_store_find(s, a.c.id.data)->moved, 10);
	/* Moves alone roll the log over. */
	gen = zns_store_generation(s);
	for (uint32_t n = 0; n < 600; n++) {
		a.c.moved++;
		OK(zns_store_move(s, &a.c, NULL));
	}
	assert_true(zns_store_generation(s) > gen);
	s = reopened(m, s);
	OK(zns_store_remove(s, a.c.id.data, "test", NULL));
	assert_null(zns_store_find_mark(s, a.c.id.data));
	assert_int_equal(zns_store_move(s, &a.c, &err), -ENOENT);
	s = reopened(m, s);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* Several removals are one write. What ends before it has removed none. */
static void removed_together(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = open_rw(m), *other;
	uint8_t id[ZNS_UUID_LEN];
	uint64_t before;
	struct ck k;

	for (uint8_t i = 1; i <= 3; i++)
		OK(zns_store_commit(s, ck_init(&k, i, "redis", 5, 4096 * (i - 1), 4096), NULL));
	before = m->ops;
	zns_store_batch_begin(s);
	for (uint8_t i = 1; i <= 3; i++) {
		id_of(i, id);
		OK(zns_store_remove(s, id, "rm", NULL));
	}
	assert_int_equal(m->ops, before);
	assert_int_equal(zns_store_nr_checkpoints(s), 0);
	OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &other, NULL));
	assert_int_equal(zns_store_nr_checkpoints(other), 3);
	zns_store_close(other);
	OK(zns_store_batch_end(s, NULL));
	assert_true(m->ops <= before + 2); /* a write and a flush */
	s = reopened(m, s);
	assert_int_equal(zns_store_nr_checkpoints(s), 0);
	/* the write fails: a new generation has them */
	for (uint8_t i = 4; i <= 5; i++)
		OK(zns_store_commit(s, ck_init(&k, i, "redis", 5, 4096 * (i - 4), 4096), NULL));
	zns_store_batch_begin(s);
	id_of(4, id);
	OK(zns_store_remove(s, id, "rm", NULL));
	m->fail_at = m->ops;
	m->fail_nr = 1;
	OK(zns_store_batch_end(s, NULL));
	s = reopened(m, s);
	assert_int_equal(zns_store_nr_checkpoints(s), 1);
	zns_store_close(s);
	memdev_close(&m->dev);
}

#define MANY 70 /* more removals than the log's buffer takes: some are written before the end */

static struct zns_store *with_many(struct memdev *m)
{
	struct zns_store *s = open_rw(m);
	struct ck k;

	for (unsigned i = 1; i <= MANY; i++)
		OK(zns_store_commit(s, ck_init(&k, i, "redis", 5, 4096 * (i - 1), 4096), NULL));
	return s;
}

/* Removes all; returns how many are gone from memory. */
static unsigned remove_many(struct zns_store *s)
{
	uint8_t id[ZNS_UUID_LEN];
	unsigned n = 0;

	zns_store_batch_begin(s);
	do
		id_of(n + 1, id);
	while (n < MANY && !zns_store_remove(s, id, "rm", NULL) && ++n);
	return n;
}

static size_t on_device(struct memdev *m)
{
	struct zns_store *s;
	size_t nr;

	OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL));
	nr = zns_store_nr_checkpoints(s);
	zns_store_close(s);
	return nr;
}

/* A write in the middle of a batch fails, and so does each new generation: the batch has failed. */
static void batch_not_written(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = with_many(m);

	m->fail_at = m->ops;
	m->dead = true;
	assert_in_range(remove_many(s), 1, MANY - 1);
	assert_int_not_equal(zns_store_batch_end(s, NULL), 0);
	zns_store_close(s);
	m->fail_at = UINT64_MAX;
	m->dead = false;
	assert_int_equal(on_device(m), MANY);
	memdev_close(&m->dev);
}

/* The device works again at the end of the batch: what was removed before the failed write is. */
static void batch_written_late(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = with_many(m);
	unsigned gone;

	m->fail_at = m->ops;
	m->fail_nr = 3; /* the log, and a new generation in each of the two other zones */
	gone = remove_many(s);
	assert_in_range(gone, 1, MANY - 1);
	assert_int_equal(m->ops, m->fail_at + m->fail_nr);
	OK(zns_store_batch_end(s, NULL));
	assert_int_equal(on_device(m), MANY - gone);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* Somebody else has changed the catalogue while the batch was collected: it stays theirs. */
static void batch_beside_another(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_store *s = with_many(m), *other = open_rw(m);
	uint8_t id[ZNS_UUID_LEN];

	zns_store_batch_begin(s);
	id_of(1, id);
	OK(zns_store_remove(s, id, "rm", NULL));
	OK(reserve(other, "web", 1, true));
	assert_int_equal(zns_store_batch_end(s, NULL), -ESTALE);
	assert_true(zns_store_foreign(s));
	assert_int_equal(on_device(m), MANY);
	zns_store_close(other);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* The rate with which a profile's groups promise most together. */
static void promised_rates(void **state)
{
	static const struct {
		uint32_t rate[4], promise, groups;
	} t[] = {
		{ { 100, 100, 100, 33 }, 100, 3 },  { { 100, 90, 95, 92 }, 90, 4 },
		{ { 250, 100, 100, 100 }, 100, 4 }, { { 250, 60, 60, 60 }, 60, 4 },
		{ { 50, 0, 100, 100 }, 100, 3 },    { { 50, 50, 100, 0 }, 50, 4 },
	};
	ZnsPb__Profile *p = make_profile(NZ, 4);
	uint32_t groups;

	assert_int_equal(zns_profile_promise(p, &groups), 100); /* of an older program */
	assert_int_equal(groups, 4);
	assert_int_equal(zns_profile_group_mibps(p, 3), 100);
	p->group_write_mibps = calloc(4, sizeof(*p->group_write_mibps));
	p->n_group_write_mibps = 4;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		memcpy(p->group_write_mibps, t[i].rate, sizeof(t[i].rate));
		assert_int_equal(zns_profile_promise(p, &groups), t[i].promise);
		assert_int_equal(groups, t[i].groups);
	}
	/* zones that could not be placed are in no promise */
	p->has_unknown_group = 1;
	p->unknown_group = 3;
	memcpy(p->group_write_mibps, t[0].rate, sizeof(t[0].rate));
	assert_int_equal(zns_profile_promise(p, &groups), 100);
	assert_int_equal(groups, 3);
	assert_int_equal(zns_profile_group_mibps(p, 3), 0);
	profile_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_operation_reopens),
		cmocka_unit_test(refusals),
		cmocka_unit_test(removed_together),
		cmocka_unit_test(batch_not_written),
		cmocka_unit_test(batch_written_late),
		cmocka_unit_test(batch_beside_another),
		cmocka_unit_test(reservation_lifetime),
		cmocka_unit_test(old_groups_stay_readable),
		cmocka_unit_test(shared_zone_owner),
		cmocka_unit_test(many_rolls),
		cmocka_unit_test(full_catalogue),
		cmocka_unit_test(marks),
		cmocka_unit_test(moves),
		cmocka_unit_test(any_kind),
		cmocka_unit_test(tombstone_limit),
		cmocka_unit_test(removed_before_it_was_made),
		cmocka_unit_test(many_checkpoints),
		cmocka_unit_test(promised_rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
