/* SPDX-License-Identifier: GPL-2.0-only */
/* The probe: on the emulator with its maps, limits, faults and noise, and on a drive of another
 * make. */
#include "probe_asserts.h"
#include "store_fixture.h"

static struct zns_emu_params timed(uint32_t zones, uint32_t channels, uint32_t ways)
{
	struct zns_emu_params p;

	zns_emu_default_params(&p);
	p.nr_zones = zones;
	p.zone_size = MIB(4);
	p.zone_capacity = KIB(3900);
	p.channels = channels;
	p.ways = ways;
	p.max_active = 0;
	p.timing = true;
	p.prealloc = ZNS_EMU_SPARSE;
	return p;
}

static struct zns_dev *make(const struct zns_emu_params *p, uint32_t jitter)
{
	struct zns_emu_noise n = { .jitter_pct = jitter,
				   .stall_every = jitter ? 500 : 0,
				   .stall_us = jitter ? 3000 : 0,
				   .seed = 5 };
	struct zns_dev *d = make_dev(p);

	assert_ok(zns_emu_set_noise(d, &n, &err));
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	memset(&map, 0, sizeof(map));
	return d;
}

/* A device that stores no data: only times and write pointers matter. */
static struct zns_dev *make_void(const struct zns_emu_params *p, uint32_t jitter)
{
	struct zns_dev *d;

	setenv("ZNS_EMU_DATA", "none", 1);
	d = make(p, jitter);
	unsetenv("ZNS_EMU_DATA");
	return d;
}

static void assert_emu_map(struct zns_dev *d, uint32_t channels, uint32_t unknown)
{
	cleanup_free uint32_t *die = calloc(d->geo.nr_zones, sizeof(*die));

	assert_ok(zns_emu_zone_map(d, die, &err));
	assert_map(die, d->geo.nr_zones, channels, unknown);
}

