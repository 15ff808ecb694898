/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITER_H
#define ZNS_WRITER_H
/*
 * The striping writer of one dump: many images, many zones in flight (design.md §3).
 *
 * The data come from the memory of a frozen task (the workers read it with process_vm_readv), from
 * a file or from a caller's buffer. They are cut into stripe units, hashed (XXH3-64) and written:
 * to each zone in order, with one write in flight, and to all zones in parallel. A full zone is
 * replaced by one of the same group, which starts a new segment. Small images share units
 * ("packed").
 *
 * The writer survives a zone that fails: a write error, or a zone that turns read-only or offline
 * (zns/stripe/write/repair.c, rescue.c, audit.c). Data that were not yet written to it go to
 * another zone. Data that it already holds are read back and compared before the manifest is
 * written. Data that cannot be read back are taken from their source again; if the source has
 * changed, the dump fails.
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
	uint64_t start; /* write pointer of the zone in bytes */
	uint64_t capacity;
};

struct zns_crypt;

/* What the writer asks zone_get() for. */
struct zns_zone_wish {
	uint32_t group;
	uint64_t need; /* how many bytes are written next without a gap */
	/* zones that the writer will not write to again and that have no write in flight; each is
	 * named once */
	const uint32_t *done;
	uint32_t nr_done;
	/* all zones that failed in this dump so far; none of them may be granted again */
	const uint32_t *bad;
	uint32_t nr_bad;
};

struct zns_writer_params {
	struct zns_dev *dev; /* borrowed */
	/* borrowed (zns/crypt.h): the key with which the images are encrypted. NULL: they are
	 * not */
	const struct zns_crypt *crypt;
	/*
	 * Borrowed. The manifest of a checkpoint that comes from another device and is written
	 * unchanged (zns/sealed.h), with the key for its record if it is encrypted. Then only its
	 * images are written, with zns_writer_sealed, and crypt is NULL. NULL: a checkpoint that is
	 * made here.
	 */
	const ZnsPb__Manifest *sealed;
	/* borrowed; the key of @sealed, to authenticate each unit. NULL: the key is not known */
	const struct zns_crypt *proof;
	/* borrowed; every written byte is taken from it. NULL: no limit */
	struct zns_bucket *bucket;
	uint32_t unit; /* stripe unit in bytes, a multiple of the block size */
	uint32_t workers; /* number of threads; 0 = chosen by width and stripe unit */
	/* approximate size of the checkpoint in bytes: a small one needs few threads and small
	 * buffers; 0: not known */
	uint64_t expected;
	uint32_t nr_groups; /* the stripe's width */
	uint32_t zone_mibps; /* approximate write rate of one zone alone, MiB/s; 0: not known */
	const uint32_t *groups; /* the groups of the stripe; copied */
	const uint32_t *weights;
	/* if not NULL: the manifest and all images without pages are written only to this group */
	const uint32_t *metadata_group;
	/*
	 * Gets a zone. It is called by the threads that feed images, never by two at once, and may
	 * block. -EBUSY: the open or active limit allows no further zone. The writer then waits
	 * until the writes to a zone that it no longer needs are complete, and asks again with that
	 * zone in @wish->done.
	 */
	int (*zone_get)(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out,
			struct zns_err *err);
	void *arg;
};

struct zns_writer_stats {
	uint64_t bytes; /* payload of all images in bytes */
	uint64_t page_bytes; /* how many of these bytes are in images opened with `pages` */
	/* payload bytes that are on the device; those of a packed image count when the unit that it
	 * shares has been written */
	uint64_t written;
	/* CLOCK_MONOTONIC; 0 until the first page data are passed to the bucket or device */
	uint64_t first_submit_ns;
	uint64_t last_complete_ns;
	uint32_t nr_images; /* number of images so far */
	uint32_t nr_zones; /* number of zones used so far */
	uint32_t nr_reweighed; /* how often the weights of the stripe's zones were changed */
	uint32_t nr_gained; /* how many zones joined the stripe while it was written */
	uint32_t nr_bad; /* how many of nr_zones failed */
	char bad[160]; /* text for people: which zones failed, and why; "" if none */
};

struct zns_writer;
struct zns_wimage;

/*
 * The stripe unit for a stripe of @width zones if nobody asks for another one: that of the device
 * (zns_stripe_unit), or a smaller one for a wide stripe, since its buffers (one unit for each zone
 * and some more) must fit into a helper's memory.
 */
