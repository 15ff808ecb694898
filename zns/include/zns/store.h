/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STORE_H
#define ZNS_STORE_H
/*
 * The store on the device (design.md §4): a metadata log in zones of its own, holding the profile,
 * reservations, checkpoints and tombstones; replayed into memory when opened.
 *
 * One process at a time writes the log: znsd. Others may open with ZNS_STORE_RDONLY. Not
 * thread-safe. All pointers handed out belong to the store and live until the next call that
 * changes it.
 *
 * The log is in the metadata zones, the first sequential zones of the device. Each of them begins
 * with a superblock, which has a generation. The log is the highest generation whose snapshot is
 * complete (SNAPSHOT_END). When its zone is full, the log rolls over: a snapshot goes to the next
 * metadata zone and is flushed. The old zone is reset at the roll-over after that, so that the
 * previous generation survives a crash in between. A record that is cut off at the end of the log
 * is the trace of a crash: it is ignored, and the log goes on in a new generation. Records are
 * padded to blocks.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/util.h"
#include "zns-record.pb-c.h"

/* format in the superblock: the one that is written, and the newest that is read */
#define ZNS_STORE_FORMAT 1
#define ZNS_META_ZONES_MIN 3
#define ZNS_FIRST_MAX (64u << 10) /* bytes of a list of first pages */
#define ZNS_TOMBSTONES_MAX 1024 /* the oldest are forgotten at roll-over */

enum zns_store_flags {
	ZNS_STORE_RDONLY = 1 << 0,
};

struct zns_store;

/* max(3, zones for 0.02 % of the capacity), never more than half of the device. */
uint32_t zns_store_meta_zones(const struct zns_geometry *geo);

/*
 * Write an empty store. Resets all zones of the device. @profile must cover every zone. Without
 * @force a device is refused (-EEXIST) that holds a store with checkpoints, or no store but zones
 * that are not empty. An existing store keeps its UUID; a new one gets @uuid. *uuid_out (16 bytes)
 * is the result.
 */
int zns_store_format(struct zns_dev *dev, const uint8_t *uuid, const ZnsPb__Profile *profile,
		     bool force, uint8_t *uuid_out, struct zns_err *err);

/* -ENOMEDIUM: not formatted. -EBADMSG: metadata damaged beyond a torn tail. */
int zns_store_open(struct zns_dev *dev, unsigned flags, struct zns_store **out,
		   struct zns_err *err);
void zns_store_close(struct zns_store *s); /* does not close the device */

/*
 * May a store on an ordinary disk, open for changes, have @nr_zones zones from now on (fit.c, for
 * zns_file_resize)? If so, its log can be read with the old and the new number. Nothing else may
 * change it before that. -EBUSY: checkpoints are in zones that would go; -ENOSPC: the catalogue
 * would not fit.
 */
int zns_store_fit(struct zns_store *s, uint32_t nr_zones, struct zns_err *err);
/* The device has another number of zones now: updates an open store. -ENOMEM: close it. */
int zns_store_follow(struct zns_store *s, struct zns_err *err);

const uint8_t *zns_store_uuid(const struct zns_store *s);
uint64_t zns_store_generation(const struct zns_store *s);
uint32_t zns_store_nr_meta(const struct zns_store *s); /* zones 0 … n-1 are metadata */
bool zns_store_torn(const struct zns_store *s); /* the log ended in a torn record when opened */
const ZnsPb__Profile *zns_store_profile(const struct zns_store *s);

/* What one zone of the group is written with alone, MiB/s; 0: the group is the unknown one. */
uint32_t zns_profile_group_mibps(const ZnsPb__Profile *p, uint32_t group);
/*
 * The rate of a zone that promises are made with, MiB/s: of the rates that more than half of the
 * groups have, the one that promises most together with them. *@groups: their number. Slower groups
 * are in no promise.
 */
uint32_t zns_profile_promise(const ZnsPb__Profile *p, uint32_t *groups);

/*
 * Records of any kind, by their type in zns/frame.h. Most kinds also have functions of their own
 * below, which say what such a record must fulfil.
 */
/* Record @i of a kind that the catalogue keeps; NULL: @i is beyond the last one, or the kind is
 * unknown. */
const ProtobufCMessage *zns_store_record(const struct zns_store *s, uint16_t type, size_t i);
/* Durable when it returns. -EINVAL: no such kind, or impossible values. -ENOSPC: the catalogue is
 * full. */
int zns_store_put(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg,
		  struct zns_err *err);

/* uses.c: adds a zone to a checkpoint's record; -ENOMEM. */
int zns_use_add(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t start, uint64_t len);
/* Adds the first @len bytes of a zone of that memory context. */
int zns_use_add_memory(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t len, const uint8_t *context);
/* May these uses of two checkpoints refer to the same bytes? */
bool zns_use_shares(const ZnsPb__ZoneUse *a, const ZnsPb__ZoneUse *b);
/* For qsort: by zone, then by offset. */
int zns_use_cmp(const void *, const void *);
/* Makes a record one of a newer version of its checkpoint, which was @moved on its device or comes
 * from elsewhere. @deleted_ns: no tombstone of that time is of it; 0: there is none. */