static void assert_all_empty(struct zns_dev *d)
{
	for (uint32_t z = 0; z < d->geo.nr_zones; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
}

static void assert_cheap(struct zns_dev *d)
{
	assert_true(map.written > 0);
	/* sets of groups that share something slow are tried again, longer */
	assert_true(map.written <= zns_probe_budget(&d->geo, map.unit) * (map.load > 1 ? 2 : 1));
	assert_true(map.device_ns > 0 && map.reads > 0 && map.resets > 0);
}

static void maps(void **state)
{
	static const struct {
		uint32_t zones, channels, ways, max_active, jitter;
		enum zns_emu_map map;
		uint32_t seed;
	} t[] = {
		{ 96, 8, 4, 0, 0, ZNS_EMU_MAP_INTERLEAVED, 0 },
		{ 96, 8, 4, 0, 8, ZNS_EMU_MAP_INTERLEAVED, 0 },
		{ 90, 9, 2, 0, 5, ZNS_EMU_MAP_INTERLEAVED, 0 },
		{ 100, 4, 4, 0, 5, ZNS_EMU_MAP_PERMUTED, 1 },
		{ 100, 8, 4, 32, 5, ZNS_EMU_MAP_PERMUTED, 2 }, /* as many dies as may be active */
		{ 70, 3, 4, 5, 5, ZNS_EMU_MAP_PERMUTED, 3 }, /* several passes, for channels too */
		{ 40, 2, 1, 3, 5, ZNS_EMU_MAP_INTERLEAVED, 0 },
		{ 30, 8, 4, 0, 5, ZNS_EMU_MAP_INTERLEAVED, 0 }, /* fewer zones than dies */
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct zns_emu_params p = timed(t[i].zones, t[i].channels, t[i].ways);
		struct zns_probe_params par = { .seed = i };
		uint32_t channels = t[i].ways > 1 && t[i].zones > t[i].channels ? t[i].channels : 0;
		struct zns_dev *d;

		p.map = t[i].map;
		p.map_seed = t[i].seed;
		p.max_active = t[i].max_active;
		p.max_open = t[i].max_active;
		d = make_void(&p, t[i].jitter);
		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_false(map.one_domain);
		assert_int_equal(map.nr_groups, zns_min(t[i].zones, t[i].channels * t[i].ways));
		assert_emu_map(d, channels, 0);
		if (!channels)
			assert_int_equal(map.group_channel[0], ZNS_PROBE_NONE);
		assert_true(map.confidence > 0.99 && map.confidence < 1);
		assert_true(map.retests >= 400 && !map.retests_wrong);
		/* with noise the slowest of 30 zones may take 1.1 times as long as promised, and
		 * then promises are lowered */
		assert_in_range(map.zone_write_mibps, t[i].jitter && map.nr_groups >= 30 ? 88 : 96,
				104);
		assert_in_range(map.zone_read_mibps, 375, 415);
		assert_int_equal(map.device_write_mibps, 0);
		assert_all_empty(d);
		assert_cheap(d);
		zns_probe_fini(&map);
		zns_dev_close(d);
		unlink(dev_path);
	}
}

/* The groups are found although something limits them together. That limit is measured in sets that
 * reach it. */
static void ceiling(void **state)
{
	static const struct {
		uint32_t ways, controller, max_active, jitter, low, high;
	} t[] = {
		{ 4, 1000, 0, 0, 950, 1020 },
		{ 4, 1600, 0, 5, 1500, 1640 },
		{ 4, 3150, 0, 0, 0, 0 }, /* less by next to nothing */
		{ 2, 1000, 0, 0, 950, 1020 },
		{ 4, 1000, 9, 0, 0, 0 }, /* no more than nine zones can be written at once */
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct zns_emu_params p = timed(512, 8, t[i].ways);
		struct zns_probe_params par = { .seed = i };
		struct zns_dev *d;

		p.controller_mibps = t[i].controller;
		p.max_active = p.max_open = t[i].max_active;
		d = make_void(&p, t[i].jitter);
		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_int_equal(map.nr_groups, 8 * t[i].ways);
		print_message(
			"controller %u MiB/s, %u dies: %u found, %.1f x one zone, %llu of %llu units\n",
			t[i].controller, 8 * t[i].ways, map.device_write_mibps, map.scaling,
			(unsigned long long)(map.written / map.unit),
			(unsigned long long)(zns_probe_budget(&d->geo, map.unit) / map.unit));
		assert_in_range(map.device_write_mibps, t[i].low, t[i].high);
		assert_all_empty(d);
		assert_cheap(d);
		zns_probe_fini(&map);
		zns_dev_close(d);
		unlink(dev_path);
	}
}

/* Drives that differ from all above in one thing each. What is given out is right, and its rate is
 * what the slowest die sustains. */
static void drives_of_others(void **state)
{
	static const struct {
		uint32_t zones, channels, ways, rate, groups;
		uint32_t cache_mib, planes, odd_pct, small_zones, row, channel_mibps;
	} t[] = {
		{ 48, 4, 2, 40, 8, .cache_mib = 6 },
		{ 48, 4, 2, 40, 8, .cache_mib = 64 },
		{ 32, 2, 2, 100, 4, .planes = 2 },
		{ 48, 4, 2, 84, 8, .odd_pct = 118 },
		{ 48, 4, 2, 25, 8, .odd_pct = 400 },
		{ 48, 4, 2, 100, 8, .odd_pct = 40 },
		{ 64, 1, 2, 100, 2, .row = 0 },
		{ 128, 2, 2, 100, 4, .row = 32 },
		/* three dies of a channel share what two of them can write */
		{ 48, 2, 3, 68, 6, .channel_mibps = 200 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct zns_emu_params p = timed(t[i].zones, t[i].channels, t[i].ways);
		struct zns_probe_params par = { .seed = i };
		struct zns_dev *d;

		p.map = ZNS_EMU_MAP_PERMUTED;
		p.map_seed = i;
		p.die_write_mibps = t[i].cache_mib ? 40 : 100;
		p.cache_mib = t[i].cache_mib;
		p.planes = t[i].planes;
		p.odd_dies = t[i].odd_pct > 0;
		p.odd_pct = t[i].odd_pct;
		p.row = t[i].row;
		if (t[i].channel_mibps)
			p.channel_mibps = t[i].channel_mibps;
		d = make_void(&p, 0);
		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_int_equal(map.nr_groups, t[i].groups);
		assert_emu_map(d, 0, 0);
		assert_in_range(map.zone_write_mibps, t[i].rate * 9 / 10, t[i].rate);
		assert_int_equal(map.zones_predicted, map.zones_needed);
		assert_int_equal(map.seen[ZNS_PROBE_SHARE].wrong + map.seen[ZNS_PROBE_APART].wrong,
				 0);
		assert_true(t[i].cache_mib < 64 || map.cached_write_mibps > 1000);
		assert_all_empty(d);
		assert_cheap(d);
		zns_probe_fini(&map);
		zns_dev_close(d);
		unlink(dev_path);
	}
}

/* Every time of a write is that of the cache, and all zones share that: not one domain. */
static void backed_cache(void **state)
{
	struct zns_emu_params p = timed(48, 4, 2);
	struct zns_probe_params par = { 0 };
	struct zns_dev *d;

	p.cache_mib = 64;
	p.cache_backed = true;
	p.controller_mibps = 400;
	d = make_void(&p, 0);
	assert_fails(zns_probe_run(d, &par, &map, &err), -EAGAIN, "a flush does not empty");
	assert_all_empty(d);
	zns_probe_fini(&map);
	zns_dev_close(d);
	unlink(dev_path);
}

static void one_domain(void **state)
{
	struct zns_emu_params p = timed(40, 8, 4);
	struct zns_probe_params par = { 0 };
	struct zns_dev *d;

	p.map = ZNS_EMU_MAP_SHARED;
	p.max_open = p.max_active = 14;
	p.die_write_mibps = 36;
	d = make_void(&p, 5);
	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_true(map.one_domain);
	assert_int_equal(map.nr_groups, 1);
	assert_emu_map(d, 0, 0);
	assert_true(map.scaling > 0.8 && map.scaling < 1.2);
	assert_true(map.confidence > 0.85 && map.confidence < 1); /* a sample only */
	assert_in_range(map.zone_write_mibps, 1000, 1300);
	assert_all_empty(d);
	zns_probe_fini(&map);
	zns_dev_close(d);
}

/* Zones of others are read, never written; what cannot be used stays unknown. */
static void foreign_zones(void **state)
{
	struct zns_emu_params p = timed(64, 4, 2);
	struct zns_probe_params par = { 0 };
	struct zns_dev *d;

	p.max_active = 20;
	d = make(&p, 5);
	assert_ok(put(d, 0, 0, 4096, 1)); /* one block */
	assert_ok(put(d, 9, 0, KIB(192), 2));
	assert_ok(put(d, 17, 0, KIB(3900), 3)); /* full */
	assert_ok(put(d, 30, 0, KIB(64), 4));
	assert_ok(zns_dev_finish(d, 30, &err));
	assert_ok(put(d, 40, 0, KIB(64), 6));
	assert_ok(zns_emu_set_zone_state(d, 40, ZNS_ZONE_READ_ONLY, &err));
	/* nothing in it to read */
	assert_ok(zns_emu_set_zone_state(d, 41, ZNS_ZONE_READ_ONLY, &err));
	assert_ok(zns_emu_set_zone_state(d, 42, ZNS_ZONE_OFFLINE, &err));
	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_int_equal(map.nr_groups, 8);
	assert_emu_map(d, 4, 2);
	assert_int_equal(map.zone_group[41], ZNS_PROBE_NONE);
	assert_int_equal(map.zone_group[42], ZNS_PROBE_NONE);
	assert_int_equal(map.nr_unknown, 0); /* of those that can be used */
	check(d, 0, 0, 4096, 1);
	check(d, 9, 0, KIB(192), 2);
	check(d, 17, 0, KIB(3900), 3);
	check(d, 30, 0, KIB(64), 4);
	check(d, 40, 0, KIB(64), 6);
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 4096);
	for (uint32_t z = 43; z < 64; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	zns_probe_fini(&map);
	zns_dev_close(d);
}

/* A zone that goes bad during the probe is left out, and all else is right. */
static void bad_zone(void **state)
{
	struct zns_emu_params p = timed(64, 4, 2);
	struct zns_emu_rule rule = { .kind = ZNS_EMU_WEAR_READ_ONLY, .zone = 33, .after = 0 };
	struct zns_probe_params par = { 0 };
	struct zns_dev *d = NULL;
	int rc = -EIO;

	/* where the rates are measured it is an error; which zones those are is the seed's */
	for (par.seed = 1; rc && par.seed < 20; par.seed++) {
		zns_dev_close(d);
		unlink(dev_path);
		d = make(&p, 0);
		assert_ok(zns_emu_add_fault(d, &rule, &err));
		rc = zns_probe_run(d, &par, &map, &err);
		if (rc) {
			assert_int_equal(rc, -EROFS);
			zns_probe_fini(&map);
		}
	}
	assert_int_equal(rc, 0);
	assert_emu_map(d, 4, 1);
	assert_int_equal(map.zone_group[33], ZNS_PROBE_NONE);
	assert_int_equal(map.nr_unknown, 1);
	assert_int_equal(map.nr_failed, 1);
	assert_non_null(strstr(map.failure, "zone 33 is read-only"));
	zns_probe_fini(&map);
	zns_dev_close(d);
}

static void refusals(void **state)
{
	struct zns_emu_params p = timed(16, 2, 2);
	struct zns_probe_params par = { .budget = MIB(2) };
	struct zns_dev *d;

	p.max_active = 4;
	d = make(&p, 0);
	assert_fails(zns_probe_run(d, &par, &map, &err), -EDQUOT, "larger --budget");
	assert_all_empty(d);
	assert_true(map.written <= MIB(2));
	zns_probe_fini(&map);
	par.budget = 0;
	for (uint32_t z = 0; z < 3; z++)
		assert_ok(put(d, z, 0, 4096, 1));
	assert_fails(zns_probe_run(d, &par, &map, &err), -EOVERFLOW, "needs two more");
	zns_probe_fini(&map);
	assert_ok(zns_dev_reset(d, (uint32_t[]){ 0, 1, 2 }, 3, &err));
	for (uint32_t z = 0; z < 16; z++)
		assert_ok(zns_emu_set_zone_state(d, z, ZNS_ZONE_READ_ONLY, &err));
	assert_fails(zns_probe_run(d, &par, &map, &err), -ENODATA, "no empty zone");
	zns_probe_fini(&map);
	zns_dev_close(d);
}

static uint32_t ticks;

static void on_progress(void *arg, const struct zns_probe_progress *p)
{
	ticks++;
	assert_true(p->done <= p->total && p->written <= p->budget);
}

static void *kept;
static size_t kept_len;

static void on_checkpoint(void *arg, const void *s, size_t len)
{
	free(kept);
	kept = malloc(len);
	assert_non_null(kept);
	memcpy(kept, s, len);
	kept_len = len;
}

/* Commands that arrive in any order, no regularity at all, 19 % loss on a channel. */
static void another_drive(void **state)
{
	static const struct {
		uint32_t zones, dies, channels, max_active, noise;
	} t[] = {
		{ 300, 32, 8, 0, 0 }, { 300, 32, 8, 0, 8 },  { 400, 18, 9, 40, 5 },
		{ 200, 12, 3, 7, 5 }, { 600, 64, 16, 0, 5 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct drive *v = drive_new(t[i].zones, t[i].dies, t[i].channels, t[i].max_active,
					    11 + i);
		struct zns_probe_params par = { .seed = i, .progress = on_progress };

		v->noise_pct = t[i].noise;
		v->stall_every = t[i].noise ? 500 : 0;
		memset(&map, 0, sizeof(map));
		assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
		assert_drive_map(v);
		assert_drive_clean(v);
		assert_true(map.channel_loss > 0.15 && map.channel_loss < 0.23);
		assert_true(map.written <= zns_probe_budget(&v->dev.geo, map.unit));
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* One zone of a die is quicker than the others, alone and in a pair. The die is one die all the same. Who
 * gives a budget that is too small for a look at such pairs gets the map without it. */
static void one_quick_zone(void **state)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct drive *v = drive_new(64, 4, 2, 0, 31 + i);
		struct zns_probe_params par = { .seed = i };

		v->quick = 1 + 7 * i;
		memset(&map, 0, sizeof(map));
		for (uint32_t k = 0; k < 2; k++) {
			assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
			assert_map(v->read_die, 64, 2, 0);
			assert_int_equal(map.nr_groups, 4);
			assert_drive_clean(v);
			zns_probe_fini(&map);
			par.budget = MIB(340);
		}
		zns_dev_close(&v->dev);
	}
}

/* The time of each set varies by itself, so pairs of one die seem to be of two kinds now and then. */
static void varying_sets(void **state)
{
	for (uint32_t i = 4; i < 6; i++) {
		struct drive *v = drive_new(256, 64, 16, 0, 51 + i);
		struct zns_probe_params par = { .seed = i };

		v->race_pct = 5;
		memset(&map, 0, sizeof(map));
		assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
		assert_map(v->read_die, 256, 0, 0);
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* Only three of 64 groups can be written together, so many sets are needed to try each pair of groups:
 * the default budget is enough for them. */
static void few_of_many_groups(void **state)
{
	struct zns_emu_params p = timed(192, 16, 4);
	struct zns_probe_params par = { .seed = 1 };
	struct zns_dev *d;

	p.map = ZNS_EMU_MAP_PERMUTED;
	p.map_seed = 1;
	p.max_active = p.max_open = 3;
	d = make_void(&p, 0);
	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_int_equal(map.nr_groups, 64);
	assert_emu_map(d, 0, 0);
	zns_probe_fini(&map);
	zns_dev_close(d);
	unlink(dev_path);
}

/* A large-zone drive: every zone is written over all dies, but small reads of two zones may well go
 * to two of them. */
static void reads_apart_writes_together(void **state)
{
	struct drive *v = drive_new(200, 16, 4, 14, 3);
	struct zns_probe_params par = { 0 };

	memset(v->write_die, 0, sizeof(v->write_die));
	memset(&map, 0, sizeof(map));
	assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
	assert_true(map.one_domain);
	assert_drive_clean(v);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
}

/* Independent when written, but by another map than when read: the writes decide, if the budget is
 * enough to place each zone by them. */
static void reads_and_writes_disagree(void **state)
{
	struct drive *v = drive_new(128, 8, 4, 0, 3);
	struct zns_probe_params par = { .budget = GIB(40) };

	for (uint32_t z = 0; z < 128; z++)
		v->write_die[z] = (v->read_die[z] * 5 + z / 16) % 8;
	memset(&map, 0, sizeof(map));
	assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
	assert_map(v->write_die, 128, 0, 0);
	assert_int_equal(map.nr_groups, 8);
	assert_int_equal(map.nr_channels, 0);
	assert_drive_clean(v);
	zns_probe_fini(&map);
	par.budget = MIB(600);
	assert_fails(zns_probe_run(&v->dev, &par, &map, &err), -EDQUOT, "larger --budget");
	assert_drive_clean(v);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
}

/* Stopped three times, at many points, and continued from the stored state: the same map. */
static void stop_and_resume(void **state)
{
	static const uint32_t points[] = { 1, 3, 7, 20, 60, 150, 300, 400, 500, 700 };
	volatile sig_atomic_t stop;

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(points); i++) {
		struct drive *v = drive_new(120, 16, 4, i % 2 ? 12 : 0, 21 + i);
		struct zns_probe_params par = { .stop = &stop,
						.progress = on_progress,
						.checkpoint = on_checkpoint };
		uint64_t before = 0;
		uint32_t stops = 0;
		int rc;

		v->noise_pct = 5;
		v->stop = &stop;
		memset(&map, 0, sizeof(map));
		do {
			stop = 0;
			v->stop_in = stops < 3 ? points[i] : 0;
			rc = zns_probe_run(&v->dev, &par, &map, &err);
			assert_drive_clean(v);
			if (!rc)
				break;
			if (rc != -EINTR)
				fail_msg("%s", err.msg);
			stops++;
			zns_probe_fini(&map);
			if (kept) {
				assert_ok(zns_probe_load(kept, kept_len, 120, &map, &err));
				assert_true(map.written >= before);
				before = map.written;
			} else { /* it had only begun: once more */
				v->written = v->resets = 0;
			}
		} while (rc);
		if (points[i] < 300)
			assert_int_equal(stops, 3);
		assert_drive_map(v);
		free(kept);
		kept = NULL;
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* A state is taken as it is, or refused; never a crash. */
static void damaged_state(void **state)
{
	struct drive *v = drive_new(40, 8, 4, 0, 1);
	struct zns_probe_params par = { .checkpoint = on_checkpoint };
	cleanup_free uint8_t *bad = NULL;

	memset(&map, 0, sizeof(map));
	assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
	zns_probe_fini(&map);
	assert_non_null(kept);
	bad = malloc(kept_len);
	assert_non_null(bad);
	for (size_t i = 0; i < kept_len; i++) {
		memcpy(bad, kept, kept_len);
		bad[i] ^= 1 << i % 8;
		assert_int_equal(zns_probe_load(bad, kept_len, 40, &map, &err), -EBADMSG);
		assert_int_equal(zns_probe_load(kept, i, 40, &map, &err), -EBADMSG);
	}
	assert_int_equal(zns_probe_load(kept, kept_len, 41, &map, &err), -EBADMSG);
	assert_ok(zns_probe_load(kept, kept_len, 40, &map, &err));
	zns_probe_fini(&map);
	free(kept);
	kept = NULL;
	zns_dev_close(&v->dev);
}

/* What a killed probe left is found by its mark and reset; what only looks like it is not. */
static void leftovers(void **state)
{
	struct zns_emu_params p = timed(40, 4, 2);
	struct zns_probe_params par = { 0 };
	cleanup_free uint8_t *buf = aligned(KIB(192));
	struct zns_dev *d = make(&p, 0);
	uint32_t zone = 12;

	memcpy(buf, "zns-criu probe\n", 16);
	memcpy(buf + 16, &zone, sizeof(zone));
	assert_ok(zns_dev_write(d, 12, 0, buf, KIB(192), &err));
	assert_ok(zns_dev_write(d, 13, 0, buf, KIB(192), &err)); /* the number of another zone */
	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_emu_map(d, 4, 0);
	assert_zone(d, 12, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 13, ZNS_ZONE_IMP_OPEN, KIB(192));
	zns_probe_fini(&map);
	zns_dev_close(d);
}

/* A killed probe also leaves zones that the catalogue will need. They are reset before the store is
 * opened: to the store, a write pointer that moves there is another writer. */
static void killed_in_the_catalogue(void **state)
{
	struct zns_emu_params p = timed(40, 4, 2);
	struct zns_probe_params par = { 0 };
	cleanup_free uint8_t *buf = aligned(KIB(192));
	ZnsPb__Profile *profile = make_profile(40, 4);
	struct zns_dev *d = make(&p, 0);
	struct zns_store *s;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t n, zone = 0;

	assert_ok(zns_store_format(d, NULL, profile, false, id, &err));
	while (zone_of(d, zone).wp)
		zone++;
	memcpy(buf, "zns-criu probe\n", 16);
	memcpy(buf + 16, &zone, sizeof(zone));
	assert_ok(zns_dev_write(d, zone, 0, buf, KIB(192), &err));
	assert_ok(zns_probe_clear(d, &n, &err));
	assert_int_equal(n, 1);
	assert_zone(d, zone, ZNS_ZONE_EMPTY, 0);
	assert_ok(zns_store_open(d, 0, &s, &err));
	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_ok(zns_store_set_profile(s, profile, &err));
	zns_store_close(s);
	profile_free(profile);
	zns_probe_fini(&map);
	zns_dev_close(d);
}

static struct zns_dev_ops until_killed;
static const struct zns_dev_ops *whole;
static uint32_t calls_left;

static int race_or_die(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *e)
{
	if (!calls_left--)
		raise(SIGKILL);
	return whole->race(d, r, nr, e);
}

static int probe_until_killed(uint32_t calls)
{
	struct zns_probe_params par = { 0 };
	struct zns_probe_map m = { 0 };
	struct zns_dev *d;

	if (zns_dev_open(dev_spec, 0, &d, NULL) || zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, NULL))
		return 1;
	calls_left = calls;
	whole = d->ops;
	until_killed = *whole;
	until_killed.race = race_or_die;
	d->ops = &until_killed;
	for (;;) {
		if (zns_probe_run(d, &par, &m, NULL))
			return 2;
		zns_probe_fini(&m);
	}
}

static void killed(void **state)
{
	struct zns_emu_params p = timed(64, 4, 4);
	struct zns_probe_params par = { 0 };
	struct zns_dev *d;
	uint32_t hits = 0;

	p.max_active = 30;
	d = make(&p, 0);
	for (uint32_t i = 0; i < 6; i++) {
		pid_t pid = fork();
		int st;

		if (!pid)
			_exit(probe_until_killed(3 + 19 * i));
		assert_true(pid > 0);
		assert_int_equal(waitpid(pid, &st, 0), pid);
		assert_true(WIFSIGNALED(st));
		for (uint32_t z = 0; z < 64; z++)
			hits += zone_of(d, z).wp != 0;
		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_emu_map(d, 4, 0);
		assert_all_empty(d);
		zns_probe_fini(&map);
	}
	print_message("%u zones were left by killed probes\n", hits);
	assert_true(hits > 0);
	zns_dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(maps),
		T(ceiling),
		T(drives_of_others),
		T(backed_cache),
		T(one_domain),
		T(foreign_zones),
		T(bad_zone),
		T(refusals),
		T(another_drive),
		T(one_quick_zone),
		T(few_of_many_groups),
		T(varying_sets),
		T(reads_apart_writes_together),
		T(reads_and_writes_disagree),
		T(stop_and_resume),
		T(damaged_state),
		T(leftovers),
		T(killed_in_the_catalogue),
		T(killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
