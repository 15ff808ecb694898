/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_EXPOSE_H
#define ZNS_EXPOSE_H
/*
 * The zones of a reservation for normal I/O as a zoned block device of their own: device mapper's
 * "linear" over their ranges. The kernel forgets it when it ends; expose again then.
 */
#include "lib/ctl.h"

/* -EOPNOTSUPP, in one line, if @reg is no zoned block device of the kernel, or if there is no
 * device mapper. */
int expose_check(const struct zns_registered *reg, const char *name, struct zns_err *err);
/* Exposes all zones of these groups without live data. *@node: the block device; it may have
 * existed already. */
int expose(const struct zns_registered *reg, const char *name, const ZnsPb__Reservation *r,
	   char *node, size_t len, struct zns_err *err);
/* -EBUSY if zones of the device are exposed. @path: the device, which need not be formatted. */
int expose_none(const char *path, struct zns_err *err);
/* Removes it if it is there. -EBUSY: it is open or mounted. */
int expose_end(const struct zns_registered *reg, const char *name, struct zns_err *err);

#endif
