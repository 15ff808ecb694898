/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The probe by the wall clock. Its result depends on what else the machine does, so this is no unit
 * test: test_probe.c measures in model time.
 *
 *   soak_probe [TIMES [SEED]]
 */
#include "probe_asserts.h"

static uint32_t times = 4, first_seed = 1;

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

/* As on a real drive: with threads, the real clock, and other load on this machine. If the load is
 * too high the probe must refuse; an accepted map must be right. Returns true if there was one. */
static bool by_wall_clock(uint32_t seed)
{
	struct zns_emu_params p = timed(24, 2, 2);
	struct zns_probe_params par = { .seed = seed };
	struct zns_dev_ops plain;
	struct zns_dev *d;
	uint32_t die[24];
	int rc;

	p.map = ZNS_EMU_MAP_PERMUTED;
	p.map_seed = seed;
	p.die_write_mibps = p.die_read_mibps = 40;
	p.channel_mibps = 80;
	d = make_dev(&p);
	assert_ok(zns_emu_zone_map(d, die, &err));
	plain = *d->ops;
	plain.race = NULL;
	plain.now_ns = NULL;
	d->ops = &plain;
	memset(&map, 0, sizeof(map));
	rc = zns_probe_run(d, &par, &map, &err);
	if (rc) {
		print_message("refused: %s\n", err.msg);
		assert_int_equal(rc, -EAGAIN);
	}
	for (uint32_t z = 0; z < d->geo.nr_zones; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	for (uint32_t a = 0; !rc && a < 24; a++)
		for (uint32_t b = 0; b < a; b++)
			assert_true(map.zone_group[a] != ZNS_PROBE_NONE &&
				    (map.zone_group[a] == map.zone_group[b]) == (die[a] == die[b]));
	zns_probe_fini(&map);
	zns_dev_close(d);
	unlink(dev_path);
	return !rc;
}

static void wall_clock(void **state)
{
	uint32_t found = 0;

	for (uint32_t n = 0; n < times; n++)
		found += by_wall_clock(first_seed + n);
	print_message("%u of %u drives were measured, the others refused\n", found, times);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { T(wall_clock) };

	if (argc > 1)
		times = (uint32_t)strtoul(argv[1], NULL, 0);
	if (argc > 2)
		first_seed = (uint32_t)strtoul(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
