/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An emulated device's file: a header with a good hash over fuzzed fields, then fuzzed bytes where
 * the tables are. What opens must report, read and write without harm, whatever its tables say.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../zns/dev/emu/emu_priv.h"

#define FILE_MAX MIB(4)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file(const uint8_t *data, size_t size, char *path)
{
	struct emu_header h;
	struct zns_emu_params p = { 0 };
	struct emu_layout lay;
	int fd;

	memset(&h, 0, sizeof(h));
	memcpy(&h, data, zns_min(size, sizeof(h)));
	h.magic = EMU_MAGIC;
	h.version = ZNS_EMU_FORMAT;
	h.header_bytes = sizeof(h);
	p.nr_zones = h.nr_zones %= 64;
	p.block_size = h.block_size;
	p.zone_size = h.zone_size;
	p.zone_capacity = h.zone_capacity;
	p.channels = h.channels;
	p.ways = h.ways;
	p.timing = h.timing;
	if (!h.channels || !h.ways || h.channels > 64 || h.ways > 64 || h.zone_capacity > KIB(64))
		return -1;
	emu_layout_of(&p, &lay);
	h.data_off = lay.data_off;
	h.total = lay.total;
	h.hash = zns_hash(&h, offsetof(struct emu_header, hash));
	if (lay.total > FILE_MAX)
		return -1;
	fd = mkstemp(path);
	if (fd < 0 || ftruncate(fd, (off_t)lay.total) || zns_pwrite_all(fd, &h, sizeof(h), 0))
		abort();
	for (uint32_t i = 0;
	     i < h.nr_zones && size >= sizeof(h) + (i + 1) * sizeof(struct emu_entry); i++) {
		struct emu_entry e;

		memcpy(&e, data + sizeof(h) + i * sizeof(e), sizeof(e));
		/* Every fourth keeps its own check: its zone must turn out offline. */
		if (i % 4)
			e.check = zns_hash_seeded(&e, offsetof(struct emu_entry, check), i);
		if (zns_pwrite_all(fd, &e, sizeof(e), (off_t)(lay.dur_off + i * sizeof(e))))
			abort();
	}
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[] = "/dev/shm/fuzz-emu-XXXXXX", spec[64];
	static uint8_t buf[65536] __attribute__((aligned(4096)));
	struct zns_dev *dev;
	int fd = file(data, size, path);

	if (fd < 0)
		return 0;
	close(fd);
	snprintf(spec, sizeof(spec), "emu:%s", path);
	if (!zns_dev_open(spec, 0, &dev, NULL)) {
		for (uint32_t i = 0; i < dev->geo.nr_zones; i++) {
			struct zns_zone z;

			if (zns_dev_report(dev, i, 1, &z, NULL))
				continue;
			if (z.wp > z.capacity || z.capacity > dev->geo.zone_size)
				abort();
			if (z.wp >= dev->geo.block_size)
				zns_dev_read(dev, i, 0, buf, dev->geo.block_size, NULL);
			zns_dev_write(dev, i, z.wp, buf, dev->geo.block_size, NULL);
			zns_dev_finish(dev, i, NULL);
			zns_dev_reset(dev, &i, 1, NULL);
		}
		zns_dev_flush(dev, NULL);
		zns_dev_close(dev);
	}
	unlink(path);
	return 0;
}
