/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TRACK_INT_H
#define TRACK_INT_H
/* A tracker's state, for the files of this folder. */
#include "maps.h"
#include "scan.h"
#include "tracer.h"
#include "zns/track.h"

struct zns_track {
	pid_t pid;
	struct zns_track_kernel k;
	/*
	 * maps and pagemap refer to the memory that the process had when the tracker was made, also
	 * after execve()
	 */
	int pidfd, maps, pagemap;
	int uffd;
	int clear_refs, kpageflags; /* descriptors for soft-dirty tracking; else -1 */
	bool armed;
	bool lost; /* arming failed: no result is valid any more */
	/* zns_track_adopt() made this tracker: nobody watched the process for a while */
	bool adopted;
	struct areas areas; /* as they were read last */
	struct zns_spans tracked; /* the areas that the last arm has tracked */
	/* the written pages found so far in the area that is being scanned */
	struct zns_spans found;
};

/* Reads t->areas. -ESRCH: the process is gone or runs another program; -ENOTSUP: it uses
 * asynchronous I/O. */
int track_areas(struct zns_track *t, struct zns_err *err);

/*
 * filesystems.c: can a page of a file on this file system be read without a long wait? @pid: the
 * process whose mounts are looked up. False for a file system that may wait for a network or a
 * program, and for an unknown one.
 */
bool files_answer(pid_t pid, uint32_t major, uint32_t minor);

/* A part of an area during the final scan. */
struct part {
	struct zns_track *t;
	bool again;
	struct zns_spans *stale, *present, *guards;
	uint64_t at; /* addresses below this have been examined */
};

/* Looks for guard pages in a range that is not scanned for other reasons. */
int guards_of(struct part *p, uint64_t start, uint64_t end);

/* Adds written pages to @found; uses several threads for a large range. */
int fast_written(int pagemap, uint64_t start, uint64_t end, struct zns_spans *found);

int uffd_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int uffd_look(struct zns_track *t); /* called once before the parts are scanned */
int uffd_part(struct part *p, const struct area *a, uint64_t start, uint64_t end);
void uffd_end(struct zns_track *t);

int soft_open(struct zns_track *t, struct zns_err *err);
int soft_arm(struct zns_track *t, struct zns_spans *copy, struct zns_err *err);
int soft_part(struct part *p, const struct area *a, uint64_t start, uint64_t end);
int soft_clear(struct zns_track *t);

#endif
