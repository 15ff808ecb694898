/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Checks the parameters of an emulated device, and builds the zone → die map that they define. */
#include "emu_priv.h"

#define MAX_MIBPS 1000000u
#define MAX_CACHE_MIB 65536u

static int check_mibps(const char *what, uint32_t v, bool needed, struct zns_err *err)
{
	if (v > MAX_MIBPS || (needed && !v))
		return zns_fail(err, -EINVAL, "%s of %u MiB/s: must be 1 to %u", what, v,
				MAX_MIBPS);
	return 0;
}

/* Checks the parameters of the timing model, which are only used if it is on. */
static int check_model(const struct zns_emu_params *p, struct zns_err *err)
{
	int ret = check_mibps("controller bandwidth", p->controller_mibps, false, err);

	if (ret)
		return ret;
	if (p->program_unit < 4096 || p->program_unit > MIB(16) || p->program_unit % p->block_size)
		return zns_fail(
			err, -EINVAL,
			"program unit of %u bytes: must be 4 KiB to 16 MiB, a multiple of the block size",
			p->program_unit);
	if (!p->buffer_units || p->buffer_units > EMU_MAX_BUFFER_UNITS)
		return zns_fail(err, -EINVAL, "write buffer of %u program units: must be 1 to %u",
				p->buffer_units, EMU_MAX_BUFFER_UNITS);
	if (p->command_us > 1000000 || p->reset_us > 10000000)
		return zns_fail(err, -EINVAL,
				"command latency of %u us, reset of %u us: at most 1 s and 10 s",
				p->command_us, p->reset_us);
	if (!p->gc_every_mib != !p->gc_stall_ms || p->gc_every_mib > MAX_MIBPS ||
	    p->gc_stall_ms > 60000)
		return zns_fail(
			err, -EINVAL,
			"garbage collection of %u ms after every %u MiB: both or neither, at most 60000 ms and %u MiB",
			p->gc_stall_ms, p->gc_every_mib, MAX_MIBPS);
	if (p->gc_every_mib && !p->controller_mibps)
		return zns_fail(err, -EINVAL,
				"garbage collection stops the controller: give it a bandwidth");
	if (p->cache_mib > MAX_CACHE_MIB || ((p->cache_mibps || p->cache_backed) && !p->cache_mib))
		return zns_fail(err, -EINVAL,
				"write cache of %u MiB, passed on at %u MiB/s: at most %u MiB",
				p->cache_mib, p->cache_mibps, MAX_CACHE_MIB);
	if (p->odd_dies ?
		    p->odd_dies > p->channels * p->ways || p->odd_pct < 10 || p->odd_pct > 1000 :
		    p->odd_pct)
		return zns_fail(
			err, -EINVAL,
			"%u odd dies of %u, at %u %% of the others' time: at most all dies, at 10 to 1000 %%",
			p->odd_dies, p->channels * p->ways, p->odd_pct);
	if (p->heat_mib > MAX_MIBPS || p->cool_mibps > MAX_MIBPS ||
	    (p->heat_mib ? !p->cool_mibps || p->throttle_pct <= 100 || p->throttle_pct > 1000 :
			   p->cool_mibps || p->throttle_pct))
		return zns_fail(
			err, -EINVAL,
			"throttled after %u MiB, cooled by %u MiB/s, to %u %% of the time: all of them or none, and 101 to 1000 %%",
			p->heat_mib, p->cool_mibps, p->throttle_pct);
	if (p->planes > 16)
		return zns_fail(err, -EINVAL, "%u planes of a die: at most 16", p->planes);
	return check_mibps("bandwidth behind the write cache", p->cache_mibps, false, err);
}

/* Checks the places of tables that a resize has moved: in front of the data or behind them. */
static int check_tables(const struct zns_emu_params *p, struct zns_err *err)
{
	struct emu_layout lay;

	if (p->table_zones >= p->nr_zones && p->table_zones <= EMU_MAX_ZONES &&
	    !(p->table_off % EMU_LIVE_OFF) && p->table_off < UINT64_C(1) << 60 &&
	    !(p->data_off % EMU_DATA_ALIGN) && p->data_off && p->data_off <= GIB(1)) {
		emu_layout_of(p, &lay);
		if (lay.dur_off + lay.dur_len <= lay.data_off || lay.live_off >= lay.data_end)
			return 0;
	}
	return zns_fail(err, -EINVAL, "zone tables for %u zones at byte %llu: impossible place",
			p->table_zones, (unsigned long long)p->table_off);
}

