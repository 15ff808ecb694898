/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STORE_H
#define ZNS_STORE_H
/*
 * The store on the device (design.md §4): a metadata log in zones of its own, holding the profile,
 * reservations, checkpoints and tombstones; replayed into memory when opened.
 *
 * One process at a time writes the log: znsd. Others may open with ZNS_STORE_RDONLY. Not
 * thread-safe. All returned pointers belong to the store and are valid until the next call that
 * changes it.
 *
 * The log is in the metadata zones, the first sequential zones of the device. Each of them begins
 * with a superblock, which has a generation. The log is the highest generation whose snapshot is
 * complete (SNAPSHOT_END). When its zone is full, the log rolls over: a snapshot goes to the next
 * metadata zone and is flushed. The old zone is reset at the roll-over after that, so that the
 * previous generation survives a crash in between. An incomplete record at the end of the log was
 * left by a crash: it is ignored, and the log continues in a new generation. Records are padded to
 * blocks.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/config.h"
#include "zns/dev.h"
#include "zns/util.h"
#include "zns-record.pb-c.h"

/* format in the superblock: the one that is written, and the newest one that is read */
#define ZNS_STORE_FORMAT 1
#define ZNS_META_ZONES_MIN 3
#define ZNS_FIRST_MAX (64u << 10) /* largest list of first pages, in bytes */
#define ZNS_TOMBSTONES_MAX 1024 /* if there are more, the oldest ones are dropped at roll-over */

enum zns_store_flags {
	ZNS_STORE_RDONLY = 1 << 0,
};

struct zns_store;

/* Number of metadata zones: max(3, zones for 0.02 % of the capacity), but at most half of the
 * device. */
uint32_t zns_store_meta_zones(const struct zns_geometry *geo);

/*
 * Creates an empty store; resets all zones of the device. @profile must cover every zone. Without
 * @force a device is refused (-EEXIST) if it holds a store with checkpoints, or no store but zones
 * that are not empty. An existing store keeps its UUID; a new one gets @uuid. *uuid_out (16 bytes)
 * is the UUID that the store has.
 */
int zns_store_format(struct zns_dev *dev, const uint8_t *uuid, const ZnsPb__Profile *profile,
		     bool force, uint8_t *uuid_out, struct zns_err *err);

/* Opens a store. -ENOMEDIUM: the device is not formatted. -EBADMSG: the metadata are damaged in
 * more than an incomplete last record. */
int zns_store_open(struct zns_dev *dev, unsigned flags, struct zns_store **out,
		   struct zns_err *err);
void zns_store_close(struct zns_store *s); /* frees the store; does not close the device */

/*
 * Can a store on an ordinary disk, open for changes, be resized to @nr_zones zones (fit.c, for
 * zns_file_resize)? If so, the log is first written such that it can be read with both the old and
 * the new number. Until the resize nothing else may change the store. -EBUSY: checkpoints are in
 * zones that would be cut off; -ENOSPC: the catalogue would not fit.
 */
int zns_store_fit(struct zns_store *s, uint32_t nr_zones, struct zns_err *err);
/* Updates an open store after the number of zones of its device has changed. -ENOMEM: the store
 * must be closed. */
int zns_store_follow(struct zns_store *s, struct zns_err *err);

const uint8_t *zns_store_uuid(const struct zns_store *s);
uint64_t zns_store_generation(const struct zns_store *s);
/* the number n of metadata zones, which are zones 0 … n-1 */
uint32_t zns_store_nr_meta(const struct zns_store *s);
/* did the log end in an incomplete record when it was opened? */
bool zns_store_torn(const struct zns_store *s);
const ZnsPb__Profile *zns_store_profile(const struct zns_store *s);

/* The write rate of one zone of the group, MiB/s, while no other zone of it is written; 0: the
 * group is the one for unmapped zones. */