uint32_t zns_writer_unit(const struct zns_geometry *geo, uint32_t width);

int zns_writer_new(const struct zns_writer_params *p, struct zns_writer **out, struct zns_err *err);

/* Begins a new image; the writer owns it. -EEXIST: the dump has an image of that name already. */
int zns_writer_image(struct zns_writer *w, const char *name, bool pages, struct zns_wimage **out,
		     struct zns_err *err);

/*
 * Begins the next image of zns_writer_params.sealed. Its units must then be fed as they were on the
 * other device. -EBADMSG, here or later: their checksums or tags do not match. A composed image
 * needs no data: *out is NULL then.
 */
int zns_writer_sealed(struct zns_writer *w, struct zns_wimage **out, struct zns_err *err);

/* Marks this image as a file that another program wrote into the image directory; a restore writes
 * it there again. To be called before zns_wimage_seal. */
void zns_wimage_set_beside(struct zns_wimage *i);

/* Marks this image as a part, raw material for zns_writer_compose, which tools do not show. To be
 * called before zns_wimage_seal. */
void zns_wimage_set_part(struct zns_wimage *i);

/*
 * Makes an image that consists of runs of sealed parts, one after the other. Only a map in the
 * manifest is written for it. Several images may use the same bytes of a part; bytes that no image
 * uses are merely wasted space. For the name see zns_writer_image. -EINVAL: an image in @from is
 * not a part, or a run is outside of it; -E2BIG: too many runs. After either error the dump may
 * continue without the image.
 */
int zns_writer_compose(struct zns_writer *w, const char *name, struct zns_wimage *const *from,
		       uint32_t nr_from, const struct zns_image_run *run, size_t nr,
		       struct zns_err *err);

/* A unit of a memory context (zns/pages.h), 64 KiB, that the checkpoint refers to in place. It has
 * a checksum and, if it is encrypted, nonce and tag. */
struct zns_named {
	uint32_t zone;
	uint64_t off, hash;
	uint8_t nonce[12], tag[16];
};

/*
 * Makes a part (zns_wimage_set_part) of a memory context's units that are on the device already:
 * they are neither read nor written, only named. @u must be in the order of zones and offsets,
 * without duplicates. The record lists the zones as memory of @context. @key: the context's key;
 * NULL: the units are not encrypted. May be called once in a dump. -EOPNOTSUPP: only one of units
 * and checkpoint is encrypted.
 */
struct zns_memory_key;
int zns_writer_named(struct zns_writer *w, const char *name, const uint8_t *context,
		     const struct zns_memory_key *key, const struct zns_named *u, size_t nr,
		     struct zns_wimage **out, struct zns_err *err);

/*
 * Appends memory of a task that stays frozen until zns_wimage_settle returns. Iovecs are copied.
 * Asynchronous. If a zone is lost later, the writer reads the memory again, and uses it only if the
 * checksum is still the same.
 */
int zns_wimage_mem(struct zns_wimage *i, pid_t pid, const struct iovec *iov, uint32_t nr,
		   struct zns_err *err);

/*
 * Announces areas of the task's memory that the kernel changes even while the task is frozen: a
 * thread's rseq area. To be called before zns_wimage_mem of that memory. If a unit with such an
 * area is read again, the area gets the bytes of the first read. -ENOMEM: such a unit cannot be
 * read again; everything else works. May be called from any thread.
 */
int zns_writer_unsteady(struct zns_writer *w, pid_t pid, const struct iovec *iov, uint32_t nr);
/* Does [@at, @at + @len) contain part of such an area? */
bool zns_writer_is_unsteady(struct zns_writer *w, pid_t pid, uintptr_t at, size_t len);

/* Appends @len bytes; they are copied before it returns. */
int zns_wimage_data(struct zns_wimage *i, const void *buf, size_t len, struct zns_err *err);

/*
 * Like zns_wimage_data, without the copy: *buf has room for *len bytes, at least one, in the
 * image's open unit. The caller fills it from its start, then calls zns_wimage_filled with the
 * number of bytes, before any other call on this image. The rest of the room can be requested
 * again.
 */
int zns_wimage_room(struct zns_wimage *i, uint8_t **buf, size_t *len, struct zns_err *err);
int zns_wimage_filled(struct zns_wimage *i, size_t len, struct zns_err *err);

