/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The first record of a metadata zone: UUID of the store, generation, and the geometry that it was
 * made for. */
#include <string.h>
#include "store_int.h"

int zns_superblock_put(struct zns_log *l, const uint8_t *uuid, const struct zns_geometry *geo,
		       uint32_t nr_meta, const uint32_t *skipped, size_t nr_skipped,
		       struct zns_err *err)
{
	ZnsPb__Superblock sb = ZNS_PB__SUPERBLOCK__INIT;

	sb.format = ZNS_STORE_FORMAT;
	sb.device.data = (uint8_t *)uuid;
	sb.device.len = ZNS_UUID_LEN;
	sb.generation = l->generation;
	sb.block_size = geo->block_size;
	sb.zone_size = geo->zone_size;
	sb.zone_capacity = geo->zone_capacity;
	sb.nr_zones = geo->nr_zones;
	sb.nr_meta_zones = nr_meta;
	sb.created_ns = zns_now_ns();
	sb.skipped_zones = (uint32_t *)skipped;
	sb.n_skipped_zones = nr_skipped;
	return zns_log_put(l, ZNS_FRAME_SUPERBLOCK, &sb.base, err);
}

int zns_superblock_parse(const struct zns_frame *f, const struct zns_geometry *geo,
			 uint32_t nr_meta, ZnsPb__Superblock **out, struct zns_err *err)
{
	ZnsPb__Superblock *sb = zns_pb__superblock__unpack(NULL, f->len, f->payload);
	int ret = 0;

	if (!sb)
		return zns_fail(err, -EBADMSG, "superblock cannot be decoded");
	if (sb->format > ZNS_STORE_FORMAT)
		ret = zns_fail(
			err, -EPROTONOSUPPORT,
			"the store has format %u, this program knows %d: use a newer ZNS-CRIU",
			sb->format, ZNS_STORE_FORMAT);
	else if (!sb->format || sb->device.len != ZNS_UUID_LEN || !sb->generation ||
		 sb->generation != f->generation || f->seq)
		ret = zns_fail(err, -EBADMSG, "superblock has impossible values");
	else if (sb->block_size != geo->block_size || sb->zone_size != geo->zone_size ||
		 sb->zone_capacity != geo->zone_capacity ||
		 (sb->nr_zones != geo->nr_zones && !zns_geo_is_disk(geo)) ||
		 sb->nr_meta_zones != nr_meta)
		ret = zns_fail(
			err, -EBADMSG,
			"the store was made for another geometry (%u zones of %llu bytes, blocks of %u)",
			sb->nr_zones, (unsigned long long)sb->zone_size, sb->block_size);
	if (ret) {
		zns_pb__superblock__free_unpacked(sb, NULL);
		return ret;
	}
	*out = sb;
	return 0;
}
