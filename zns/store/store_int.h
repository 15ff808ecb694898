/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STORE_INT_H
#define ZNS_STORE_INT_H
/* Declarations that only the files of zns/store use. */
#include "zns/dev.h"
#include "zns/frame.h"
#include "zns/store.h"
#include "zns/util.h"

/* limit for names of containers and images, and of who removed a checkpoint */
#define ZNS_NAME_LEN_MAX 255
#define ZNS_RECORD_MAX MIB(16) /* largest log record; a header with a greater length is damaged */
#define ZNS_LOG_BUF KIB(256)

/* frame.c: the frame's size according to its header; 0 if the header is not intact. */
uint64_t zns_frame_claim(const uint8_t *buf, size_t len, uint16_t *type);

/* check.c: checks of what a record contains. They fail with @code: -EBADMSG for records that were
 * read, -EINVAL for those that callers pass. */
struct zns_limits {
	uint32_t nr_zones, nr_meta;
	uint32_t nr_groups; /* group numbers in records must be below this */
	uint32_t block; /* size of a block in bytes */
	uint64_t zone_capacity;
	/* the device is an ordinary disk, whose number of zones may have been different before */
	bool resizable;
};
int zns_check_range(const struct zns_limits *l, uint32_t zone, uint64_t start, uint64_t len,
		    int code, struct zns_err *err);
/* manifest_check.c: checks images, seal and former MACs of a manifest. If it is not @placed, its
 * images have no places and its checkpoint is not checked. */
int zns_check_images(const ZnsPb__Manifest *m, const struct zns_geometry *geo, bool placed,
		     struct zns_err *err);
int zns_check_checkpoint(const ZnsPb__Checkpoint *c, const struct zns_limits *l, int code,
			 struct zns_err *err);
int zns_check_reservation(const ZnsPb__Reservation *r, const struct zns_limits *l, int code,
			  struct zns_err *err);
int zns_check_profile(const ZnsPb__Profile *p, const struct zns_limits *l, int code,
		      struct zns_err *err);
int zns_check_tombstone(const ZnsPb__Tombstone *t, int code, struct zns_err *err);
int zns_check_retention(const ZnsPb__Retention *r, int code, struct zns_err *err);
int zns_check_mark(const ZnsPb__Mark *m, int code, struct zns_err *err);
int zns_check_first(const ZnsPb__FirstPages *f, int code, struct zns_err *err);
int zns_check_mount(const ZnsPb__Mount *m, int code, struct zns_err *err);
/* the checkpoint of the key need not exist */
int zns_check_key(const ZnsPb__KeyLine *k, int code, struct zns_err *err);
int zns_check_encryption(const ZnsPb__Encryption *e, int code, struct zns_err *err);
int zns_check_name(const char *what, const char *name, int code, struct zns_err *err);
/* Like zns_check_name, and the name must also be usable as a file name. */
int zns_check_file_name(const char *name, int code, struct zns_err *err);

/* map.c: a hash table with open addressing and linear probing; the values contain their keys. */
struct zns_map {
	struct zns_map_slot {
		uint64_t hash;
		void *val;
	} * slots;
	size_t cap, nr;
};
typedef bool (*zns_map_eq)(const void *val, const void *key);
int zns_map_room(struct zns_map *m); /* makes room for one more entry; -ENOMEM */
void zns_map_add(struct zns_map *m, uint64_t hash, void *val);
void *zns_map_find(const struct zns_map *m, uint64_t hash, zns_map_eq eq, const void *key);
void zns_map_del(struct zns_map *m, uint64_t hash, const void *val);
void zns_map_fini(struct zns_map *m);

/* list.c: lists of messages of one kind, in order, with holes until zns_list_compact(). */
struct zns_owner;
struct zns_ent { /* an entry: one message in a list */
	size_t pos;
	uint64_t hash;
	size_t rec; /* bytes that its record has in the log */
	struct zns_owner *owner;
	/* if the message is a checkpoint: its mark and its first pages */
	struct zns_ent *mark, *first;
	/* if the message is a checkpoint: an array with an entry for each of its zone uses */
	struct zns_zone_place *places;
	union {
		ProtobufCMessage *msg;
		ZnsPb__Checkpoint *ckpt;
		ZnsPb__Tombstone *tomb;
		ZnsPb__Reservation *resv;
		ZnsPb__Retention *retn;
		ZnsPb__Mark *markm;
		ZnsPb__FirstPages *firstp;
	};
};

