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
	int fd; /* opened by libzbd, with O_DIRECT */
	bool nvme; /* the drive accepts NVMe commands */
};

/* ---- block.c ---- */
/* Checks that libzbd has room for another descriptor; -EMFILE */
int block_check_descriptors(const char *spec, struct zns_err *err);

/* ---- block_queue.c ---- */
/* Fills in the limits of the geometry from the queue of block device @name. nr_zones, zone_size,
 * open and active limits and block size have been filled in from libzbd. */
void block_queue_limits(const char *name, struct zns_geometry *g);
/* Does the queue keep the order of writes to a zone? Kernels before 6.10 need an I/O scheduler for
 * that. */
int block_queue_ordered(const char *name, struct zns_err *err);

/* ---- block_io.c ---- */
/* Reports @nr zones, from zone @at of the drive on; they are numbered from @first on in @out.
 * @size: size of a zone. */
int block_report_run(int fd, uint64_t size, uint32_t at, uint32_t first, uint32_t nr,
		     struct zns_zone *out, struct zns_err *why);
/* Transfers all @len bytes. 0, -errno, or 1: the end of the device was reached before. @flags are
 * those of pwritev2(). */
int block_move(int fd, bool write, int flags, uint64_t pos, void *buf, size_t len);
/* converts an errno to the errors of struct hw_raw */
int block_fail(int code, struct zns_err *why);
extern const struct hw_raw block_raw;

#endif
