/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_PARTS_H
#define ZNS_WRITE_PARTS_H
/* Parts of the writer that have little or no state: io, pack, repair, audit, workers. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"
#include "../transform.h"
#include "zns/util.h"

struct job;
struct zns_wimage;

/* ---- io.c: no state, no lock ---- */

/* Reads memory of a frozen task into @buf. */
int io_gather(pid_t pid, const struct iovec *iov, uint32_t nr, uint8_t *buf, struct zns_err *err);
/*
 * Writes in commands that device and bucket allow; the bytes of each are taken from the bucket
 * before it is sent. The unit must be the next one of its zone. @ns: unless NULL, the time that the
 * device took is added to it, excluding the wait for the bucket.
 */
int io_write(struct zns_writer *w, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len,
	     uint64_t *ns, struct zns_err *err) NO_LOCK;

/* ---- pack.c: small images share a unit ---- */

struct packer {
	struct job *unit; /* the pack unit that is being filled; NULL: none */
	struct packed *list; /* the images in the pack unit */
	uint32_t nr, max;
};

/* Adds a complete small image to the pack unit. May drop the lock. */
int pack_add(struct zns_writer *w, struct zns_wimage *i, struct job *j, uint64_t csum,
	     const uint8_t *tag) NEEDS_LOCK;
/* Gives the pack unit a place and queues it. May drop the lock. 0, or the writer's error. */
int pack_flush(struct zns_writer *w) NEEDS_LOCK;
void pack_fini(struct zns_writer *w) NEEDS_LOCK;

/* ---- repair.c, audit.c ---- */

struct lane;
struct wzone;

/* Gives units of failed zones new places. May drop the lock. Returns the writer's error. */
int repair_now(struct zns_writer *w) NEEDS_LOCK;
/*
 * Moves everything that was placed in @z from offset @x on to another zone. No write may be under
 * way. @lane: the lane of @z, or NULL. @own: prefer an empty zone to the rest of a lane's zone.
 * Drops the lock. Returns the writer's error.
 */
int repair_move(struct zns_writer *w, struct wzone *z, uint64_t x, struct lane *lane, bool own)
	NEEDS_LOCK;
/* To be called when all is written: reads back what failed zones hold, and moves what is lost.
 * Drops the lock. Returns the writer's error. */
int audit(struct zns_writer *w) NEEDS_LOCK;

/* ---- workers.c ---- */

struct crew {
	pthread_t *thread;
	/* wanted: how many there should be; decided before the first one starts */
	uint32_t nr, wanted;
	uint32_t max; /* how many fit into memory */
};

struct zns_writer_params;

int workers_init(struct zns_writer *w, const struct zns_writer_params *p, struct zns_err *err)
	NEEDS_LOCK;
/* To be called when lanes were added: starts further workers if possible. */
void workers_widen(struct zns_writer *w) NEEDS_LOCK;
void workers_stop(struct zns_writer *w) NO_LOCK;

#endif
