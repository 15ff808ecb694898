/* SPDX-License-Identifier: GPL-2.0-only */
/* A store on an ordinary disk that becomes larger and smaller, and dies or loses power on the way.
 */
#include <unistd.h>
#include "emu_common.h"
#include "file_cuts.h"
#include "store_fixture.h"
#include "../../zns/dev/file_priv.h"

#define SMALL MIB(80)
#define LARGE MIB(96)

/* The tables of stores of earlier programs have no room, so that they move when the store grows. */
static void make_store(uint64_t size, bool room)
{
	struct zns_emu_params p;

	assert_ok(zns_file_params(size, &p, &err));
	if (!room)
		p.table_off = p.data_off = p.table_zones = 0;
	snprintf(dev_spec, sizeof(dev_spec), "file:%s", dev_path);
	zns_dev_close(make_dev(&p));
}

static uint32_t zones_for(struct zns_dev *d, uint64_t size)
{
	uint32_t nr = 0;

	assert_ok(zns_file_zones_for(d, size, &nr, &err));
	return nr;
}

static uint64_t length(void)
{
	struct stat st;

	assert_int_equal(stat(dev_path, &st), 0);
	return (uint64_t)st.st_size;
}

/* Data in the first, second and a later zone, and one more write that nobody flushed. */
static void fill(struct zns_dev *d)
{
	assert_ok(put(d, 0, 0, MIB(1), 1));
	assert_ok(put(d, 3, 0, MIB(1), 1));
	assert_ok(put(d, 20, 0, KIB(64), 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 4, 0, KIB(4), 1));
}

static void check_data(struct zns_dev *d)
{
	check(d, 0, 0, MIB(1), 1);
	assert_zone(d, 3, ZNS_ZONE_FULL, MIB(1));
	check(d, 3, 0, MIB(1), 1);
	check(d, 4, 0, KIB(4), 1);
	check(d, 20, 0, KIB(64), 1);
	assert_zone(d, 21, ZNS_ZONE_EMPTY, 0);
}

static uint32_t resize(uint64_t size)
{
	struct zns_dev *d = open_dev();
	uint32_t nr = zones_for(d, size);

	assert_ok(zns_file_resize(d, nr, &err));
	zns_dev_close(d);
	assert_true(length() <= size && length() > size - MIB(1));
	d = open_dev();
	assert_int_equal(d->geo.nr_zones, nr);
	check_data(d);
	zns_dev_close(d);
	return nr;
}

/* Tables behind the data, there again, in front again; each time all zones can be used. */
static void there_and_back(void **state)
{
	uint32_t first, nr;
	struct zns_dev *d;

	make_store(SMALL, *state != NULL);
	d = open_dev();
	first = d->geo.nr_zones;
	fill(d);
	zns_dev_close(d);
	for (uint64_t size = LARGE; size <= 4 * LARGE; size += LARGE) {
		nr = resize(size);
		d = open_dev();
		assert_zone(d, nr - 1, ZNS_ZONE_EMPTY, 0);
		assert_ok(put(d, nr - 1, 0, MIB(1), (uint32_t)(size >> 20)));
		zns_dev_close(d);
		d = open_dev();
		check(d, nr - 1, 0, MIB(1), (uint32_t)(size >> 20));
		zns_dev_close(d);
	}
	resize(2 * LARGE);
	assert_int_equal(resize(SMALL), first);
	nr = resize(SMALL - MIB(10));
	assert_int_equal(nr, first - 10);
	assert_int_equal(resize(SMALL), first);
	d = open_dev();
	assert_zone(d, first - 1, ZNS_ZONE_EMPTY, 0);
	zns_dev_close(d);
}

static uint32_t kill_zones, kill_after;

static int die_in_resize(void)
{
	struct zns_dev *d;

	if (!zns_dev_open(dev_spec, 0, &d, &err) &&
	    !file_resize_steps(d, kill_zones, kill_after, &err))
		return 0;
	fprintf(stderr, "%s\n", err.msg);
	return 1;
}

/* From each size to the next, killed after each step, in a process or with the machine: the store
 * has the old number of zones or the new one, all of its data, and can then be resized. */
