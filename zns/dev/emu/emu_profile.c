/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Presets. They have as many zones as the real drives, so most of them need --zones or a sparse
 * file on an ordinary machine. Where a source gives a time instead of a rate, the rate is computed
 * from it and rounded (192 KiB in 1.91 ms: 98 MiB/s).
 */
#include <string.h>

#include "emu_priv.h"

void zns_emu_default_params(struct zns_emu_params *p)
{
	*p = (struct zns_emu_params){
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
		.program_unit = KIB(192),
		.buffer_units = 2,
		.command_us = 10,
		.reset_us = 3000,
	};
}

/* The prototype of the conference paper: 32 groups, 2 TB. */
static void paper_conf(struct zns_emu_params *p)
{
	p->nr_zones = 29172;
	p->zone_size = p->zone_capacity = MIB(72);
	p->max_active = 0;
	p->timing = true;
}

/* The same drive as described in the workshop draft: 16 groups in its text, 18 in its
 * evaluation. */
static void paper_draft(struct zns_emu_params *p)
{
	paper_conf(p);
	p->ways = 2;
}

static void paper_draft_18(struct zns_emu_params *p)
{
	paper_draft(p);
	p->channels = 9;
}

/* Large zones, each spread over the whole drive: one group of 1152 MiB/s, and a buffer of 960 KiB
 * for each zone. */
static void large_zone(struct zns_emu_params *p)
{
	p->nr_zones = 904;
	p->zone_size = MIB(2048);
	p->zone_capacity = MIB(1077);
	p->max_open = p->max_active = 14;
	p->map = ZNS_EMU_MAP_SHARED;
	p->timing = true;
	p->die_write_mibps = 36;
	p->die_read_mibps = 94;
	p->channel_mibps = 430;
	p->program_unit = KIB(480);
	p->reset_us = 16000;
}

/* Small zones, each on one die. The drive has more dies than its host interface can feed. */
static void small_zone(struct zns_emu_params *p)
{
	p->nr_zones = 40704;
	p->zone_size = p->zone_capacity = MIB(96);
	p->max_open = p->max_active = 384;
	p->channels = 16;
	p->ways = 8;
	p->timing = true;
	p->die_write_mibps = 98;
	p->die_read_mibps = 381;
	p->channel_mibps = 763;
	p->controller_mibps = 3052;
}

/*
 * For comparison: zones on a drive that behaves like a conventional one below, so that the same
 * programs can run on it. Each zone is as fast as the drive, all share one queue, and garbage
 * collection stops all of them.
 */
static void conventional(struct zns_emu_params *p)
{
	p->max_active = 0;
	p->map = ZNS_EMU_MAP_SHARED;
	p->timing = true;
	p->controller_mibps = 1000;
	p->gc_every_mib = 1024;
	p->gc_stall_ms = 100;
}

int zns_emu_profile(const char *name, struct zns_emu_params *p, struct zns_err *err)
{
	static const struct {
		const char *name;
		void (*apply)(struct zns_emu_params *p);
	} profile[] = {
		{ "default", NULL },
		{ "paper-conf", paper_conf },
		{ "paper", paper_conf },
		{ "paper-draft", paper_draft },
		{ "paper-draft-18", paper_draft_18 },
		{ "large-zone", large_zone },
		{ "small-zone", small_zone },
		{ "conventional", conventional },
	};

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(profile); i++) {
		if (strcmp(profile[i].name, name))
			continue;
		zns_emu_default_params(p);
		if (profile[i].apply)
			profile[i].apply(p);
		return 0;
	}
	return zns_fail(
		err, -ENOENT,
		"unknown profile \"%s\": the profiles are default, paper-conf, paper-draft, paper-draft-18, large-zone, small-zone, conventional",
		name);
}
