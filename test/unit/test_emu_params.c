/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated device: parameters, presets, maps, and where the file's space comes from. */
#include "emu_common.h"

static void profiles(void **state)
{
	static const char *const known[] = { "default",     "paper-conf",     "paper",
					     "paper-draft", "paper-draft-18", "large-zone",
					     "small-zone",  "conventional" };
	struct zns_emu_params p, q;

	zns_emu_default_params(&p);
	assert_int_equal(p.nr_zones * p.zone_size, GIB(4));
	assert_int_equal(p.block_size, 4096);
	assert_int_equal(p.channels * p.ways, 32);
	assert_int_equal(p.max_open, 0);
	assert_int_equal(p.max_active, 32);
	assert_false(p.timing);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(known); i++) {
		assert_ok(zns_emu_profile(known[i], &q, &err));
		assert_ok(emu_params_check(&q, &err));
		if (!i)
			assert_same_params(&p, &q);
	}
	assert_ok(zns_emu_profile("large-zone", &q, &err));
	assert_int_equal(q.map, ZNS_EMU_MAP_SHARED);
	assert_int_equal(q.zone_capacity, MIB(1077));
	assert_int_equal(q.nr_zones, 904);
	assert_int_equal(q.max_open, 14);
	assert_int_equal(q.max_active, 14);
	assert_in_range(q.die_write_mibps * q.channels * q.ways, 1140, 1160);
	assert_ok(zns_emu_profile("paper-conf", &q, &err));
	assert_int_equal(q.nr_zones, 29172);
	assert_int_equal(q.zone_size, MIB(72));
	assert_int_equal(q.channels * q.ways, 32);
	assert_int_equal(q.program_unit, KIB(192));
	assert_int_equal(q.die_write_mibps, 100);
	assert_ok(zns_emu_profile("paper-draft", &q, &err));
	assert_int_equal(q.channels * q.ways, 16);
	assert_ok(zns_emu_profile("paper-draft-18", &q, &err));
	assert_int_equal(q.channels * q.ways, 18);
	assert_ok(zns_emu_profile("small-zone", &q, &err));
	assert_int_equal(q.channels * q.ways, 128);
	assert_int_equal(q.max_active, 384);
	assert_ok(zns_emu_profile("conventional", &q, &err));
	assert_int_equal(q.controller_mibps, 1000);
	assert_true(q.gc_every_mib && q.gc_stall_ms);
	assert_fails(zns_emu_profile("nope", &q, &err), -ENOENT, "large-zone");
}

static void bad_params(void **state)
{
	static const struct {
		size_t off;
		unsigned size;
		uint64_t v;
		const char *says;
	} bad[] = {
#define P(f, v, s) \
	{ offsetof(struct zns_emu_params, f), sizeof(((struct zns_emu_params *)0)->f), v, s }
		P(block_size, 0, "512 or 4096"),
		P(block_size, 1024, "512 or 4096"),
		P(nr_zones, 3, "4 to"),
		P(nr_zones, UINT32_MAX, "4 to"),
		P(zone_size, 0, "zone size"),
		P(zone_size, MIB(1) + 1, "zone size"),
		P(zone_size, UINT64_MAX - 4095, "zone size"),
		P(zone_capacity, 0, "zone capacity"),
		P(zone_capacity, 512, "zone capacity"),
		P(zone_capacity, MIB(2), "larger than the zone size"),
		P(max_open, 7, "active limit"),
		P(channels, 0, "channels"),
		P(ways, 0, "ways"),
		P(channels, 1000, "1024"),
		P(channels, UINT32_MAX, "1024"),
		P(map, 7, "zone map"),
		P(die_write_mibps, 0, "die write"),
		P(die_read_mibps, 2000000, "die read"),
		P(channel_mibps, 0, "channel"),
		P(program_unit, 0, "program unit"),
		P(program_unit, 4097, "program unit"),
		P(program_unit, MIB(32), "program unit"),
		P(buffer_units, 0, "write buffer"),
		P(buffer_units, 5, "write buffer"),
		P(command_us, 2000000, "command latency"),
		P(reset_us, 20000000, "reset"),
		P(controller_mibps, 2000000, "controller"),
		P(gc_every_mib, 1, "both or neither"),
		P(gc_stall_ms, 1, "both or neither"),
		P(cache_mib, 100000, "write cache"),
		P(cache_mibps, 1, "write cache"),
		P(cache_backed, true, "write cache"),
		P(odd_pct, 50, "odd dies"),
		P(odd_dies, 1, "odd dies"),
		P(planes, 17, "planes"),
		P(small_dies, 4, "small dies"),
		P(small_dies, 1, "small dies"),
		P(small_zones, 1, "small dies"),
		P(row, 17, "zones in a row"),
		P(zone_dies, 5, "zones striped over"),
		P(zone_step, 1, "zones striped over"),
		P(heat_mib, 64, "throttled after"),
		P(cool_mibps, 10, "throttled after"),
		P(throttle_pct, 200, "throttled after"),
		P(prealloc, 3, "preallocation"),
#undef P
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		struct zns_emu_params p = small();

		p.timing = true;
		memcpy((char *)&p + bad[i].off, &bad[i].v, bad[i].size);
		assert_fails(zns_emu_create(dev_path, &p, false, &err), -EINVAL, bad[i].says);
		assert_int_equal(access(dev_path, F_OK), -1);
	}
	struct zns_emu_params p = small();

	p.die_write_mibps = 0; /* ignored while timing is off */
	assert_ok(zns_emu_create(dev_path, &p, false, &err));
	assert_fails(zns_emu_create("", &p, false, &err), -EINVAL, "emu:PATH");
}

