/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_FSCK_H
#define ZNS_FSCK_H
/*
 * Checking and rebuilding a catalogue (Documentation/inside/format.md, "Rebuilding"). For a tool that has
 * the device alone. Everything read is untrusted and checked like any other record.
 */
#include "zns/store.h"

/* A checkpoint whose footer was found in a data zone. */
struct zns_found {
	ZnsPb__Checkpoint *c; /* what its record would be; NULL if the manifest is damaged */
	uint8_t id[ZNS_UUID_LEN];
	uint32_t zone; /* zone of the footer */
	uint64_t footer; /* offset of the footer in the zone, bytes */
	struct zns_err why; /* code 0: the manifest is good; else what is wrong with it */
};

struct zns_scan {
	struct zns_found *v;
	size_t nr;
	ZnsPb__Tombstone **dead; /* copies of tombstones in data zones */
	size_t nr_dead;
	uint32_t zones; /* looked at */
	uint32_t unreadable; /* how many zones could not be read to their beginning */
	uint64_t bytes; /* read to find footers */
};

/*
 * A version of a checkpoint whose footer does not count. A compaction that was interrupted leaves a
 * footer too, so the time of the move tells versions apart; 0: never moved. With @removed the
 * checkpoint was removed at @moved_ns: no version from before counts.
 */
/*
 * An encrypted checkpoint may be imported again under the id that it had before its removal
 * (zns/sealed.h). The time of its creation here tells such lives apart. ZNS_ANY_LIFE: not known.
 */
#define ZNS_ANY_LIFE INT64_MIN
struct zns_dead {
	uint8_t id[ZNS_UUID_LEN];
	int64_t created_ns, moved_ns;
	bool removed;
};
bool zns_dead_is(const struct zns_dead *d, const uint8_t *id, int64_t created_ns, int64_t moved_ns);
/* Are these bytes of the zone the checkpoint's, by its record? */
bool zns_holds_bytes(const ZnsPb__Checkpoint *k, uint32_t zone, uint64_t at, uint64_t len);
/* Is this version of a checkpoint the one that @t says was removed? A copy of it that came onto the
 * device later has the same @created_ns, and its time of arrival as @moved_ns. */
bool zns_tombstone_of(const ZnsPb__Tombstone *t, const uint8_t *id, int64_t created_ns,
		      int64_t moved_ns);
/* Which of two versions of one checkpoint is the later one: < 0, 0, > 0. */
int zns_version_cmp(const ZnsPb__Checkpoint *a, const ZnsPb__Checkpoint *b);

/*
 * Find the footers. The scan steps over the bytes of checkpoints: of those in @known, and of those
 * that it finds. It does not step over what @dead or a version from before a move claims, since
 * those zones may have been written anew. So it reads one block of each zone, one block before each
 * use, and what belongs to no checkpoint.
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
	/* this machine; a store that another machine has mounted is refused. NULL: not checked */
	const ZnsPb__Mount *self;
	/* the store's UUID, used if nothing on the device has it; may be NULL */
	const uint8_t *uuid;
	const ZnsPb__Profile *profile; /* used if the device has no readable one */
	/* Are all data of a checkpoint intact that only its footer vouches for? 0: take it. @m was
	 * checked. */
	int (*intact)(void *arg, const ZnsPb__Checkpoint *c, const ZnsPb__Manifest *m,
		      struct zns_err *err);
	/* What became of a checkpoint. @why is empty if it was taken without any doubt. */
	void (*tell)(void *arg, const uint8_t *id, const char *container,
		     enum zns_rebuild_source from, bool taken, const char *why);
	void (*progress)(void *arg, uint64_t bytes);
	void *arg;
};

struct zns_rebuild_result {
	uint64_t generation; /* generation that was written, or would be */
	uint32_t records; /* good ones in metadata zones */
	/* blocks of metadata zones, below write pointers, that are in no good record */
	uint32_t damaged_blocks;
	bool profile_lost;
	uint32_t checkpoints, reservations, tombstones;
	struct zns_scan scan; /* zns_scan_free */
};

/* Writes a new generation from what is still readable: good records of every metadata zone in order
 * of generation and number, and footers. Nothing else on the device is changed. -ENOMEDIUM: nothing
 * on the device belongs to a store. */
int zns_rebuild(struct zns_dev *dev, const struct zns_rebuild_params *p,
		struct zns_rebuild_result *r, struct zns_err *err);

/* The bytes of a tombstone as one block, for a data zone (see format.md); 0 or -EMSGSIZE. */
int zns_tombstone_block(const ZnsPb__Tombstone *t, uint8_t *block, size_t block_size);

#endif
