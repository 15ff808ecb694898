/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MEMDEV_H
#define MEMDEV_H
/*
 * A zoned device in memory, for tests that crash thousands of times. Faults are counted over
 * writes, flushes, resets and finishes together: operation number `fail_at` fails, and `fail_nr` -
 * 1 or all (`dead`) after it. A power cut loses, per zone, any suffix written since the last flush,
 * and may undo resets that were not flushed.
 */
#include <stdlib.h>
#include <string.h>
#include "zns/dev.h"
#include "zns/util.h"

struct memzone {
	enum zns_zone_state forced; /* READ_ONLY, OFFLINE, or EMPTY for none */
	uint64_t wp, durable;
	uint8_t *data;
	uint8_t *old; /* before a reset that is not flushed */
	uint64_t old_wp;
};

struct memdev {
	struct zns_dev dev;
	struct memzone *z;
	uint32_t conventional; /* leading zones */
	uint64_t ops; /* so far */
	uint64_t fail_at; /* UINT64_MAX: never */
	uint64_t fail_nr; /* how many consecutive calls fail */
	bool dead;
	bool partial; /* a failing write leaves half of it on the device */
};

static bool memdev_fault(struct memdev *m)
{
	uint64_t n = m->ops++;

	return n >= m->fail_at && (m->dead || n - m->fail_at < m->fail_nr);
}

static void memdev_zone(struct memdev *m, uint32_t i, struct zns_zone *out)
{
	struct memzone *z = &m->z[i];

	*out = (struct zns_zone){ .index = i, .wp = z->wp, .capacity = m->dev.geo.zone_capacity };
	out->conventional = i < m->conventional;
	if (z->forced)
		out->state = z->forced;
	else
		out->state = !z->wp                 ? ZNS_ZONE_EMPTY :
			     z->wp == out->capacity ? ZNS_ZONE_FULL :
						      ZNS_ZONE_IMP_OPEN;
}

static int memdev_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
			 struct zns_err *err)
{
	if (first > d->geo.nr_zones || nr > d->geo.nr_zones - first)
		return zns_fail(err, -EINVAL, "report out of range");
	for (uint32_t i = 0; i < nr; i++)
		memdev_zone((struct memdev *)d, first + i, &out[i]);
	return 0;
}

static int memdev_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
			struct zns_err *err)
{
	struct memdev *m = (struct memdev *)d;
	struct memzone *z = &m->z[zone];

	if (zone >= d->geo.nr_zones || off % d->geo.block_size || len % d->geo.block_size || !len ||
	    (uintptr_t)buf % d->geo.mem_align || len > d->geo.max_io_bytes ||
	    zone < m->conventional)
		return zns_fail(err, -EINVAL, "write not aligned, too long or out of range");
	if (z->forced)
		return zns_fail(err, z->forced == ZNS_ZONE_OFFLINE ? -ENXIO : -EROFS, "zone %u",
				zone);
	if (off != z->wp)
		return zns_fail(err, -EIO, "write not at the write pointer");
	if (len > d->geo.zone_capacity - off)
		return zns_fail(err, -ENOSPC, "zone %u is full", zone);
	if (memdev_fault(m)) {
		size_t half = m->partial ? zns_align_up(len / 2, d->geo.block_size) : 0;

		memcpy(z->data + off, buf, half);
		z->wp += half;
		return zns_fail(err, -EIO, "injected write error");
	}
	memcpy(z->data + off, buf, len);
	z->wp += len;
	return 0;
}

static int memdev_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		       struct zns_err *err)
{
	struct memdev *m = (struct memdev *)d;

	if (zone >= d->geo.nr_zones || off % d->geo.block_size || len % d->geo.block_size || !len ||
	    (uintptr_t)buf % d->geo.mem_align || len > d->geo.max_io_bytes)
		return zns_fail(err, -EINVAL, "read not aligned, too long or out of range");
	if (m->z[zone].forced == ZNS_ZONE_OFFLINE)
		return zns_fail(err, -ENXIO, "zone %u is offline", zone);
	if (off > m->z[zone].wp || len > m->z[zone].wp - off)
		return zns_fail(err, -ENODATA, "read beyond the write pointer of zone %u", zone);
	memcpy(buf, m->z[zone].data + off, len);
	return 0;
}

