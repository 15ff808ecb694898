/* SPDX-License-Identifier: GPL-2.0-only */
/* The store: how a device is formatted, and metadata zones that die or are none. */
#include "store_open.h"

static void format_rules(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	ZnsPb__Profile *p = make_profile(NZ, 4), *bad = make_profile(NZ + 1, 4);
	uint8_t uuid[ZNS_UUID_LEN], other[ZNS_UUID_LEN], out[ZNS_UUID_LEN];
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s = NULL;
	struct ck k;
	char *buf;

	memset(uuid, 1, sizeof(uuid));
	memset(other, 2, sizeof(other));
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -ENOMEDIUM);
	assert_int_equal(zns_store_format(&m->dev, uuid, bad, true, out, NULL), -EINVAL);
	OK(zns_store_format(&m->dev, uuid, p, false, out, NULL));
	assert_memory_equal(out, uuid, sizeof(out));
	/* Empty: may be formatted again, and keeps its name. */
	OK(zns_store_format(&m->dev, other, p, false, out, NULL));
	assert_memory_equal(out, uuid, sizeof(out));
	s = open_rw(m);
	assert_memory_equal(zns_store_uuid(s), uuid, sizeof(uuid));
	assert_int_equal(zns_store_generation(s), 1);
	OK(zns_store_commit(s, ck_init(&k, 1, "a", 5, 0, 4096), NULL));
	zns_store_close(s);
	buf = aligned_alloc(4096, 8192);
	memset(buf, 7, 8192);
	OK(zns_dev_write(&m->dev, 9, 0, buf, 8192, NULL));
	assert_int_equal(zns_store_format(&m->dev, other, p, false, out, &err), -EEXIST);
	assert_non_null(strstr(err.msg, "1 checkpoint"));
	assert_non_null(strstr(err.msg, "--force"));
	assert_int_equal(zns_store_format(&m->dev, other, bad, true, out, NULL), -EINVAL);
	s = open_rw(m); /* nothing was touched */
	assert_int_equal(zns_store_nr_checkpoints(s), 1);
	zns_store_close(s);
	OK(zns_store_format(&m->dev, other, p, true, out, NULL));
	assert_memory_equal(out, uuid, sizeof(out));
	assert_int_equal(m->z[9].wp, 0);
	s = open_rw(m);
	assert_int_equal(zns_store_nr_checkpoints(s), 0);
	assert_int_equal(zns_store_generation(s), 1);
	OK(zns_store_commit(s, ck_init(&k, 1, "a", 5, 0, 4096), NULL));
	zns_store_close(s);
	/* Damaged: --force only; then a new name. */
	m->z[0].data[4096 + 60] ^= 1;
	assert_int_equal(zns_store_format(&m->dev, other, p, false, out, &err), -EEXIST);
	assert_non_null(strstr(err.msg, "--force"));
	OK(zns_store_format(&m->dev, other, p, true, out, NULL));
	assert_memory_equal(out, other, sizeof(out));
	/* The catalogue is gone, a checkpoint may still be there: it is not told to format, nor is
	 * it done. */
	memset(m->z[0].data, 0xff, m->z[0].wp);
	OK(zns_dev_write(&m->dev, 9, 0, buf, 8192, NULL));
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -ENOMEDIUM);
	assert_non_null(strstr(err.msg, "2 of its zones are not empty"));
	assert_non_null(strstr(err.msg, "fsck --rebuild"));
	assert_int_equal(zns_store_format(&m->dev, other, p, false, out, &err), -EEXIST);
	assert_non_null(strstr(err.msg, "--force"));
	assert_int_equal(m->z[9].wp, 8192);
	m->z[0].wp = 0;
	assert_int_equal(zns_store_format(&m->dev, other, p, false, out, &err), -EEXIST);
	OK(zns_store_format(&m->dev, other, p, true, out, NULL));
	assert_int_equal(m->z[9].wp, 0);
	/* A format that was interrupted, with nothing but the superblock there, goes on. */
	m->z[0].wp = 4096;
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -ENOMEDIUM);
	assert_non_null(strstr(err.msg, "interrupted"));
	OK(zns_store_format(&m->dev, other, p, false, out, NULL));
	/* NULL: draw one. */
	memset(m->z[0].data, 0, m->z[0].wp);
	m->z[0].wp = 0;
	OK(zns_store_format(&m->dev, NULL, p, false, out, NULL));
	assert_memory_not_equal(out, other, sizeof(out));
	free(buf);
	profile_free(p);
	profile_free(bad);
	memdev_close(&m->dev);

	/* Too small, in zones and in bytes. */
	m = memdev_new(3, CAP, 4096);
	p = make_profile(3, 1);
	assert_int_equal(zns_store_format(&m->dev, uuid, p, true, out, NULL), -EINVAL);
	assert_int_equal(zns_store_open(&m->dev, 0, &s, NULL), -ENOMEDIUM);
	profile_free(p);
	memdev_close(&m->dev);
	m = memdev_new(8, KIB(8), 4096);
	p = make_profile(8, 1);
	assert_int_equal(zns_store_format(&m->dev, uuid, p, true, out, &err), -ENOSPC);
	profile_free(p);
	memdev_close(&m->dev);
}

