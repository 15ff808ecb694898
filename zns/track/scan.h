/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_SCAN_H
#define TRACK_SCAN_H
/* PAGEMAP_SCAN over any range. */
#include <stdbool.h>
#include <stdint.h>
#include "abi.h"

/* A page matches if it has all categories of @mask (for those in @inverted: has them not) and, if
 * @anyof is not 0, one of @anyof. The categories in @returned are reported. */
struct scan_query {
	uint64_t mask, inverted, anyof, returned;
	bool protect; /* write-protects matching pages atomically */
	/* bytes for one call, a power of two; the process cannot map memory during a call */
	uint64_t step;
};

typedef int (*scan_found)(void *arg, uint64_t start, uint64_t end, uint64_t categories);

/*
 * Calls @found for each range, in ascending order (but some of them twice, perhaps). 0, what @found
 * returned, or -errno. After an error of a query with @protect it is not known what was protected.
 */
int scan_range(int pagemap, const struct scan_query *q, uint64_t start, uint64_t end,
	       scan_found found, void *arg);

/* The first address of [start, end) in an area without asynchronous write protection, or @end;
 * -errno if negative. */
int64_t scan_unregistered(int pagemap, uint64_t start, uint64_t end);

#endif
