/* SPDX-License-Identifier: GPL-2.0-only */
/* The probe on drives whose reads do not tell what is independent when it is written. */
#include "probe_asserts.h"

struct drive_case {
	const char *name;
	uint32_t zones, channels, ways, write_mibps, read_mibps, channel_mibps, map_seed;
	uint32_t command_us, unit_kib, cache_mib, planes, odd_dies, odd_pct, small_zones, active,
		row;
	uint32_t zone_dies, zone_step, heat_mib, cool_mibps, throttle_pct, gc_every_mib,
		gc_stall_ms;
	uint64_t zone, seed;
	uint32_t controller_mibps, jitter_pct;
	bool shared, interleaved, loaded;
};

static struct zns_dev *make(const struct drive_case *c, uint32_t **die)
{
	struct zns_emu_params p;
	struct zns_dev *d;

	zns_emu_default_params(&p);
	p.nr_zones = c->zones;
	p.zone_size = p.zone_capacity = c->zone;
	p.channels = c->channels;
	p.ways = c->ways;
	p.die_write_mibps = c->write_mibps;
	p.die_read_mibps = c->read_mibps;
	p.channel_mibps = c->channel_mibps;
	p.command_us = c->command_us ? c->command_us : 10;
	p.program_unit = KIB(c->unit_kib ? c->unit_kib : 192);
	p.cache_mib = c->cache_mib;
	p.planes = c->planes;
	p.odd_dies = c->odd_dies;
	p.odd_pct = c->odd_pct;
	p.small_dies = c->small_zones ? 1 : 0;
	p.small_zones = c->small_zones;
	p.max_active = p.max_open = c->active;
	p.controller_mibps = c->controller_mibps;
	p.row = c->row;
	p.zone_dies = c->zone_dies;
	p.zone_step = c->zone_step;
	p.heat_mib = c->heat_mib;
	p.cool_mibps = c->cool_mibps;
	p.throttle_pct = c->throttle_pct;
	p.gc_every_mib = c->gc_every_mib;
	p.gc_stall_ms = c->gc_stall_ms;
	p.map = c->shared      ? ZNS_EMU_MAP_SHARED :
		c->interleaved ? ZNS_EMU_MAP_INTERLEAVED :
				 ZNS_EMU_MAP_PERMUTED;
	p.map_seed = c->map_seed;
	p.timing = true;
	p.prealloc = ZNS_EMU_SPARSE;
	unlink(dev_path);
	setenv("ZNS_EMU_DATA", "none", 1);
	d = make_dev(&p);
	unsetenv("ZNS_EMU_DATA");
	*die = calloc(c->zones, sizeof(**die));
	assert_non_null(*die);
	assert_ok(zns_emu_set_noise(
		d, &(struct zns_emu_noise){ .jitter_pct = c->jitter_pct, .seed = c->seed }, &err));
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	assert_ok(zns_emu_zone_map(d, *die, &err));
	return d;
}

/* Makes the drive of a case, and empties the map. */
static struct zns_dev *begin(const struct drive_case *c, uint32_t **die)
{
	print_message("%s\n", c->name);
	memset(&map, 0, sizeof(map));
	return make(c, die);
}

static void end(struct zns_dev *d)
{
	zns_probe_fini(&map);
	zns_dev_close(d);
}

/* No two groups are said to share a channel that do not. */
static void assert_channels(const struct drive_case *c, const uint32_t *die)
{
	for (uint32_t a = 0; a < c->zones; a++)
		for (uint32_t b = 0; b < a; b++) {
			uint32_t ga = map.zone_group[a], gb = map.zone_group[b];

			assert_true(ga == gb || map.group_channel[ga] == ZNS_PROBE_NONE ||
				    map.group_channel[ga] != map.group_channel[gb] ||
				    die[a] % c->channels == die[b] % c->channels);
		}
}

