/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_SCAN_H
#define TRACK_SCAN_H
/* PAGEMAP_SCAN over a range of any size. */
#include <stdbool.h>
#include <stdint.h>
#include "abi.h"

/*
 * A page matches if it has all categories of @mask and, if @anyof is not 0, at least one of @anyof.
 * For categories that are in @inverted, `has` means `does not have`. The categories in @returned
 * are reported.
 */
struct scan_query {
	uint64_t mask, inverted, anyof, returned;
	bool protect; /* write-protects matching pages atomically */
	/* bytes scanned by one call, a power of two; the process cannot map memory during a call */
	uint64_t step;
};

typedef int (*scan_found)(void *arg, uint64_t start, uint64_t end, uint64_t categories);

/*
 * Calls @found for each matching range, in ascending order; a range may be reported twice. Returns
 * 0, what @found returned, or -errno. After an error of a query with @protect it is unknown which
 * pages are protected.
 */
int scan_range(int pagemap, const struct scan_query *q, uint64_t start, uint64_t end,
	       scan_found found, void *arg);

/*
 * Returns the first address of [start, end) in an area without asynchronous write protection, @end
 * if there is none, or -errno.
 */
int64_t scan_unregistered(int pagemap, uint64_t start, uint64_t end);

#endif