static void killed(void **state)
{
	const uint64_t sizes[] = { LARGE, 3 * LARGE, 2 * LARGE, SMALL, SMALL - MIB(10), SMALL };
	struct zns_dev *d, *other = NULL;
	uint32_t beside = 30;

	make_store(SMALL, *state != NULL);
	d = open_dev();
	fill(d);
	zns_dev_close(d);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(sizes); i++) {
		for (kill_after = 0; kill_after <= FILE_RESIZE_STEPS; kill_after++) {
			uint32_t before;

			d = open_dev();
			before = d->geo.nr_zones;
			kill_zones = zones_for(d, sizes[i]);
			zns_dev_close(d);
			if (*state)
				other = open_dev();
			assert_int_equal(in_child(die_in_resize), 0);
			if (other)
				assert_ok(put(other, beside, 0, KIB(4), beside));
			if (other)
				assert_ok(zns_dev_flush(other, &err));
			zns_dev_close(other);
			if (kill_after & 1)
				lose_power();
			d = open_dev();
			if (other)
				check(d, beside, 0, KIB(4), beside);
			if (other)
				assert_ok(zns_dev_reset(d, &beside, 1, &err));
			assert_int_equal(d->geo.nr_zones, kill_after < 5 ? before : kill_zones);
			check_data(d);
			assert_zone(d, d->geo.nr_zones - 1, ZNS_ZONE_EMPTY, 0);
			zns_dev_close(d);
		}
	}
}

struct sizes {
	uint32_t from, to;
	uint32_t written; /* zones from 30 on that another process wrote before and after */
};

static void old_or_new(void *arg, size_t cut)
{
	const struct sizes *s = arg;
	struct zns_dev *d = open_dev();
	uint32_t nr = d->geo.nr_zones;

	assert_true(nr == s->from || nr == s->to);
	check_data(d);
	assert_zone(d, nr - 1, ZNS_ZONE_EMPTY, 0);
	/* data that it flushed in the last round exist, and write pointers are right */
	for (uint32_t z = 30; z < 30 + s->written; z++) {
		struct zns_zone zone;

		assert_ok(zns_dev_report(d, z, 1, &zone, &err));
		assert_true(zone.wp == 0 || zone.wp == KIB(64));
		assert_true(zone.wp || z >= 30 + s->written - 2);
		if (zone.wp)
			check(d, z, 0, KIB(64), z);
	}
	zns_dev_close(d);
}

static void put_beside(struct zns_dev *other, struct sizes *s)
{
	if (!other)
		return;
	assert_ok(put(other, 30 + s->written, 0, KIB(64), 30 + s->written));
	assert_ok(zns_dev_flush(other, &err));
	s->written++;
}

/* Tables that stay, that go behind the data, that move there, and a smaller store. Tables with room
 * stay, and another process writes before and after. */
static void power_cut(void **state)
{
	const uint64_t sizes[] = { LARGE, 3 * LARGE, SMALL, SMALL - MIB(10) };
	struct zns_dev *d, *other = NULL;
	struct sizes s = { 0 };

	make_store(SMALL, *state != NULL);
	d = open_dev();
	fill(d);
	assert_ok(zns_dev_flush(d, &err));
	zns_dev_close(d);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(sizes); i++) {
		cuts_begin();
		d = open_dev();
		if (*state)
			other = open_dev();
		put_beside(other, &s);
		s.from = d->geo.nr_zones;
		s.to = zones_for(d, sizes[i]);
		assert_ok(zns_file_resize(d, s.to, &err));
		put_beside(other, &s);
		zns_dev_close(other);
		zns_dev_close(d);
		cuts_end(old_or_new, &s);
	}
}

static void refused(void **state)
{
	struct zns_dev *d, *other;
	uint32_t nr;

	make_store(SMALL, false);
	d = open_dev();
	fill(d);
	assert_fails(zns_file_zones_for(d, MIB(64) - 1, &nr, &err), -EINVAL,
		     "too small: 64 MiB at least");
	assert_fails(zns_file_zones_for(d, GIB(4096), &nr, &err), -EFBIG, "larger store");
	assert_int_equal(zones_for(d, SMALL), d->geo.nr_zones);
	zns_dev_close(d);
	resize(LARGE);
	d = open_dev();
	other = open_dev();
	assert_fails(zns_file_resize(d, d->geo.nr_zones + 40, &err), -EBUSY, "in use");
	zns_dev_close(other);
	zns_dev_close(d);
	snprintf(dev_spec, sizeof(dev_spec), "emu:%s", dev_path);
	unlink(dev_path);
	d = make_small();
	assert_fails(zns_file_zones_for(d, LARGE, &nr, &err), -EMEDIUMTYPE, "no store on a disk");
	zns_dev_close(d);
}