uint32_t zns_profile_group_mibps(const ZnsPb__Profile *p, uint32_t group);
/*
 * The rate of a zone, in MiB/s, on which promises of bandwidth are based: among the rates that more
 * than half of the groups reach, the one that allows to promise most in all. *groups: the number of
 * groups that reach it. Slower groups are not used for promises.
 */
uint32_t zns_profile_promise(const ZnsPb__Profile *p, uint32_t *groups);

/*
 * Access to records of any kind by their type in zns/frame.h. Most kinds also have functions of
 * their own below, whose comments say what such a record must fulfil.
 */
/* Returns record @i of a kind; NULL: @i is beyond the last one, the catalogue does not keep this
 * kind, or the kind is unknown. */
const ProtobufCMessage *zns_store_record(const struct zns_store *s, uint16_t type, size_t i);
/* Writes a record, durably. -EINVAL: no such kind, or impossible values. -ENOSPC: the catalogue is
 * full. */
int zns_store_put(struct zns_store *s, uint16_t type, const ProtobufCMessage *msg,
		  struct zns_err *err);

/* Adds a zone to the zone uses of a checkpoint's record; -ENOMEM. */
int zns_use_add(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t start, uint64_t len);
/* Adds the first @len bytes of a zone that the memory context @context wrote. */
int zns_use_add_memory(ZnsPb__Checkpoint *c, uint32_t zone, uint64_t len, const uint8_t *context);
/* May these uses of two checkpoints refer to the same bytes? */
bool zns_use_shares(const ZnsPb__ZoneUse *a, const ZnsPb__ZoneUse *b);
/* Comparison function for qsort: sorts uses by zone, then by offset. */
int zns_use_cmp(const void *, const void *);
/* Marks a record as a newer version of its checkpoint, which was @moved on its device or comes from
 * elsewhere. @deleted_ns: time of a tombstone for this id, than which the new version must be
 * later; 0: there is none. */
void zns_record_newer(ZnsPb__Checkpoint *c, bool moved, int64_t deleted_ns);

size_t zns_store_nr_checkpoints(const struct zns_store *s);
/* in the order of commits */
const ZnsPb__Checkpoint *zns_store_checkpoint(const struct zns_store *s, size_t i);
/* NULL: there is none */
const ZnsPb__Checkpoint *zns_store_find(const struct zns_store *s, const uint8_t *id);
const ZnsPb__Tombstone *zns_store_find_tombstone(const struct zns_store *s, const uint8_t *id);
size_t zns_store_nr_reservations(const struct zns_store *s);
const ZnsPb__Reservation *zns_store_reservation(const struct zns_store *s, size_t i);
const ZnsPb__Reservation *zns_store_find_reservation(const struct zns_store *s,
						     const char *container);

/* Bytes of committed checkpoints in one zone. If it is 0, the zone may be reset. */
uint64_t zns_store_zone_live(const struct zns_store *s, uint32_t zone);
/* The longest use of the zone by a memory context; NULL: there is none. */
const ZnsPb__ZoneUse *zns_store_zone_memory(const struct zns_store *s, uint32_t zone);
/* Bytes of committed checkpoints in the zone, counting only checkpoints that are marked
 * `packed`. */
uint64_t zns_store_zone_packed(const struct zns_store *s, uint32_t zone);
/* Lists the ranges of the zone that committed checkpoints use, in no particular order, up to @max.
 * Returns how many there are. */
struct zns_range {
	uint64_t start, end;
};
size_t zns_store_zone_ranges(const struct zns_store *s, uint32_t zone, struct zns_range *out,
			     size_t max);
/* The container that owns the zone's live bytes, or NULL; if there are several, the one that wrote
 * last. */
const char *zns_store_zone_owner(const struct zns_store *s, uint32_t zone);

