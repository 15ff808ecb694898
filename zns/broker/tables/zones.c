// SPDX-License-Identifier: GPL-2.0-only
/* The zone table: what each zone is, who writes it, what may be done with it. */
#include <string.h>
#include <sys/file.h>
#include "zns/layout.h"
#include "../znsd.h"

int zones_refresh(struct znsd *d, uint32_t first, uint32_t nr, struct zns_err *err)
{
	cleanup_free struct zns_zone *z = calloc(nr ? nr : 1, sizeof(*z));
	uint32_t i;
	int ret;

	if (!z)
		return zns_fail_sys(err, -ENOMEM, "zone report");
	ret = d->dev->ops->report(d->dev, first, nr, z, err);
	if (ret)
		return ret;
	for (i = 0; i < nr; i++)
		d->zones[first + i].z = z[i];
	return 0;
}

/* Zones that a probe could not place are on any die: nobody can be promised one. */
static bool group_unknown(const ZnsPb__Profile *p, uint32_t g)
{
	return p->has_unknown_group && p->unknown_group == g;
}

static int groups_init(struct znsd *d, struct zns_err *err)
{
	const ZnsPb__Profile *p = zns_store_profile(d->store);
	uint32_t i;

	if (!p || !p->n_groups || p->n_zone_group != d->nr_zones)
		return zns_fail(err, -EBADMSG, "%s: its profile does not cover its zones; run `znsctl format %s`", d->reg.path, d->reg.path);
	d->zone_mibps = p->zone_write_mibps ? p->zone_write_mibps : 1;
	d->ceiling_mibps = p->n_groups > 1 ? p->device_write_mibps : 0;
	d->nr_groups = p->n_groups;
	d->groups = znsd_alloc(d->nr_groups * sizeof(*d->groups));
	for (i = 0; i < d->nr_groups; i++)
		d->groups[i].channel = p->groups[i]->has_channel ? (int32_t)p->groups[i]->channel : -1;
	for (i = 0; i < d->nr_zones; i++) {
		uint32_t g = p->zone_group[i];

		if (g >= d->nr_groups)
			return zns_fail(err, -EBADMSG, "%s: its profile names a group that it does not have", d->reg.path);
		d->zones[i].group = g;
		if (d->zones[i].meta)
			d->groups[g].metadata = true;
		else if (!group_unknown(p, g))
			d->groups[g].nr_zones++;
	}
	for (i = 0; i < d->nr_groups; i++) {
		d->groups[i].zones = znsd_alloc(d->groups[i].nr_zones * sizeof(uint32_t));
		d->groups[i].nr_zones = 0;
	}
	for (i = 0; i < d->nr_zones; i++) {
		struct zn_group *g = &d->groups[d->zones[i].group];

		if (!d->zones[i].meta && !group_unknown(p, d->zones[i].group))
			g->zones[g->nr_zones++] = i;
	}
	/* A new broker must not start over with the same zones: wear. */
	for (i = 0; i < d->nr_groups; i++)
		if (d->groups[i].nr_zones)
			d->groups[i].next = (zns_store_generation(d->store) + zns_now_ns() / 1000) % d->groups[i].nr_zones;
	return 0;
}

int zones_init(struct znsd *d, struct zns_err *err)
{
	uint32_t i;
	int ret;

	d->nr_zones = d->dev->geo.nr_zones;
	d->zones = znsd_alloc(d->nr_zones * sizeof(*d->zones));
	ret = zones_refresh(d, 0, d->nr_zones, err);
	if (ret)
		return ret;
	for (i = 0; i < d->nr_zones; i++) {
		struct zn_zone *z = &d->zones[i];

		z->meta = i < zns_store_nr_meta(d->store) || z->z.conventional;
		z->old = z->z.wp > 0;
	}
	ret = groups_init(d, err);
	if (ret)
		return ret;
	groups_io_refresh(d);
	for (i = 0; i < d->nr_zones; i++)
		zone_settle(d, i);
	return 0;
}

void zones_fini(struct znsd *d)
{
	uint32_t i;

	for (i = 0; d->groups && i < d->nr_groups; i++)
		free(d->groups[i].zones);
	free(d->groups);
	free(d->zones);
	d->groups = NULL;
	d->zones = NULL;
}

uint64_t zone_live(const struct znsd *d, uint32_t zone)
{
	return zns_store_zone_live(d->store, zone);
}

