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
	/* Borrowed (zns_crypt_of). Without it, an encrypted checkpoint can only be verified by its
	 * checksums; reading fails with -ENOKEY. */
	const struct zns_crypt *crypt;
	/* Borrowed. All bytes that are read from the device are taken from this bucket, and bytes
	 * that come from @hot from its second limit (zns_bucket_cap). NULL: no limit */
	struct zns_bucket *bucket;
	/* return encrypted units as they are on the device, verified by their checksums only; no
	 * key is used */
	bool sealed;
	/* borrowed: the cache that is shared with other restores; NULL: none */
	struct zns_hot *hot;
	/* number of threads; 0 = two for each zone of the widest stripe, at least 8, but as memory
	 * allows */
	uint32_t workers;
	uint32_t cache_units; /* 0 = twice the workers, but as memory allows */
};

/* Creates a reader of the images of @m. @m has passed zns_manifest_check and must exist as long as
 * the reader. */
int zns_reader_new(const struct zns_reader_params *p, const ZnsPb__Manifest *m,
		   struct zns_reader **out, struct zns_err *err);
void zns_reader_free(struct zns_reader *r); /* waits for running requests; @r may be NULL */

/* Like zns_reader_new, for several manifests (a chain): images of @level[0] come first. @p->crypt
 * is ignored. */
struct zns_reader_level {
	const ZnsPb__Manifest *m; /* borrowed, as for zns_reader_new */
	const struct zns_crypt *crypt; /* borrowed; NULL: not encrypted, or the key is not known */
};
int zns_reader_new_levels(const struct zns_reader_params *p, const struct zns_reader_level *level,
			  uint32_t nr, struct zns_reader **out, struct zns_err *err);

/* Find an image by its name; NULL: there is none. Composed images (zns/image_map.h) are read like
 * all others. Their parts cannot be found by name, only by zns_reader_image(). */

/* Finds an image by its index, which counts the images of all levels in the order of levels and
 * manifests. NULL: there is none. */
struct zns_rimage *zns_reader_find_at(struct zns_reader *r, uint32_t level, const char *name);
struct zns_rimage *zns_reader_find(struct zns_reader *r, const char *name);
struct zns_rimage *zns_reader_image(struct zns_reader *r, uint32_t index);
uint32_t zns_rimage_index(const struct zns_rimage *i);
uint64_t zns_rimage_size(const struct zns_rimage *i);
const char *zns_rimage_name(const struct zns_rimage *i);

/* Called once from a worker when a request is done: @err->code 0 or the first error. */
typedef void (*zns_read_done)(void *arg, const struct zns_err *err);

/*
 * Reads [off, off + sum of iov lengths) of an image into the memory of a task (zns/task.h). Iovecs
 * are copied. Asynchronous: @done is called exactly once, even if the read could not be started. A
 * range beyond the image's end is an error (-ENODATA), never a short read.
 */
void zns_rimage_read_task(struct zns_rimage *i, uint64_t off, struct zns_task task,
			  const struct iovec *iov, uint32_t nr, zns_read_done done, void *arg);

/*
 * Read parts of an image, each to a place of its own: in the memory of a task, or in our own memory
 * if the task's pid is 0. Parts must be in the order of their offsets and must not overlap
 * (-EINVAL); those of a composed image may come in any order. The reader takes ownership of @part
 * (from malloc), also on failure. It reads each unit once, however many parts are in it, and no
 * unit that holds none.
 */
struct zns_part {
	uint64_t off, len; /* in bytes; len > 0 */
	void *to;
};
void zns_rimage_read_parts(struct zns_rimage *i, struct zns_task task, struct zns_part *part,
			   size_t nr, zns_read_done done, void *arg);

/*
 * Like zns_rimage_read_task, for lazy restores, where the task runs while its memory is filled.
 * Nothing is read ahead, since the caller decides what is requested next. A request for a fault has
 * priority over all others, and does not wait for background reads, since one worker is kept free
 * of those. If the image has checksums of pieces (zns/layout.h), a fault or background request for
 * less than half of a unit reads only those pieces.
 */
enum zns_read_how {
	ZNS_READ_ORDERLY, /* the normal priority, with reading ahead, as in zns_rimage_read_task */
	ZNS_READ_BACKGROUND, /* low priority: no task waits for the data */
	/* the priority of a fault, except that faults go first at the token bucket */
	ZNS_READ_EARLY,
	ZNS_READ_FAULT, /* a task waits; a worker reads */
	/* a task waits; the calling thread reads, and has called @done when the call returns */
	ZNS_READ_FAULT_HERE,
};
void zns_rimage_read_lazy(struct zns_rimage *i, uint64_t off, struct zns_task task,
			  const struct iovec *iov, enum zns_read_how how, zns_read_done done,
			  void *arg);

/* Reads a range into a buffer of this process. Synchronous. */
int zns_rimage_read(struct zns_rimage *i, uint64_t off, void *buf, size_t len, struct zns_err *err);

/*
 * Reads and checks every unit of an image, and continues after damage. No data are returned. @unit
 * is called once for each unit, from several workers at once, then @done once. @u and what it
 * points to are valid until @unit returns. A composed image has no units.
 */
struct zns_unit_check {
	const struct zns_rimage *image;
	uint64_t off; /* offset of the unit in the image, bytes */
	uint32_t len; /* bytes */
	uint32_t zone; /* zone that holds the unit; UINT32_MAX: the manifest has no place for it */
	uint64_t zone_off; /* offset in the zone in bytes */
	const struct zns_err *err; /* code 0: intact; -EBADMSG: damaged; else the device's error */
};
typedef void (*zns_unit_checked)(void *arg, const struct zns_unit_check *u);
void zns_rimage_verify(struct zns_rimage *i, zns_unit_checked unit, zns_read_done done, void *arg);

/* Copies [off, off + len) of the image to the same offsets of @fd (a memfd). Synchronous. */
int zns_rimage_to_fd(struct zns_rimage *i, uint64_t off, uint64_t len, int fd, struct zns_err *err);

/* How many of the bytes came from the cache shared with other restores instead of the device. */
uint64_t zns_reader_shared(struct zns_reader *r);

/* Payload bytes that were verified and delivered, and the time from the first submission to the
 * last completion in us. */
void zns_reader_stats(struct zns_reader *r, uint64_t *bytes, uint64_t *busy_us);

#endif
