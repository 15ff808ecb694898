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
	int clear_refs, kpageflags; /* for soft-dirty; else -1 */
	bool armed;
	bool lost; /* an arm failed: nothing counts any more */
	bool adopted; /* nobody watched the process for a while */
	struct areas areas; /* as read last */
	struct zns_spans tracked; /* by the last arm */
	struct zns_spans found; /* what was found in the area that is being scanned */
};

/* Reads t->areas. -ESRCH: gone or another program; -ENOTSUP: asynchronous I/O. */
int track_areas(struct zns_track *t, struct zns_err *err);

/*
 * filesystems.c: is a page of a file there in a moment, as @pid sees its mounts? Others may wait
 * for a network or for a program. An unknown file system is one of those.
 */
bool files_answer(pid_t pid, uint32_t major, uint32_t minor);

/* A part of an area in the final scan. */
struct part {
	struct zns_track *t;
	bool again;
	struct zns_spans *stale, *present, *guards;
	uint64_t at; /* what is before it was looked at */
};

/* Guard pages of a part that nobody has looked at otherwise. */
int guards_of(struct part *p, uint64_t start, uint64_t end);

/* Adds to @found; by several threads if it is much. */
int fast_written(int pagemap, uint64_t start, uint64_t end, struct zns_spans *found);

int uffd_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int uffd_look(struct zns_track *t); /* before the parts */
int uffd_part(struct part *p, const struct area *a, uint64_t start, uint64_t end);
void uffd_end(struct zns_track *t);

int soft_open(struct zns_track *t, struct zns_err *err);
int soft_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int soft_part(struct part *p, const struct area *a, uint64_t start, uint64_t end);
int soft_clear(struct zns_track *t);

#endif
