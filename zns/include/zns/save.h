/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_SAVE_H
#define ZNS_SAVE_H
/*
 * Writes one checkpoint, in this order: admission, images into zones that are granted on demand,
 * manifest, flush, record, handle. Before zns_save_commit the checkpoint is not visible, and the
 * broker takes its zones back when the connection ends. zns_save_roll_back removes a committed one.
 *
 *	struct zns_save v = { .s = &session };
 *
 *	zns_save_key(&v, err);
 *	zns_save_begin(&v, &ask, err);
 *	zns_writer_image(v.w, …), zns_wimage_data(), zns_wimage_seal() …
 *	zns_save_finish(&v, err);
 *	zns_save_durable(&v, err);
 *	zns_save_commit(&v, err);
 *	zns_save_handle(&v, dirfd, err);        // or zns_save_roll_back()
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
	/* Set by the caller before zns_save_begin; the caller keeps owning what the pointers refer
	 * to. */
	struct zns_session *s; /* opened with ZNS_WRITES */
	struct zns_bucket *bucket; /* every written byte is taken from it; NULL: no limit */
	uint32_t unit; /* stripe unit in bytes; 0: chosen by device and width */
	uint32_t workers; /* number of threads; 0: chosen automatically */
	/* if there is not enough room: run `znsctl gc`, then ask once more */
	bool sweeps;
	/* The version of the checkpoint that this one replaces under the same id, and that
	 * version's key. Handles of that version stay valid. */
	const ZnsPb__Manifest *former;
	const struct zns_crypt *former_crypt;
	/* For a checkpoint that is written unchanged (zns_writer_params): its manifest, and its key
	 * if it is encrypted and the key is known. It keeps the id of @sealed. The caller sets
	 * ask->sealed and ask->key_id. */
	const ZnsPb__Manifest *sealed;
	const struct zns_crypt *proof;
	/* with @sealed: the caller has set @c, including time and rate, and they are kept */
	bool keeps_record;
	/* Owned by this struct. A caller may set these before zns_save_begin. */
	/*
	 * master key, held until the checkpoint's own key is wrapped; NULL: the checkpoint is plain
	 */
	struct zns_master *master;
	/* the checkpoint's key. If the caller sets it, the caller also sets ask->key_id */
	struct zns_crypt *crypt;
	/* the record; if the caller does not set it, it is that of @former without its places */
	ZnsPb__Checkpoint *c;
	/* Set by zns_save_begin. */
	/* the answer with the grant; for an incremental checkpoint it has the parents' records
	 * too */
	ZnsPb__Response *answer;
	const ZnsPb__DumpGrant *grant; /* the grant in @answer */
	struct zns_writer *w;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t asked; /* how many times the writer requested zones from the broker */
	ZnsPb__HandleCopy *copies; /* copies that zns_save_copy added */
	size_t nr_copies;
};

/* Gets the key if the device or the host requires encryption. From then on the process holds
 * secrets, so it is hardened (zns_crypt_harden). */
int zns_save_key(struct zns_save *v, struct zns_err *err);

/*
 * Adds key and needed room to @ask and asks the broker for admission. Creates the writer and,
 * unless the caller has set one, the record. The record then has the values of @ask and of the
 * grant, and the host; the caller adds other fields before zns_save_finish. Waits as long as
 * @ask->admission allows. -EBUSY, -ENOSPC and others: the reason comes from the broker.
 */
int zns_save_begin(struct zns_save *v, ZnsPb__DumpBegin *ask, struct zns_err *err);

/* Processes an answer to the request `progress`: which other writers share the groups, and which
 * zones the dump gains. Returns how many of the gained zones it uses. May be called from any
 * thread. */
uint32_t zns_save_told(struct zns_save *v, const ZnsPb__Response *r);

/* *out: how many bytes this checkpoint could still write if no other dump asked for zones. */
int zns_save_room(struct zns_save *v, uint64_t *out, struct zns_err *err);
/*
 * Discards all that was written and starts with a new writer, under the same lease. @lock is held
 * while v->w changes. *room: as of zns_save_room. From then on the dump gains no more zones,
 * because an answer under way could name a zone that was already given back.
 */
int zns_save_anew(struct zns_save *v, uint64_t expected, pthread_mutex_t *lock, uint64_t *room,
		  struct zns_err *err);

/* Waits until everything is written, then writes manifest and footer. Fills in the record's places,
 * sizes and key. For a new checkpoint it also fills in the rate; with @former or @sealed, the time
 * of this version. */
int zns_save_finish(struct zns_save *v, struct zns_err *err);
/* Flushes: after this call the data and the manifest survive a power cut. */
int zns_save_durable(struct zns_save *v, struct zns_err *err);
/*
 * Asks the broker to write the record: from then on the checkpoint exists. -EPIPE: the broker died
 * meanwhile; zns_save_settle finds out whether the checkpoint exists. -ETIMEDOUT: it is not known
 * whether it exists.
 */
int zns_save_commit(struct zns_save *v, struct zns_err *err);
/*
 * To be called after -EPIPE: starts the next broker and asks it whether the checkpoint was
 * committed. 0: it was.
 */
int zns_save_settle(struct zns_save *v, struct zns_err *err);
/* Calls zns_save_finish, durable, commit and, if necessary, settle. */
int zns_save_publish(struct zns_save *v, struct zns_err *err);

/* Makes the handle list a plain copy of @size bytes in its directory. @name is borrowed until the
 * handle is written. */
int zns_save_copy(struct zns_save *v, const char *name, uint64_t size, uint64_t hash,
		  struct zns_err *err);
/* Writes the handle of a committed checkpoint durably into @dirfd. */
int zns_save_handle(struct zns_save *v, int dirfd, struct zns_err *err);
/* Removes a committed checkpoint; @by is recorded in its tombstone. If the removal fails too, its
 * reason is added to @err's text. */
void zns_save_roll_back(struct zns_save *v, const char *by, struct zns_err *err);
/* Drops a checkpoint that is not committed: its zones and its parents are released at once. */
void zns_save_give_up(struct zns_save *v, int why, const char *text);

/* Joins the writer's threads. The session stays open. */
void zns_save_end(struct zns_save *v);

#endif