static void create_without_space(void **state)
{
	struct zns_emu_params p = small();
	struct stat st;
	int fd;

	p.nr_zones = 1 << 20;
	p.zone_size = p.zone_capacity = GIB(1024); /* an exbibyte: no disk has it */
	err.msg[0] = '\0';
	assert_true(zns_emu_create(dev_path, &p, false, &err) < 0);
	assert_says("fewer or smaller zones (--zones N, at most ");
	assert_says("--sparse");
	assert_int_equal(access(dev_path, F_OK), -1);
	/* an existing file keeps its size and content */
	fd = open(dev_path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	assert_true(zns_emu_create(dev_path, &p, true, &err) < 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 8);
	close(fd);
}

static uint64_t allocated(void)
{
	struct stat st;

	assert_int_equal(stat(dev_path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void where_the_space_comes_from(void **state)
{
	struct zns_emu_params p = small(), q;
	cleanup_free uint8_t *buf = aligned(KIB(960));
	struct zns_dev *d;
	int fd;

	p.prealloc = ZNS_EMU_SPARSE;
	d = make_dev(&p);
	assert_true(allocated() < MIB(1));
	assert_ok(put(d, 3, 0, KIB(960), 1));
	check(d, 3, 0, KIB(960), 1);
	assert_ok(zns_emu_info(d, &q, NULL));
	/* The file's preallocation mode is not stored. */
	assert_int_equal(q.prealloc, ZNS_EMU_ALLOCATED);
	zns_dev_close(d);
	p.prealloc = ZNS_EMU_WRITTEN;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	assert_true(allocated() >= 16 * KIB(960));
	d = open_dev();
	assert_zone(d, 3, ZNS_ZONE_EMPTY, 0);
	fd = open(dev_path, O_RDONLY);
	memset(buf, 1, KIB(960));
	assert_int_equal(pread(fd, buf, KIB(960),
			       emu_of(d)->lay.data_off + 3 * emu_of(d)->lay.stride),
			 KIB(960));
	for (size_t i = 0; i < KIB(960); i++)
		assert_int_equal(buf[i], 0);
	close(fd);
	zns_dev_close(d);
	/* a terabyte of large zones, as a file of next to nothing */
	assert_ok(zns_emu_profile("large-zone", &p, &err));
	p.prealloc = ZNS_EMU_SPARSE;
	p.timing = false;
	unlink(dev_path);
	assert_ok(zns_emu_create(dev_path, &p, false, &err));
	assert_true(allocated() < MIB(4));
	d = open_dev();
	assert_ok(put(d, 903, 0, MIB(1), 1));
	check(d, 903, 0, MIB(1), 1);
	zns_dev_close(d);
}

static void timing_parameters_are_kept(void **state)
{
	struct zns_emu_params p = small(), q;
	struct zns_dev *d;

	p.timing = true;
	p.program_unit = KIB(64);
	p.buffer_units = 3;
	p.command_us = 7;
	p.reset_us = 1234;
	p.controller_mibps = 2000;
	p.gc_every_mib = 17;
	p.gc_stall_ms = 5;
	p.cache_mib = 6;
	p.cache_mibps = 300;
	p.cache_backed = true;
	p.odd_dies = 1;
	p.odd_pct = 140;
	p.planes = 2;
	p.small_dies = 1;
	p.small_zones = 3;
	p.row = 2;
	d = make_dev(&p);
	assert_ok(zns_emu_info(d, &q, NULL));
	assert_same_params(&p, &q);
	zns_dev_close(d);
	unlink(dev_path);
	p.small_dies = p.small_zones = 0;
	p.zone_dies = 3;
	p.zone_step = 2;
	p.heat_mib = 64;
	p.cool_mibps = 10;
	p.throttle_pct = 250;
	d = make_dev(&p);
	assert_ok(zns_emu_info(d, &q, NULL));
	assert_same_params(&p, &q);
	zns_dev_close(d);
}

static void maps(void **state)
{
	struct zns_emu_params p = small();
	uint32_t die[16], again[16], count[4] = { 0 };
	struct zns_dev *d = make_dev(&p);

	assert_ok(zns_emu_zone_map(d, die, &err));
	for (uint32_t z = 0; z < 16; z++)
		assert_int_equal(die[z], z % 4);
	zns_dev_close(d);

	p.map = ZNS_EMU_MAP_SHARED;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	d = open_dev();
	assert_ok(zns_emu_zone_map(d, die, &err));
	for (uint32_t z = 0; z < 16; z++)
		assert_int_equal(die[z], 0);
	zns_dev_close(d);

	p.map = ZNS_EMU_MAP_PERMUTED;
	p.map_seed = 42;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	d = open_dev();
	assert_ok(zns_emu_zone_map(d, die, &err));
	zns_dev_close(d);
	for (uint32_t z = 0; z < 16; z++) {
		assert_in_range(die[z], 0, 3);
		count[die[z]]++;
	}
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(count[i], 4);
	d = open_dev();
	assert_ok(zns_emu_zone_map(d, again, &err));
	assert_memory_equal(die, again, sizeof(die));
	zns_dev_close(d);
	p.map_seed = 43;
	emu_map_build(&p, again);
	assert_memory_not_equal(die, again, sizeof(die));
}

static void rows_and_small_dies(void **state)
{
	struct zns_emu_params p = small();
	uint32_t die[16], count[4] = { 0 };

	p.row = 4;
	emu_map_build(&p, die);
	for (uint32_t z = 0; z < 16; z++)
		assert_int_equal(die[z], z / 4);
	p.row = 0;
	p.small_dies = 1;
	p.small_zones = 1;
	emu_map_build(&p, die);
	for (uint32_t z = 0; z < 16; z++)
		count[die[z]]++;
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(count[i], i ? 5 : 1);
}

/* A map is drawn anew at each open, so the draw of a seed must stay what it was. */
static void draws_stay(void **state)
{
	struct zns_emu_params p = small();
	uint32_t die[16];
	char text[17] = { 0 };

	p.map = ZNS_EMU_MAP_PERMUTED;
	p.map_seed = 42;
	p.small_dies = 1;
	p.small_zones = 1;
	emu_map_build(&p, die);
	for (uint32_t z = 0; z < 16; z++)
		text[z] = (char)('0' + die[z]);
	assert_string_equal(text, "2031231123211332");
}

/* Every chunk holds every die once, also on large maps with a part of a chunk at the end. */
static void permuted_is_balanced(void **state)
{
	struct zns_emu_params p = small();
	uint32_t die[1000];
	size_t in_place = 0;

	p.nr_zones = 1000;
	p.channels = 16;
	p.ways = 8;
	p.map = ZNS_EMU_MAP_PERMUTED;
	for (p.map_seed = 0; p.map_seed < 20; p.map_seed++) {
		emu_map_build(&p, die);
		for (uint32_t c = 0; c < 1000; c += 128) {
			uint8_t seen[128] = { 0 };

			for (uint32_t i = c; i < c + 128 && i < 1000; i++) {
				assert_in_range(die[i], 0, 127);
				assert_int_equal(seen[die[i]]++, 0);
				in_place += die[i] == i % 128;
			}
		}
	}
	assert_true(in_place < 1000); /* about 156 of 20000 by chance */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(profiles),
		T(bad_params),
		T(create_without_space),
		T(where_the_space_comes_from),
		T(timing_parameters_are_kept),
		T(maps),
		T(permuted_is_balanced),
		T(rows_and_small_dies),
		T(draws_stay),
	};

	return cmocka_run_group_tests_name("emu-params", tests, NULL, NULL);
}