/* An element of the linked list of a zone's uses, which is not sorted. */
struct zns_zone_place {
	struct zns_zone_place *next;
	const ZnsPb__ZoneUse *use;
	struct zns_ent *ent; /* the entry of the checkpoint that has this use */
};

struct zns_list {
	struct zns_ent **v;
	size_t nr, cap, holes;
	uint64_t bytes; /* sum of rec over all entries */
};

int zns_list_room(struct zns_list *l); /* makes room for one more entry; -ENOMEM */
void zns_list_add(struct zns_list *l, struct zns_ent *e);
void zns_list_take(struct zns_list *l, struct zns_ent *e); /* the caller then owns @e */
void zns_list_del(struct zns_list *l, struct zns_ent *e); /* @e is freed */
/* the caller then owns @old */
void zns_list_replace(struct zns_list *l, struct zns_ent *old, struct zns_ent *e);
/* For a list of at most one entry: replaces the entry by @e (NULL: none) and returns the old
 * one. */
struct zns_ent *zns_list_swap(struct zns_list *l, struct zns_ent *e);
void zns_list_compact(struct zns_list *l);
void zns_list_fini(struct zns_list *l);
void zns_ent_free(struct zns_ent *e);

/* state.c: the catalogue in memory. Functions that return void cannot fail if zns_state_room() was
 * called. */
struct zns_owner {
	uint64_t hash;
	uint32_t nr_checkpoints;
	struct zns_ent *reservation, *retention;
	char name[];
};

#define ZNS_LISTS 12

struct zns_state {
	struct zns_limits lim; /* limits for checks; nr_groups is that of the profile */
	uint32_t block;
	union {
		struct {
			/* Lists of at most one record, the newest one. */
			struct zns_list profile, mount, encryption;
			struct zns_list checkpoints, tombstones, reservations, retentions, marks;
			struct zns_list firsts;
			struct zns_list other[3]; /* lists for kinds that only kinds.c knows */
		};
		struct zns_list lists[ZNS_LISTS]; /* all of the lists as an array */
	};
	struct zns_map by_id, dead, owners;
	uint64_t *live; /* live bytes of each zone, without those of memory contexts */
	uint64_t *packed; /* for each zone, live bytes of checkpoints that are marked `packed` */
	/* for each zone the longest use by a memory context, which `live` does not count. It points
	 * into a record of the state; NULL: there is none */
	const ZnsPb__ZoneUse **memory;
	struct zns_zone_place **places; /* for each zone the list of its uses */
	struct zns_owner **zone_owner;
	uint8_t *zone_shared; /* for each zone: have several containers live bytes in it? */
};

/* Returns the message of a list that keeps only the newest one; NULL: there is none. */
static inline const void *zns_newest(const struct zns_list *l)
{
	return l->nr ? l->v[0]->msg : NULL;
}

static inline uint64_t zns_state_live(const struct zns_state *st, uint32_t zone)
{
	return st->live[zone] + (st->memory[zone] ? st->memory[zone]->len : 0);
}

int zns_state_init(struct zns_state *st, const struct zns_geometry *geo, uint32_t nr_meta,
		   struct zns_err *err);
void zns_state_fini(struct zns_state *st);
/*
 * Changes the number of zones; zones that are cut off must be empty. -ENOMEM: nothing has changed.
 */
int zns_state_follow(struct zns_state *st, uint32_t nr_zones, struct zns_err *err);
/* makes room for one more record of any kind */
int zns_state_room(struct zns_state *st, struct zns_err *err);
struct zns_ent *zns_state_ent(struct zns_state *st, ProtobufCMessage *msg, const char *container,
			      struct zns_err *err); /* takes ownership of @msg, also on failure */
void zns_state_ent_drop(struct zns_state *st, struct zns_ent *e);
struct zns_ent *zns_state_find(const struct zns_state *st, const uint8_t *id);
struct zns_ent *zns_state_find_dead(const struct zns_state *st, const uint8_t *id);
struct zns_owner *zns_state_owner(const struct zns_state *st, const char *container);
int zns_state_may_add(struct zns_state *st, const ZnsPb__Checkpoint *c, int code,
		      struct zns_err *err);