/* One process resizes, another one has had the store open since before. */
static void beside_others(void **state)
{
	struct zns_dev *d, *other, *late;
	uint32_t small, large;

	make_store(SMALL, true);
	d = open_dev();
	other = open_dev();
	late = open_dev();
	small = d->geo.nr_zones;
	fill(other);
	large = zones_for(d, LARGE);
	assert_true(zns_file_resizes_in_place(d, large));
	assert_ok(zns_file_resize(d, large, &err));
	assert_int_equal(d->geo.nr_zones, large);
	/* a zone of it is in the block of the table that has the new ones, too */
	assert_ok(put(d, small, 0, KIB(64), 7));
	assert_ok(zns_dev_flush(d, &err));
	assert_int_equal(other->geo.nr_zones, small);
	assert_fails(put(other, small + 1, 0, KIB(4), 9), -EINVAL, "the device has zones");
	zns_dev_follow(other);
	assert_int_equal(other->geo.nr_zones, large);
	assert_ok(put(other, large - 1, 0, KIB(64), 9));
	assert_ok(zns_dev_flush(other, &err));
	assert_int_equal(late->geo.nr_zones, small);
	assert_ok(put(late, 22, 0, KIB(64), 8));
	assert_ok(zns_dev_flush(late, &err));
	zns_dev_close(d);
	zns_dev_close(other);
	zns_dev_close(late);
	lose_power();
	d = open_dev();
	other = open_dev();
	check_data(d);
	check(d, small, 0, KIB(64), 7);
	check(d, 22, 0, KIB(64), 8);
	check(d, large - 1, 0, KIB(64), 9);
	assert_zone(d, large - 2, ZNS_ZONE_EMPTY, 0);

	/* the file is cut, and who had it open does not think that somebody has damaged it */
	assert_ok(zns_file_resize(d, small, &err));
	assert_true(length() <= SMALL);
	assert_ok(put(other, 22, KIB(64), KIB(64), 10));
	assert_ok(zns_dev_flush(other, &err));
	zns_dev_follow(other);
	assert_int_equal(other->geo.nr_zones, small);
	assert_ok(zns_file_resize(d, large, &err));
	assert_zone(d, small, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, large - 1, ZNS_ZONE_EMPTY, 0);
	check(d, 22, KIB(64), KIB(64), 10);
	zns_dev_close(other);
	zns_dev_close(d);
}

/*
 * The header of such a store does not say where its tables are. They stay there when it becomes
 * smaller, in the eyes of another process too, however many of its zones go.
 */
static void smaller_beside_others(void **state)
{
	struct zns_dev *d, *other;
	uint32_t small;

	make_store(GIB(16), false);
	d = open_dev();
	other = open_dev();
	fill(other);
	small = zones_for(d, GIB(1));
	assert_true(d->geo.nr_zones - small > 12000);
	assert_ok(zns_file_resize(d, small, &err));
	zns_dev_follow(other);
	assert_int_equal(other->geo.nr_zones, small);
	assert_int_equal(emu_of(other)->lay.dur_off, emu_of(d)->lay.dur_off);
	assert_int_equal(emu_of(other)->lay.data_off, emu_of(d)->lay.data_off);
	assert_ok(put(other, 22, 0, KIB(64), 9));
	assert_ok(zns_dev_flush(other, &err));
	zns_dev_close(d);
	zns_dev_close(other);
	lose_power();
	d = open_dev();
	check_data(d);
	check(d, 22, 0, KIB(64), 9);
	zns_dev_close(d);
}

/* Tables that move must not be written over those that are in use. */
static void too_little(void **state)
{
	struct zns_dev *d;

	make_store(GIB(16), false);
	d = open_dev();
	assert_ok(zns_file_resize(d, zones_for(d, GIB(32)), &err));
	zns_dev_close(d);
	d = open_dev();
	assert_fails(zns_file_resize(d, d->geo.nr_zones + 1, &err), -EINVAL, "must change by");
	assert_ok(zns_file_resize(d, zones_for(d, GIB(36)), &err));
	zns_dev_close(d);
}

static struct zns_store *open_store(struct zns_dev *d)
{
	struct zns_store *s;

	assert_ok(zns_store_open(d, 0, &s, &err));
	return s;
}

static char *text_of(struct zns_dev *d)
{
	struct zns_store *s = open_store(d);
	char *text = store_text(s, zns_min(d->geo.nr_zones, 60u), true);

	assert_int_equal(zns_store_profile(s)->n_zone_group, d->geo.nr_zones);
	zns_store_close(s);
	return text;
}