static int memdev_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct memdev *m = (struct memdev *)d;

	if (memdev_fault(m))
		return zns_fail(err, -EIO, "injected reset error");
	for (uint32_t i = 0; i < nr; i++) {
		struct memzone *z = &m->z[zones[i]];

		if (zones[i] >= d->geo.nr_zones || zones[i] < m->conventional || z->forced)
			return zns_fail(err, -EIO, "zone %u cannot be reset", zones[i]);
		if (!z->old) {
			z->old = malloc(d->geo.zone_capacity);
			memcpy(z->old, z->data, z->durable);
			z->old_wp = z->durable;
		}
		memset(z->data, 0, z->wp);
		z->wp = z->durable = 0;
	}
	return 0;
}

static int memdev_flush(struct zns_dev *d, struct zns_err *err)
{
	struct memdev *m = (struct memdev *)d;

	if (memdev_fault(m))
		return zns_fail(err, -EIO, "injected flush error");
	for (uint32_t i = 0; i < d->geo.nr_zones; i++) {
		m->z[i].durable = m->z[i].wp;
		free(m->z[i].old);
		m->z[i].old = NULL;
	}
	return 0;
}

static void memdev_close(struct zns_dev *d)
{
	struct memdev *m = (struct memdev *)d;

	for (uint32_t i = 0; i < d->geo.nr_zones; i++) {
		free(m->z[i].data);
		free(m->z[i].old);
	}
	free(m->z);
	free(m);
}

static int memdev_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	struct memdev *m = (struct memdev *)d;

	if (memdev_fault(m))
		return zns_fail(err, -EIO, "injected finish error");
	if (m->z[zone].forced)
		return zns_fail(err, -EROFS, "zone %u", zone);
	m->z[zone].wp = d->geo.zone_capacity; /* bytes behind the end read as zeroes */
	return 0;
}

static int memdev_none(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	return zns_fail(err, -ENOSYS, "not in this device");
}

static const struct zns_dev_ops memdev_ops = {
	.name = "mem",
	.report = memdev_report,
	.write = memdev_write,
	.read = memdev_read,
	.reset = memdev_reset,
	.flush = memdev_flush,
	.close = memdev_close,
	.open_zone = memdev_none,
	.close_zone = memdev_none,
	.finish = memdev_finish,
};

static inline struct memdev *memdev_new(uint32_t nr_zones, uint64_t capacity, uint32_t block)
{
	struct memdev *m = calloc(1, sizeof(*m));

	m->dev.ops = &memdev_ops;
	m->dev.geo = (struct zns_geometry){ .nr_zones = nr_zones,
					    .block_size = block,
					    .zone_size = 2 * capacity,
					    .zone_capacity = capacity,
					    .max_io_bytes = KIB(64),
					    .mem_align = 512 };
	strcpy(m->dev.path, "mem:");
	m->z = calloc(nr_zones, sizeof(*m->z));
	for (uint32_t i = 0; i < nr_zones; i++)
		m->z[i].data = calloc(1, capacity);
	m->fail_at = UINT64_MAX;
	m->fail_nr = 1;
	return m;
}

/* Every permitted loss is drawn from @seed; 0 loses everything that may be lost, 1 nothing. */
static inline void memdev_power_cut(struct memdev *m, unsigned seed)
{
	uint32_t block = m->dev.geo.block_size;

	m->fail_at = UINT64_MAX;
	m->dead = false;
	for (uint32_t i = 0; i < m->dev.geo.nr_zones; i++) {
		struct memzone *z = &m->z[i];
		uint64_t blocks = (z->wp - z->durable) / block, keep;

		keep = seed == 0 ? 0 : seed == 1 ? blocks : (uint64_t)rand_r(&seed) % (blocks + 1);
		if (z->old && keep == 0 && (seed == 0 || (seed != 1 && rand_r(&seed) % 2))) {
			memset(z->data, 0, m->dev.geo.zone_capacity);
			memcpy(z->data, z->old, z->old_wp);
			z->wp = z->durable = z->old_wp;
		} else {
			memset(z->data + z->durable + keep * block, 0,
			       z->wp - z->durable - keep * block);
			z->wp = z->durable = z->durable + keep * block;
		}
		free(z->old);
		z->old = NULL;
	}
}

#endif