void zns_state_add(struct zns_state *st, struct zns_ent *e);
/* Like zns_state_may_add, for a new version of an existing checkpoint (-ENOENT: it does not exist).
 * The new version keeps the position, marks and first pages of the old one. */
int zns_state_may_replace(struct zns_state *st, const ZnsPb__Checkpoint *c, int code,
			  struct zns_err *err);
void zns_state_replace(struct zns_state *st, struct zns_ent *e);
/* adds a tombstone and removes the checkpoint with that id, if it exists */
void zns_state_bury(struct zns_state *st, struct zns_ent *tomb);
void zns_state_forget(struct zns_state *st, size_t nr); /* drops the @nr oldest tombstones */
void zns_state_reserve(struct zns_state *st, struct zns_ent *e);
void zns_state_release(struct zns_state *st, struct zns_owner *o);
/* Sets a container's rule. A rule without limits ends it. Takes ownership of @e. */
void zns_state_retain(struct zns_state *st, struct zns_ent *e);
void zns_state_mark(struct zns_state *st, struct zns_ent *e); /* the marked checkpoint must exist */
/* the checkpoint must exist */
void zns_state_first(struct zns_state *st, struct zns_ent *e);
void zns_state_set_profile(struct zns_state *st, struct zns_ent *e);
void zns_state_set_mount(struct zns_state *st, struct zns_ent *e);
void zns_state_set_encryption(struct zns_state *st, struct zns_ent *e);
void zns_state_compact(struct zns_state *st);
/* bytes that a record of the message has in the log */
size_t zns_state_rec(const struct zns_state *st, const ProtobufCMessage *msg);
/* A checkpoint with a wrapped key has a second record that repeats the key. zns_state_key fills it
 * in (its pointers are borrowed; false: there is no key); zns_state_key_rec returns its size, or
 * 0. */
bool zns_state_key(const ZnsPb__Checkpoint *c, ZnsPb__KeyLine *out);
size_t zns_state_key_rec(const struct zns_state *st, const ZnsPb__Checkpoint *c);

/* log.c: writes frames to one zone and reads them. */
/* a buffer aligned for transfers, padded to whole blocks; free it with free() */
void *zns_store_buf(const struct zns_dev *dev, size_t len);
int zns_store_read(struct zns_dev *dev, uint32_t zone, uint64_t off, uint8_t *buf, size_t len,
		   struct zns_err *err);
struct zns_log { /* writes a log */
	struct zns_dev *dev;
	uint32_t zone;
	uint64_t off, cap; /* offset of the next byte, and end of the usable space */
	uint64_t generation, seq;
	uint8_t *buf;
	size_t buf_cap, fill;
	bool volatile_tail; /* something was written that this writer has not flushed yet */
};
/* Bytes of a zone that a log may use: all but the last block. */
uint64_t zns_log_room(const struct zns_dev *dev, uint64_t zone_capacity);
void zns_log_init(struct zns_log *l, struct zns_dev *dev, uint32_t zone, uint64_t cap,
		  uint64_t generation);
void zns_log_fini(struct zns_log *l);
int zns_log_put(struct zns_log *l, uint16_t type, const ProtobufCMessage *msg, struct zns_err *err);
/* writes the buffered frames to the device */
int zns_log_write(struct zns_log *l, struct zns_err *err);
/* like zns_log_write, and the data are durable when it returns */
int zns_log_write_durable(struct zns_log *l, struct zns_err *err);

struct zns_log_reader {
	struct zns_dev *dev;
	uint32_t zone;
	uint64_t off, limit; /* offset of the next frame, and end of the written part */
	bool exact; /* is limit exact to the block? It is so in an active zone */
	/* the header of the frame at off is intact, but the frame extends beyond the limit */
	bool cut_off;
	uint8_t *buf;
	size_t buf_cap, buf_len;
	uint64_t buf_off; /* offset in the zone of buf[0] */
};
void zns_log_reader_init(struct zns_log_reader *r, struct zns_dev *dev, const struct zns_zone *z);
void zns_log_reader_fini(struct zns_log_reader *r);
/* Parses the frame at r->off without advancing. 1: a frame; 0: end of the log; -EBADMSG: the frame
 * is incomplete or damaged; -EPROTONOSUPPORT; or an I/O error. */
