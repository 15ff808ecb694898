/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_STORE_INT_H
#define ZNS_STORE_INT_H
/* Declarations that only the files of zns/store use. */
#include "zns/dev.h"
#include "zns/frame.h"
#include "zns/store.h"
#include "zns/util.h"

/* for names of containers and images, and for who removed a checkpoint */
#define ZNS_NAME_LEN_MAX 255
#define ZNS_RECORD_MAX MIB(16) /* of a log record; a header that says more is damaged */
#define ZNS_LOG_BUF KIB(256)

/* frame.c: the frame's size according to its header; 0 if there is no good header. */
uint64_t zns_frame_claim(const uint8_t *buf, size_t len, uint16_t *type);

/* check.c: what a record may say. Errors are @code (-EBADMSG for what was read, -EINVAL for
 * callers' input). */
struct zns_limits {
	uint32_t nr_zones, nr_meta;
	uint32_t nr_groups; /* limit for the group numbers in records */
	uint32_t block; /* bytes */
	uint64_t zone_capacity;
	bool resizable; /* an ordinary disk: its number of zones may have been different before */
};
int zns_check_range(const struct zns_limits *l, uint32_t zone, uint64_t start, uint64_t len,
		    int code, struct zns_err *err);
/* manifest_check.c: the images, seal and former MACs of a manifest; of one that is not @placed the
 * checkpoint is not looked at. */
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
/* does not check whether its checkpoint exists */
int zns_check_key(const ZnsPb__KeyLine *k, int code, struct zns_err *err);
int zns_check_encryption(const ZnsPb__Encryption *e, int code, struct zns_err *err);
int zns_check_name(const char *what, const char *name, int code, struct zns_err *err);
/*
 * Like zns_check_name; in addition the name must be usable as a file name in a directory of ours.
 */
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

