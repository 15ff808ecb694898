/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_DM_H
#define ZNS_DM_H
/* Device mapper of the kernel: devices that consist of ranges of one other device. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

struct dm_range {
	uint64_t start, len; /* sectors of 512 bytes */
};

/* The control device: a descriptor, or -EOPNOTSUPP with a remedy. */
int dm_open(struct zns_err *err);
/* Finds the device with this uuid, and its number. */
bool dm_find(int fd, const char *uuid, dev_t *dev);
int dm_make(int fd, const char *name, const char *uuid, dev_t below, const struct dm_range *range,
	    size_t nr, dev_t *dev, struct zns_err *err);
int dm_remove(int fd, const char *uuid); /* -errno */

#endif