void zns_record_newer(ZnsPb__Checkpoint *c, bool moved, int64_t deleted_ns);

size_t zns_store_nr_checkpoints(const struct zns_store *s);
/* in order of commit */
const ZnsPb__Checkpoint *zns_store_checkpoint(const struct zns_store *s, size_t i);
/* NULL: none */
const ZnsPb__Checkpoint *zns_store_find(const struct zns_store *s, const uint8_t *id);
const ZnsPb__Tombstone *zns_store_find_tombstone(const struct zns_store *s, const uint8_t *id);
size_t zns_store_nr_reservations(const struct zns_store *s);
const ZnsPb__Reservation *zns_store_reservation(const struct zns_store *s, size_t i);
const ZnsPb__Reservation *zns_store_find_reservation(const struct zns_store *s,
						     const char *container);

/* Bytes of committed checkpoints in one zone (0: the zone may be reset). */
uint64_t zns_store_zone_live(const struct zns_store *s, uint32_t zone);
/* The longest use of the zone for memory of a context; NULL: none. */
const ZnsPb__ZoneUse *zns_store_zone_memory(const struct zns_store *s, uint32_t zone);
/* Bytes in the zone of committed checkpoints that are marked `packed`. */
uint64_t zns_store_zone_packed(const struct zns_store *s, uint32_t zone);
/* Lists where in the zone those bytes are, in no order, up to @max. Returns how many there are. */
struct zns_range {
	uint64_t start, end;
};
size_t zns_store_zone_ranges(const struct zns_store *s, uint32_t zone, struct zns_range *out,
			     size_t max);
/* The container that owns the zone's live bytes, or NULL; of several containers the last one that
 * wrote. */
const char *zns_store_zone_owner(const struct zns_store *s, uint32_t zone);

/* Retention rules and marks; NULL: none. */
size_t zns_store_nr_retentions(const struct zns_store *s);
const ZnsPb__Retention *zns_store_retention(const struct zns_store *s, size_t i);
const ZnsPb__Retention *zns_store_find_retention(const struct zns_store *s, const char *container);
size_t zns_store_nr_marks(const struct zns_store *s);
const ZnsPb__Mark *zns_store_mark(const struct zns_store *s, size_t i);
const ZnsPb__Mark *zns_store_find_mark(const struct zns_store *s, const uint8_t *id);
/* The first pages that a lazy restore recorded (zns/first_pages.h); NULL: none. */
const ZnsPb__FirstPages *zns_store_find_first(const struct zns_store *s, const uint8_t *id);

/* Each of these functions appends a record, flushes the device and returns only when the record is
 * durable; on failure the state in memory is unchanged. The messages are copied. */
/*
 * -EEXIST: that id. -ENOSPC: the catalogue would not fit a metadata zone. -EINVAL: zones or groups
 * out of range, more live bytes than a zone has, or a manifest outside the zone uses.
 */
int zns_store_commit(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err);
/*
 * Parts of a checkpoint were moved. @c replaces the record of its id; its position in the order of
 * commits, its mark and its container's rules stay. Errors:
 *   -ENOENT  there is no such checkpoint
 *   -ESTALE  it was moved meanwhile (@c->moved must be one more than the record's)
 *   -EINVAL  @c differs from the record in more than places; or as for a commit
 */
int zns_store_move(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err);
/* Changes between here and zns_store_batch_end are written together. Until that function has
 * returned, none of them is durable, although the catalogue in memory has them. If it fails, they
 * may or may not be on the device: open the store anew. */
void zns_store_batch_begin(struct zns_store *s);
int zns_store_batch_end(struct zns_store *s, struct zns_err *err);
/* -ENOENT */
int zns_store_remove(struct zns_store *s, const uint8_t *id, const char *by, struct zns_err *err);
/* adds or replaces */
int zns_store_reserve(struct zns_store *s, const ZnsPb__Reservation *r, struct zns_err *err);
/* -ENOENT */
int zns_store_release(struct zns_store *s, const char *container, struct zns_err *err);
/* Adds, replaces or ends the rule of a container, or the mark of a checkpoint that is there
 * (-ENOENT). */
int zns_store_retain(struct zns_store *s, const ZnsPb__Retention *r, struct zns_err *err);
int zns_store_set_mark(struct zns_store *s, const ZnsPb__Mark *m, struct zns_err *err);
/* Adds, replaces or, with no runs, removes the first pages of an existing checkpoint. -ENOSPC:
 * other records need the room. */
int zns_store_set_first(struct zns_store *s, const ZnsPb__FirstPages *f, struct zns_err *err);
/* Reservations that name groups which the new profile lacks are dropped. */
int zns_store_set_profile(struct zns_store *s, const ZnsPb__Profile *p, struct zns_err *err);

