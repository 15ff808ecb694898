/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FLAT_H
#define ZNS_FLAT_H
/*
 * Reads a chain as if its newest checkpoint were a full one. Pagemaps then have no references to
 * parents, and pages images include the pages that these referred to. All other images are
 * unchanged. Parts of composed images are listed too, but only composed images need them
 * (image.part). Threads: one thread creates the view, then any may read. Memory: 16 bytes for each
 * run of pages that are together in one checkpoint, and the new pagemaps.
 */
#include "zns/chain.h"

struct zns_flat;

/*
 * Reads the pagemaps of all levels. @c is borrowed. -EBADMSG: a pagemap cannot be read, or has a
 * page that none of the checkpoints contains.
 */
int zns_flat_new(struct zns_chain *c, struct zns_flat **out, struct zns_err *err);
void zns_flat_free(struct zns_flat *f); /* @f may be NULL */

/* Images by number, in the order of the checkpoint's manifest. */
uint32_t zns_flat_images(const struct zns_flat *f);
const char *zns_flat_name(const struct zns_flat *f, uint32_t n);
uint64_t zns_flat_size(const struct zns_flat *f, uint32_t n); /* size in bytes */
uint64_t zns_flat_bytes(const struct zns_flat *f); /* size of all images except parts, in bytes */
/* was the image assembled, so that the checkpoint stores it in another form? */
bool zns_flat_is(const struct zns_flat *f, uint32_t n);
/*
 * Tells from where image @n is read, in order: calls @piece with [off, off + len) of image @place
 * in the manifest of level @level; an error of @piece ends the walk. For an assembled pagemap that
 * is the place of the checkpoint's own pagemap. Nothing is read.
 */
typedef int (*zns_flat_piece)(void *arg, uint32_t level, uint32_t place, uint64_t off,
			      uint64_t len);
int zns_flat_walk(const struct zns_flat *f, uint32_t n, zns_flat_piece piece, void *arg);
/*
 * Reads into the memory of a task, like zns_rimage_read_task. Pages that come from several
 * checkpoints are read from all of them at once. Not for assembled pagemaps.
 */
void zns_flat_read_task(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg);
/* Like zns_rimage_read_lazy. */
void zns_flat_read_lazy(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, enum zns_read_how how, zns_read_done done,
			void *arg);
/* Reads all of [off, off + len); -ENODATA: it is beyond the image's end. */
int zns_flat_read(struct zns_flat *f, uint32_t n, uint64_t off, void *buf, size_t len,
		  struct zns_err *err);

#endif
