/* SPDX-License-Identifier: GPL-2.0-only */
/* The probe's judgement: what it refuses to give out, and what it finds wrong with a map that is
 * stored. */
#include "probe_asserts.h"

/* Every zone waits for every other when it is read; only writes show which zones are
 * independent. */
static void all_reads_wait(void **state)
{
	static const uint32_t zones[] = { 128, 12 }, active[] = { 0, 5 };
	struct zns_probe_params par = { 0 };

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(zones); i++) {
		struct drive *v = drive_new(zones[i], 8, 4, active[i], 3);

		memset(v->read_die, 0, sizeof(v->read_die));
		memset(&map, 0, sizeof(map));
		assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
		assert_map(v->write_die, zones[i], 0, 0);
		assert_int_equal(map.nr_channels, 0);
		assert_drive_clean(v);
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* Neither reads nor writes show a difference: refused, and the text is about the reads. */
static void nothing_tells(void **state)
{
	struct drive *v = drive_new(48, 8, 4, 0, 3);
	struct zns_probe_params par = { .force = true };

	memset(v->read_die, 0, sizeof(v->read_die));
	v->wanders = true;
	memset(&map, 0, sizeof(map));
	assert_fails(zns_probe_run(&v->dev, &par, &map, &err), -EAGAIN,
		     "although zones are written independently");
	assert_drive_clean(v);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
}

/* Reads show dies, and writes of a zone take any time: no map, and no word against the drive. */
static void writes_disturbed(void **state)
{
	struct drive *v = drive_new(48, 8, 4, 0, 3);
	struct zns_probe_params par = { 0 };

	v->wanders = true;
	v->state[7] = ZNS_ZONE_FULL; /* can be placed by reads only */
	v->wp[7] = v->dev.geo.zone_capacity;
	memset(&map, 0, sizeof(map));
	assert_fails(zns_probe_run(&v->dev, &par, &map, &err), -EAGAIN, "of no use");
	assert_int_equal(v->state[7], ZNS_ZONE_FULL);
	v->state[7] = ZNS_ZONE_EMPTY;
	v->wp[7] = 0;
	assert_drive_clean(v);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
}

/* Groups of the reads hold slow zones and quick ones. That is no drive that gets hot. */
static void slow_zones_are_not_hot(void **state)
{
	for (uint32_t seed = 1; seed <= 4; seed++) {
		struct drive *v = drive_new(48, 8, 4, 0, 3);
		struct zns_probe_params par = { .seed = seed };

		v->wanders = v->odd_slow = true;
		v->state[7] = ZNS_ZONE_FULL; /* can be placed by reads only */
		v->wp[7] = v->dev.geo.zone_capacity;
		memset(&map, 0, sizeof(map));
		assert_int_equal(zns_probe_run(&v->dev, &par, &map, &err), -EAGAIN);
		assert_null(strstr(err.msg, "right after much was written"));
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* A zone lies on two dies. Where two zones share both or none, groups are pairs of dies. Where zones
 * share one of their dies with others, no groups describe that, and the refusal says so. */
static void zones_on_two_dies(void **state)
{
	for (uint32_t i = 0; i < 6; i++) {
		struct drive *v = drive_new(64, 8, 8, 0, 1 + i / 2);
		struct zns_probe_params par = { .seed = 1 + i / 2 };
		uint32_t pair[64];
		int rc;

		v->noise_pct = 2;
		v->stripe = 2;
		v->rows = i % 2;
		for (uint32_t z = 0; z < 64; z++)
			pair[z] = v->write_die[z] / 2;
		memset(&map, 0, sizeof(map));
		rc = zns_probe_run(&v->dev, &par, &map, &err);
		assert_drive_clean(v);
		if (rc)
			print_message("%s\n", err.msg);
		if (v->rows) {
			assert_int_equal(rc, 0);
			assert_map(pair, 64, 0, 0);
			assert_in_range(map.zone_write_mibps, 180, 195);
		} else {
			assert_int_equal(rc, -EAGAIN);
			assert_says("zones lie on several dies each");
		}
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* All operations take twice the time now and then: a right map, or none. */
static void throttled(void **state)
{
	for (uint32_t seed = 1; seed <= 4; seed++) {
		struct drive *v = drive_new(64, 8, 4, 0, seed);
		struct zns_probe_params par = { .seed = seed };
		int rc;

		v->noise_pct = 2;
		v->hot_ns = UINT64_C(50000000) << seed;
		memset(&map, 0, sizeof(map));
		rc = zns_probe_run(&v->dev, &par, &map, &err);
		assert_drive_clean(v);
		if (rc) {
			print_message("%s\n", err.msg);
			assert_int_equal(rc, -EAGAIN);
			assert_null(strstr(err.msg, "several dies"));
		} else {
			assert_map(v->read_die, 64, 0, 0);
			assert_in_range(map.zone_write_mibps, 40, 100);
		}
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* Zones with data that cannot be read stay unknown. Eight of 120 are too many: refused, with the
 * reason; with force the map is given out with its doubt. */
static void doubted(void **state)
{
	struct drive *v = drive_new(120, 16, 4, 0, 4);
	struct zns_probe_params par = { 0 };

	v->unreadable = 8;
	for (uint32_t z = 0; z < v->unreadable; z++) {
		v->state[z] = ZNS_ZONE_FULL;
		v->wp[z] = v->dev.geo.zone_capacity;
	}
	memset(&map, 0, sizeof(map));
	assert_fails(zns_probe_run(&v->dev, &par, &map, &err), -EAGAIN, "8 zones are unknown");
	assert_says("--force");
	zns_probe_fini(&map);
	par.force = true;
	assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
	assert_map(v->read_die, 120, 4, 8);
	assert_true(map.confidence < 0.99 && strlen(map.doubt) > 0);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
}

static void verify(void **state)
{
	struct drive *v = drive_new(300, 16, 4, 0, 5);
	struct zns_probe_params par = { .seed = 1 };
	struct zns_probe_drift drift;
	uint32_t rate;

	v->noise_pct = 5;
	memset(&map, 0, sizeof(map));
	assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_int_equal(drift.zones_checked, 300);
	assert_int_equal(drift.groups_checked, 16);
	assert_int_equal(drift.groups_joined, 0);
	assert_int_equal(drift.zones_moved + drift.channels_moved + drift.rates_changed +
				 drift.domain_changed,
			 0);
	assert_int_equal(drift.channels_checked, 24);
	assert_drive_clean(v);
	/* a tenth of the zones are elsewhere */
	for (uint32_t z = 60; z < 90; z++)
		map.zone_group[z] = (map.zone_group[z] + 1) % 16;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 100, &drift, &err));
	assert_in_range(drift.zones_checked, 16, 112);
	assert_true(drift.zones_moved >= 3);
	for (uint32_t z = 60; z < 90; z++)
		map.zone_group[z] = (map.zone_group[z] + 15) % 16;
	/* a map of twice as many groups: each die is two of them */
	for (uint32_t z = 0; z < 300; z++)
		map.zone_group[z] += z % 2 ? 16 : 0;
	map.nr_groups = 32;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_int_equal(drift.groups_checked, 32);
	assert_true(drift.groups_joined >= 1);
	/* of half as many: two dies in each */
	for (uint32_t z = 0; z < 300; z++)
		map.zone_group[z] %= 8;
	map.nr_groups = 8;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_true(drift.zones_moved >= 4);
	assert_int_equal(drift.groups_joined, 0);
	for (uint32_t z = 0; z < 300; z++)
		map.zone_group[z] = v->read_die[z];
	map.nr_groups = 16;
	/* one group split, and another one that is two */
	for (uint32_t z = 0; z < 300; z++)
		map.zone_group[z] = v->read_die[z] == 3 && z % 2 ? 16 :
				    v->read_die[z] == 5          ? 4 :
								   v->read_die[z];
	for (uint32_t z = 0; z < 300; z++)
		map.zone_group[z] -= map.zone_group[z] > 5;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_int_equal(drift.groups_joined, 1);
	assert_true(drift.zones_moved >= 1);
	for (uint32_t z = 0; z < 300; z++)
		map.zone_group[z] = v->read_die[z];
	for (uint32_t g = 0; g < 16; g++)
		map.group_channel[g] = g % 4;
	/* the dies' channels are others */
	for (uint32_t g = 0; g < 16; g++)
		map.group_channel[g] = (map.group_channel[g] + g / 4) % 4;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_true(drift.channels_moved > 2);
	assert_int_equal(drift.zones_moved, 0);
	/* slower than it was */
	rate = map.zone_write_mibps;
	map.zone_write_mibps = rate * 2;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_true(drift.rates_changed);
	/* thought to be one domain */
	map.zone_write_mibps = rate;
	map.one_domain = true;
	map.written = 0;
	assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
	assert_true(drift.domain_changed);
	zns_probe_fini(&map);
	zns_dev_close(&v->dev);
}

/* One of the map's groups is really two dies, or two of them are one die: that is found, whichever
 * zones are picked. */
static void verify_finds_one(void **state)
{
	for (uint32_t seed = 1; seed <= 6; seed++) {
		struct drive *v = drive_new(300, 16, 4, 0, seed);
		struct zns_probe_params par = { .seed = seed };
		struct zns_probe_drift drift;

		v->noise_pct = 5;
		memset(&map, 0, sizeof(map));
		assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
		map.nr_channels = 0;
		for (uint32_t z = 0; z < 300; z++)
			map.zone_group[z] = v->read_die[z] - (v->read_die[z] > 5);
		map.nr_groups = 15;
		map.written = 0;
		assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
		assert_true(drift.zones_moved > 0);
		for (uint32_t z = 0; z < 300; z++)
			map.zone_group[z] = v->read_die[z] == 3 && z % 2 ? 16 : v->read_die[z];
		map.nr_groups = 17;
		map.written = 0;
		assert_ok(zns_probe_verify(&v->dev, &par, &map, 0, &drift, &err));
		assert_int_equal(drift.groups_joined, 1);
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* The host stops again and again while the probe begins, or all the time: right, or refused. */
static void host_stops(void **state)
{
	uint32_t right = 0, refused = 0;

	for (uint32_t seed = 1; seed <= 8; seed++) {
		struct drive *v = drive_new(128, 16, 4, 0, seed);
		struct zns_probe_params par = { .seed = seed };
		int rc;

		v->noise_pct = 5;
		v->host_every = 1000000 + seed % 4 * 500000;
		v->host_ns = v->host_every * (4 + seed % 3) / 10;
		v->host_until = seed % 2 ? UINT64_C(2000000000) : UINT64_MAX;
		memset(&map, 0, sizeof(map));
		rc = zns_probe_run(&v->dev, &par, &map, &err);
		assert_drive_clean(v);
		if (rc) {
			print_message("%s\n", err.msg);
			assert_int_equal(rc, -EAGAIN);
			refused++;
		} else {
			/* channels are known where they could be proved */
			assert_map(v->read_die, 128, map.nr_channels ? 4 : 0, 0);
			assert_int_equal(map.nr_groups, 16);
			right++;
		}
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
	print_message("%u right, %u refused\n", right, refused);
	assert_true(right >= 3);
}

/* No two dies share a channel. But one pair is disturbed until the probe believes that slower pairs
 * exist, or for longer. No channel found that way may be reported. */
static void channels_of_noise(void **state)
{
	for (uint32_t slow = 24; slow <= 160; slow += 12) {
		struct drive *v = drive_new(64, 8, 8, 0, 17);
		struct zns_probe_params par = { .seed = slow };
		int rc;

		v->noise_pct = 3;
		v->slow_die[0] = v->read_die[0];
		v->slow_die[1] = v->read_die[0] ? 0 : 1;
		v->slow_left = slow;
		v->slow_factor = 1.8;
		memset(&map, 0, sizeof(map));
		rc = zns_probe_run(&v->dev, &par, &map, &err);
		assert_int_equal(v->slow_left, 0);
		assert_drive_clean(v);
		print_message("%u: %s\n", slow, rc ? err.msg : "channels are not known");
		if (rc) {
			assert_int_equal(rc, -EAGAIN);
			assert_says("channel");
		} else {
			assert_map(v->read_die, 64, 0, 0);
			assert_int_equal(map.nr_channels, 0);
		}
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/* The channels that are given out were tested, and how certain they are is said. */
static void channels_tested(void **state)
{
	static const struct {
		uint32_t dies, channels;
		double factor;
	} t[] = {
		{ 16, 4, 1.23 }, { 4, 2, 1.23 }, { 3, 2, 1.23 }, { 6, 1, 1.5 }, { 9, 8, 1.23 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct drive *v = drive_new(64, t[i].dies, t[i].channels, 0, 21 + i);
		struct zns_probe_params par = { .seed = i };

		v->noise_pct = 5;
		v->channel_factor = t[i].factor;
		memset(&map, 0, sizeof(map));
		assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
		assert_drive_map(v);
		assert_true(map.channel_tests >= (t[i].channels > 1 ? 16 : 8) &&
			    !map.channel_tests_wrong);
		assert_true(map.channels_right > 0.65 && map.channels_right < 1);
		for (uint32_t g = 0; g < map.nr_groups; g++)
			assert_true(map.channel_confidence[g] <= (float)map.channels_right);
		zns_probe_fini(&map);
		zns_dev_close(&v->dev);
	}
}

/*
 * Few zones may be active, so it takes passes, and the last one may have one die only; and only a
 * few dies can be read at once, which need not have a channel in common.
 */
static void few_active(void **state)
{
	for (uint32_t active = 3; active <= 10; active += 2) {
		for (uint32_t dies = 6; dies <= 11; dies++) {
			struct drive *v = drive_new(64, dies, dies - 1, active,
						    100 * active + dies);
			struct zns_probe_params par = { .seed = active + dies };

			v->noise_pct = 5;
			memset(&map, 0, sizeof(map));
			assert_ok(zns_probe_run(&v->dev, &par, &map, &err));
			assert_drive_map(v);
			assert_drive_clean(v);
			zns_probe_fini(&map);
			zns_dev_close(&v->dev);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { T(all_reads_wait),    T(nothing_tells),
					    T(zones_on_two_dies), T(throttled),
					    T(writes_disturbed),  T(slow_zones_are_not_hot),
					    T(doubted),           T(verify),
					    T(verify_finds_one),  T(host_stops),
					    T(channels_of_noise), T(channels_tested),
					    T(few_active) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
