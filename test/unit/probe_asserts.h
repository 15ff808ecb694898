/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_PROBE_ASSERTS_H
#define TEST_PROBE_ASSERTS_H
/* Compares what a probe found with the truth. */
#include "probe_drive.h"
#include "emu_common.h"
#include "zns/probe.h"

static struct zns_probe_map map;

/* The same partition, by dies and by channels. The zones of @unknown must be those that the
 * probe calls unknown. */
static inline void assert_map(const uint32_t *die, uint32_t nr, uint32_t channels, uint32_t unknown)
{
	uint32_t found = 0;

	for (uint32_t a = 0; a < nr; a++) {
		uint32_t ga = map.zone_group[a];

		if (ga == ZNS_PROBE_NONE) {
			found++;
			continue;
		}
		assert_true(ga < map.nr_groups);
		for (uint32_t b = 0; b < a; b++) {
			uint32_t gb = map.zone_group[b];

			if (gb == ZNS_PROBE_NONE)
				continue;
			if ((ga == gb) != (die[a] == die[b]))
				fail_msg("zones %u and %u: dies %u and %u, groups %u and %u", a, b,
					 die[a], die[b], ga, gb);
			if (channels && ga != gb && !map.nr_channels)
				fail_msg("channels (%u joined, loss %.2f): %s", map.nr_joined,
					 map.channel_loss, map.channel_doubt);
			if (channels && ga != gb &&
			    (map.group_channel[ga] == map.group_channel[gb]) !=
				    (die[a] % channels == die[b] % channels))
				fail_msg("zones %u and %u: dies %u and %u, channels %u and %u", a,
					 b, die[a], die[b], map.group_channel[ga],
					 map.group_channel[gb]);
		}
	}
	assert_int_equal(found, unknown);
}

static inline void assert_drive_clean(const struct drive *v)
{
	for (uint32_t z = 0; z < v->dev.geo.nr_zones; z++)
		assert_int_equal(v->state[z], ZNS_ZONE_EMPTY);
	assert_int_equal(v->finishes, 0);
	assert_true(!v->dev.geo.max_active || v->active_max <= v->dev.geo.max_active);
}

static inline void assert_drive_map(const struct drive *v)
{
	assert_map(v->read_die, v->dev.geo.nr_zones, v->channels, 0);
	assert_int_equal(map.nr_groups, v->dies);
	assert_int_equal(map.nr_channels, v->channels);
	assert_int_equal(map.written, v->written);
	assert_int_equal(map.resets, v->resets);
}

#endif