/* Appends everything that can be read from @fd (zns_wimage_from_fd: a pipe), or @len bytes of a
 * file from offset 0. */
int zns_wimage_from_fd(struct zns_wimage *i, int fd, struct zns_err *err);

/* Returns when every byte of task memory given so far has been read (it need not be written
 * yet). */
int zns_wimage_settle(struct zns_wimage *i, struct zns_err *err);

/* Ends the image. Asynchronous; the caller must not use the image afterwards. */
int zns_wimage_seal(struct zns_wimage *i, struct zns_err *err);

/*
 * Adds the images that are written from now on to an existing checkpoint: @c is its record, @m its
 * manifest, both borrowed until zns_writer_finish returns. The new manifest has the images, zone
 * uses and sizes of both. To be called before the first image. If @m is encrypted, the writer's
 * crypt must be that of @m.
 */
int zns_writer_adopt(struct zns_writer *w, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		     struct zns_err *err);

/*
 * Waits until everything is written (but not flushed), then writes manifest and footer. Fills in
 * m->images and the checkpoint's sizes, zones and groups; *ref gets the manifest's place. The
 * caller frees @m. All images must be sealed. If the writer encrypts, m->checkpoint->crypt (NULL
 * before) becomes the wrapped key that the record in the log must have, and m->former_macs are
 * written too.
 */
int zns_writer_finish(struct zns_writer *w, ZnsPb__Manifest *m, ZnsPb__ExtentRef *ref,
		      struct zns_err *err);

/* After zns_writer_finish, if the writer encrypts: returns the manifest's seal, ZNS_TAG_BYTES. */
const uint8_t *zns_writer_seal(const struct zns_writer *w);

/* Stores in the checkpoint's record for how long data were written so far, and how fast. */
void zns_writer_rate(struct zns_writer *w, ZnsPb__Checkpoint *c);

/*
 * Makes all zones of the checkpoint durable; before that, nobody may rely on the manifest. Then the
 * state of every zone is checked once more: an offline zone is an error, and a zone that has turned
 * read-only since zns_writer_finish is read back.
 */
int zns_writer_durable(struct zns_writer *w, const ZnsPb__Checkpoint *c, struct zns_err *err);

int zns_writer_error(struct zns_writer *w, struct zns_err *err); /* 0, or the first error */
/*
 * To be called when a zone may have failed: waits for all writes, and reads back what failed zones
 * hold. Data that a zone lost are taken from their source again, as zns_writer_finish does. -EIO:
 * there is no source. No other thread may feed an image meanwhile.
 */
int zns_writer_check(struct zns_writer *w, struct zns_err *err);
/* Makes the writer fail with @code and @why, for example because the dump is aborted. Workers stop
 * at the next unit. */
void zns_writer_cancel(struct zns_writer *w, int code, const char *why);

/*
 * A stripe may become wider while it is written. May be called from any thread at any time.
 *
 * zns_writer_wants: how many more zones the writer could use now. 0: little is left to write, or it
 * has not enough buffers. *@waits: the writer is limited by its zones, not by task memory or a
 * processor.
 * zns_writer_gain: adds a zone in a group in which the writer has none. @writers is how many
 * writers that group has, including this one. Units that no worker has begun are distributed anew.
 * A zone that turns out not to be needed is not written. After an error the writer is as it was
 * before.
 */
uint32_t zns_writer_wants(struct zns_writer *w, bool *waits);
int zns_writer_gain(struct zns_writer *w, const struct zns_zone_slot *slot, uint32_t writers,
		    struct zns_err *err);

/* @crowded: from now on, write in short commands, because others write to the same dies, or the
 * broker writes its log there, and would have to wait behind each of our commands. May be called
 * from any thread at any time. */
void zns_writer_crowded(struct zns_writer *w, bool crowded);

/* Tells the writer that @writers writers, including itself, use zones of @group now. Until it has
 * measured its own writes, the writer assumes that its zone there gets an equal share of
 * zns_writer_params.zone_mibps. May be called from any thread at any time. */
void zns_writer_told(struct zns_writer *w, uint32_t group, uint32_t writers);

void zns_writer_stats_get(struct zns_writer *w, struct zns_writer_stats *out);
void zns_writer_free(struct zns_writer *w); /* joins the workers; @w may be NULL */

#endif
