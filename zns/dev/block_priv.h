/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_BLOCK_PRIV_H
#define ZNS_DEV_BLOCK_PRIV_H
/*
 * The kernel's zoned block devices: libzbd for reports and zone management, O_DIRECT for data.
 *
 * libzbd notes its devices in a table indexed by descriptor, of 1024 entries and without a bound
 * check; so it may only open a device while low descriptors are free.
 */
#include "hw_priv.h"

struct block {
	struct hw hw;
	int fd; /* libzbd's, O_DIRECT */
	bool nvme; /* it takes NVMe commands */
};

/* block_queue.c */
/* Geometry from the queue of block device @name; nr_zones, zone_size, limits and block size are
 * libzbd's. */
void block_queue_limits(const char *name, struct zns_geometry *g);
/* Writes to one zone must reach the device in order: kernels before 6.10 leave that to a scheduler.
 */
int block_queue_ordered(const char *name, struct zns_err *err);

/* block_io.c */
extern const struct hw_raw block_raw;

#endif
