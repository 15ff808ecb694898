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
	int clear_refs, kpageflags; /* descriptors for soft-dirty; else -1 */
	bool armed;
	bool lost; /* arming failed: no result is valid any more */
	bool adopted; /* the process was not watched for a while */
	struct areas areas; /* as last read */
	struct zns_spans tracked; /* by the last arm */
	struct zns_spans found; /* what was found in the area that is being scanned */
};

/* Reads t->areas. -ESRCH: the process is gone or runs another program; -ENOTSUP: it uses
 * asynchronous I/O. */
int track_areas(struct zns_track *t, struct zns_err *err);

/* filesystems.c: can a page of a file be read without a long wait, as @pid sees its mounts? Other
 * file systems may wait for a network or a program. An unknown file system counts as such. */
bool files_answer(pid_t pid, uint32_t major, uint32_t minor);

/* A part of an area in the final scan. */
struct part {
	struct zns_track *t;
	bool again;
	struct zns_spans *stale, *present, *guards;
	uint64_t at; /* addresses below this have been examined */
};

/* Finds guard pages in a range that is not examined otherwise. */
int guards_of(struct part *p, uint64_t start, uint64_t end);

/* Adds to @found; uses several threads for large ranges. */
int fast_written(int pagemap, uint64_t start, uint64_t end, struct zns_spans *found);

int uffd_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int uffd_look(struct zns_track *t); /* called before the parts are examined */
int uffd_part(struct part *p, const struct area *a, uint64_t start, uint64_t end);
void uffd_end(struct zns_track *t);

int soft_open(struct zns_track *t, struct zns_err *err);
int soft_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int soft_part(struct part *p, const struct area *a, uint64_t start, uint64_t end);
int soft_clear(struct zns_track *t);

#endif