/* Must new checkpoints be encrypted? NULL, or a message without key_id: no. With NULL it was never
 * set. */
const ZnsPb__Encryption *zns_store_encryption(const struct zns_store *s);
int zns_store_set_encryption(struct zns_store *s, const ZnsPb__Encryption *e, struct zns_err *err);
/*
 * Leave no wrapped key of a removed checkpoint on the device: begin a new generation of the log,
 * reset all other metadata zones, and zero what a backend can reach behind write pointers. -EROFS:
 * done, but for a zone that cannot be written any more and may hold such keys.
 */
int zns_store_erase(struct zns_store *s, struct zns_err *err);
/*
 * Replace the wrapped keys of all encrypted checkpoints in one step. -ESTALE: @q lacks one of them.
 * *done: the new keys are in force. If an error comes with *done set, only the erasure of the old
 * keys (zns_store_erase) has failed.
 */
int zns_store_rekey(struct zns_store *s, const ZnsPb__Rekey *q, bool *done, struct zns_err *err);

/*
 * Which machine uses the store (mount.c). A claim is written with the first change after it, and
 * only if the newest mount record says something else. Unclaim writes that the store is free again,
 * if this machine claimed it. @m is copied. If somebody else has changed the store meanwhile, a
 * change fails with -ESTALE, and so do all later ones (zns_store_foreign).
 */
struct zns_mount_names {
	char machine[ZNS_MACHINE_STR], boot[ZNS_UUID_STR], host[256];
};
/* fills @m for this machine; @m points into @n */
int zns_mount_self(ZnsPb__Mount *m, struct zns_mount_names *n, struct zns_err *err);
const ZnsPb__Mount *zns_store_mount(const struct zns_store *s); /* NULL: never claimed */
/* -EBUSY: another machine than @machine has mounted the store and did not release it; @err says
 * what to do. */
int zns_store_mine(const struct zns_store *s, const char *machine, struct zns_err *err);
int zns_store_claim(struct zns_store *s, const ZnsPb__Mount *m, struct zns_err *err);
/* writes a claim that waits for a change */
int zns_store_claim_now(struct zns_store *s, struct zns_err *err);
int zns_store_unclaim(struct zns_store *s, struct zns_err *err);
bool zns_store_foreign(const struct zns_store *s);

/*
 * The manifest of a committed checkpoint, read from its data zone and verified; free with
 * zns_pb__manifest__free_unpacked(m, NULL). Needs no open store: @c and the device are enough.
 * -EBADMSG: damaged.
 */
int zns_manifest_read(struct zns_dev *dev, const ZnsPb__Checkpoint *c, ZnsPb__Manifest **out,
		      struct zns_err *err);

/*
 * The bytes to write for a manifest at @start of @zone: the ZNS_FRAME_MANIFEST frame padded to
 * blocks, and one more block, the footer (ZNS_FRAME_FOOTER, message `footer`) by which fsck finds
 * the manifest without the log (zns/fsck.h).
 * *out is page-aligned, ends with free(); *padded_len is all of it. @ref is the frame alone: start,
 * its bytes without padding, their hash.
 */
int zns_manifest_pack(const ZnsPb__Manifest *m, size_t block, uint32_t zone, uint64_t start,
		      uint8_t **out, size_t *padded_len, ZnsPb__ExtentRef *ref,
		      struct zns_err *err);

/* Reads the footer in the block at @off; free with zns_pb__footer__free_unpacked. -ENODATA: there
 * is none; -EBADMSG: damaged. */
int zns_footer_read(struct zns_dev *dev, uint32_t zone, uint64_t off, ZnsPb__Footer **out,
		    struct zns_err *err);

/* Decode and check the frame of a manifest in memory; zns_manifest_read without the reading. */
int zns_manifest_parse(const uint8_t *buf, size_t len, const struct zns_geometry *geo,
		       ZnsPb__Manifest **out, struct zns_err *err);

/* For tools that check more than a reader does: does the footer behind the manifest of @c exist and
 * agree with @c? -EBADMSG: no; @err names zone and offset. Else the device's error. */
int zns_footer_check(struct zns_dev *dev, const ZnsPb__Checkpoint *c, struct zns_err *err);
/*
 * Do record and manifest agree? Id, container and sizes must be the same, and every byte of every
 * image must lie in a zone use of the record, since its zone could be reset otherwise. -EBADMSG:
 * they do not.
 */
int zns_manifest_agrees(const ZnsPb__Manifest *m, const ZnsPb__Checkpoint *c, struct zns_err *err);

/* Checks a manifest from a device: zones and offsets are in range, the number of checksums is
 * right, segments have no gaps. -EBADMSG: one of these is violated. */
int zns_manifest_check(const ZnsPb__Manifest *m, const struct zns_geometry *geo,
		       struct zns_err *err);

#endif