/* list.c: messages of one kind, in order, with holes until zns_list_compact(). */
struct zns_owner;
struct zns_ent { /* one message in a list */
	size_t pos;
	uint64_t hash;
	size_t rec; /* bytes of its record in the log */
	struct zns_owner *owner;
	struct zns_ent *mark, *first; /* set for a checkpoint */
	struct zns_zone_place *places; /* set for a checkpoint: one for each of its zone uses */
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

/* A use in the list of its zone's uses, which are in no order. */
struct zns_zone_place {
	struct zns_zone_place *next;
	const ZnsPb__ZoneUse *use;
	struct zns_ent *ent; /* the checkpoint */
};

struct zns_list {
	struct zns_ent **v;
	size_t nr, cap, holes;
	uint64_t bytes; /* sum of rec */
};

int zns_list_room(struct zns_list *l); /* makes room for one more entry; -ENOMEM */
void zns_list_add(struct zns_list *l, struct zns_ent *e);
void zns_list_take(struct zns_list *l, struct zns_ent *e); /* the caller owns @e then */
void zns_list_del(struct zns_list *l, struct zns_ent *e); /* @e is freed */
/* the caller owns @old again */
void zns_list_replace(struct zns_list *l, struct zns_ent *old, struct zns_ent *e);
/* For a list of at most one entry: replaces it by @e (NULL: none) and returns the old one. */
struct zns_ent *zns_list_swap(struct zns_list *l, struct zns_ent *e);
void zns_list_compact(struct zns_list *l);
void zns_list_fini(struct zns_list *l);
void zns_ent_free(struct zns_ent *e);

/* state.c: the catalogue in memory. Functions that return void cannot fail, given room. */
struct zns_owner {
	uint64_t hash;
	uint32_t nr_checkpoints;
	struct zns_ent *reservation, *retention;
	char name[];
};

#define ZNS_LISTS 12

struct zns_state {
	struct zns_limits lim; /* nr_groups is that of the profile */
	uint32_t block;
	union {
		struct {
			/* Lists of at most one record, the newest. */
			struct zns_list profile, mount, encryption;
			struct zns_list checkpoints, tombstones, reservations, retentions, marks;
			struct zns_list firsts;
			struct zns_list other[3]; /* records of kinds that only kinds.c knows */
		};
		struct zns_list lists[ZNS_LISTS]; /* an array of all lists */
	};
	struct zns_map by_id, dead, owners;
	uint64_t *live; /* live bytes of each zone, without memory of contexts */
	uint64_t *packed; /* live bytes of checkpoints that are marked as packed */
	/* for each zone the longest use that is memory of a context, which `live` does not count.
	 * It points into a record of the state; NULL: none */
	const ZnsPb__ZoneUse **memory;
	struct zns_zone_place **places; /* for each zone */
	struct zns_owner **zone_owner;
	uint8_t *zone_shared; /* zones with live bytes of more than one container */
};

/* The entry of a list that keeps only the newest message; NULL: there is none. */
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
/* Like zns_state_may_add, for a new version of an existing checkpoint (-ENOENT). It takes the old
 * version's place, with its marks and first pages. */
int zns_state_may_replace(struct zns_state *st, const ZnsPb__Checkpoint *c, int code,
			  struct zns_err *err);
void zns_state_replace(struct zns_state *st, struct zns_ent *e);
/* the checkpoint with that id, if there is one, is removed */
void zns_state_bury(struct zns_state *st, struct zns_ent *tomb);
void zns_state_forget(struct zns_state *st, size_t nr); /* the oldest tombstones */
void zns_state_reserve(struct zns_state *st, struct zns_ent *e);
void zns_state_release(struct zns_state *st, struct zns_owner *o);
/* A rule without any limit ends the container's rule; takes ownership of @e. */
void zns_state_retain(struct zns_state *st, struct zns_ent *e);
void zns_state_mark(struct zns_state *st, struct zns_ent *e); /* the checkpoint must exist */
/* its checkpoint must exist */
void zns_state_first(struct zns_state *st, struct zns_ent *e);
void zns_state_set_profile(struct zns_state *st, struct zns_ent *e);
void zns_state_set_mount(struct zns_state *st, struct zns_ent *e);
void zns_state_set_encryption(struct zns_state *st, struct zns_ent *e);
void zns_state_compact(struct zns_state *st);
/* bytes of a record */
size_t zns_state_rec(const struct zns_state *st, const ProtobufCMessage *msg);
/* For a checkpoint with a wrapped key: fills the record that repeats the key (its pointers are
 * borrowed), or returns the record's size; else 0. */
bool zns_state_key(const ZnsPb__Checkpoint *c, ZnsPb__KeyLine *out);
size_t zns_state_key_rec(const struct zns_state *st, const ZnsPb__Checkpoint *c);

/* log.c: frames into and out of one zone. */
/* aligned for transfers, padded to whole blocks; free() */
void *zns_store_buf(const struct zns_dev *dev, size_t len);
int zns_store_read(struct zns_dev *dev, uint32_t zone, uint64_t off, uint8_t *buf, size_t len,
		   struct zns_err *err);
struct zns_log { /* writer */
	struct zns_dev *dev;
	uint32_t zone;
	uint64_t off, cap; /* offset of the next byte; end of the space */
	uint64_t generation, seq;
	uint8_t *buf;
	size_t buf_cap, fill;
	bool volatile_tail; /* written, but not flushed by this writer */
};
/* Bytes of a zone that a log may take: all but the last block. */
uint64_t zns_log_room(const struct zns_dev *dev, uint64_t zone_capacity);
void zns_log_init(struct zns_log *l, struct zns_dev *dev, uint32_t zone, uint64_t cap,
		  uint64_t generation);
void zns_log_fini(struct zns_log *l);
int zns_log_put(struct zns_log *l, uint16_t type, const ProtobufCMessage *msg, struct zns_err *err);
/* writes the buffered frames to the device */
int zns_log_write(struct zns_log *l, struct zns_err *err);
/* like zns_log_write, and durable on return */
int zns_log_write_durable(struct zns_log *l, struct zns_err *err);

struct zns_log_reader {
	struct zns_dev *dev;
	uint32_t zone;
	uint64_t off, limit; /* offset of the next frame; end of the written part */
	bool exact; /* limit is exact to the block, as in an active zone */
	/* the header of the frame at off is good, but the frame extends beyond the limit */
	bool cut_off;
	uint8_t *buf;
	size_t buf_cap, buf_len;
	uint64_t buf_off; /* place of buf[0] in the zone */
};
void zns_log_reader_init(struct zns_log_reader *r, struct zns_dev *dev, const struct zns_zone *z);
void zns_log_reader_fini(struct zns_log_reader *r);
/* Looks at the frame at r->off; the caller advances. 1: a frame; 0: end of the log; -EBADMSG: not a
 * whole frame; -EPROTONOSUPPORT; else an I/O error. */
int zns_log_peek(struct zns_log_reader *r, struct zns_frame *f, struct zns_err *err);
/* After -EBADMSG: is there a good frame behind it, of @generation (0: any) and not before @seq?
 * Puts out the highest generation found. */
int zns_log_later(struct zns_log_reader *r, uint64_t generation, uint64_t seq, uint64_t max_bytes,
		  uint64_t *found_generation, struct zns_err *err);

/* superblock.c: the first record of a metadata zone */
int zns_superblock_put(struct zns_log *l, const uint8_t *uuid, const struct zns_geometry *geo,
		       uint32_t nr_meta, const uint32_t *skipped, size_t nr_skipped,
		       struct zns_err *err);
int zns_superblock_parse(const struct zns_frame *f, const struct zns_geometry *geo,
			 uint32_t nr_meta, ZnsPb__Superblock **out, struct zns_err *err);

/* store.c, replay.c, roll.c */
struct zns_store {
	struct zns_dev *dev;
	unsigned flags;
	uint8_t uuid[ZNS_UUID_LEN];
	uint32_t first_meta, nr_meta; /* zones first_meta … nr_meta-1 hold the log */
	uint64_t max_generation; /* the highest generation seen anywhere on the device */
	/* the smallest capacity of the metadata zones, into which a snapshot must fit */
	uint64_t min_cap;
	bool need_roll; /* the end of the log may be damaged: roll over before the next change */
	bool torn; /* the log ended in a torn record when it was opened */
	bool batch; /* changes wait for zns_store_batch_end() to be written */
	bool foreign; /* another program has written to the log: no changes are made any more */
	/* write pointers of the metadata zones as we left them; UINT64_MAX: not known */
	uint64_t *seen_wp;
	struct zns_ent *claim; /* a mount record that goes into the log before the next change */
	struct zns_log log; /* log.generation is the store's */
	struct zns_state st;
};
/* meta.c */
/* Can it be written, and is its write pointer meaningful? */
bool zns_meta_usable(const struct zns_zone *z);
/* How many zones from @first on are not empty, as far as the device can tell. */
int zns_store_written(struct zns_dev *dev, uint32_t first, uint32_t *nr, struct zns_err *err);
/* nr_meta counts leading conventional zones, which are never used. -ENOMEDIUM: too small for a
 * store. */
int zns_store_meta_range(struct zns_dev *dev, uint32_t *first, uint32_t *nr_meta,
			 struct zns_err *err);
int zns_store_replay(struct zns_store *s, struct zns_err *err);
/* The profile of a disk that was resized; all of its zones are one group. */
int zns_store_fit_profile(struct zns_state *st, uint32_t nr_zones, struct zns_err *err);
/* Start a new generation with room for @need bytes more. On failure the old log is what it was. */
int zns_store_roll(struct zns_store *s, uint64_t need, struct zns_err *err);
/* alone.c */
/* -ESTALE: another program writes the log too */
int zns_store_alone(struct zns_store *s, struct zns_err *err);
/* Marks the store as written by another program, and returns -ESTALE. */
int zns_store_taken(struct zns_store *s, struct zns_err *err);
/* returns @ret; -EBADE: another host has reserved the device */
int zns_store_lost(struct zns_store *s, int ret);
/*
 * note what the metadata zones look like after our own write, so that zns_store_alone tells a
 * foreign one
 */
void zns_store_remember(struct zns_store *s);
/* size of a mount record that waits to be written; 0: none */
uint64_t zns_store_claim_rec(const struct zns_store *s);
/* change.c: would the catalogue, @more bytes longer, still fit into any metadata zone? -ENOSPC */
int zns_store_may_grow(const struct zns_store *s, uint64_t more, struct zns_err *err);
/* -EROFS: opened for reading only */
int zns_store_writable(const struct zns_store *s, struct zns_err *err);
/* Bytes of a snapshot without tombstones. */
uint64_t zns_store_snapshot_bytes(const struct zns_store *s);
void zns_store_min_cap(struct zns_store *s, const struct zns_zone *zones);
struct zns_store *zns_store_alloc(struct zns_dev *dev, unsigned flags, struct zns_err *err);

#endif