/* Checks the parameters that decide which zones are on which die. */
static int check_places(const struct zns_emu_params *p, struct zns_err *err)
{
	if (p->small_dies >= p->channels * p->ways || (p->small_dies && !p->small_zones) ||
	    (!p->small_dies && p->small_zones) ||
	    (p->map == ZNS_EMU_MAP_SHARED && (p->small_dies || p->row)) || p->row > p->nr_zones)
		return zns_fail(
			err, -EINVAL,
			"%u small dies of %u, %u zones on each, %u zones in a row: at least one die must have the full number, and a shared map can have neither",
			p->small_dies, p->channels * p->ways, p->small_zones, p->row);
	if (p->zone_dies > zns_min(p->channels * p->ways, EMU_MAX_BUFFER_UNITS) ||
	    p->zone_step > p->zone_dies ||
	    (p->zone_dies && (p->small_dies || p->map == ZNS_EMU_MAP_SHARED)))
		return zns_fail(
			err, -EINVAL,
			"zones striped over %u of %u dies, starting at every %u-th die: at most 4 dies, the step no larger than their number, and not with a shared map or small dies",
			p->zone_dies, p->channels * p->ways, p->zone_step);
	return 0;
}

/* Checks a store on an ordinary disk; there is no timing model of it. */
static int check_file(const struct zns_emu_params *p, struct zns_err *err)
{
	if (p->log_zones < 2 || p->log_zones >= p->nr_zones || p->log_zones > 16)
		return zns_fail(err, -EINVAL, "%u zones for the log: must be 2 to 16",
				p->log_zones);
	if (p->log_capacity < p->zone_capacity || p->log_capacity > GIB(4) ||
	    p->log_capacity % p->block_size ||
	    (p->log_block && (p->log_block < 512 || p->block_size % p->log_block)))
		return zns_fail(
			err, -EINVAL,
			"zones for the log of %llu bytes: must hold at least a zone's capacity, at most 4 GiB, in whole blocks",
			(unsigned long long)p->log_capacity);
	if (p->timing || p->max_open || p->max_active || p->map != ZNS_EMU_MAP_SHARED ||
	    p->zone_size != p->zone_capacity)
		return zns_fail(err, -EINVAL, "an ordinary disk has neither dies nor limits");
	return p->table_off ? check_tables(p, err) : 0;
}

int emu_params_check(const struct zns_emu_params *p, struct zns_err *err)
{
	char a[32], b[32];
	int ret;

	if (p->block_size != 512 && p->block_size != 4096)
		return zns_fail(err, -EINVAL, "block size of %u bytes: must be 512 or 4096",
				p->block_size);
	if (p->nr_zones < 4 || p->nr_zones > EMU_MAX_ZONES)
		return zns_fail(err, -EINVAL, "%u zones: must be 4 to %u", p->nr_zones,
				EMU_MAX_ZONES);
	if (!p->zone_size || p->zone_size > GIB(1024) || p->zone_size % p->block_size)
		return zns_fail(
			err, -EINVAL,
			"zone size of %llu bytes: must be a multiple of the block size (%u), at most 1 TiB",
			(unsigned long long)p->zone_size, p->block_size);
	if (!p->zone_capacity || p->zone_capacity % p->block_size)
		return zns_fail(
			err, -EINVAL,
			"zone capacity of %llu bytes: must be a multiple of the block size (%u)",
			(unsigned long long)p->zone_capacity, p->block_size);
	if (p->zone_capacity > p->zone_size)
		return zns_fail(err, -EINVAL,
				"zone capacity of %s is larger than the zone size of %s",
				zns_format_size(p->zone_capacity, a, sizeof(a)),
				zns_format_size(p->zone_size, b, sizeof(b)));
	if (p->max_active && p->max_open > p->max_active)
		return zns_fail(
			err, -EINVAL,
			"open limit of %u is above the active limit of %u: every open zone is active",
			p->max_open, p->max_active);
	if (!p->channels || !p->ways || (uint64_t)p->channels * p->ways > 1024)
		return zns_fail(err, -EINVAL,
				"%u channels x %u ways: both must be at least 1, dies at most 1024",
				p->channels, p->ways);
	if ((unsigned)p->map > ZNS_EMU_MAP_SHARED)
		return zns_fail(err, -EINVAL,
				"unknown zone map %u: must be interleaved, permuted:SEED or shared",
				(unsigned)p->map);
	if ((unsigned)p->prealloc > ZNS_EMU_SPARSE)
		return zns_fail(err, -EINVAL,
				"unknown preallocation %u: must be allocated, written or sparse",
				(unsigned)p->prealloc);
	ret = check_mibps("die write bandwidth", p->die_write_mibps, p->timing, err);
	if (!ret)
		ret = check_mibps("die read bandwidth", p->die_read_mibps, p->timing, err);
	if (!ret)
		ret = check_mibps("channel bandwidth", p->channel_mibps, p->timing, err);
	if (!ret && p->log_zones)
		return check_file(p, err);
	if (!ret)
		ret = check_places(p, err);
	return ret || !p->timing ? ret : check_model(p, err);
}

