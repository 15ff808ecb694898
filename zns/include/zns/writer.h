/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITER_H
#define ZNS_WRITER_H
/*
 * The striping writer of one dump: many images, many zones in flight (design.md §3).
 *
 * Bytes enter as memory of a frozen task (read with process_vm_readv by the workers), from a file
 * or from a caller's buffer; they are cut into stripe units, hashed (XXH3-64) and written, one
 * write per zone in flight and in order, parallel over zones. A full zone is replaced by one of the
 * same group, which starts a new segment. Small images share units ("packed").
 *
 * The writer survives a zone that fails: a write error, or a zone that turns read-only or offline
 * (zns/stripe/write/repair.c, rescue.c, audit.c). What was not written to it yet goes to another
 * zone. What was written is read back and compared before the manifest is written. What cannot be
 * read back is taken from its source again. If the source gives other bytes now, the dump fails.
 *
 * Threads: the writer runs its own workers. Its functions may be called from several threads; one
 * image is fed by one thread at a time. After the first error the workers drop what is queued, and
 * every call returns that error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "zns/bucket.h"
#include "zns/dev.h"
#include "zns/image_map.h"
#include "zns-record.pb-c.h"

struct zns_zone_slot {
	uint32_t zone;
	uint32_t group;
	uint64_t start; /* its write pointer, bytes */
	uint64_t capacity;
};

struct zns_crypt;

/* What the writer asks for in zone_get(). */
struct zns_zone_wish {
	uint32_t group;
	uint64_t need; /* bytes that are written next, in one run */
	/* zones that will not be written again and have no write in flight; each named once */
	const uint32_t *done;
	uint32_t nr_done;
	/* all zones that failed in this dump so far; none of them may be given again */
	const uint32_t *bad;
	uint32_t nr_bad;
};

struct zns_writer_params {
	struct zns_dev *dev; /* borrowed */
	/* borrowed (zns/crypt.h); the images are encrypted with it. NULL: plain */
	const struct zns_crypt *crypt;
	/*
	 * Borrowed. The manifest of a checkpoint that comes from elsewhere and is written as it is
	 * (zns/sealed.h), with the key for its record if it is encrypted. Only its images are
	 * written, by zns_writer_sealed; crypt is NULL. NULL: a checkpoint that is made here.
	 */
	const ZnsPb__Manifest *sealed;
	/* borrowed; the key of @sealed, with which each unit is authenticated. NULL: no key */
	const struct zns_crypt *proof;
	/* borrowed; every byte written is taken from it. NULL: no limit */
	struct zns_bucket *bucket;
	uint32_t unit; /* stripe unit, bytes, a multiple of the block size */
	uint32_t workers; /* number of threads; 0 = chosen by width and unit */
	/* bytes, about: little needs few threads and small pages; 0: not known */
	uint64_t expected;
	uint32_t nr_groups; /* the stripe's width */
	uint32_t zone_mibps; /* approximate write rate of one zone alone; 0: not known */
	const uint32_t *groups; /* copied */
	const uint32_t *weights;
	/* if not NULL: the manifest and all images except pages are written only to this group */
	const uint32_t *metadata_group;
	/*
	 * Get a zone. Threads that feed images call it, never two at once; it may block. -EBUSY:
	 * the open or active limit allows no further zone. The writer then waits for the writes of
	 * a zone that it no longer uses, and asks again with that zone in @wish->done.
	 */
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			struct zns_err *err);
	void *arg;
};

struct zns_writer_stats {
	uint64_t bytes; /* payload of all images */
	uint64_t page_bytes; /* how many of them are in images opened with `pages` */
	/* payload bytes that are on the device; a packed image counts when its unit is there */
	uint64_t written;
	/* CLOCK_MONOTONIC; 0 before the first page data is handed to the bucket or device */
	uint64_t first_submit_ns;
	uint64_t last_complete_ns;
	uint32_t nr_images; /* so far */
	uint32_t nr_zones; /* how many were used so far */
	uint32_t nr_reweighed; /* how often zones of the stripe got other weights */
	uint32_t nr_gained; /* how many zones joined the stripe while it was written */
	uint32_t nr_bad; /* how many of nr_zones failed */
	char bad[160]; /* for people: which zones failed, and why; "" if none */
};

