/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_READER_H
#define ZNS_READER_H
/*
 * The striping reader of one restore (design.md §3): reads whole checksum units from many zones at
 * once, verifies each, then delivers the requested bytes. Unverified bytes are never delivered.
 * Threads: it runs its own workers; requests may come from several threads. If only a part of a
 * unit was requested, the unit stays in a small cache, so that reading page by page does not fetch
 * it again. When an image is read in order, a little at a time, the reader reads the following
 * units ahead.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "zns/bucket.h"
#include "zns/dev.h"
#include "zns/hot.h"
#include "zns-record.pb-c.h"
#include "zns/task.h"

struct zns_reader;
struct zns_rimage;

struct zns_crypt;

struct zns_reader_params {
	struct zns_dev *dev; /* borrowed */
	/* Borrowed (zns_crypt_of). Without it an encrypted checkpoint can be verified by its
	 * checksums, not read (-ENOKEY). */
	const struct zns_crypt *crypt;
	/* Borrowed. All bytes that are read from the device are taken from it, and bytes from @hot
	 * from its second limit (zns_bucket_cap). NULL: no limit */
	struct zns_bucket *bucket;
	/* hand out encrypted units as they are on the device, verified by checksum; no key is
	 * used */
	bool sealed;
	struct zns_hot *hot; /* borrowed: memory that is shared with other restores; NULL: none */
	/* threads; 0 = two for each zone of the widest stripe, at least 8, as memory allows */
	uint32_t workers;
	uint32_t cache_units; /* 0 = twice the workers, as memory allows */
};

/* @m (checked by zns_manifest_check) is borrowed for the reader's life. */
int zns_reader_new(const struct zns_reader_params *p, const ZnsPb__Manifest *m,
		   struct zns_reader **out, struct zns_err *err);
void zns_reader_free(struct zns_reader *r); /* waits for running requests; NULL is fine */

/* The images of several manifests, those of @level[0] first. @p->crypt is not looked at. */
struct zns_reader_level {
	const ZnsPb__Manifest *m; /* like @m above */
	const struct zns_crypt *crypt; /* borrowed; NULL: not encrypted, or the key is not known */
};
int zns_reader_new_levels(const struct zns_reader_params *p, const struct zns_reader_level *level,
			  uint32_t nr, struct zns_reader **out, struct zns_err *err);

/* Composed images (zns/image_map.h) are read like all others. Their parts cannot be found by name:
 * only zns_reader_image() returns them. */

/* NULL: no such image. The index counts the images of all levels, in the order of levels and
 * manifests. */
struct zns_rimage *zns_reader_find_at(struct zns_reader *r, uint32_t level, const char *name);
struct zns_rimage *zns_reader_find(struct zns_reader *r, const char *name);
struct zns_rimage *zns_reader_image(struct zns_reader *r, uint32_t index);
uint32_t zns_rimage_index(const struct zns_rimage *i);
uint64_t zns_rimage_size(const struct zns_rimage *i);
const char *zns_rimage_name(const struct zns_rimage *i);

/* Called once from a worker when a request is done: @err->code 0 or the first error. */
typedef void (*zns_read_done)(void *arg, const struct zns_err *err);

/*
 * Read [off, off + sum of iov lengths) of an image into the memory of a task (zns/task.h; iovecs
 * are copied). Asynchronous: @done is called exactly once, also on failure to start. A range
 * beyond the image's end is an error (-ENODATA), never a short read.
 */
void zns_rimage_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
			  const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg);

/*
 * Read parts of an image, each to a place of its own: in the memory of a task, or in ours if
 * its pid is 0. Parts are in order of their offsets and do not overlap (-EINVAL). The reader takes
 * over @part (from malloc), also on failure. It reads each unit once, however many parts are in it,
 * and no unit that holds none. Parts of a composed image may come in any order.
 */
struct zns_part {
	uint64_t off, len; /* in bytes; len > 0 */
	void *to;
};
void zns_rimage_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part,
			   size_t nr, zns_read_done done, void *arg);

/*
 * Like zns_rimage_read_task, for lazy restores: the task runs while its memory is filled. Nothing
 * is read ahead, since the caller knows what it will request next. A request for a fault has
 * priority over all others, and does not wait for a background read that is under way: one worker
 * is kept free of those. If the image has checksums of pieces (zns/layout.h), a fault or background
 * request that wants less than half of a unit reads only those pieces.
 */
enum zns_read_how {
	ZNS_READ_ORDERLY, /* as in zns_rimage_read_task */
	ZNS_READ_BACKGROUND, /* low priority: no task waits for it */
	ZNS_READ_EARLY, /* priority as for a fault, but faults go before it at the token bucket */
	ZNS_READ_FAULT, /* a task waits; a worker does the read */
	/* a task waits; this thread reads, and @done was called when the call returns */
	ZNS_READ_FAULT_HERE,
};
void zns_rimage_read_lazy(struct zns_rimage *i, uint64_t off, struct zns_task task,
			  const struct iovec *iov, enum zns_read_how how, zns_read_done done,
			  void *arg);

/* Read a range into a buffer of this process. Synchronous. */
int zns_rimage_read(struct zns_rimage *i, uint64_t off, void *buf, size_t len, struct zns_err *err);

/*
 * Read and check every unit of an image, and go on after damage. No data are handed over. @unit is
 * called once for each unit, from several workers at once, then @done once. @u and what it points
 * to live until @unit returns. A composed image has no units.
 */
struct zns_unit_check {
	const struct zns_rimage *image;
	uint64_t off; /* offset of the unit in the image, bytes */
	uint32_t len; /* bytes */
	uint32_t zone; /* zone that holds it; UINT32_MAX: the manifest has no place for it */
	uint64_t zone_off; /* bytes */
	const struct zns_err *err; /* code 0: intact; -EBADMSG: damaged; else the device's error */
};
typedef void (*zns_unit_checked)(void *arg, const struct zns_unit_check *u);
void zns_rimage_verify(struct zns_rimage *i, zns_unit_checked unit, zns_read_done done, void *arg);

/* Copy [off, off + len) to the same offsets of @fd (a memfd). Synchronous. */
int zns_rimage_to_fd(struct zns_rimage *i, uint64_t off, uint64_t len, int fd, struct zns_err *err);

/* How many of the bytes came from the memory shared with other restores, not from the device. */
uint64_t zns_reader_shared(struct zns_reader *r);

/* Payload bytes verified and delivered, and the time between first submit and last completion. */
void zns_reader_stats(struct zns_reader *r, uint64_t *bytes, uint64_t *busy_us);

#endif