static void probe(const struct drive_case *c)
{
	struct zns_probe_params par = { .seed = c->seed };
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d = begin(c, &die);

	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_map(die, c->zones, 0, 0);
	assert_channels(c, die);
	assert_int_equal(map.one_domain, c->shared);
	assert_int_equal(map.load > 1, c->loaded);
	assert_true(map.confidence >= 0.98 && !map.doubt[0]);
	/* sets of groups that share something slow are tried again, longer */
	assert_true(map.written <=
		    zns_probe_budget(&d->geo, zns_probe_unit(&d->geo, 0)) * (c->loaded ? 2 : 1));
	for (uint32_t z = 0; z < c->zones; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	if (c->shared) {
		struct zns_probe_drift drift;

		map.written = 0;
		assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
		assert_false(drift.domain_changed || drift.sets_wrong || drift.rates_changed);
	}
	if (c->loaded) { /* what comes last, when the map has passed, has no budget */
		par.budget = map.written - MIB(1);
		zns_probe_fini(&map);
		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_map(die, c->zones, 0, 0);
		assert_true(map.load > 1 && map.written <= par.budget);
	}
	end(d);
}

static void all(const struct drive_case *c, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		probe(&c[i]);
}

/* The reads tell nothing, or of channels only. */
static void reads_wait_for_more(void **state)
{
	static const struct drive_case c[] = {
		{ "one channel, slower than a die is read", .zones = 64, .channels = 1, .ways = 3,
		  .write_mibps = 60, .read_mibps = 800, .channel_mibps = 200, .map_seed = 4,
		  .unit_kib = 96, .command_us = 500, .active = 8, .zone = MIB(8), .seed = 1 },
		{ "eight of 169 zones on a die of half the rate", .zones = 169, .channels = 1,
		  .ways = 2, .write_mibps = 100, .read_mibps = 400, .channel_mibps = 800,
		  .map_seed = 1, .cache_mib = 64, .odd_dies = 1, .odd_pct = 200, .small_zones = 8,
		  .command_us = 200, .active = 8, .zone = MIB(16), .seed = 2641 },
		{ "nearly all zones on one die", .zones = 64, .channels = 1, .ways = 2,
		  .write_mibps = 40, .read_mibps = 400, .channel_mibps = 800, .map_seed = 5,
		  .small_zones = 2, .zone = MIB(8), .seed = 2 },
	};

	all(c, ZNS_ARRAY_SIZE(c));
}

/* Some reads are conclusive, and others contradict each other: zones with the latter are placed by
 * writes. */
static void some_unknown(void **state)
{
	static const struct drive_case c[] = {
		{ "a slow die behind a slow channel", .zones = 158, .channels = 4, .ways = 2,
		  .write_mibps = 40, .read_mibps = 800, .channel_mibps = 200, .map_seed = 6,
		  .cache_mib = 6, .odd_dies = 1, .odd_pct = 400, .active = 32, .zone = MIB(16),
		  .seed = 3 },
		{ "two quick dies behind slow channels, units of 1M", .zones = 236, .channels = 5,
		  .ways = 2, .write_mibps = 150, .read_mibps = 400, .channel_mibps = 400,
		  .map_seed = 829935, .unit_kib = 1024, .command_us = 50, .odd_dies = 2,
		  .odd_pct = 40, .active = 14, .zone = MIB(16), .seed = 3268 },
	};

	all(c, ZNS_ARRAY_SIZE(c));
}

/* Zones together are faster than one, since a command's latency is most of its time. */
static void commands_last(void **state)
{
	static const struct drive_case c[] = {
		{ "one domain, commands of 500 us", .zones = 64, .channels = 4, .ways = 2,
		  .write_mibps = 100, .read_mibps = 400, .channel_mibps = 800, .command_us = 500,
		  .unit_kib = 96, .active = 8, .zone = MIB(8), .shared = true, .seed = 4 },
		{ "one domain, units of 1M", .zones = 82, .channels = 2, .ways = 2,
		  .write_mibps = 150, .read_mibps = 400, .channel_mibps = 200, .unit_kib = 1024,
		  .zone = MIB(32), .shared = true, .seed = 661 },
	};

	all(c, ZNS_ARRAY_SIZE(c));
}

/* What all dies share shows less beside a slower die: it is on no channel of its own. */
static void slow_die_is_no_channel(void **state)
{
	static const struct drive_case c[] = {
		{ "a die 15 % slower behind a controller", .zones = 85, .channels = 3, .ways = 2,
		  .write_mibps = 100, .read_mibps = 400, .channel_mibps = 1600,
		  .controller_mibps = 1000, .command_us = 50, .cache_mib = 6, .odd_dies = 1,
		  .odd_pct = 115, .zone = MIB(8), .interleaved = true, .seed = 676 },
	};

	all(c, ZNS_ARRAY_SIZE(c));
}

/* Reads take planes for dies, and only two groups at once are as fast as the channel lets one be: each
 * pair of them is tried. */
static void planes_behind_a_channel(void **state)
{
	static const struct drive_case c[] = {
		{ "four dies of four planes, 150 each, on a channel of 400", .zones = 83,
		  .channels = 1, .ways = 4, .write_mibps = 150, .read_mibps = 400,
		  .channel_mibps = 400, .planes = 4, .active = 14, .controller_mibps = 1000,
		  .map_seed = 160223, .zone = MIB(32), .seed = 4244 },
	};

	all(c, ZNS_ARRAY_SIZE(c));
}

/* A channel is slower than its dies together: each promise is the channel's part. */
static void channels_below_dies(void **state)
{
	static const struct drive_case c[] = {
		{ "three dies of 150 on a channel of 200", .zones = 73, .channels = 4, .ways = 3,
		  .write_mibps = 150, .read_mibps = 400, .channel_mibps = 200, .map_seed = 7,
		  .zone = MIB(16), .seed = 157, .loaded = true },
	};

	all(c, ZNS_ARRAY_SIZE(c));
}

/* Behind a channel that is hardly faster than one die, zones of two dies wait for each other nearly as
 * long as zones of one: neither groups nor one domain. */
static void channel_like_one_die(void **state)
{
	static const struct drive_case c[] = {
		{ "three dies of 150 on the only channel, of 200", .zones = 76, .channels = 1,
		  .ways = 3, .write_mibps = 150, .read_mibps = 800, .channel_mibps = 200,
		  .unit_kib = 96, .cache_mib = 16, .active = 8, .map_seed = 811592, .zone = MIB(16),
		  .seed = 3850 },
		{ "four dies of 150 on each channel of 200", .zones = 195, .channels = 5, .ways = 4,
		  .write_mibps = 150, .read_mibps = 200, .channel_mibps = 200, .unit_kib = 96,
		  .cache_mib = 6, .command_us = 50, .map_seed = 477584, .zone = MIB(16),
		  .seed = 4289 },
		{ "four channels of 200, pairs of two dies that take 1.5 times as long",
		  .zones = 174, .channels = 4, .ways = 3, .write_mibps = 150, .read_mibps = 200,
		  .channel_mibps = 200, .unit_kib = 96, .map_seed = 867781, .zone = MIB(16),
		  .seed = 6198, .jitter_pct = 4 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(c); i++) {
		struct zns_probe_params par = { .seed = c[i].seed };
		struct zns_probe_drift drift;
		cleanup_free uint32_t *die = NULL;
		struct zns_dev *d = begin(&c[i], &die);

		assert_fails(zns_probe_run(d, &par, &map, &err), -EAGAIN,
			     "hardly faster than one die");
		zns_probe_fini(&map);
		/* each channel as a group */
		assert_ok(zns_probe_alloc(&map, c[i].zones));
		for (uint32_t z = 0; z < c[i].zones; z++)
			map.zone_group[z] = die[z] % c[i].channels;
		map.nr_groups = c[i].channels;
		map.one_domain = map.nr_groups == 1;
		assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
		assert_true(drift.sets_wrong);
		assert_int_equal(drift.domain_changed, map.one_domain);
		end(d);
	}
}

/* How many times as long as promised it takes to write a zone of each group. */
static double overdue(struct zns_dev *d)
{
	struct zns_race r[16] = { 0 };
	cleanup_free uint8_t *buf = calloc(1, map.unit);
	cleanup_free uint64_t *done = calloc(16 * 128, sizeof(*done));
	uint32_t most = zns_min((uint64_t)128, d->geo.zone_capacity / map.unit), zone[16];
	uint64_t start = zns_dev_now_ns(d);

	assert_true(buf && done && map.nr_groups <= 16);
	for (uint32_t g = 0; g < map.nr_groups; g++) {
		for (zone[g] = 0; map.zone_group[zone[g]] != g;)
			zone[g]++;
		r[g] = (struct zns_race){ .write = true,
					  .zone = zone[g],
					  .len = map.unit,
					  .count = most,
					  .buf = buf,
					  .done_ns = done + (size_t)128 * g };
	}
	assert_ok(zns_dev_race(d, r, map.nr_groups, &err));
	assert_ok(zns_dev_flush(d, &err));
	start = zns_dev_now_ns(d) - start;
	assert_ok(zns_dev_reset(d, zone, map.nr_groups, &err));
	return start / 1e9 * map.zone_write_mibps / ((double)most * map.unit / MIB(1));
}

/* Groups share something that slows them a little, less than two groups of one die would be slowed.
 * The promises hold while all groups are written, and a check of the map finds nothing. */
static void promises_hold(void **state)
{
	static const struct drive_case c[] = {
		{ "four dies of 60 on a channel of 200", .zones = 64, .channels = 2, .ways = 4,
		  .write_mibps = 60, .read_mibps = 800, .channel_mibps = 200, .command_us = 50,
		  .map_seed = 3, .zone = MIB(16), .seed = 2090 },
		{ "zones on three dies, of which one is slow", .zones = 153, .channels = 5,
		  .ways = 2, .write_mibps = 100, .read_mibps = 400, .channel_mibps = 400,
		  .odd_dies = 1, .odd_pct = 140, .row = 32, .active = 8, .zone_dies = 3,
		  .zone_step = 2, .zone = MIB(16), .map_seed = 450116, .seed = 1309 },
		{ "all stall for 30 ms each 64 MiB", .zones = 64, .channels = 4, .ways = 2,
		  .write_mibps = 100, .read_mibps = 400, .channel_mibps = 800, .map_seed = 2,
		  .controller_mibps = 3200, .gc_every_mib = 64, .gc_stall_ms = 30, .zone = MIB(16),
		  .seed = 1 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(c); i++) {
		struct zns_probe_params par = { .seed = c[i].seed };
		struct zns_probe_drift drift;
		cleanup_free uint32_t *die = NULL;
		struct zns_dev *d = begin(&c[i], &die);

		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_true(overdue(d) <= 1.1);
		map.written = 0;
		assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
		assert_int_equal(drift.sets_wrong, 0);
		assert_false(drift.rates_changed);
		end(d);
	}
}

/* A slow die of a channel that is slower than its dies hides how much is promised of the quick ones, and dies
 * whose channel is not known are no proof that reads wait for writes: what is promised of the dies of each
 * channel is what that can carry. */
static void odd_dies_behind_channels(void **state)
{
	static const struct drive_case c[] = {
		{ "a slow die on each of two channels of 200", .zones = 71, .channels = 2,
		  .ways = 4, .write_mibps = 150, .read_mibps = 400, .channel_mibps = 200,
		  .unit_kib = 96, .odd_dies = 2, .odd_pct = 140, .active = 32,
		  .controller_mibps = 3000, .map_seed = 2, .zone = MIB(16), .seed = 6230 },
		{ "a quick die on each of two channels of 200", .zones = 209, .channels = 2,
		  .ways = 4, .write_mibps = 150, .read_mibps = 400, .channel_mibps = 200,
		  .unit_kib = 96, .odd_dies = 2, .odd_pct = 87, .controller_mibps = 3000,
		  .interleaved = true, .zone = MIB(16), .seed = 6281 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(c); i++) {
		struct zns_probe_params par = { .seed = c[i].seed };
		cleanup_free uint32_t *die = NULL;
		struct zns_dev *d = begin(&c[i], &die);
		uint32_t promised[2] = { 0 };

		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_map(die, c[i].zones, 0, 0);
		for (uint32_t g = 0; g < map.nr_groups; g++) {
			uint32_t rate = map.group_write_mibps[g];

			assert_in_range(rate, 30, 70);
			promised[die[map.pivot[g]] % c[i].channels] += rate;
		}
		assert_in_range(promised[0], 150, 220);
		assert_in_range(promised[1], 150, 220);
		assert_in_range(map.zone_write_mibps, 30, 50);
		end(d);
	}
}

/* A short set ends with a program unit that is filled in part only. The rates that are stored are those of
 * long writes nevertheless, and so is the rate of all groups together. */
static void large_program_units(void **state)
{
	static const struct {
		struct drive_case c;
		uint32_t rate, together, read;
	} t[] = {
		{ { "units of 1M", .zones = 48, .channels = 1, .ways = 4, .write_mibps = 60,
		    .read_mibps = 400, .channel_mibps = 800, .unit_kib = 1024, .map_seed = 2,
		    .zone = MIB(16), .seed = 1 },
		  60,
		  0,
		  400 },
		{ { "units of 1M, controller of 300", .zones = 48, .channels = 4, .ways = 2,
		    .write_mibps = 60, .read_mibps = 400, .channel_mibps = 800, .unit_kib = 1024,
		    .map_seed = 3, .zone = MIB(16), .seed = 2, .controller_mibps = 300 },
		  60,
		  300,
		  300 },
		{ { "units of 1M, one domain", .zones = 48, .channels = 1, .ways = 4,
		    .write_mibps = 60, .read_mibps = 400, .channel_mibps = 800, .unit_kib = 1024,
		    .zone = MIB(16), .seed = 3, .shared = true },
		  240,
		  0,
		  800 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct zns_probe_params par = { .seed = t[i].c.seed };
		struct zns_probe_drift drift = { 0 };
		cleanup_free uint32_t *die = NULL;
		struct zns_dev *d = begin(&t[i].c, &die);

		assert_ok(zns_probe_run(d, &par, &map, &err));
		assert_map(die, t[i].c.zones, 0, 0);
		assert_in_range(map.zone_write_mibps, t[i].rate * 9 / 10, t[i].rate * 21 / 20);
		for (uint32_t g = 0; g < map.nr_groups; g++)
			assert_in_range(map.group_write_mibps[g], t[i].rate * 9 / 10,
					t[i].rate * 21 / 20);
		assert_in_range(map.device_write_mibps, t[i].together * 9 / 10,
				t[i].together * 21 / 20);
		assert_in_range(map.zone_read_mibps, t[i].read * 9 / 10, t[i].read * 21 / 20);
		map.written = 0;
		if (!t[i].together)
			assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
		assert_false(drift.domain_changed || drift.sets_wrong || drift.rates_changed);
		end(d);
	}
}

/* A set may end with a part of a round on the three dies that each zone is striped over. That makes no two
 * kinds of pairs, nor does it if the budget ends before longer sets have shown so. */
static void striped_over_three_dies(void **state)
{
	static const struct drive_case c[] = {
		{ "each zone on all of three dies", .zones = 64, .channels = 1, .ways = 3,
		  .write_mibps = 60, .read_mibps = 800, .channel_mibps = 1600, .zone_dies = 3,
		  .zone_step = 1, .map_seed = 2, .zone = MIB(16), .seed = 6197 },
		{ "each zone on three of nine dies", .zones = 64, .channels = 3, .ways = 3,
		  .write_mibps = 40, .read_mibps = 200, .channel_mibps = 800, .zone_dies = 3,
		  .interleaved = true, .zone = MIB(32), .seed = 6528 },
	};

	for (uint32_t i = 0; i < ZNS_ARRAY_SIZE(c); i++) {
		struct zns_probe_params par = { .seed = c[i].seed };
		cleanup_free uint32_t *die = NULL;
		struct zns_dev *d = begin(&c[i], &die);

		for (uint32_t k = 0; k < 2; k++) {
			assert_ok(zns_probe_run(d, &par, &map, &err));
			assert_int_equal(map.nr_groups, c[i].channels);
			for (uint32_t z = 0; z < c[i].zones; z++)
				assert_int_equal(map.zone_group[z], i ? map.zone_group[die[z]] : 0);
			par.budget = map.written / 5 * 4;
			if (!k)
				zns_probe_fini(&map);
		}
		end(d);
	}
}

/* Zones that share one of their three dies wait for each other in a long set only. */
static void three_of_eight_dies(void **state)
{
	static const struct drive_case c = { "each zone on three of eight dies",
					     .zones = 214,
					     .channels = 2,
					     .ways = 4,
					     .write_mibps = 100,
					     .read_mibps = 400,
					     .channel_mibps = 400,
					     .cache_mib = 6,
					     .unit_kib = 96,
					     .command_us = 200,
					     .zone_dies = 3,
					     .zone_step = 2,
					     .heat_mib = 64,
					     .cool_mibps = 400,
					     .throttle_pct = 200,
					     .map_seed = 670171,
					     .zone = MIB(16),
					     .seed = 6254 };
	struct zns_probe_params par = { .seed = c.seed };
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d = begin(&c, &die);

	assert_fails(zns_probe_run(d, &par, &map, &err), -EAGAIN, "zones lie on several dies each");
	end(d);
}

/* Quick zones get more beside slow ones, and the default budget is enough for that. */
static void slow_dies_among_many(void **state)
{
	static const struct drive_case c = { "two of 64 dies are slow",
					     .zones = 128,
					     .channels = 8,
					     .ways = 8,
					     .write_mibps = 40,
					     .read_mibps = 400,
					     .channel_mibps = 1600,
					     .map_seed = 8,
					     .odd_dies = 2,
					     .odd_pct = 800,
					     .active = 64,
					     .zone = MIB(32),
					     .seed = 8 };
	struct zns_probe_params par = { .seed = c.seed };
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d = begin(&c, &die);

	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_map(die, c.zones, 0, 0);
	end(d);
}

/* A drive that gets hot is refused by that name. */
static void gets_hot(void **state)
{
	static const struct drive_case c = { .name = "throttled after 64 MiB",
					     .zones = 96,
					     .channels = 4,
					     .ways = 4,
					     .write_mibps = 100,
					     .read_mibps = 400,
					     .channel_mibps = 800,
					     .map_seed = 2,
					     .heat_mib = 64,
					     .cool_mibps = 100,
					     .throttle_pct = 200,
					     .zone = MIB(16) };
	struct zns_probe_params par = { .seed = 1 };
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d = begin(&c, &die);

	assert_fails(zns_probe_run(d, &par, &map, &err), -EAGAIN, "the device's rate changes");
	assert_says("right after much was written");
	end(d);
}

/* Each group's rate is kept; a group that became slower is drift, and one that was slow is none. */
static void rates_of_groups(void **state)
{
	static const struct drive_case c = { .name = "a die three times slower",
					     .zones = 48,
					     .channels = 2,
					     .ways = 2,
					     .write_mibps = 90,
					     .read_mibps = 400,
					     .channel_mibps = 800,
					     .map_seed = 3,
					     .odd_dies = 1,
					     .odd_pct = 300,
					     .zone = MIB(8) };
	struct zns_probe_params par = { .seed = 4 };
	struct zns_probe_drift drift;
	cleanup_free uint32_t *die = NULL;
	struct zns_dev *d = begin(&c, &die);
	uint32_t slow = 0;

	assert_ok(zns_probe_run(d, &par, &map, &err));
	assert_map(die, c.zones, 0, 0);
	for (uint32_t z = 0; z < c.zones; z++) {
		uint32_t rate = map.group_write_mibps[map.zone_group[z]];

		assert_in_range(rate, die[z] ? 86 : 28, die[z] ? 92 : 31);
		slow = die[z] ? slow : map.zone_group[z];
	}
	assert_int_equal(map.zone_write_mibps, map.group_write_mibps[slow]);
	assert_in_range(map.zone_read_mibps, 375, 415);
	assert_in_range(map.group_read_mibps[slow], 120, 140);
	/* which zones are tried is nothing to the verdict */
	for (uint32_t k = 0; k < 8; k++) {
		par.seed = zns_hash(&k, sizeof(k));
		map.written = 0;
		assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
		assert_false(drift.rates_changed || drift.sets_wrong || drift.domain_changed);
	}
	/* an older program stored the median of some zones */
	memset(map.group_read_mibps, 0, map.nr_groups * sizeof(*map.group_read_mibps));
	map.zone_read_mibps = 266;
	map.written = 0;
	assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
	assert_false(drift.rates_changed);
	map.group_write_mibps[slow] = 90;
	map.written = 0;
	assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
	assert_true(drift.rates_changed);
	assert_false(drift.sets_wrong);
	end(d);
}

/* A drive that became quicker is none that had less of its rate while others wrote. */
static void quicker_is_drift(void **state)
{
	struct drive_case c = { .name = "half as fast again",
				.zones = 48,
				.channels = 2,
				.ways = 2,
				.write_mibps = 90,
				.read_mibps = 400,
				.channel_mibps = 800,
				.map_seed = 3,
				.zone = MIB(8) };
	struct zns_probe_params par = { .seed = 4 };
	struct zns_probe_drift drift;
	cleanup_free uint32_t *die = NULL, *same = NULL;
	struct zns_dev *d = begin(&c, &die);

	assert_ok(zns_probe_run(d, &par, &map, &err));
	zns_dev_close(d);
	assert_true(map.load == 1);
	c.write_mibps = 135;
	d = make(&c, &same);
	for (uint32_t older = 0; older < 2; older++) {
		map.load = older ? 0 : 1;
		for (uint32_t g = 0; g < map.nr_groups; g++)
			map.group_write_mibps[g] = map.zone_write_mibps;
		map.written = 0;
		assert_ok(zns_probe_verify(d, &par, &map, 0, &drift, &err));
		assert_int_equal(drift.sets_wrong, 0);
		/* an older program did not store which of both it is */
		assert_int_equal(drift.rates_changed, !older);
	}
	end(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { T(reads_wait_for_more),    T(some_unknown),
					    T(commands_last),          T(channels_below_dies),
					    T(channel_like_one_die),   T(planes_behind_a_channel),
					    T(slow_die_is_no_channel), T(rates_of_groups),
					    T(promises_hold),          T(gets_hot),
					    T(quicker_is_drift),       T(odd_dies_behind_channels),
					    T(large_program_units),    T(striped_over_three_dies),
					    T(three_of_eight_dies),    T(slow_dies_among_many) };

	if (emu_begin(NULL))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL) | emu_end(NULL);
}