int zns_log_peek(struct zns_log_reader *r, struct zns_frame *f, struct zns_err *err);
/* To be called after -EBADMSG: is there an intact frame behind it, of @generation (0: any) and with
 * a number of @seq or more? *found_generation: the highest generation that was found. */
int zns_log_later(struct zns_log_reader *r, uint64_t generation, uint64_t seq, uint64_t max_bytes,
		  uint64_t *found_generation, struct zns_err *err);

/* superblock.c: writes the first record of a metadata zone */
int zns_superblock_put(struct zns_log *l, const uint8_t *uuid, const struct zns_geometry *geo,
		       uint32_t nr_meta, const uint32_t *skipped, size_t nr_skipped,
		       struct zns_err *err);
int zns_superblock_parse(const struct zns_frame *f, const struct zns_geometry *geo,
			 uint32_t nr_meta, ZnsPb__Superblock **out, struct zns_err *err);

/* an open store: store.c, replay.c, roll.c */
struct zns_store {
	struct zns_dev *dev;
	unsigned flags;
	uint8_t uuid[ZNS_UUID_LEN];
	uint32_t first_meta, nr_meta; /* zones first_meta to nr_meta-1 hold the log */
	uint64_t max_generation; /* the highest generation that was found anywhere on the device */
	/* the smallest capacity of the metadata zones; a snapshot must fit into it */
	uint64_t min_cap;
	bool need_roll; /* the end of the log may be damaged: roll over before the next change */
	bool torn; /* the log ended in an incomplete record when it was opened */
	bool batch; /* changes are only collected; zns_store_batch_end() writes them */
	bool foreign; /* another program has written to the log, so no more changes are made */
	/* write pointers of the metadata zones after our last write; UINT64_MAX: not known */
	uint64_t *seen_wp;
	struct zns_ent *claim; /* a mount record that is written with the next change; NULL: none */
	struct zns_log log; /* writes the log; log.generation is the store's present generation */
	struct zns_state st;
};
/* ---- meta.c ---- */
/* Can the zone be written, and is its write pointer meaningful? */
bool zns_meta_usable(const struct zns_zone *z);
/* Counts the zones from @first on that are not empty, as far as the device reports it. */
int zns_store_written(struct zns_dev *dev, uint32_t first, uint32_t *nr, struct zns_err *err);
/* Finds the metadata zones; *nr_meta includes leading conventional zones, which are never used.
 * -ENOMEDIUM: the device is too small for a store. */
int zns_store_meta_range(struct zns_dev *dev, uint32_t *first, uint32_t *nr_meta,
			 struct zns_err *err);
int zns_store_replay(struct zns_store *s, struct zns_err *err);
/* Adapts the profile after a disk was resized; all zones of a disk are one group. */
int zns_store_fit_profile(struct zns_state *st, uint32_t nr_zones, struct zns_err *err);
/* Starts a new generation that has room for @need bytes more. If it fails, the old log is still
 * valid. */
int zns_store_roll(struct zns_store *s, uint64_t need, struct zns_err *err);
/* ---- alone.c ---- */
/* -ESTALE: another program also writes the log */
int zns_store_alone(struct zns_store *s, struct zns_err *err);
/* Marks the store as written by another program, and returns -ESTALE. */
int zns_store_taken(struct zns_store *s, struct zns_err *err);
/* returns @ret; with -EBADE, another host has reserved the device, and the store is marked too */
int zns_store_lost(struct zns_store *s, int ret);
/*
 * remembers the write pointers of the metadata zones after our own write, so that zns_store_alone
 * notices a write by others
 */
void zns_store_remember(struct zns_store *s);
/* size of the pending mount record; 0: there is none */
uint64_t zns_store_claim_rec(const struct zns_store *s);
/* change.c: would the catalogue still fit into every metadata zone if it grew by @more bytes?
 * -ENOSPC: no */
int zns_store_may_grow(const struct zns_store *s, uint64_t more, struct zns_err *err);
/* -EROFS: the store was opened for reading only */
int zns_store_writable(const struct zns_store *s, struct zns_err *err);
/* Size of a snapshot without tombstones, in bytes. */
uint64_t zns_store_snapshot_bytes(const struct zns_store *s);
void zns_store_min_cap(struct zns_store *s, const struct zns_zone *zones);
struct zns_store *zns_store_alloc(struct zns_dev *dev, unsigned flags, struct zns_err *err);

#endif
