/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_RESCUE_H
#define ZNS_WRITE_RESCUE_H
/* Lists what a failed zone holds, and gets those bytes again. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"
#include "zns/util.h"

struct job;
struct zns_wimage;

struct kept {
	size_t iov, data; /* bytes that the sources take: lists of addresses, and copies of data */
};

/* Where a unit comes from: task memory, or a copy of its bytes. */
struct source {
	/* data is in the form that goes to the device; else in the form in which it was fed */
	bool ready;
	pid_t pid;
	uint32_t nr_iov; /* 0: iov's place holds the bytes themselves */
	struct iovec iov[];
};

struct piece {
	struct zns_wimage *img;
	uint64_t k; /* index of the unit in the image */
	uint64_t off; /* byte offset in the zone */
	uint32_t len;
};

/* Lists what the zone has between two offsets, in order; the caller frees it. -ENOMEM. */
int rescue_list(struct zns_writer *w, uint32_t zone, uint64_t from, uint64_t to, struct piece **out,
		size_t *nr) NEEDS_LOCK;
/* How many of the pieces, from the first on, begin in blocks that the first piece needs. These
 * must move together. */
size_t rescue_run(const struct zns_writer *w, const struct piece *p, size_t nr, uint64_t *off,
		  uint64_t *len);
/*
 * Reads a run of pieces into @buf, and verifies each: from the zone; with @again also from the
 * source. Meanwhile nothing is placed or written, so it may read guarded members without the lock.
 */
int rescue_fetch(struct zns_writer *w, uint32_t zone, const struct piece *p, size_t nr, bool again,
		 uint8_t *buf, struct zns_err *err) NO_LOCK;
void rescue_keep_mem(struct zns_writer *w, const struct job *j) NEEDS_LOCK; /* best effort */
/*
 * @ready: the bytes are already in the form in which they are written to the device. Best effort.
 */
void rescue_keep_data(struct zns_writer *w, struct zns_wimage *i, uint64_t k, const void *buf,
		      size_t len, bool ready) NEEDS_LOCK;
void rescue_drop(struct zns_wimage *i);

#endif