static void meta_zone_count(void **state)
{
	struct zns_geometry g = { .nr_zones = 64 };

	assert_int_equal(zns_store_meta_zones(&g), 3);
	g.nr_zones = 29172;
	assert_int_equal(zns_store_meta_zones(&g), 5);
	g.nr_zones = 4;
	assert_int_equal(zns_store_meta_zones(&g), 2);
	g.nr_zones = 1;
	assert_int_equal(zns_store_meta_zones(&g), 0);
}

/* No zone would be left for data. */
static void too_small(void **state)
{
	for (uint32_t nr = 1; nr <= 4; nr++) {
		struct memdev *m = memdev_new(nr, CAP, 4096);
		ZnsPb__Profile *p = make_profile(nr, 1);

		for (m->conventional = 0; m->conventional <= nr; m->conventional++) {
			bool fits = nr - m->conventional > zns_store_meta_zones(&m->dev.geo) &&
				    zns_store_meta_zones(&m->dev.geo) >= 2;

			assert_int_equal(!zns_store_format(&m->dev, NULL, p, true, NULL, NULL),
					 fits);
		}
		profile_free(p);
		memdev_close(&m->dev);
	}
}

static void conventional_zones(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	ZnsPb__Profile *p = make_profile(NZ, 4);
	struct zns_store *s;
	struct ck k;

	m->conventional = 2;
	OK(zns_store_format(&m->dev, NULL, p, false, NULL, NULL));
	s = open_rw(m);
	assert_int_equal(zns_store_nr_meta(s), 5);
	assert_int_equal(zns_store_commit(s, ck_init(&k, 1, "a", 4, 0, 4096), NULL), -EINVAL);
	OK(zns_store_commit(s, ck_init(&k, 1, "a", 5, 0, 4096), NULL));
	s = reopened(m, s);
	zns_store_close(s);
	profile_free(p);
	memdev_close(&m->dev);
}

/* Metadata zones die one by one: the log walks around them while one is left to go to. */
static void bad_meta_zones(void **state)
{
	struct memdev *m = formatted(8, KIB(64), 4096);
	struct zns_store *s = open_rw(m);
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;
	char *before, *after;
	unsigned n;
	int rc;

	m->z[1].forced = ZNS_ZONE_OFFLINE;
	for (n = 0; n < 40; n++) {
		OK(zns_store_commit(s, ck_init(&k, n, "a", 5, 0, 4096), NULL));
		id_of(n, id);
		OK(zns_store_remove(s, id, "gc", NULL));
		if (n % 5 == 4)
			s = reopened(m, s);
	}
	assert_int_equal(m->z[1].wp, 0);
	OK(zns_store_commit(s, ck_init(&k, n, "a", 5, 0, 4096), NULL));
	/* The log's zone turns read-only: readable, and the log moves on. */
	n = m->z[0].wp && !m->z[2].wp ? 0 : m->z[2].wp && !m->z[0].wp ? 2 : 9;
	for (unsigned z = 0; z < 3 && n == 9; z += 2) {
		uint8_t *sb = m->z[z].data;
		uint64_t gen;

		memcpy(&gen, sb + 16, 8);
		if (gen == zns_store_generation(s))
			n = z;
	}
	m->z[n].forced = ZNS_ZONE_READ_ONLY;
	before = store_text(s, 8, false);
	/* The write fails, unless the log was full and left the zone anyway. */
	rc = zns_store_commit(s, ck_init(&k, 1000, "b", 6, 0, 4096), NULL);
	if (rc) {
		assert_int_equal(rc, -EROFS);
		after = store_text(s, 8, false);
		assert_string_equal(before, after);
		free(after);
		OK(zns_store_commit(s, ck_init(&k, 1000, "b", 6, 0, 4096), NULL));
	}
	s = reopened(m, s);
	free(before);
	/* now no zone for the log is left */
	m->z[2 - n].forced = ZNS_ZONE_READ_ONLY;
	before = store_text(s, 8, false);
	assert_int_not_equal(zns_store_commit(s, ck_init(&k, 1001, "b", 6, 4096, 4096), NULL), 0);
	zns_store_close(s);
	assert_int_equal(zns_store_open(&m->dev, 0, &s, NULL), -EROFS);
	OK(zns_store_open(&m->dev, ZNS_STORE_RDONLY, &s, NULL));
	after = store_text(s, 8, false);
	assert_string_equal(before, after);
	free(before);
	free(after);
	zns_store_close(s);
	memdev_close(&m->dev);
}

