/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Writes an empty store to a device: resets all zones and writes generation 1, which has only the
 * profile. */
#include <string.h>
#include "kinds.h"

/*
 * Refuses a device that has no catalogue but is not empty: it holds foreign data, or the
 * checkpoints of a store that lost its catalogue. Metadata zones with a log of ours are not
 * refused: an interrupted format leaves them, after it has reset all other zones.
 */
static int refuse_written(struct zns_dev *dev, uint32_t first, uint32_t nr_meta,
			  struct zns_err *err)
{
	uint32_t data, n = 0;
	int ret = zns_store_written(dev, nr_meta, &data, err);

	for (uint32_t i = first; i < nr_meta && !ret; i++) {
		struct zns_log_reader r;
		struct zns_frame f;
		struct zns_zone z;

		ret = zns_dev_report(dev, i, 1, &z, err);
		if (ret || !z.wp || z.state == ZNS_ZONE_OFFLINE)
			continue;
		zns_log_reader_init(&r, dev, &z);
		n += zns_log_peek(&r, &f, NULL) != 1;
		zns_log_reader_fini(&r);
	}
	n += data;
	if (ret || !n)
		return ret;
	return zns_fail(
		err, -EEXIST,
		"%s has no catalogue, but %u of its zones are not empty: --force destroys what they hold, `znsctl fsck --rebuild %s` looks for checkpoints in them",
		dev->path, n, dev->path);
}

/* Reads from the device its UUID, if readable, and the number of the zone that its log is in. */
static int look_at_old(struct zns_dev *dev, uint32_t first, uint32_t nr_meta, bool force,
		       uint8_t *uuid, bool *has_uuid, uint32_t *log_zone, struct zns_err *err)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_store *s;
	size_t nr;
	int ret;

	ret = zns_store_open(dev, ZNS_STORE_RDONLY, &s, &e);
	if (ret == -ENOMEDIUM)
		return force ? 0 : refuse_written(dev, first, nr_meta, err);
	if (ret) {
		if (force)
			return 0;
		return zns_fail(err, -EEXIST,
				"the store on %s cannot be read; --force destroys it (%s)",
				dev->path, e.msg);
	}
	memcpy(uuid, zns_store_uuid(s), ZNS_UUID_LEN);
	*has_uuid = true;
	*log_zone = s->log.zone;
	nr = zns_store_nr_checkpoints(s);
	zns_store_close(s);
	if (nr && !force)
		return zns_fail(err, -EEXIST, "%s holds %zu checkpoint%s; --force destroys %s",
				dev->path, nr, nr == 1 ? "" : "s", nr == 1 ? "it" : "them");
	return 0;
}

static bool wants_reset(const struct zns_zone *z)
{
	return !z->conventional && z->state != ZNS_ZONE_EMPTY && z->state != ZNS_ZONE_READ_ONLY &&
	       z->state != ZNS_ZONE_OFFLINE;
}

/*
 * Resets older metadata zones, then the log's zone, then the data zones. Each step is durable
 * before the next one begins, so that an interrupted format never leaves a catalogue whose data are
 * gone.
 */
static int reset_all(struct zns_dev *dev, const struct zns_zone *zones, uint32_t nr_meta,
		     uint32_t log_zone, struct zns_err *err)
{
	cleanup_free uint32_t *list = calloc(dev->geo.nr_zones, sizeof(*list));

	if (!list)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", dev->geo.nr_zones);
	for (int step = 0; step < 3; step++) {
		uint32_t nr = 0;
		int ret;

		for (uint32_t i = 0; i < dev->geo.nr_zones; i++) {
			int when = i >= nr_meta ? 2 : i == log_zone;

			if (when == step && wants_reset(&zones[i]))
				list[nr++] = i;
		}
		if (!nr)
			continue;
		ret = zns_dev_reset(dev, list, nr, err);
		if (!ret)
			ret = zns_dev_flush(dev, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* A read-only metadata zone keeps its generation for ever, so the new generation must be higher
 * than this. */
static uint64_t stuck_generation(struct zns_dev *dev, const struct zns_zone *zones, uint32_t first,
				 uint32_t nr_meta)
{
	uint64_t max = 0;

	for (uint32_t i = first; i < nr_meta; i++) {
		struct zns_log_reader r;
		struct zns_frame f;

		if (zones[i].state != ZNS_ZONE_READ_ONLY)
			continue;
		zns_log_reader_init(&r, dev, &zones[i]);
		if (zns_log_peek(&r, &f, NULL) == 1)
			max = zns_max(max, f.generation);
		zns_log_reader_fini(&r);
	}
	return max;
}

static int fill_new(struct zns_store *s, const ZnsPb__Profile *profile, struct zns_err *err)
{
	int ret = zns_state_init(&s->st, &s->dev->geo, s->nr_meta, err);

	return ret ? ret : zns_record_set(&s->st, ZNS_FRAME_PROFILE, &profile->base, err);
}

int zns_store_format(struct zns_dev *dev, const uint8_t *uuid, const ZnsPb__Profile *profile,
		     bool force, uint8_t *uuid_out, struct zns_err *err)
{
	cleanup_free struct zns_zone *zones = calloc(dev->geo.nr_zones, sizeof(*zones));
	struct zns_store *s = zns_store_alloc(dev, 0, err);
	uint32_t log_zone = UINT32_MAX;
	bool has_uuid = false;
	int ret;

	if (!s || !zones) {
		zns_store_close(s);
		return zns_fail(err, -ENOMEM, "no memory for %u zones", dev->geo.nr_zones);
	}
	ret = zns_store_meta_range(dev, &s->first_meta, &s->nr_meta, err);
	if (ret == -ENOMEDIUM)
		ret = zns_fail(err, -EINVAL, "%s is too small for a store: %u zones", dev->path,
			       dev->geo.nr_zones);
	/* Check everything before the first reset, so that a refused format changes nothing. */
	if (!ret)
		ret = fill_new(s, profile, err);
	if (!ret)
		ret = look_at_old(dev, s->first_meta, s->nr_meta, force, s->uuid, &has_uuid,
				  &log_zone, err);
	if (!ret && !has_uuid && uuid)
		memcpy(s->uuid, uuid, ZNS_UUID_LEN);
	else if (!ret && !has_uuid)
		ret = zns_uuid_generate(s->uuid);
	if (!ret)
		ret = zns_dev_report(dev, 0, dev->geo.nr_zones, zones, err);
	if (!ret) {
		zns_store_min_cap(s, zones + s->first_meta);
		if (s->min_cap != UINT64_MAX && zns_store_snapshot_bytes(s) > s->min_cap)
			ret = zns_fail(
				err, -ENOSPC,
				"the profile does not fit into a metadata zone of %llu bytes",
				(unsigned long long)s->min_cap);
	}
	if (!ret) {
		s->max_generation = stuck_generation(dev, zones, s->first_meta, s->nr_meta);
		ret = reset_all(dev, zones, s->nr_meta, log_zone, err);
	}
	if (!ret)
		ret = zns_store_roll(s, 0, err);
	if (!ret && uuid_out)
		memcpy(uuid_out, s->uuid, ZNS_UUID_LEN);
	zns_store_close(s);
	return ret;
}