/* Builds a balanced random map: splits the zones into chunks of `dies`, each of which is a
 * permutation of all dies. This is a part of the format: the same parameters must always give the
 * same map. */
static void permute(const struct zns_emu_params *p, uint32_t *die_of_zone)
{
	uint32_t dies = p->channels * p->ways, order[1024];
	uint64_t seed = p->map_seed;

	for (uint32_t first = 0; first < p->nr_zones; first += dies) {
		for (uint32_t i = 0; i < dies; i++)
			order[i] = i;
		for (uint32_t left = dies; left > 1; left--) {
			uint32_t j = emu_random(&seed) % left, t = order[left - 1];

			order[left - 1] = order[j];
			order[j] = t;
		}
		for (uint32_t i = 0; i < dies && first + i < p->nr_zones; i++)
			die_of_zone[first + i] = order[i];
	}
}

/* Makes some dies small: these keep some of their zones, chosen by the seed. Their other zones are
 * distributed to the other dies. */
static void make_small(const struct zns_emu_params *p, uint32_t *die_of_zone)
{
	uint32_t dies = p->channels * p->ways, next = 0;
	uint64_t seed = p->map_seed + 1;

	for (uint32_t d = 0; d < p->small_dies; d++) {
		uint32_t left = 0, keep = p->small_zones;

		for (uint32_t z = 0; z < p->nr_zones; z++)
			left += die_of_zone[z] == d;
		for (uint32_t z = 0; z < p->nr_zones; z++) {
			if (die_of_zone[z] != d)
				continue;
			if (emu_random(&seed) % left-- < keep)
				keep--;
			else
				die_of_zone[z] = p->small_dies + next++ % (dies - p->small_dies);
		}
	}
}

void emu_map_build(const struct zns_emu_params *p, uint32_t *die_of_zone)
{
	uint32_t dies = p->channels * p->ways;

	if (p->map == ZNS_EMU_MAP_PERMUTED)
		permute(p, die_of_zone);
	else
		for (uint32_t z = 0; z < p->nr_zones; z++)
			die_of_zone[z] = p->map == ZNS_EMU_MAP_SHARED ? 0 : z % dies;
	/* backwards, so that no entry is overwritten before it is used */
	for (uint32_t z = p->nr_zones; p->row > 1 && z--;)
		die_of_zone[z] = die_of_zone[z / p->row];
	make_small(p, die_of_zone);
	for (uint32_t z = 0; p->zone_dies && z < p->nr_zones; z++)
		die_of_zone[z] -= die_of_zone[z] % (p->zone_step ? p->zone_step : p->zone_dies);
}

bool zns_emu_zones_overlap(const struct zns_emu_params *p)
{
	/* a zone that begins on one of the last dies continues on the first ones */
	return p->zone_dies > 1 && ((p->zone_step && p->zone_step < p->zone_dies) ||
				    p->channels * p->ways % p->zone_dies);
}
