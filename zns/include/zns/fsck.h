/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FSCK_H
#define ZNS_FSCK_H
/*
 * Checks and rebuilds a catalogue (Documentation/inside/format.md, "Rebuilding"). For a tool that
 * opens the device exclusively. Everything read is untrusted and checked like any other record.
 */
#include "zns/store.h"

/* A checkpoint whose footer was found in a data zone. */
struct zns_found {
	/* the record that the checkpoint would have; NULL if the manifest is damaged */
	ZnsPb__Checkpoint *c;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t zone; /* zone of the footer */
	uint64_t footer; /* offset of the footer in the zone, bytes */
	struct zns_err why; /* code 0: the manifest is intact; else what is wrong with it */
};

struct zns_scan {
	struct zns_found *v;
	size_t nr;
	ZnsPb__Tombstone **dead; /* copies of tombstones that were found in data zones */
	size_t nr_dead;
	uint32_t zones; /* how many zones were looked at */
	uint32_t unreadable; /* how many zones could not be read down to their start */
	uint64_t bytes; /* how much was read to find footers */
};

/*
 * A version of a checkpoint whose footer does not count. An interrupted compaction leaves a second
 * footer, so versions are told apart by the time of the move, @moved_ns; 0: never moved. With
 * @removed, the checkpoint was removed at @moved_ns, and no version from before that counts.
 */
/*
 * An encrypted checkpoint may be imported again under the id that it had before it was removed
 * (zns/sealed.h). @created_ns, the time at which it was created on this device, distinguishes the
 * two. ZNS_ANY_LIFE: that time is not known.
 */
#define ZNS_ANY_LIFE INT64_MIN
struct zns_dead {
	uint8_t id[ZNS_UUID_LEN];
	int64_t created_ns, moved_ns;
	bool removed;
};
bool zns_dead_is(const struct zns_dead *d, const uint8_t *id, int64_t created_ns, int64_t moved_ns);
/* Does the record @k say that these bytes of the zone belong to its checkpoint? */
bool zns_holds_bytes(const ZnsPb__Checkpoint *k, uint32_t zone, uint64_t at, uint64_t len);
/* Does the tombstone @t stand for this version of the checkpoint? A copy that came to the device
 * after the removal has the same @created_ns, but its time of arrival as @moved_ns. */
bool zns_tombstone_of(const ZnsPb__Tombstone *t, const uint8_t *id, int64_t created_ns,
		      int64_t moved_ns);
/* Compares two versions of one checkpoint: < 0 if @a is older, 0, or > 0 if @a is newer. */
int zns_version_cmp(const ZnsPb__Checkpoint *a, const ZnsPb__Checkpoint *b);

/*
 * Finds the footers. The scan skips the bytes of checkpoints: of those in @known, and of those
 * whose footers it finds. It does not skip what @dead, or a version from before a move, claims,
 * because those zones may have been written again since. So it reads one block of each zone, one
 * block in front of each used range, and everything that belongs to no checkpoint.
 */
struct zns_scan_params {
	struct zns_dev *dev;
	uint32_t nr_meta;
	const ZnsPb__Checkpoint *const *known;
	size_t nr_known;
	const struct zns_dead *dead;
	size_t nr_dead;
	void (*progress)(void *arg, uint64_t bytes); /* may be NULL */
	void *arg;
};
int zns_scan_zones(const struct zns_scan_params *p, struct zns_scan *out, struct zns_err *err);
void zns_scan_free(struct zns_scan *s);

enum zns_rebuild_source { ZNS_FROM_LOG, ZNS_FROM_ZONES };

struct zns_rebuild_params {
	bool dry_run;
	/* this machine: a store that another machine has mounted is refused. NULL: not checked */
	const ZnsPb__Mount *self;
	/* UUID for the store if no UUID is found on the device; may be NULL */
	const uint8_t *uuid;
	const ZnsPb__Profile *profile; /* used if the device has no readable profile */
	/* Asked for a checkpoint of which only the footer is left: are all of its data intact? 0:
	 * take it. @m has been checked. */
	int (*intact)(void *arg, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		      struct zns_err *err);
	/* Reports what was done with a checkpoint. @why is empty if the checkpoint was taken
	 * without any doubt. */
	void (*tell)(void *arg, const uint8_t *id, const char *container,
		     enum zns_rebuild_source from, bool taken, const char *why);
	void (*progress)(void *arg, uint64_t bytes);
	void *arg;
};

struct zns_rebuild_result {
	uint64_t generation; /* generation that was written, or would be written in a dry run */
	uint32_t records; /* intact records in metadata zones */
	/* blocks of metadata zones, below write pointers, that belong to no intact record */
	uint32_t damaged_blocks;
	bool profile_lost;
	uint32_t checkpoints, reservations, tombstones;
	struct zns_scan scan; /* free with zns_scan_free */
};

/* Writes a new generation of the log from everything that is still readable: intact records of all
 * metadata zones, in order of generation and number, and footers. Nothing else on the device is
 * changed. -ENOMEDIUM: nothing on the device belongs to a store. */
int zns_rebuild(struct zns_dev *dev, const struct zns_rebuild_params *p,
		struct zns_rebuild_result *r, struct zns_err *err);

/* Packs a tombstone as one block for a data zone (see format.md). 0 or -EMSGSIZE. */
int zns_tombstone_block(const ZnsPb__Tombstone *t, uint8_t *block, size_t block_size);

#endif
