/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PAGES_H
#define ZNS_PAGES_H
/*
 * The page store of one memory context: units of 64 KiB on zones that belong to this context alone.
 * Only the owner (zns/memory/engine, in a table of refs) knows what a unit means; the catalogue has
 * nothing of it, and after a crash of the host the zones are garbage.
 *
 * The lease. Zones come from the broker under a lease of kind "memory". It lives as long as any
 * process has the context's lock file locked; the connection may come and go. While there is no
 * broker, reads work and zns_pages_put() returns -EAGAIN; a thread of the store starts or finds the
 * next broker and tells it of the lease.
 *
 * Ownership. zns_pages_open() gives one store to one process; a child after fork must not use it.
 * When the process is killed, a successor gives the descriptors of zns_pages_fds() to
 * zns_pages_open(), calls zns_pages_hold() once for each unit in its table, and then
 * zns_pages_recounted(). The old process must have ended (its pidfd says so), since its last writes
 * would collide with the successor's.
 *
 * Units are counted: zns_pages_put() returns each with a count of 1, zns_pages_hold() adds one,
 * zns_pages_drop() takes one away. A full zone in which no unit has a count is given back and
 * reset.
 *
 * Errors. All calls return 0 or a negative errno and fill @err (which may be NULL).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_PAGES_UNIT 65536u /* bytes */
#define ZNS_PAGES_FDS 1 /* descriptors that zns_pages_fds() gives */
#define ZNS_PAGES_PUT_MAX 4096u /* most units per zns_pages_put() */
#define ZNS_PAGES_PIECE 4096u /* bytes of a piece, the least that can be read and verified */
#define ZNS_PAGES_PIECES (ZNS_PAGES_UNIT / ZNS_PAGES_PIECE)

struct zns_pages;

struct zns_pages_ref {
	uint64_t place; /* encodes zone and unit; never 0, less than 2^48 */
	uint64_t hash; /* XXH3 of the unit's 65536 bytes as stored: zns_hash() */
	union {
		/* if not encrypted: the lower half of each piece's XXH3 */
		uint32_t piece[ZNS_PAGES_PIECES];
		struct { /* if encrypted: nonce and tag to decrypt it with (zns/crypt_memory.h) */
			uint8_t nonce[12], tag[16];
		};
	};
};

struct zns_pages_params {
	const char *dev; /* a registered device: its path, name or UUID; NULL: the only one */
	const char *container; /* the context's name, as container names are (zns/util.h) */
	uint32_t qos_mibps; /* writes are no faster than this, in MiB/s; 0: no limit */
	/* groups to spread over; 0: as many as @qos_mibps needs, or at most four if that is 0 */
	uint32_t width;
	/* A predecessor's descriptors from zns_pages_fds(); they stay the caller's. nr_fds 0: a
	 * new context. @dev and @container must be the same as the predecessor's. */
	const int *fds;
	uint32_t nr_fds;
	/* With these: the predecessor's zns_pages_key_fd(), which also stays the caller's. NULL:
	 * its units are not encrypted. */
	const int *key_fd;
	bool encrypt; /* encrypt a new context even if no other rule asks for it */
};

/*
 * A new context is encrypted if new checkpoints would be (zns_encryption_wanted), or if @p asks for
 * it. A context that began in clear goes on, but writes nothing more once encryption is asked for.
 * Errors:
 *   -EBUSY   no open zone is left for it now
 *   -ENOSPC  the device is full
 *   -ESTALE  the context of @fds has ended
 */
int zns_pages_open(const struct zns_pages_params *p, struct zns_pages **out, struct zns_err *err);

/*
 * Write @n units (at most ZNS_PAGES_PUT_MAX), each of ZNS_PAGES_UNIT bytes at @units[i]. Buffers
 * aligned to the device's block (4096 bytes always do) are written as they are, others are copied
 * first. Returns when all are written; then @refs[i] are their places, each with a count of 1. On
 * an error none is kept. Nothing is made durable. A second thread waits until the first is done.
 *
 * The call waits: for its rate, for dumps or restores that use all its dies (at most 1 s), and for
 * reads of the die that it writes. Errors:
 *   -EAGAIN  dumps use all its dies, or there is no broker: try later, nothing is wrong
 *   -ENOSPC  the broker has no zone for this context
 *   -EDQUOT  the administrator's ceiling (tenants.conf) is reached, or encryption is asked for now
 *            and this context is not encrypted
 *   -EIO     four zones failed one after the other
 * A zone that fails a write is replaced, and the units that it did not take go to the next zone.
 * Units that were written to the failed zone before may be readable or not: zns_pages_get() tells.
 */
int zns_pages_put(struct zns_pages *ps, const void *const units[], uint32_t n,
		  struct zns_pages_ref *refs, struct zns_err *err);

