/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_ZONEFS_PRIV_H
#define ZNS_DEV_ZONEFS_PRIV_H
/*
 * A mounted zonefs: each sequential zone of a drive is a file in seq/, whose size is the write
 * pointer. Zones have the numbers of the files. Data, resets and finishes go through the files, so
 * that the file system knows about them. Zone states are read from the block device below, which
 * can be read while it is mounted.
 */
#include "hw_priv.h"

struct zonefs {
	struct hw hw;
	int dir; /* descriptor of the directory seq/ */
	int below; /* the block device, opened with libzbd for reports */
	int manage; /* the block device, opened to open and close its zones; -1: not allowed */
	uint32_t *zone; /* for each file the number of its zone on the drive */
	uint64_t *capacity; /* for each file the capacity of its zone in bytes */
};

extern const struct hw_raw zonefs_raw;

#endif
