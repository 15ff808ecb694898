/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_ZONEFS_PRIV_H
#define ZNS_DEV_ZONEFS_PRIV_H
/*
 * A mounted zonefs: each sequential zone of a drive is a file in seq/, whose size is the write
 * pointer. Zones are numbered as the files are. Data, resets and finishes go through the files, so
 * that the file system knows of them. Zone states come from the block device below, which may be
 * read while it is mounted.
 */
#include "hw_priv.h"

struct zonefs {
	struct hw hw;
	int dir; /* seq/ */
	int below; /* the block device, libzbd's, for reports */
	int manage; /* the drive below, opened to open and close its zones; -1: not allowed */
	uint32_t *zone; /* the drive's number of each file's zone */
	uint64_t *capacity; /* bytes */
};

extern const struct hw_raw zonefs_raw;

#endif
