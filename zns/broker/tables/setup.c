/* SPDX-License-Identifier: GPL-2.0-only */
/* Sets up the tables of zones and groups when a broker starts. */
#include <string.h>
#include "tables.h"

/* Is this the group of zones that a probe could not map? They may be on any die, so nobody can be
 * promised such a group. */
static bool group_unknown(const ZnsPb__Profile *p, uint32_t g)
{
	return p->has_unknown_group && p->unknown_group == g;
}

static int groups_init(struct znsd *d, struct zns_err *err)
{
	const ZnsPb__Profile *p = zns_store_profile(d->store);
	uint32_t i, promised;

	if (!p || !p->n_groups || p->n_zone_group != d->nr_zones)
		return zns_fail(err, -EBADMSG,
				"%s: its profile does not cover its zones; run `znsctl format %s`",
				d->reg.path, d->reg.path);
	d->zone_mibps = zns_max(zns_profile_promise(p, &promised), 1u);
	d->ceiling_mibps = p->n_groups > 1 ? p->device_write_mibps : 0;
	d->nr_groups = p->n_groups;
	d->groups = znsd_alloc(d->nr_groups * sizeof(*d->groups));
	for (i = 0; i < d->nr_groups; i++) {
		d->groups[i].channel = p->groups[i]->has_channel ? (int32_t)p->groups[i]->channel :
								   -1;
		d->groups[i].mibps = zns_max(zns_profile_group_mibps(p, i), 1u);
	}
	for (i = 0; i < d->nr_zones; i++) {
		uint32_t g = p->zone_group[i];

		if (g >= d->nr_groups)
			return zns_fail(err, -EBADMSG,
					"%s: its profile names a group that it does not have",
					d->reg.path);
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
	/* Each broker starts to search at another zone, so that all zones wear equally. */
	for (i = 0; i < d->nr_groups; i++)
		if (d->groups[i].nr_zones)
			d->groups[i].next = (zns_store_generation(d->store) + zns_now_ns() / 1000) %
					    d->groups[i].nr_zones;
	return 0;
}

int tables_init(struct znsd *d, struct zns_err *err)
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

static void groups_fini(struct znsd *d)
{
	uint32_t i;

	for (i = 0; d->groups && i < d->nr_groups; i++)
		free(d->groups[i].zones);
	free(d->groups);
	d->groups = NULL;
}

int tables_follow(struct znsd *d, struct zns_err *err)
{
	uint32_t had = d->nr_zones, nr = d->dev->geo.nr_zones;
	struct zn_zone *zones = znsd_alloc(nr * sizeof(*zones));
	int ret;

	memcpy(zones, d->zones, zns_min(had, nr) * sizeof(*zones));
	free(d->zones);
	d->zones = zones;
	d->nr_zones = nr;
	groups_fini(d);
	ret = groups_init(d, err);
	if (!ret && nr > had)
		ret = zones_refresh(d, had, nr - had, err);
	if (!ret)
		groups_io_refresh(d);
	return ret;
}

void tables_fini(struct znsd *d)
{
	groups_fini(d);
	free(d->zones);
	d->zones = NULL;
}
