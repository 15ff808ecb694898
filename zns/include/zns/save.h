/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SAVE_H
#define ZNS_SAVE_H
/*
 * Writes one checkpoint, in this order: admission, images into zones that are granted on demand,
 * manifest, flush, record, handle. Before zns_save_commit nobody sees the checkpoint, and the
 * broker takes its zones back when the connection ends. zns_save_roll_back removes a committed
 * one.
 *
 *	struct zns_save v = { .s = &session };
 *
 *	zns_save_key(&v, err);
 *	zns_save_begin(&v, &ask, err);
 *	zns_writer_image(v.w, …), zns_wimage_data(), zns_wimage_seal() …
 *	zns_save_finish(&v, err);
 *	zns_save_durable(&v, err);
 *	zns_save_commit(&v, err);
 *	zns_save_handle(&v, dirfd, err);	// or zns_save_roll_back()
 *	zns_save_end(&v);
 *
 * Each returns 0 or -errno with a line in @err. After an error only zns_save_end may be called,
 * unless a function says otherwise.
 * Threads: images as zns/writer.h says; all other calls come from one thread. While images are
 * written, the session's requests come from the threads that feed images, never two at once. If
 * other threads use the session then, zns_session.ask must serialise them.
 */
#include <pthread.h>
#include "zns/crypt.h"
#include "zns/session.h"
#include "zns/writer.h"

struct zns_save {
	/* Set by the caller before zns_save_begin, who keeps owning what these point to. */
	struct zns_session *s; /* opened with ZNS_WRITES */
	struct zns_bucket *bucket; /* every byte written is taken from it; NULL: no limit */
	uint32_t unit; /* stripe unit, bytes; 0: chosen for the device and the width */
	uint32_t workers; /* number of threads; 0: chosen */
	/* if there is no room: run `znsctl gc`, and ask once more */
	bool sweeps;
	/* The version of the checkpoint that this one replaces under its id, and that version's
	 * key. Its handles stay good. */
	const ZnsPb__Manifest *former;
	const struct zns_crypt *former_crypt;
	/* A checkpoint that is written as it is (zns_writer_params): its manifest, and its key if
	 * it is encrypted and there is one. The id is that of @sealed, ask->sealed and ask->key_id
	 * are the caller's. */
	const ZnsPb__Manifest *sealed;
	const struct zns_crypt *proof;
	bool keeps_record; /* with @sealed: @c was set before, and has time and rate already */
	/* Owned by this struct. A caller may set them before zns_save_begin. */
	struct zns_master *master; /* until the checkpoint's own key is wrapped; NULL: plain */
	/* the checkpoint's key; set before: it is used, and ask->key_id is the caller's */
	struct zns_crypt *crypt;
	/* the record; if the caller does not set it, that of @former without its places */
	ZnsPb__Checkpoint *c;
	/* From zns_save_begin on. */
	/* the grant; for an incremental checkpoint with the parents' records */
	ZnsPb__Response *answer;
	const ZnsPb__DumpGrant *grant; /* in it */
	struct zns_writer *w;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t asked; /* how many times zones were requested */
	ZnsPb__HandleCopy *copies; /* zns_save_copy */
	size_t nr_copies;
};

/* The key that device or host ask for, if they do. From here on the process holds secrets: it is
 * hardened. */
int zns_save_key(struct zns_save *v, struct zns_err *err);

/*
 * Asks for admission, with key and room added to @ask, and makes the writer and, unless the caller
 * has set one, the record. The record then has what @ask and the grant say, and the host; the
 * caller adds other fields before zns_save_finish. May wait, as @ask->admission says. -EBUSY,
 * -ENOSPC and others: the broker's reason.
 */
int zns_save_begin(struct zns_save *v, ZnsPb__DumpBegin *ask, struct zns_err *err);

/* Processes an answer to the request `progress`: which other writers share the groups, and zones
 * that the dump gains. Returns how many of the gained zones it uses. Any thread. */
uint32_t zns_save_told(struct zns_save *v, const ZnsPb__Response *r);

/* *out: how many bytes this checkpoint could still write, if no other dump asked for zones. */
int zns_save_room(struct zns_save *v, uint64_t *out, struct zns_err *err);
/*
 * Drop all that was written, and begin with a new writer; the lease stays. @lock is held while v->w
 * changes. *@room: as of zns_save_room. From here on the dump gains no zones: an answer that is
 * under way could name a zone that was given back.
 */
int zns_save_anew(struct zns_save *v, uint64_t expected, pthread_mutex_t *lock, uint64_t *room,
		  struct zns_err *err);

/* Wait until all is written, then write manifest and footer. Fills in the record's places, sizes,
 * key and, of a new one, rate, or of one with @former or @sealed, the time of this version. */
int zns_save_finish(struct zns_save *v, struct zns_err *err);
/* Flush: after this the data and the manifest survive a power cut. */
int zns_save_durable(struct zns_save *v, struct zns_err *err);
/*
 * Let the broker write the record: from then on the checkpoint exists. -EPIPE: the broker died
 * meanwhile; zns_save_settle finds out whether the checkpoint exists. -ETIMEDOUT: it is not known.
 */
int zns_save_commit(struct zns_save *v, struct zns_err *err);
/*
 * To be called after -EPIPE: starts the next broker and asks it. 0: the checkpoint was committed.
 */
int zns_save_settle(struct zns_save *v, struct zns_err *err);
/* zns_save_finish, durable, commit and settle in a row. */
int zns_save_publish(struct zns_save *v, struct zns_err *err);

/* The handle shall name a plain copy of @size bytes beside it. @name is borrowed until the handle
 * is written. */
int zns_save_copy(struct zns_save *v, const char *name, uint64_t size, uint64_t hash,
		  struct zns_err *err);
/* The handle of a committed checkpoint, written durably into @dirfd. */
int zns_save_handle(struct zns_save *v, int dirfd, struct zns_err *err);
/* Removes a committed checkpoint; @by is recorded in its tombstone. If the removal fails too, its
 * reason is added to @err's text. */
void zns_save_roll_back(struct zns_save *v, const char *by, struct zns_err *err);
/* Drop a checkpoint that is not committed, at once: its zones and its parents are free again. */
void zns_save_give_up(struct zns_save *v, int why, const char *text);

/* Joins the writer's threads. The session stays. */
void zns_save_end(struct zns_save *v);

#endif