struct zns_writer;
struct zns_wimage;

/*
 * The stripe unit for a stripe of @width zones when nobody asks for one. It is that of the device
 * (zns_stripe_unit), or less for a wide stripe: its buffers, one unit for each zone and some more,
 * must fit into a helper's memory.
 */
uint32_t zns_writer_unit(const struct zns_geometry *geo, uint32_t width);

int zns_writer_new(const struct zns_writer_params *p, struct zns_writer **out, struct zns_err *err);

/* A new image; names are unique per dump (-EEXIST). The writer owns it. */
int zns_writer_image(struct zns_writer *w, const char *name, bool pages, struct zns_wimage **out,
		     struct zns_err *err);

/*
 * The next image of zns_writer_params.sealed. Feed it its units as they are. -EBADMSG, then or
 * later: they are not what their checksums or tags say. A composed image needs no
 * data: *out is NULL then.
 */
int zns_writer_sealed(struct zns_writer *w, struct zns_wimage **out, struct zns_err *err);

/* Marks this image as a file that another program wrote into the image directory; a restore puts it
 * back. To be called before seal. */
void zns_wimage_set_beside(struct zns_wimage *i);

/* Marks this image as raw material for zns_writer_compose; tools do not show it. To be called
 * before seal. */
void zns_wimage_set_part(struct zns_wimage *i);

/*
 * Makes an image that consists of runs of sealed parts, one after the other. Only a map in the
 * manifest is written for it. Other images may use the same bytes, and bytes that no image uses
 * cost only their room. Names as for zns_writer_image. -EINVAL: no parts, or runs outside of them;
 * -E2BIG: too many runs. After either error the dump may continue without the image.
 */
int zns_writer_compose(struct zns_writer *w, const char *name, struct zns_wimage *const *from,
		       uint32_t nr_from, const struct zns_image_run *run, size_t nr,
		       struct zns_err *err);

/* A unit of a memory context (zns/pages.h), 64 KiB, with its checksum and, if it is encrypted,
 * nonce and tag. */
struct zns_named {
	uint32_t zone;
	uint64_t off, hash;
	uint8_t nonce[12], tag[16];
};

/*
 * Makes a part (zns_wimage_set_part) of units that are on the device already: they are neither read
 * nor written. @u is in order of zones and offsets, without duplicates. The record names the zones
 * as memory of @context. @key: the context's key; NULL: the units are not encrypted. At most once
 * in a dump. -EOPNOTSUPP: of units and checkpoint only one is encrypted.
 */
struct zns_memory_key;
int zns_writer_named(struct zns_writer *w, const char *name, const uint8_t *context,
		     const struct zns_memory_key *key, const struct zns_named *u, size_t nr,
		     struct zns_wimage **out, struct zns_err *err);

/*
 * Append memory of a task that stays frozen until zns_wimage_settle returns. Iovecs are copied.
 * Asynchronous. If a zone is lost later, the writer reads the memory once more, and takes it only
 * if its checksum is the same.
 */
int zns_wimage_mem(struct zns_wimage *i, pid_t pid, const struct iovec *iov, uint32_t nr,
		   struct zns_err *err);

/*
 * Announces areas of the task's memory that the kernel writes although the task is frozen: a
 * thread's rseq area. To be called before zns_wimage_mem of that memory. If a unit with such an
 * area is read again, the area gets the bytes of the first read. -ENOMEM: such a unit cannot be
 * read again; all else works. Any thread.
 */
int zns_writer_unsteady(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr);
/* Is there any such area in [@at, @at + @len)? */
bool zns_writer_is_unsteady(struct zns_writer *w, pid_t pid, uintptr_t at, size_t len);

/* Appends @len bytes; they are copied before it returns. */
int zns_wimage_data(struct zns_wimage *i, const void *buf, size_t len, struct zns_err *err);

/*
 * As zns_wimage_data, without the copy: *buf has room for *len bytes, at least one, in the image's
 * open unit. The caller fills it from its beginning, and says with zns_wimage_filled how many bytes
 * it has filled, before any other call on this image. The rest of the room stays unused.
 */
