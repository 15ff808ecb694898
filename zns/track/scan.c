/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Scans a range by repeated PAGEMAP_SCAN. */
#include <errno.h>

#include "scan.h"
#include "zns/track_control.h"
#include "zns/util.h"

/*
 * The kernel collects this many regions before it copies them out; they need 12 KiB of stack. With
 * a larger buffer the kernel continues after that, but sets walk_end to where it paused first:
 * regions that it has already reported would be scanned again.
 */
#define REGIONS 512
#define STEP_MAX GIB(4) /* takes 12 ms if all pages are present and none matches */

int scan_range(int pagemap, const struct scan_query *q, uint64_t start, uint64_t end,
	       scan_found found, void *arg)
{
	struct scan_region region[REGIONS];
	uint64_t at = start, step = q->step;

	while (at < end) {
		/* a step ends at a multiple of its size, so that no huge page is split */
		uint64_t stop = step ? zns_min(end, (at | (step - 1)) + 1) : end;
		struct scan_arg a = { .size = sizeof(a),
				      .flags = q->protect ? SCAN_PROTECT : 0,
				      .start = at,
				      .end = stop,
				      .vec = (uintptr_t)region,
				      .vec_len = REGIONS,
				      .inverted = q->inverted,
				      .mask = q->mask,
				      .anyof = q->anyof,
				      .returned = q->returned };
		int n = ioctl(pagemap, SCAN_IOCTL, &a), ret = 0;

		if (n < 0)
			return -errno;
		/* a fault that tests switch on: forget the regions of a scan that stopped early */
		if (a.walk_end < stop && q->returned & IS_WRITTEN && track_breaks(TRACK_VECTOR))
			n = 0;
		for (int i = 0; i < n && !ret; i++)
			if (q->mask != IS_WRITTEN || q->anyof ||
			    !track_hides(pagemap, region[i].start, region[i].end))
				ret = found(arg, region[i].start, region[i].end,
					    region[i].categories);
		if (ret)
			return ret;
		/*
		 * The kernel may stop before the end although the buffer has room: continue where
		 * it stopped.
		 */
		if (a.walk_end <= at || a.walk_end > stop)
			return -EPROTO;
		at = a.walk_end;
		/*
		 * the kernel skips holes quickly, and a process may have terabytes of them: use
		 * larger steps
		 */
		step = n ? q->step : zns_min(2 * step, STEP_MAX);
	}
	return 0;
}

int64_t scan_unregistered(int pagemap, uint64_t start, uint64_t end)
{
	struct scan_region region;
	/* the kernel skips areas with asynchronous write protection as a whole, so this is quick */
	struct scan_arg a = { .size = sizeof(a),
			      .start = start,
			      .end = end,
			      .vec = (uintptr_t)&region,
			      .vec_len = 1,
			      .max_pages = 1,
			      .inverted = IS_WPALLOWED,
			      .mask = IS_WPALLOWED,
			      .returned = IS_WPALLOWED };

	for (; a.start < end; a.start = a.walk_end) {
		int n = ioctl(pagemap, SCAN_IOCTL, &a);

		if (n < 0)
			return -errno;
		if (n)
			return (int64_t)region.start;
		if (a.walk_end <= a.start || a.walk_end > end)
			return -EPROTO;
	}
	return (int64_t)end;
}
