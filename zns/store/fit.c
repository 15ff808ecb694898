/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds out whether the catalogue can be kept when the number of zones changes. */
#include "store_int.h"

static int refuse_live(const struct zns_store *s, uint32_t nr_zones, struct zns_err *err)
{
	uint32_t least = s->nr_meta + 1;
	uint64_t live = 0;
	char text[32];

	for (uint32_t z = s->nr_meta; z < s->st.lim.nr_zones; z++) {
		uint64_t here = zns_store_zone_live(s, z);

		if (here)
			least = z + 1;
		if (z >= nr_zones)
			live += here;
	}
	return live ? zns_fail(
			      err, -EBUSY,
			      "%s: %s of checkpoints are behind zone %u, the last one with data is %u",
			      s->dev->path, zns_format_size(live, text, sizeof(text)), nr_zones - 1,
			      least - 1) :
		      0;
}

/* Rolls over, so that the log consists of a snapshot only: older records could name zones that will
 * be cut off. */
static int prepare_cut(struct zns_store *s, uint32_t nr_zones, struct zns_err *err)
{
	int ret = refuse_live(s, nr_zones, err);

	return ret ? ret : zns_store_roll(s, 0, err);
}

int zns_store_fit(struct zns_store *s, uint32_t nr_zones, struct zns_err *err)
{
	struct zns_geometry *geo = &s->dev->geo;
	uint32_t have = geo->nr_zones;
	struct zns_store *then;
	int ret = nr_zones < have ? prepare_cut(s, nr_zones, err) : 0;

	if (ret)
		return ret;
	/* open the store with the new number of zones: that proves that the catalogue stays
	 * valid */
	geo->nr_zones = nr_zones;
	ret = zns_store_open(s->dev, ZNS_STORE_RDONLY, &then, err);
	geo->nr_zones = have;
	if (ret)
		return ret;
	if (nr_zones > have && zns_store_snapshot_bytes(then) > then->min_cap / 4 * 3)
		ret = zns_fail(err, -ENOSPC,
			       "%s: the catalogue of so many zones would not fit into its log",
			       s->dev->path);
	zns_store_close(then);
	return ret;
}

int zns_store_follow(struct zns_store *s, struct zns_err *err)
{
	int ret = zns_state_follow(&s->st, s->dev->geo.nr_zones, err);

	if (!ret)
		ret = zns_store_fit_profile(&s->st, s->dev->geo.nr_zones, err);
	/* a log that states the old number is valid too, so a failure is no error; the next change
	 * tries again */
	if (!ret && zns_store_roll(s, 0, NULL))
		s->need_roll = true;
	return ret;
}
