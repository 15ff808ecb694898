/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures the speed of one zone if nobody has described the device: writes and reads the zone
 * while nothing else runs, then resets it.
 */
#include <string.h>
#include "lib/ctl.h"

#define TRANSFER KIB(512)
#define LENGTH MIB(64) /* most bytes to write; much more than a drive's buffer holds */
#define WARM_UP 4 /* the first quarter is not counted, since it only fills the drive's buffer */

static int pick_empty(struct zns_dev *dev, uint32_t *zone, uint64_t *capacity, struct zns_err *err)
{
	cleanup_free struct zns_zone *z = calloc(dev->geo.nr_zones, sizeof(*z));
	int ret;

	if (!z)
		return zns_fail(err, -ENOMEM, "no memory for a list of zones");
	ret = zns_dev_report(dev, 0, dev->geo.nr_zones, z, err);
	if (ret)
		return ret;
	for (uint32_t i = dev->geo.nr_zones; i-- > 0;)
		if (z[i].state == ZNS_ZONE_EMPTY && !z[i].conventional) {
			*zone = i;
			*capacity = z[i].capacity;
			return 0;
		}
	return zns_fail(
		err, -ENODATA,
		"%s has no empty zone to measure: say how fast a zone is with --zone-write-bw",
		dev->path);
}

/*
 * Fills the buffer with random data: with other data a drive that compresses would look too fast.
 */
static void fill(uint8_t *buf, size_t len)
{
	uint64_t x = 0x9e3779b97f4a7c15;

	for (size_t i = 0; i + sizeof(x) <= len; i += sizeof(x)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(buf + i, &x, sizeof(x));
	}
}

/*
 * Measures one direction. Only one transfer is under way at a time, as when a dump writes a zone.
 */
static int rate(struct zns_dev *dev, struct zns_race *r, uint64_t *done_ns, uint32_t *mibps,
		struct zns_err *err)
{
	uint32_t skip = r->count / WARM_UP;
	uint64_t ns, bytes;
	double v;
	int ret;

	r->done_ns = done_ns;
	ret = zns_dev_race(dev, r, 1, err);
	if (ret)
		return ret;
	ns = done_ns[r->count - 1] - (skip ? done_ns[skip - 1] : 0);
	bytes = (uint64_t)(r->count - skip) * r->len;
	v = (double)bytes / (double)MIB(1) / ((double)zns_max(ns, UINT64_C(1)) / 1e9);
	*mibps = (uint32_t)zns_max(zns_min(v + 0.5, 1e6), 1.0);
	return 0;
}

int ctl_measure_zone(struct zns_dev *dev, uint32_t *zone, uint32_t *write_mibps,
		     uint32_t *read_mibps, struct zns_err *err)
{
	uint32_t block = dev->geo.block_size,
		 len = zns_max(zns_min((uint32_t)TRANSFER, dev->geo.max_io_bytes) / block * block,
			       block);
	struct zns_err left = ZNS_ERR_INIT;
	cleanup_free uint64_t *done_ns = NULL;
	cleanup_free void *buf = NULL;
	struct zns_race r = { .write = true, .len = len };
	uint64_t capacity = 0;
	int ret, undone;

	ret = pick_empty(dev, zone, &capacity, err);
	if (ret)
		return ret;
	r.zone = *zone;
	r.count = (uint32_t)(zns_min(capacity, (uint64_t)LENGTH) / len);
	done_ns = calloc(r.count + 1, sizeof(*done_ns));
	if (!r.count || !done_ns || posix_memalign(&buf, zns_max(dev->geo.mem_align, KIB(4)), len))
		return zns_fail_sys(err, r.count ? -ENOMEM : -EINVAL, "%s: cannot measure a zone",
				    dev->path);
	r.buf = buf;
	fill(buf, len);
	ret = rate(dev, &r, done_ns, write_mibps, err);
	r.write = false;
	if (!ret)
		ret = rate(dev, &r, done_ns, read_mibps, err);
	undone = zns_dev_reset(dev, zone, 1, &left);
	if (undone && !ret) {
		*err = left;
		ret = undone;
	}
	if (ret)
		zns_wrap(err, "measuring zone %u (--zone-write-bw makes it unnecessary)", *zone);
	return ret;
}
