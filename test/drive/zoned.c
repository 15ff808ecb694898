/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A zoned drive: the timing model of the emulator, used through test/controls. QEMU keeps zone
 * states and limits. It tells its backend neither of a reset nor of a finish. But a reset writes
 * zeroes from the zone's start, and that costs an erase here; a finish costs nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "../controls/controls.h"
#include "drive.h"

struct zoned {
	struct drive d;
	struct zns_dev *dev;
	char path[64]; /* path of the emulated device that has the model; it stores no data */
	uint64_t *fill; /* bytes written since the last reset, by zone */
	uint32_t *die_of_zone;
	uint64_t resets;
};

static uint64_t ask(struct zoned *z, enum zns_emu_op op, uint32_t zone, uint64_t bytes,
		    uint64_t now)
{
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t done = now;

	if (zns_emu_model_submit(z->dev, op, zone, bytes, now, &done, &err)) {
		fprintf(stderr, "drive: %s\n", err.msg);
		abort();
	}
	return done;
}

static uint64_t span(struct zoned *z, enum zns_emu_op op, uint64_t off, uint32_t len, uint64_t now)
{
	uint64_t size = z->d.p.emu.zone_size, done = now;

	while (len) {
		uint32_t zone = (uint32_t)(off / size);
		uint64_t n = zns_min((uint64_t)len, size - off % size), end;

		end = ask(z, op, zone, n, now);
		if (op == ZNS_EMU_OP_WRITE)
			z->fill[zone] += n;
		done = zns_max(done, end);
		off += n;
		len -= (uint32_t)n;
	}
	return done;
}

static uint64_t zoned_write(struct drive *d, uint64_t off, uint32_t len, uint64_t now)
{
	return span((struct zoned *)d, ZNS_EMU_OP_WRITE, off, len, now);
}

static uint64_t zoned_read(struct drive *d, uint64_t off, uint32_t len, uint64_t now)
{
	return span((struct zoned *)d, ZNS_EMU_OP_READ, off, len, now);
}

static uint64_t zoned_flush(struct drive *d, uint64_t now)
{
	return ask((struct zoned *)d, ZNS_EMU_OP_FLUSH, 0, 0, now);
}

static uint64_t zoned_discard(struct drive *d, uint64_t off, uint64_t len, uint64_t now)
{
	struct zoned *z = (struct zoned *)d;
	uint64_t size = d->p.emu.zone_size, done = now, end;

	/* QEMU sends a zone's zeroes in pieces: the first one is the reset */
	for (uint64_t at = zns_align_up(off, size); at < off + len; at += size) {
		uint32_t zone = (uint32_t)(at / size);

		end = ask(z, ZNS_EMU_OP_RESET, zone, z->fill[zone], now);
		z->resets += z->fill[zone] > 0;
		z->fill[zone] = 0;
		done = zns_max(done, end);
	}
	return done;
}

static void zoned_stats(struct drive *d, FILE *f)
{
	struct zoned *z = (struct zoned *)d;
	struct zns_emu_load load;
	uint32_t dies = d->p.emu.channels * d->p.emu.ways;

	fprintf(f, "\"resets\": %llu, \"dies\": [", (unsigned long long)z->resets);
	for (uint32_t i = 0; i < dies; i++)
		if (!zns_emu_model_load(z->dev, ZNS_EMU_DIE, i, &load, NULL))
			fprintf(f, "%s{\"busy_ns\": %llu, \"written\": %llu, \"read\": %llu}",
				i ? ", " : "", (unsigned long long)load.busy_ns,
				(unsigned long long)load.written, (unsigned long long)load.read);
	fprintf(f, "], \"zone_die\": [");
	for (uint32_t i = 0; i < d->p.emu.nr_zones; i++)
		fprintf(f, "%s%u", i ? ", " : "", z->die_of_zone[i]);
	fprintf(f, "], ");
}

static void zoned_close(struct drive *d)
{
	struct zoned *z = (struct zoned *)d;

	if (z->dev)
		zns_dev_close(z->dev);
	if (z->path[0])
		unlink(z->path);
	free(z->fill);
	free(z->die_of_zone);
	free(z);
}

static const struct drive_ops zoned_ops = {
	.write = zoned_write,
	.read = zoned_read,
	.flush = zoned_flush,
	.discard = zoned_discard,
	.stats = zoned_stats,
	.close = zoned_close,
};

/* An emulated device without data, for its model; sparse, and gone when it is closed. */
static int make_model(struct zoned *z, struct zns_err *err)
{
	char spec[80];
	int fd, ret;

	snprintf(z->path, sizeof(z->path), "/tmp/zns-drive-XXXXXX");
	fd = mkstemp(z->path);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "a file in /tmp");
	close(fd);
	ret = zns_emu_create(z->path, &z->d.p.emu, true, err);
	snprintf(spec, sizeof(spec), "emu:%s", z->path);
	if (!ret)
		ret = zns_dev_open(spec, 0, &z->dev, err);
	return ret ? ret : zns_emu_zone_map(z->dev, z->die_of_zone, err);
}

int drive_zoned_open(const struct drive_params *p, struct drive **out, struct zns_err *err)
{
	struct zoned *z = calloc(1, sizeof(*z));
	int ret;

	if (!z)
		return zns_fail(err, -ENOMEM, "no memory");
	z->d.ops = &zoned_ops;
	z->d.p = *p;
	z->d.p.emu.prealloc = ZNS_EMU_SPARSE;
	z->d.p.emu.timing = true;
	z->d.p.emu.zone_capacity = p->emu.zone_size;
	z->d.p.emu.nr_zones = (uint32_t)(p->size / p->emu.zone_size);
	z->fill = calloc(z->d.p.emu.nr_zones, sizeof(*z->fill));
	z->die_of_zone = calloc(z->d.p.emu.nr_zones, sizeof(*z->die_of_zone));
	if (!z->fill || !z->die_of_zone || p->size % p->emu.zone_size)
		ret = zns_fail(err, -EINVAL, "the size is not a number of zones");
	else
		ret = make_model(z, err);
	if (ret)
		zoned_close(&z->d);
	else
		*out = &z->d;
	return ret;
}
