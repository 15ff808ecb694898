/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Would the catalogue go on with another number of zones? */
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

/* Afterwards the log has a snapshot alone: an older record would name zones that are gone. */
static int prepare_cut(struct zns_dev *dev, uint32_t nr_zones, struct zns_err *err)
{
	struct zns_store *s;
	int ret = zns_store_open(dev, 0, &s, err);

	if (ret)
		return ret;
	ret = refuse_live(s, nr_zones, err);
	if (!ret)
		ret = zns_store_roll(s, 0, err);
	zns_store_close(s);
	return ret;
}

int zns_store_fit(struct zns_dev *dev, uint32_t nr_zones, struct zns_err *err)
{
	uint32_t have = dev->geo.nr_zones;
	struct zns_store *s;
	int ret = nr_zones < have ? prepare_cut(dev, nr_zones, err) : 0;

	if (ret)
		return ret;
	/* The proof: the catalogue is read as it will be. */
	dev->geo.nr_zones = nr_zones;
	ret = zns_store_open(dev, ZNS_STORE_RDONLY, &s, err);
	dev->geo.nr_zones = have;
	if (ret)
		return ret;
	if (nr_zones > have && zns_store_snapshot_bytes(s) > s->min_cap / 4 * 3)
		ret = zns_fail(err, -ENOSPC,
			       "%s: the catalogue of so many zones would not fit into its log",
			       dev->path);
	zns_store_close(s);
	return ret;
}
