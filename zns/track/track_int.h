/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_INT_H
#define TRACK_INT_H
/* A tracker, for its files. */
#include "maps.h"
#include "scan.h"
#include "tracer.h"
#include "zns/track.h"

struct zns_track {
	pid_t pid;
	struct zns_track_kernel k;
	int pidfd, maps, pagemap; /* maps and pagemap are of the memory that the process had at the
				     beginning */
	int uffd;
	bool lost; /* an arm failed: nothing counts any more */
	struct areas areas; /* as read last */
	struct zns_spans tracked; /* by the last arm */
	struct zns_spans found; /* of one area, while it is scanned */
	struct zns_track_stat stat;
};

/* Reads t->areas. -ESRCH: gone or another program; -ENOTSUP: asynchronous I/O. */
int track_areas(struct zns_track *t, struct zns_err *err);

int uffd_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int uffd_final(struct zns_track *t, const struct zns_span *area, size_t nr, bool again,
	       struct zns_spans *stale, struct zns_spans *present, struct zns_err *err);
void uffd_end(struct zns_track *t);

#endif
