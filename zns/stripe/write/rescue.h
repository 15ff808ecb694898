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
	size_t iov, data; /* bytes that all sources take: lists of addresses, and copies of data */
};

/* Where a unit came from: task memory, or a copy of its bytes. */
struct source {
	/* data is as written to the device; else as it was fed */
	bool ready;
	pid_t pid;
	uint32_t nr_iov; /* 0: the struct is followed by the bytes themselves instead of iovecs */
	struct iovec iov[];
};

struct piece {
	struct zns_wimage *img;
	uint64_t k; /* index of the unit in the image */
	uint64_t off; /* offset in the zone in bytes */
	uint32_t len;
};

/* Lists what the zone has between two offsets, in order; the caller frees *out. -ENOMEM. */
int rescue_list(struct zns_writer *w, uint32_t zone, uint64_t from, uint64_t to, struct piece **out,
		size_t *nr) NEEDS_LOCK;
/* Returns how many of the pieces, from the first one on, begin in blocks that the first piece also
 * uses. These must move together. */
size_t rescue_run(const struct zns_writer *w, const struct piece *p, size_t nr, uint64_t *off,
		  uint64_t *len);
/*
 * Reads a run of pieces into @buf and verifies each: from the zone, and with @again also from the
 * source. No unit is placed or written meanwhile, so it may access guarded members without the
 * lock.
 */
int rescue_fetch(struct zns_writer *w, uint32_t zone, const struct piece *p, size_t nr, bool again,
		 uint8_t *buf, struct zns_err *err) NO_LOCK;
/* without memory for it, the unit has no source */
void rescue_keep_mem(struct zns_writer *w, const struct job *j) NEEDS_LOCK;
/*
 * @ready: the bytes are already as they are written to the device. Without memory for the copy, the
 * unit has no source.
 */
void rescue_keep_data(struct zns_writer *w, struct zns_wimage *i, uint64_t k, const void *buf,
		      size_t len, bool ready) NEEDS_LOCK;
void rescue_drop(struct zns_wimage *i);

#endif
