/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Checks that what the device reports is consistent (NVMe Zoned Namespace Command Set, 2.1 and 3).
 */
#include "selftest.h"

/* Returns why the report of this zone is impossible, or NULL. */
static const char *wrong(const struct zns_geometry *g, const struct zns_zone *z, uint32_t nr)
{
	if (z->index != nr)
		return "is reported under another number";
	if (z->state >= ZNS_ZONE_NR_STATES)
		return "is in no state that there is";
	if (z->conventional || z->state == ZNS_ZONE_OFFLINE)
		return NULL;
	if (!z->capacity || z->capacity > g->zone_size || z->capacity % g->block_size)
		return "has a capacity that is none";
	if (z->wp > z->capacity || z->wp % g->block_size)
		return "has a write pointer outside of its capacity, or within a block";
	if (z->state == ZNS_ZONE_EMPTY && z->wp)
		return "is empty, but written";
	if (z->state == ZNS_ZONE_FULL && z->wp != z->capacity)
		return "is full, but its write pointer is before its end";
	return NULL;
}

static void check_limits(struct selftest *s, const struct zns_geometry *g, const uint32_t *in)
{
	uint32_t open = in[ZNS_ZONE_IMP_OPEN] + in[ZNS_ZONE_EXP_OPEN];
	uint32_t active = open + in[ZNS_ZONE_CLOSED];

	if (g->max_open && g->max_active && g->max_open > g->max_active)
		st_say(s, ST_FAILED, "limits", "%u zones may be open, but only %u active",
		       g->max_open, g->max_active);
	else if ((g->max_open && open > g->max_open) || (g->max_active && active > g->max_active))
		st_say(s, ST_FAILED, "limits",
		       "%u zones are open and %u active, of %u and %u that may be", open, active,
		       g->max_open, g->max_active);
	else
		st_say(s, ST_OK, "limits",
		       "%u zones may be open, %u active (0: any number); %u and %u are",
		       g->max_open, g->max_active, open, active);
}

static void check_sizes(struct selftest *s, const struct zns_geometry *g)
{
	if (!g->nr_zones || g->block_size < 512 || g->block_size & (g->block_size - 1) ||
	    !g->zone_size || g->zone_size % g->block_size || g->max_io_bytes < g->block_size)
		st_say(s, ST_FAILED, "sizes",
		       "%u zones of %llu bytes, blocks of %u, transfers of %u do not fit together",
		       g->nr_zones, (unsigned long long)g->zone_size, g->block_size,
		       g->max_io_bytes);
	else
		st_say(s, ST_OK, "sizes",
		       "%u zones of %llu KiB, %llu usable, blocks of %u bytes, %u KiB a transfer",
		       g->nr_zones, (unsigned long long)g->zone_size >> 10,
		       (unsigned long long)g->zone_capacity >> 10, g->block_size,
		       g->max_io_bytes >> 10);
}

/* Reads the first block of the written part of some zones, from all over the device. */
static void check_reads(struct selftest *s, struct zns_dev *d, const struct zns_zone *z)
{
	uint32_t step = zns_max(d->geo.nr_zones / 64, 1u), nr = 0;
	cleanup_free uint8_t *buf = aligned_alloc(65536, zns_align_up(d->geo.block_size, 65536));

	for (uint32_t i = 0; buf && i < d->geo.nr_zones; i += step) {
		struct zns_err err = ZNS_ERR_INIT;

		if (z[i].conventional || !z[i].wp || z[i].state == ZNS_ZONE_OFFLINE)
			continue;
		nr++;
		if (zns_dev_read(d, i, 0, buf, d->geo.block_size, &err)) {
			st_say(s, ST_FAILED, "reading", "zone %u: %s", i, err.msg);
			return;
		}
	}
	if (nr)
		st_say(s, ST_OK, "reading", "the first block of %u zones", nr);
	else
		st_say(s, ST_NOT_RUN, "reading", "none of the zones looked at is written");
}

void st_geometry(struct selftest *s, struct zns_dev *d)
{
	const struct zns_geometry *g = &d->geo;
	cleanup_free struct zns_zone *z = calloc(g->nr_zones + 1, sizeof(*z));
	uint32_t in[ZNS_ZONE_NR_STATES] = { 0 }, bad = 0, first = 0;
	struct zns_err err = ZNS_ERR_INIT;
	const char *why = NULL;

	check_sizes(s, g);
	if (!z || zns_dev_report(d, 0, g->nr_zones, z, &err)) {
		st_say(s, ST_FAILED, "zones", "%s", z ? err.msg : "no memory for the report");
		return;
	}
	for (uint32_t i = 0; i < g->nr_zones; i++) {
		const char *this = wrong(g, &z[i], i);

		if (this && !bad++) {
			first = i;
			why = this;
		}
		if (z[i].state < ZNS_ZONE_NR_STATES && !z[i].conventional)
			in[z[i].state]++;
	}
	if (bad)
		st_say(s, ST_FAILED, "zones", "%u of %u: zone %u %s", bad, g->nr_zones, first, why);
	else
		st_say(s, ST_OK, "zones",
		       "%u empty, %u open, %u closed, %u full, %u read-only, %u offline",
		       in[ZNS_ZONE_EMPTY], in[ZNS_ZONE_IMP_OPEN] + in[ZNS_ZONE_EXP_OPEN],
		       in[ZNS_ZONE_CLOSED], in[ZNS_ZONE_FULL], in[ZNS_ZONE_READ_ONLY],
		       in[ZNS_ZONE_OFFLINE]);
	check_limits(s, g, in);
	check_reads(s, d, z);
}