/* Retention rules of containers and marks of checkpoints; NULL: there is none. */
size_t zns_store_nr_retentions(const struct zns_store *s);
const ZnsPb__Retention *zns_store_retention(const struct zns_store *s, size_t i);
const ZnsPb__Retention *zns_store_find_retention(const struct zns_store *s, const char *container);
size_t zns_store_nr_marks(const struct zns_store *s);
const ZnsPb__Mark *zns_store_mark(const struct zns_store *s, size_t i);
const ZnsPb__Mark *zns_store_find_mark(const struct zns_store *s, const uint8_t *id);
/* The first pages that a lazy restore of @id recorded (zns/first_pages.h); NULL: none. */
const ZnsPb__FirstPages *zns_store_find_first(const struct zns_store *s, const uint8_t *id);

/* Each of the following functions appends a record, flushes the device and returns only when the
 * record is durable. On failure the state in memory is unchanged. The messages are copied. */
/*
 * Adds a checkpoint. -EEXIST: the id exists. -ENOSPC: the catalogue would not fit into a metadata
 * zone. -EINVAL: zones or groups are out of range, a zone would have more live bytes than it can
 * hold, or the manifest is outside the zone uses.
 */
int zns_store_commit(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err);
/*
 * Records that parts of a checkpoint were moved: @c replaces the record of its id. The checkpoint's
 * position in the order of commits, its mark and its container's rules stay. Errors:
 *   -ENOENT  there is no such checkpoint
 *   -ESTALE  it was moved meanwhile (@c->moved must be one more than that of the present record)
 *   -EINVAL  @c differs from the record in more than places; or as for a commit
 */
int zns_store_move(struct zns_store *s, const ZnsPb__Checkpoint *c, struct zns_err *err);
/* Changes between this call and zns_store_batch_end are written together. None of them is durable
 * until that function has returned, although the catalogue in memory already has them. If it fails,
 * the changes may or may not be on the device, so the store must be closed and opened again. */
void zns_store_batch_begin(struct zns_store *s);
int zns_store_batch_end(struct zns_store *s, struct zns_err *err);
/* -ENOENT: no such checkpoint */
int zns_store_remove(struct zns_store *s, const uint8_t *id, const char *by, struct zns_err *err);
/* adds a reservation or replaces the container's existing one */
int zns_store_reserve(struct zns_store *s, const ZnsPb__Reservation *r, struct zns_err *err);
/* -ENOENT: the container has no reservation */
int zns_store_release(struct zns_store *s, const char *container, struct zns_err *err);
/* Adds, replaces or ends the rule of a container, or the mark of an existing checkpoint (-ENOENT:
 * there is no such checkpoint). */
int zns_store_retain(struct zns_store *s, const ZnsPb__Retention *r, struct zns_err *err);
int zns_store_set_mark(struct zns_store *s, const ZnsPb__Mark *m, struct zns_err *err);
/* Adds or replaces the first pages of an existing checkpoint, or removes them if there are no runs.
 * -ENOSPC: the space is kept for other records. */
int zns_store_set_first(struct zns_store *s, const ZnsPb__FirstPages *f, struct zns_err *err);
/* Replaces the profile. Reservations that name groups which the new profile lacks are dropped. */
int zns_store_set_profile(struct zns_store *s, const ZnsPb__Profile *p, struct zns_err *err);

/* Must new checkpoints be encrypted? A message without key_id: no. NULL: no, and it was never
 * set. */
const ZnsPb__Encryption *zns_store_encryption(const struct zns_store *s);
int zns_store_set_encryption(struct zns_store *s, const ZnsPb__Encryption *e, struct zns_err *err);
/*
 * Makes sure that no wrapped key of a removed checkpoint is left on the device: starts a new
 * generation of the log, resets all other metadata zones, and zeroes what a backend can reach above
 * write pointers. -EROFS: done, except for a zone that cannot be written any more and may still
 * hold such keys.
 */
int zns_store_erase(struct zns_store *s, struct zns_err *err);
/*
 * Replaces the wrapped keys of all encrypted checkpoints in one step. -ESTALE: @q lacks one of
 * them. *done: the new keys are in force. If an error is returned with *done set, only the erasure
 * of the old keys (zns_store_erase) has failed.
 */
int zns_store_rekey(struct zns_store *s, const ZnsPb__Rekey *q, bool *done, struct zns_err *err);