/*
 * Read one unit into @buf (ZNS_PAGES_UNIT bytes, aligned as above) and compare its hash. Any
 * thread, also while others put, and without a broker. The caller holds a count on the unit, or
 * must expect -ENOENT. Errors:
 *   -EBADMSG  these are not the bytes that were written
 *   -EIO      the device cannot read the unit
 *   -ENOMEM   there was no memory for the read: the unit may be whole, try again
 *   -ENOENT   the unit had no count, and its zone was given back
 *   -EINVAL   there is no such place
 */
int zns_pages_get(struct zns_pages *ps, struct zns_pages_ref ref, void *buf, struct zns_err *err);

/*
 * Read and write units as they stand on the device, encrypted or not, to move them. Only the hash
 * is compared. @refs gets the new places alone: the caller keeps hash, nonce and tag of each unit.
 * For units in clear these calls do the same as zns_pages_get() and zns_pages_put().
 */
int zns_pages_get_as_is(struct zns_pages *ps, struct zns_pages_ref ref, void *buf,
			struct zns_err *err);
int zns_pages_put_as_is(struct zns_pages *ps, const void *const units[], uint32_t n,
			struct zns_pages_ref *refs, struct zns_err *err);

/*
 * Read piece @nr of a unit alone, ZNS_PAGES_PIECE bytes, and compare its own hash: for a thread
 * that waits for this piece. Errors as of zns_pages_get(), and
 *   -EOPNOTSUPP  the device has larger blocks, or the unit is encrypted and can only be verified as
 *                a whole
 */
int zns_pages_get_piece(struct zns_pages *ps, const struct zns_pages_ref *ref, uint32_t nr,
			void *buf, struct zns_err *err);

/*
 * Add a count to a unit, or take one away. Any thread; no I/O, no waiting for the broker. A caller
 * of zns_pages_hold() knows that the unit has another count, or is a successor that has not called
 * zns_pages_recounted() yet. Errors:
 *   -EINVAL  there is no such place
 *   -ENOENT  the unit has no count
 */
int zns_pages_hold(struct zns_pages *ps, struct zns_pages_ref ref);
int zns_pages_drop(struct zns_pages *ps, struct zns_pages_ref ref);

/* A successor calls this when it holds all units that it knows: from then on zones without
 * counts may be given back. A new context need not call it. */
void zns_pages_recounted(struct zns_pages *ps);

/* The UUIDs of the context and of its device. */
void zns_pages_id(const struct zns_pages *ps, uint8_t context[16], uint8_t device[16]);
/* Offset of a unit in its zone, in bytes. -EINVAL: there is no such place. */
int zns_pages_where(const struct zns_pages *ps, uint64_t place, uint32_t *zone, uint64_t *off);

/*
 * Should a zone be emptied? True: put the units with places from @first to @last again and drop
 * them, so that their zone can be given back. False: the context's zones are at most 1.3 times its
 * live units, plus one zone and those being written; or a dump or restore uses the zones' dies.
 * Zones that a checkpoint names are never emptied, and do not count here.
 */
bool zns_pages_dead(struct zns_pages *ps, uint64_t *first, uint64_t *last);

/* Changes the limit for writes that it was opened with, in MiB/s; 0: no limit. */
void zns_pages_rate(struct zns_pages *ps, uint32_t mibps);

/* Tells what the program's cgroup may use, in bytes; 0: no limit. The broker grants a multiple
 * of it. */
void zns_pages_group_limit(struct zns_pages *ps, uint64_t bytes);

struct zns_pages_stat {
	uint64_t live_bytes; /* units with a count; two counts on one unit count as two */
	/* units written, without a count, in zones that were not given back yet */
	uint64_t dead_bytes;
	uint64_t written_bytes, read_bytes; /* by this process */
	/* write rate in bytes per second, measured when it last wrote for a second */
	uint64_t rate;
	uint32_t qos_mibps; /* limit for writes; 0: none */
	uint32_t zones; /* of this context */
	uint32_t groups; /* groups that it spreads over */
	uint32_t failed_zones; /* that failed a write, since this process opened it */
	bool broker; /* is there a connection to the broker? */
};
/* any thread may call this */
void zns_pages_stat(struct zns_pages *ps, struct zns_pages_stat *out);

/*
 * The descriptors that keep the lease alive and that a successor needs, ZNS_PAGES_FDS of them. They
 * belong to the store, so send or dup them. A process that has copies keeps all zones of the
 * context.
 */
int zns_pages_fds(const struct zns_pages *ps, int fds[ZNS_PAGES_FDS]);
/* A descriptor of the key, which belongs to the store; -1: units are not encrypted. */
int zns_pages_key_fd(const struct zns_pages *ps);

/*
 * Ends this process's use. @end: the context is over, and its zones are given back and reset. Else
 * the lease lives on with the copies of zns_pages_fds(). No other call may be running. @ps may be
 * NULL.
 */
void zns_pages_close(struct zns_pages *ps, bool end);

#endif