bool zone_usable(const struct zn_zone *z)
{
	return !z->meta && z->z.state != ZNS_ZONE_READ_ONLY && z->z.state != ZNS_ZONE_OFFLINE;
}

/*
 * A record may claim bytes that were never written, or that a reset took: what a dump wrote there could not be committed
 * beside them. Such a zone is nobody's until the checkpoint is removed.
 */
static bool claimed_unwritten(const struct znsd *d, uint32_t zone)
{
	return zone_live(d, zone) > d->zones[zone].z.wp;
}

bool zone_empty(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_usable(z) && !claimed_unwritten(d, zone) && z->z.state == ZNS_ZONE_EMPTY && !z->writer && z->z.capacity >= ZNSD_UNIT_MIN;
}

bool zone_parked(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_usable(z) && !z->writer && !z->finishing && zns_zone_is_active(z->z.state) && zone_live(d, zone) &&
	       !claimed_unwritten(d, zone);
}

bool zone_parked_for(const struct znsd *d, uint32_t zone, const char *container, uint32_t min_room)
{
	const struct zn_zone *z = &d->zones[zone];
	const char *owner;

	if (!zone_parked(d, zone) || z->z.wp + zns_max((uint64_t)min_room, ZNSD_UNIT_MIN) > z->z.capacity)
		return false;
	owner = zns_store_zone_owner(d->store, zone);
	return owner && !strcmp(owner, container) && !zone_packed(d, zone);
}

bool zone_packed(const struct znsd *d, uint32_t zone)
{
	return zone_live(d, zone) && zns_store_zone_packed(d->store, zone) == zone_live(d, zone);
}

bool zone_parked_pack(const struct znsd *d, uint32_t zone, uint32_t min_room)
{
	const struct zn_zone *z = &d->zones[zone];

	return zone_parked(d, zone) && zone_packed(d, zone) && !d->groups[z->group].io &&
	       z->z.wp + zns_max((uint64_t)min_room, ZNSD_UNIT_MIN) <= z->z.capacity;
}

bool zone_garbage(const struct znsd *d, uint32_t zone)
{
	const struct zn_zone *z = &d->zones[zone];

	if (!zone_usable(z) || z->z.state == ZNS_ZONE_EMPTY || z->writer || z->readers || z->finishing)
		return false;
	if (z->old && !d->readers_clear)
		return false;
	/* Whoever reserved it for normal I/O writes there without telling us. */
	if (d->groups[z->group].io && !z->ours)
		return false;
	return !zone_live(d, zone);
}

void zone_settle(struct znsd *d, uint32_t zone)
{
	struct zn_zone *z = &d->zones[zone];
	struct zns_err err = ZNS_ERR_INIT;

	if (!zone_usable(z))
		return;
	if (!zone_live(d, zone)) {
		d->sweep = true;
		return;
	}
	if (zns_zone_is_open(z->z.state)) {
		if (zns_dev_close_zone(d->dev, zone, &err) || zones_refresh(d, zone, 1, &err))
			znsd_log("closing zone %u: %s", zone, err.msg);
		mount_heed(d, &err);
	}
	z->stamp = ++d->stamp;
	d->park_check = true;
}

uint32_t zones_reset(struct znsd *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct zns_err one = ZNS_ERR_INIT;
	uint32_t i, done = 0;
	int all, ret;

	if (!nr)
		return 0;
	all = zns_dev_reset(d->dev, zones, nr, &one);
	for (i = 0; i < nr; i++) {
		struct zn_zone *z = &d->zones[zones[i]];

		/* One bad zone fails a batch: find out which. */
		ret = all && nr > 1 ? zns_dev_reset(d->dev, &zones[i], 1, &one) : all;
		if (ret) {
			znsd_log("resetting zone %u: %s", zones[i], one.msg);
			mount_heed(d, &one);
			if (err)
				*err = one;
			z->retry_ns = zns_mono_ns() + ZNSD_RETRY_NS;
		} else {
			z->old = z->ours = false;
			done++;
		}
		if (zones_refresh(d, zones[i], 1, &one))
			znsd_log("zone %u: %s", zones[i], one.msg);
	}
	return done;
}

