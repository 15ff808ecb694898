/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_TRACK_CONTROL_H
#define ZNS_TRACK_CONTROL_H
/*
 * Rules of tracking (live.md) that a test can switch off, to see that its checks notice the fault.
 * The installed program links zns/track/control_none.c, which never switches off a rule.
 */
#include "zns/track.h"

enum track_rule {
	TRACK_BARRIER, /* every thread is seen in a stop between the protection and the copies */
	TRACK_ASYNC, /* a process with asynchronous I/O is not tracked */
	TRACK_SHARED, /* shared memory is not tracked either */
	/* the results of a scan are kept when the kernel stops early and the scan continues */
	TRACK_VECTOR,
	TRACK_HOLES, /* a kernel that does not report discarded memory as written is detected */
	TRACK_RULES,
};
bool track_breaks(enum track_rule rule);

/* For tests: should this range not be reported as written, as on a kernel with that fault? */
bool track_hides(int pagemap, uint64_t start, uint64_t end);

/* Without the rule TRACK_SHARED: adds the process's shared memory to the areas. */
int track_more_areas(pid_t pid, struct zns_spans *all);

#endif