/*
 * Which machine uses the store (mount.c). zns_store_claim makes the next change also write a mount
 * record, if the newest one differs. zns_store_unclaim writes that the store is free again, if this
 * machine had claimed it. @m is copied. If another machine has changed the store meanwhile, a
 * change fails with -ESTALE, and so do all later ones (zns_store_foreign).
 */
struct zns_mount_names {
	char machine[ZNS_MACHINE_STR], boot[ZNS_UUID_STR], host[256];
};
/* fills @m with the names of this machine; @m points into @n */
int zns_mount_self(ZnsPb__Mount *m, struct zns_mount_names *n, struct zns_err *err);
/* the newest mount record; NULL: the store was never claimed */
const ZnsPb__Mount *zns_store_mount(const struct zns_store *s);
/* May @machine use the store? -EBUSY: another machine has mounted it and did not release it; @err
 * says what to do. */
int zns_store_mine(const struct zns_store *s, const char *machine, struct zns_err *err);
int zns_store_claim(struct zns_store *s, const ZnsPb__Mount *m, struct zns_err *err);
/* writes a claim at once that would otherwise wait for the next change */
int zns_store_claim_now(struct zns_store *s, struct zns_err *err);
int zns_store_unclaim(struct zns_store *s, struct zns_err *err);
bool zns_store_foreign(const struct zns_store *s);

/*
 * Reads the manifest of a committed checkpoint from its data zone and verifies it; free with
 * zns_pb__manifest__free_unpacked(m, NULL). Needs no open store: @c and the device are enough.
 * -EBADMSG: damaged.
 */
int zns_manifest_read(struct zns_dev *dev, const ZnsPb__Checkpoint *c, ZnsPb__Manifest **out,
		      struct zns_err *err);

/*
 * Packs a manifest that will be written at @start of @zone: the ZNS_FRAME_MANIFEST frame padded to
 * blocks, and one more block with the footer (ZNS_FRAME_FOOTER, message `footer`), by which fsck
 * finds the manifest without the log (zns/fsck.h). *out is page-aligned; free it with free().
 * *padded_len is the length of both. @ref describes the frame alone: its start, its bytes without
 * padding, and their hash.
 */
int zns_manifest_pack(const ZnsPb__Manifest *m, size_t block, uint32_t zone, uint64_t start,
		      uint8_t **out, size_t *padded_len, ZnsPb__ExtentRef *ref,
		      struct zns_err *err);

/* Reads the footer in the block at @off; free with zns_pb__footer__free_unpacked. -ENODATA: there
 * is none; -EBADMSG: it is damaged. */
int zns_footer_read(struct zns_dev *dev, uint32_t zone, uint64_t off, ZnsPb__Footer **out,
		    struct zns_err *err);

/* Decodes and checks the frame of a manifest that is already in memory. */
int zns_manifest_parse(const uint8_t *buf, size_t len, const struct zns_geometry *geo,
		       ZnsPb__Manifest **out, struct zns_err *err);

/* For tools that check more than a reader does: is there a footer behind the manifest of @c, and
 * does it agree with @c? -EBADMSG: no; @err names zone and offset. Other errors are the
 * device's. */
int zns_footer_check(struct zns_dev *dev, const ZnsPb__Checkpoint *c, struct zns_err *err);
/*
 * Do record and manifest agree? Id, container and sizes must be the same. Every byte of every image
 * must be in a zone use of the record, since otherwise its zone could be reset. -EBADMSG: they do
 * not agree.
 */
int zns_manifest_agrees(const ZnsPb__Manifest *m, const ZnsPb__Checkpoint *c, struct zns_err *err);

/* Checks a manifest from a device: zones and offsets are in range, the number of checksums is
 * right, segments have no gaps. -EBADMSG: one of these is violated. */
int zns_manifest_check(const ZnsPb__Manifest *m, const struct zns_geometry *geo,
		       struct zns_err *err);

#endif
