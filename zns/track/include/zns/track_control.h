/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_TRACK_CONTROL_H
#define ZNS_TRACK_CONTROL_H
/*
 * Rules of tracking (live.md) that a test can switch off, to see that what watches over them
 * notices. The product links zns/track/control_none.c, and its rules hold always.
 */
#include "zns/track.h"

enum track_rule {
	TRACK_BARRIER, /* threads are seen in a stop between protecting and copying */
	TRACK_ASYNC, /* a process with asynchronous I/O is not tracked */
	TRACK_SHARED, /* shared memory is not tracked either */
	TRACK_VECTOR, /* results of a scan are kept when it continues */
	TRACK_HOLES, /* a kernel that does not report discarded memory is found out */
	TRACK_RULES,
};
bool track_breaks(enum track_rule rule);

/* A kernel with that fault is imitated, and it would not report this as written. */
bool track_hides(int pagemap, uint64_t start, uint64_t end);

/* Without TRACK_SHARED: adds shared memory of the process to the areas. */
int track_more_areas(pid_t pid, struct zns_spans *all);

#endif
