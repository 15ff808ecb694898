/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_BLOCK_PRIV_H
#define ZNS_DEV_BLOCK_PRIV_H
/*
 * The kernel's zoned block devices: libzbd for reports and zone management, O_DIRECT for data.
 *
 * libzbd indexes a table of 1024 entries by descriptor and checks no bounds. So it may open a
 * device only while low descriptors are free.
 */
#include "hw_priv.h"

struct block {
	struct hw hw;
	int fd; /* libzbd's, O_DIRECT */
	bool nvme; /* accepts NVMe commands */
};

/* block.c */
/* libzbd has room for another descriptor; -EMFILE */
int block_check_descriptors(const char *spec, struct zns_err *err);

/* block_queue.c */
/* Geometry from the queue of block device @name. libzbd gives nr_zones, zone_size, limits and
 * block size. */
void block_queue_limits(const char *name, struct zns_geometry *g);
/* Writes to one zone must reach the device in order. Kernels before 6.10 need a scheduler for
 * that. */
int block_queue_ordered(const char *name, struct zns_err *err);

/* block_io.c */
struct zbd_zone;
void block_zone_of(const struct zbd_zone *z, uint32_t index, struct zns_zone *out);
int block_fail(int code, struct zns_err *why); /* the errors of struct hw_raw, from an errno */
extern const struct hw_raw block_raw;

#endif
