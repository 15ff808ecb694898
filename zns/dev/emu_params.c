/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Parameters of an emulated device: presets, limits, and the zone → die map that follows from them. */
#include <string.h>

#include "emu_priv.h"

void zns_emu_default_params(struct zns_emu_params *p)
{
	*p = (struct zns_emu_params) {
		.nr_zones = 64,
		.block_size = 4096,
		.zone_size = MIB(64),
		.zone_capacity = MIB(64),
		.max_open = 0,
		.max_active = 32,
		.channels = 8,
		.ways = 4,
		.map = ZNS_EMU_MAP_INTERLEAVED,
		.timing = false,
		.die_write_mibps = 100,
		.die_read_mibps = 400,
		.channel_mibps = 800,
	};
}

/* 8 x 4 dies and 72 MiB zones of 100 MiB/s, as the emulated drive of the papers; fewer zones. */
static void profile_paper(struct zns_emu_params *p)
{
	p->nr_zones = 256;
	p->zone_size = p->zone_capacity = MIB(72);
	p->max_active = 0;
	p->timing = true;
}

/* Large zones, each spread over the whole drive: one conflict domain. */
static void profile_large_zone(struct zns_emu_params *p)
{
	p->nr_zones = 8;
	p->zone_size = MIB(2048);
	p->zone_capacity = MIB(1077);
	p->max_open = p->max_active = 14;
	p->map = ZNS_EMU_MAP_SHARED;
	p->timing = true;
}

/* Small zones, one die each, on a wide drive. */
static void profile_small_zone(struct zns_emu_params *p)
{
	p->nr_zones = 256;
	p->zone_size = p->zone_capacity = MIB(96);
	p->max_open = p->max_active = 384;
	p->channels = 16;
	p->ways = 8;
	p->timing = true;
}

int zns_emu_profile(const char *name, struct zns_emu_params *p, struct zns_err *err)
{
	static const struct {
		const char *name;
		void (*apply)(struct zns_emu_params *p);
	} profile[] = {
		{ "default", NULL },
		{ "paper", profile_paper },
		{ "large-zone", profile_large_zone },
		{ "small-zone", profile_small_zone },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(profile); i++) {
		if (strcmp(profile[i].name, name))
			continue;
		zns_emu_default_params(p);
		if (profile[i].apply)
			profile[i].apply(p);
		return 0;
	}
	return zns_fail(err, -ENOENT, "unknown profile \"%s\": the profiles are default, paper, large-zone, small-zone", name);
}

#define MAX_MIBPS 1000000u

static int check_mibps(const char *what, uint32_t v, bool needed, struct zns_err *err)
{
	if (v > MAX_MIBPS || (needed && !v))
		return zns_fail(err, -EINVAL, "%s of %u MiB/s: must be 1 to %u", what, v, MAX_MIBPS);
	return 0;
}

int emu_params_check(const struct zns_emu_params *p, struct zns_err *err)
{
	char a[32], b[32];
	int rc;

	if (p->block_size != 512 && p->block_size != 4096)
		return zns_fail(err, -EINVAL, "block size of %u bytes: must be 512 or 4096", p->block_size);
	if (p->nr_zones < 4 || p->nr_zones > EMU_MAX_ZONES)
		return zns_fail(err, -EINVAL, "%u zones: must be 4 to %u", p->nr_zones, EMU_MAX_ZONES);
	if (!p->zone_size || p->zone_size > GIB(1024) || p->zone_size % p->block_size)
		return zns_fail(err, -EINVAL, "zone size of %llu bytes: must be a multiple of the block size (%u), at most 1 TiB",
				(unsigned long long)p->zone_size, p->block_size);
	if (!p->zone_capacity || p->zone_capacity % p->block_size)
		return zns_fail(err, -EINVAL, "zone capacity of %llu bytes: must be a multiple of the block size (%u)",
				(unsigned long long)p->zone_capacity, p->block_size);
	if (p->zone_capacity > p->zone_size)
		return zns_fail(err, -EINVAL, "zone capacity of %s is larger than the zone size of %s",
				zns_format_size(p->zone_capacity, a, sizeof(a)), zns_format_size(p->zone_size, b, sizeof(b)));
	if (p->max_active && p->max_open > p->max_active)
		return zns_fail(err, -EINVAL, "open limit of %u is above the active limit of %u: every open zone is active",
				p->max_open, p->max_active);
	if (!p->channels || !p->ways || (uint64_t)p->channels * p->ways > 1024)
		return zns_fail(err, -EINVAL, "%u channels x %u ways: both must be at least 1, dies at most 1024", p->channels,
				p->ways);
	if ((unsigned)p->map > ZNS_EMU_MAP_SHARED)
		return zns_fail(err, -EINVAL, "unknown zone map %u: must be interleaved, permuted:SEED or shared", (unsigned)p->map);
	rc = check_mibps("die write bandwidth", p->die_write_mibps, p->timing, err);
	if (!rc)
		rc = check_mibps("die read bandwidth", p->die_read_mibps, p->timing, err);
	if (!rc)
		rc = check_mibps("channel bandwidth", p->channel_mibps, p->timing, err);
	return rc;
}

static uint64_t splitmix64(uint64_t *s)
{
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/*
 * Balanced: the zones in chunks of `dies`, each chunk a permutation of all dies. Part of the format: the
 * same parameters must give the same map for ever.
 */
static void permute(const struct zns_emu_params *p, uint32_t *die_of_zone)
{
	uint32_t dies = p->channels * p->ways, order[1024];
	uint64_t seed = p->map_seed;

	for (uint32_t first = 0; first < p->nr_zones; first += dies) {
		for (uint32_t i = 0; i < dies; i++)
			order[i] = i;
		for (uint32_t i = dies - 1; i; i--) {
			uint32_t j = splitmix64(&seed) % (i + 1), t = order[i];

			order[i] = order[j];
			order[j] = t;
		}
		for (uint32_t i = 0; i < dies && first + i < p->nr_zones; i++)
			die_of_zone[first + i] = order[i];
	}
}

void emu_map_build(const struct zns_emu_params *p, uint32_t *die_of_zone)
{
	uint32_t dies = p->channels * p->ways;

	if (p->map == ZNS_EMU_MAP_PERMUTED) {
		permute(p, die_of_zone);
		return;
	}
	for (uint32_t z = 0; z < p->nr_zones; z++)
		die_of_zone[z] = p->map == ZNS_EMU_MAP_SHARED ? 0 : z % dies;
}