int zns_wimage_room(struct zns_wimage *i, uint8_t **buf, size_t *len, struct zns_err *err);
int zns_wimage_filled(struct zns_wimage *i, size_t len, struct zns_err *err);

/* Append what is read from @fd until its end (a pipe), or @len bytes of a file from offset 0. */
int zns_wimage_from_fd(struct zns_wimage *i, int fd, struct zns_err *err);

/* Return when every byte of task memory given so far has been read (not necessarily written). */
int zns_wimage_settle(struct zns_wimage *i, struct zns_err *err);

/* Ends the image. Asynchronous; the image must not be used afterwards. */
int zns_wimage_seal(struct zns_wimage *i, struct zns_err *err);

/*
 * Add the images that are written now to a checkpoint that exists: @c is its record, @m its
 * manifest, both borrowed until zns_writer_finish returns. The new manifest has the images, zone
 * uses and sizes of both. Call it before the first image. If @m is encrypted, the writer's crypt
 * must be that of @m.
 */
int zns_writer_adopt(struct zns_writer *w, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		     struct zns_err *err);

/*
 * Wait until everything is written (not flushed), then write manifest and footer. Fills in
 * m->images and the checkpoint's sizes, zones and groups; *ref gets the manifest's place. The
 * caller frees @m. All images must be sealed. With a key, m->checkpoint->crypt (NULL before)
 * becomes what the record in the log must have, and m->former_macs are written too.
 */
int zns_writer_finish(struct zns_writer *w, ZnsPb__Manifest *m, ZnsPb__ExtentRef *ref,
		      struct zns_err *err);

/* After zns_writer_finish with a key: returns the manifest's seal, ZNS_TAG_BYTES. */
const uint8_t *zns_writer_seal(const struct zns_writer *w);

/* Note in the checkpoint's record how long data were written so far, and how fast. */
void zns_writer_rate(struct zns_writer *w, ZnsPb__Checkpoint *c);

/*
 * Make all zones of the checkpoint durable. Nobody may rely on the manifest before. Then every zone
 * is looked at once more: one that is offline now is an error, and one that has turned read-only
 * since zns_writer_finish is read back.
 */
int zns_writer_durable(struct zns_writer *w, const ZnsPb__Checkpoint *c, struct zns_err *err);

int zns_writer_error(struct zns_writer *w, struct zns_err *err); /* 0, or the first error */
/*
 * If a zone failed: wait for all writes, and read back what failed zones hold. What a zone lost is
 * had again from its source, as at the end. -EIO: from nowhere. No other thread feeds an image.
 */
int zns_writer_check(struct zns_writer *w, struct zns_err *err);
/* Let the writer fail with @code and @why, for example since the dump is aborted. Workers stop at
 * the next unit. */
void zns_writer_cancel(struct zns_writer *w, int code, const char *why);

/*
 * A stripe may become wider while it is written. Any thread, any time.
 *
 * zns_writer_wants: how many more zones the writer could use at once. 0: little is left to write,
 * or its buffers would not suffice. *@waits: it waits for its zones, not for task memory or a
 * processor.
 * zns_writer_gain: add a zone, in a group in which the writer has none. @writers is how many
 * writers that group has, this one included. Units that no worker has begun are distributed anew.
 * A zone that is not needed in the end is not written. An error leaves the writer as it was.
 */
uint32_t zns_writer_wants(struct zns_writer *w, bool *waits);
int zns_writer_gain(struct zns_writer *w, const struct zns_zone_slot *slot, uint32_t writers,
		    struct zns_err *err);

/* @crowded: from now on, write in short commands, since others write to the same dies, or the
 * broker writes its log there, and each of them waits behind our commands. Any thread, any time. */
void zns_writer_crowded(struct zns_writer *w, bool crowded);

/* @writers writers use zones of @group now, including this one. The writer assumes at once that its
 * zone there gets an equal part of zns_writer_params.zone_mibps, until it has measured its own
 * writes. Any thread, any time. */
void zns_writer_told(struct zns_writer *w, uint32_t group, uint32_t writers);

void zns_writer_stats_get(struct zns_writer *w, struct zns_writer_stats *out);
void zns_writer_free(struct zns_writer *w); /* joins the workers; NULL is fine */

#endif