/* Dumps are committed and removed until the catalogue has this generation. */
static struct zns_store *at_generation(struct memdev *m, uint64_t generation)
{
	struct zns_store *s = open_rw(m);
	struct ck k;

	for (unsigned n = 0; zns_store_generation(s) < generation; n++) {
		uint8_t id[ZNS_UUID_LEN];

		OK(zns_store_commit(s, ck_init(&k, n, "a", 5, 0, 4096), NULL));
		id_of(n, id);
		OK(zns_store_remove(s, id, "gc", NULL));
	}
	return s;
}

/* Each zone with a catalogue has lost all but its first block: that is no empty store. */
static void no_generation_is_complete(void **state)
{
	struct memdev *m = formatted(8, KIB(64), 4096);
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s = at_generation(m, 3);

	zns_store_close(s);
	for (uint32_t z = 0; z < 8; z++)
		m->z[z].wp = zns_min(m->z[z].wp, (uint64_t)4096);
	s = NULL;
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "no generation of the catalogue is complete"));
	assert_null(s);
	memdev_close(&m->dev);
}

/* What was written to a zone that is offline now can be had by nobody. */
static void format_beside_offline_zone(void **state)
{
	struct memdev *m = memdev_new(NZ, CAP, 4096);
	ZnsPb__Profile *p = make_profile(NZ, 4);

	m->z[1].wp = 8192;
	assert_int_equal(zns_store_format(&m->dev, NULL, p, false, NULL, NULL), -EEXIST);
	m->z[1].forced = ZNS_ZONE_OFFLINE;
	OK(zns_store_format(&m->dev, NULL, p, false, NULL, NULL));
	profile_free(p);
	memdev_close(&m->dev);
}

/* A read-only zone cannot be cleared by format: the new store must still win. */
static void format_beside_stuck_zone(void **state)
{
	struct memdev *m = formatted(8, KIB(64), 4096);
	ZnsPb__Profile *p = make_profile(8, 4);
	struct zns_store *s = at_generation(m, 3);
	struct ck k;

	OK(zns_store_commit(s, ck_init(&k, 9999, "a", 5, 0, 4096), NULL));
	zns_store_close(s);
	m->z[2].forced = ZNS_ZONE_READ_ONLY; /* generation 3 */
	OK(zns_store_format(&m->dev, NULL, p, true, NULL, NULL));
	s = open_rw(m);
	assert_int_equal(zns_store_generation(s), 4);
	assert_int_equal(zns_store_nr_checkpoints(s), 0);
	zns_store_close(s);
	profile_free(p);
	memdev_close(&m->dev);
}

static void other_geometry(void **state)
{
	struct memdev *m = formatted(NZ, CAP, 4096);
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s;

	m->dev.geo.zone_size *= 2;
	assert_int_equal(zns_store_open(&m->dev, 0, &s, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "geometry"));
	assert_non_null(strstr(err.msg, "damaged"));
	memdev_close(&m->dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(format_rules),
		cmocka_unit_test(meta_zone_count),
		cmocka_unit_test(too_small),
		cmocka_unit_test(conventional_zones),
		cmocka_unit_test(bad_meta_zones),
		cmocka_unit_test(no_generation_is_complete),
		cmocka_unit_test(format_beside_offline_zone),
		cmocka_unit_test(format_beside_stuck_zone),
		cmocka_unit_test(other_geometry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