/* The catalogue goes on with the new number, and refuses to lose a checkpoint. */
static void catalogue(void **state)
{
	ZnsPb__Profile *p;
	struct zns_store *s;
	struct zns_dev *d;
	uint32_t small, large;
	char *before, *after;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	make_store(SMALL, true);
	d = open_dev();
	small = d->geo.nr_zones;
	p = make_profile(small, 1);
	assert_ok(zns_store_format(d, NULL, p, false, NULL, &err));
	profile_free(p);
	s = open_store(d);
	for (uint32_t n = 0; n < 5; n++) {
		assert_ok(put(d, 3 + n, 0, KIB(64), n));
		assert_ok(zns_store_commit(s, ck_init(&k, n, "web", 3 + n, 0, KIB(64)), &err));
	}
	zns_store_close(s);
	before = text_of(d);

	large = zones_for(d, LARGE);
	s = open_store(d);
	assert_ok(zns_store_fit(s, large, &err));
	zns_store_close(s);
	assert_ok(zns_file_resize(d, large, &err));
	zns_dev_close(d);
	d = open_dev();
	after = text_of(d);
	assert_string_equal(before, after);
	free(after);

	s = open_store(d);
	assert_ok(put(d, large - 1, 0, KIB(64), 9));
	assert_ok(zns_store_commit(s, ck_init(&k, 9, "web", large - 1, 0, KIB(64)), &err));
	assert_fails(zns_store_fit(s, small, &err), -EBUSY, "64.0 KiB of checkpoints are behind");
	assert_int_equal(d->geo.nr_zones, large);
	id_of(9, id);
	assert_ok(zns_store_remove(s, id, "test", &err));
	/* its record would name a zone that is gone: it must not be in the log any more */
	assert_ok(zns_store_fit(s, small, &err));
	zns_store_close(s);
	assert_ok(zns_file_resize(d, small, &err));
	zns_dev_close(d);
	d = open_dev();
	assert_int_equal(d->geo.nr_zones, small);
	after = text_of(d);
	assert_memory_equal(before, after, strlen(before) - 1);
	zns_dev_close(d);
	free(before);
	free(after);
}

struct kept {
	char *text; /* catalogue as text, before the resize */
	size_t len;
	uint32_t small, large;
};

static void catalogue_is_whole(void *arg, size_t cut)
{
	const struct kept *k = arg;
	struct zns_dev *d = open_dev();
	char *text;

	assert_true(d->geo.nr_zones == k->small || d->geo.nr_zones == k->large);
	text = text_of(d);
	assert_memory_equal(text, k->text, k->len);
	free(text);
	zns_dev_close(d);
}

/* As a broker does it: the open store continues, takes a checkpoint in the new zones, and loses it
 * before these zones are removed. */
static void catalogue_cut(void **state)
{
	struct kept kept = { 0 };
	struct zns_store *s;
	ZnsPb__Profile *p;
	struct zns_dev *d;
	uint8_t id[ZNS_UUID_LEN];
	struct ck k;

	make_store(SMALL, true);
	d = open_dev();
	kept.small = d->geo.nr_zones;
	kept.large = zones_for(d, LARGE);
	p = make_profile(kept.small, 1);
	assert_ok(zns_store_format(d, NULL, p, false, NULL, &err));
	profile_free(p);
	s = open_store(d);
	for (uint32_t n = 0; n < 5; n++) {
		assert_ok(put(d, 3 + n, 0, KIB(64), n));
		assert_ok(zns_store_commit(s, ck_init(&k, n, "web", 3 + n, 0, KIB(64)), &err));
	}
	zns_store_close(s);
	kept.text = text_of(d);
	kept.len = strstr(kept.text, "zone") ? (size_t)(strstr(kept.text, "zone") - kept.text) : 0;
	zns_dev_close(d);
	assert_true(kept.len > 100);

	cuts_begin();
	d = open_dev();
	s = open_store(d);
	assert_ok(zns_store_fit(s, kept.large, &err));
	assert_ok(zns_file_resize(d, kept.large, &err));
	assert_ok(zns_store_follow(s, &err));
	assert_ok(put(d, kept.large - 1, 0, KIB(64), 9));
	assert_ok(zns_store_commit(s, ck_init(&k, 9, "web", kept.large - 1, 0, KIB(64)), &err));
	id_of(9, id);
	assert_ok(zns_store_remove(s, id, "test", &err));
	assert_ok(zns_store_fit(s, kept.small, &err));
	assert_ok(zns_file_resize(d, kept.small, &err));
	assert_ok(zns_store_follow(s, &err));
	zns_store_close(s);
	zns_dev_close(d);
	cuts_end(catalogue_is_whole, &kept);
	free(kept.text);
}

static int begin_with_room(void **state)
{
	int ret = emu_begin(state);

	*state = dev_path;
	return ret;
}

#define WITH_ROOM(f)                                               \
	{                                                          \
#f " with room", f, begin_with_room, emu_end, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(there_and_back), WITH_ROOM(there_and_back),
		T(killed),         WITH_ROOM(killed),
		T(power_cut),      WITH_ROOM(power_cut),
		T(beside_others),  T(smaller_beside_others),
		T(refused),        T(too_little),
		T(catalogue),      T(catalogue_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