int zone_finish(struct znsd *d, uint32_t zone, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	int ret = zns_dev_finish(d->dev, zone, &why);

	if (ret) {
		mount_heed(d, &why);
		if (err)
			*err = why;
		d->zones[zone].retry_ns = zns_mono_ns() + ZNSD_RETRY_NS;
		zones_refresh(d, zone, 1, NULL);
		return ret;
	}
	return zones_refresh(d, zone, 1, err);
}

uint32_t zones_active(const struct znsd *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];

		if (z->meta || d->groups[z->group].io)
			continue;
		/* An empty zone in a writer's hands is active as soon as it writes. */
		n += zns_zone_is_active(z->z.state) || (z->writer && z->z.state == ZNS_ZONE_EMPTY);
	}
	return n;
}

uint32_t zones_idle_active(const struct znsd *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];

		n += !z->meta && !z->writer && zns_zone_is_active(z->z.state) && !d->groups[z->group].io;
	}
	return n;
}

uint32_t zones_parked(const struct znsd *d)
{
	uint32_t i, n = 0;

	for (i = 0; i < d->nr_zones; i++)
		n += zone_parked(d, i);
	return n;
}

uint32_t park_limit(struct znsd *d)
{
	uint32_t max = d->dev->geo.max_active, meta;

	if (!max)
		return UINT32_MAX;
	meta = meta_zones(d, false);
	return zns_max(1u, (max > meta ? max - meta : 1) / 2);
}

uint64_t tail_min(const struct znsd *d)
{
	return zns_max((uint64_t)ZNSD_UNIT_MIN, (uint64_t)zns_stripe_unit(&d->dev->geo));
}

uint32_t meta_zones(struct znsd *d, bool open)
{
	uint32_t nr = zns_store_nr_meta(d->store), n = 0, i;

	zones_refresh(d, 0, nr, NULL);
	for (i = 0; i < nr; i++) {
		enum zns_zone_state s = d->zones[i].z.state;

		n += !d->zones[i].z.conventional && (open ? zns_zone_is_open(s) : zns_zone_is_active(s));
	}
	return n ? n : 1;
}

enum busy { BUSY_NOT, BUSY_READ, BUSY_DUMP, BUSY_PROMISED };

static void note_busy(uint8_t *busy, enum busy what)
{
	*busy = zns_max(*busy, (uint8_t)what);
}

/* Who is disturbed by padding a zone, which takes its die for up to a second. */
static void groups_busy(const struct znsd *d, uint8_t *busy)
{
	const struct lease *l;
	uint32_t i;

	for (l = d->leases; l; l = l->next) {
		for (i = 0; i < l->nr_groups; i++)
			note_busy(&busy[l->groups[i]], !l->dump ? BUSY_READ : l->promised ? BUSY_PROMISED : BUSY_DUMP);
		for (i = 0; l->dump && i < l->nr_zones; i++)
			if (!l->zones[i].done && !l->zones[i].bad)
				note_busy(&busy[d->zones[l->zones[i].zone].group], BUSY_DUMP);
	}
	/* The log is written at every commit. */
	for (i = 0; i < d->nr_groups; i++)
		if (d->groups[i].metadata)
			note_busy(&busy[i], BUSY_READ);
}

bool zone_lru_parked(const struct znsd *d, bool urgent, uint32_t *zone)
{
	cleanup_free uint8_t *busy = znsd_alloc(d->nr_groups);
	uint64_t best = UINT64_MAX, now = zns_mono_ns();
	uint8_t least = urgent ? BUSY_DUMP : BUSY_READ;
	uint32_t i;

	groups_busy(d, busy);
	/* On an idle die if there is one; beside a dump only if somebody waits for it; one die leaves no choice. */
	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];
		uint8_t b = d->nr_groups > 1 ? busy[z->group] : BUSY_NOT;

		if (!zone_parked(d, i) || z->retry_ns > now || b > least || (b == least && z->stamp >= best))
			continue;
		best = z->stamp;
		least = b;
		*zone = i;
	}
	return best != UINT64_MAX;
}

/* Restore helpers of an earlier broker hold the readers lock while they read. */
bool readers_check(struct znsd *d)
{
	if (!d->readers_clear && !flock(d->readers_fd, LOCK_EX | LOCK_NB)) {
		/* Not kept: our own readers are known by their leases, and take it shared. */
		flock(d->readers_fd, LOCK_UN);
		d->readers_clear = true;
		d->sweep = true;
	}
	return d->readers_clear;
}
