/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_WRITE_PARTS_H
#define ZNS_WRITE_PARTS_H
/* The parts of the writer that have no state of their own but a member or two: io, pack, repair,
 * audit, workers. */
#include <sys/types.h>
#include <sys/uio.h>
#include "lock.h"
#include "../transform.h"
#include "zns/util.h"

struct job;
struct zns_wimage;

/* ---- io.c: no state, no lock ---- */

/* Memory of a frozen task into @buf. */
int io_gather(pid_t pid, const struct iovec *iov, uint32_t nr, uint8_t *buf, struct zns_err *err);
/*
 * In pieces that device and bucket like; every piece pays. The zone's turn must have come. @ns: if
 * not NULL, the time of the device is added, without what the bucket made it wait.
 */
int io_write(struct zns_writer *w, uint32_t zone, uint64_t off, const uint8_t *buf, size_t len,
	     uint64_t *ns, struct zns_err *err) NO_LOCK;

/* ---- pack.c: small images share a unit ---- */

struct packer {
	struct job *unit; /* that is being filled; NULL: none */
	struct packed *list; /* what is in it */
	uint32_t nr, max;
};

/* A small image has ended. May drop the lock. */
int pack_add(struct zns_writer *w, struct zns_wimage *i, struct job *j, uint64_t csum,
	     const uint8_t *tag) NEEDS_LOCK;
/* places are known then. May drop the lock. 0, or the writer's error */
int pack_flush(struct zns_writer *w) NEEDS_LOCK;
void pack_fini(struct zns_writer *w) NEEDS_LOCK;

/* ---- repair.c, audit.c ---- */

struct lane;
struct wzone;

/* Give units of bad zones new places. May drop the lock. Returns the writer's error. */
int repair_now(struct zns_writer *w) NEEDS_LOCK;
/* All that was placed in @z from @x on goes elsewhere; nothing is being written. @lane: that @z
 * had, or NULL. @own: to a zone of its own if there is one. Drops the lock. Returns the writer's
 * error. */
int repair_move(struct zns_writer *w, struct wzone *z, uint64_t x, struct lane *lane, bool own)
	NEEDS_LOCK;
/* All is written: read back what bad zones hold, and move what is lost. Drops the lock. Returns the
 * writer's error. */
int audit(struct zns_writer *w) NEEDS_LOCK;

/* ---- workers.c ---- */

struct crew {
	pthread_t *thread;
	/* wanted: as many as there should be, known before the first one runs */
	uint32_t nr, wanted;
	uint32_t max; /* as many as memory allows */
};

struct zns_writer_params;

int workers_init(struct zns_writer *w, const struct zns_writer_params *p, struct zns_err *err)
	NEEDS_LOCK;
/* lanes were added: as many as they want, if they can be had */
void workers_widen(struct zns_writer *w) NEEDS_LOCK;
void workers_stop(struct zns_writer *w) NO_LOCK;

#endif
