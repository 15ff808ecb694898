/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Decides which zones hold the log, and reads the states of these zones. */
#include "store_int.h"

bool zns_meta_usable(const struct zns_zone *z)
{
	return !z->conventional && z->state != ZNS_ZONE_READ_ONLY && z->state != ZNS_ZONE_OFFLINE;
}

uint32_t zns_store_meta_zones(const struct zns_geometry *geo)
{
	/* The log gets 0.02 % of the zones. */
	uint32_t n = zns_max(geo->nr_zones / 5000, (uint32_t)ZNS_META_ZONES_MIN);

	if (geo->log_zones)
		return geo->log_zones;
	return zns_min(n, geo->nr_zones / 2);
}

int zns_store_meta_range(struct zns_dev *dev, uint32_t *first, uint32_t *nr_meta,
			 struct zns_err *err)
{
	uint32_t n = zns_store_meta_zones(&dev->geo), lead = 0, total = dev->geo.nr_zones, got,
		 i = 0;
	struct zns_zone z[64];
	int ret;

	do {
		/* a disk has no conventional zones. It is not asked for them, since geo may already
		 * have the number of zones after a resize */
		got = zns_geo_is_disk(&dev->geo) ?
			      0 :
			      zns_min((uint32_t)ZNS_ARRAY_SIZE(z), total - lead);
		ret = got ? zns_dev_report(dev, lead, got, z, err) : 0;
		if (ret)
			return ret;
		for (i = 0; i < got && z[i].conventional; i++)
			lead++;
	} while (got && i == got);
	/* A roll-over needs two zones, and data need at least one. */
	if (n < 2 || lead >= total || n >= total - lead)
		return zns_fail(err, -ENOMEDIUM, "%s is too small for a store: %u sequential zones",
				dev->path, total - lead);
	*first = lead;
	*nr_meta = lead + n;
	return 0;
}

int zns_store_written(struct zns_dev *dev, uint32_t first, uint32_t *nr, struct zns_err *err)
{
	struct zns_zone z[64];

	*nr = 0;
	for (uint32_t at = first, got; at < dev->geo.nr_zones; at += got) {
		int ret;

		got = zns_min((uint32_t)ZNS_ARRAY_SIZE(z), dev->geo.nr_zones - at);
		ret = zns_dev_report(dev, at, got, z, err);
		if (ret)
			return ret;
		for (uint32_t i = 0; i < got; i++)
			*nr += !z[i].conventional && z[i].state != ZNS_ZONE_OFFLINE && z[i].wp > 0;
	}
	return 0;
}

void zns_store_min_cap(struct zns_store *s, const struct zns_zone *zones)
{
	s->min_cap = UINT64_MAX;
	for (uint32_t i = 0; i < s->nr_meta - s->first_meta; i++)
		if (zns_meta_usable(&zones[i]))
			s->min_cap = zns_min(s->min_cap, zns_log_room(s->dev, zones[i].capacity));
}
