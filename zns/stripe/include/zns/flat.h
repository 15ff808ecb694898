/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FLAT_H
#define ZNS_FLAT_H
/*
 * Reads a chain as if its newest checkpoint had been dumped in full. Pagemaps have no references to
 * parents, and pages images have the pages that these led to. Every other image is as it is.
 * Parts of composed images are images of it too; nobody but their readers wants them (image.part).
 * Threads: one makes it, then any may read. Memory: 16 bytes for each run of pages that lie
 * together in one checkpoint, and the new pagemaps.
 */
#include "zns/chain.h"

struct zns_flat;

/*
 * Reads the pagemaps of all levels. @c is borrowed. -EBADMSG: a pagemap that cannot be read, or a
 * page that none of the checkpoints has.
 */
int zns_flat_new(struct zns_chain *c, struct zns_flat **out, struct zns_err *err);
void zns_flat_free(struct zns_flat *f); /* NULL is fine */

/* Images by number, in the order of the checkpoint's manifest. */
uint32_t zns_flat_images(const struct zns_flat *f);
const char *zns_flat_name(const struct zns_flat *f, uint32_t n);
uint64_t zns_flat_size(const struct zns_flat *f, uint32_t n); /* bytes */
uint64_t zns_flat_bytes(const struct zns_flat *f); /* total size of all images except parts */
/* true if the image is assembled: the checkpoint stores it in another form */
bool zns_flat_is(const struct zns_flat *f, uint32_t n);
/*
 * Where image @n is read from, in order: @piece gets [off, off + len) of image @place in the
 * manifest of level @level, or its error ends the walk. A pagemap that is put together is where the
 * checkpoint's own is. Nothing is read.
 */
typedef int (*zns_flat_piece)(void *arg, uint32_t level, uint32_t place, uint64_t off,
			      uint64_t len);
int zns_flat_walk(const struct zns_flat *f, uint32_t n, zns_flat_piece piece, void *arg);
/*
 * Read into the memory of a task, as zns_rimage_read_task does. Pages of several checkpoints are
 * read from all of them at once. Not for pagemaps that are put together.
 */
void zns_flat_read_task(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg);
/* Like zns_rimage_read_lazy. */
void zns_flat_read_lazy(struct zns_flat *f, uint32_t n, uint64_t off, struct zns_task task,
			const struct iovec *iov, enum zns_read_how how, zns_read_done done,
			void *arg);
/* Reads all of [off, off + len); -ENODATA: beyond the image's end. */
int zns_flat_read(struct zns_flat *f, uint32_t n, uint64_t off, void *buf, size_t len,
		  struct zns_err *err);

#endif
