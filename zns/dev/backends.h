/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_BACKENDS_H
#define ZNS_DEV_BACKENDS_H
/*
 * The open function of each backend; dev.c chooses one. They fulfil the contract of zns_dev_open. A
 * backend sets ops, geo and path of its struct zns_dev. zns_dev_open has checked that @spec fits
 * into path.
 */
#include <sys/types.h>
#include "zns/dev.h"

/* @spec includes the prefix, "emu:" or "file:". */
int emu_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err);

/* @spec includes the prefix, "zonefs:". */
int zonefs_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err);

/* @spec is an existing device node, and @dev is its device number. */
int block_open(const char *spec, dev_t dev, unsigned flags, struct zns_dev **out,
	       struct zns_err *err);
int nvme_open_ns(const char *spec, dev_t dev, unsigned flags, struct zns_dev **out,
		 struct zns_err *err);

#endif
