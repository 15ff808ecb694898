/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_PAGES_H
#define ZNS_PAGES_H
/*
 * The page store of one memory context: units of 64 KiB on zones that only this context uses. Only
 * the owner (zns/memory/engine, by its table of refs) knows what a unit contains. The catalogue has
 * no record of units, so after a crash of the host these zones are garbage.
 *
 * The lease. The broker grants zones under a lease of the kind "memory". The lease exists as long
 * as any process holds the lock on the context's lock file; the connection may come and go. Without
 * a broker, reads work and zns_pages_put() returns -EAGAIN. A thread of the store starts or finds
 * the next broker and announces the lease to it.
 *
 * Ownership. zns_pages_open() gives a store to one process; a forked child must not use it. When
 * that process was killed, a successor passes the descriptors of zns_pages_fds() to
 * zns_pages_open(), calls zns_pages_hold() once for each unit in its table, and then
 * zns_pages_recounted(). The old process must have exited (check its pidfd), since its last writes
 * would collide with the successor's.
 *
 * Counts. zns_pages_put() returns each unit with a count of 1, zns_pages_hold() adds one,
 * zns_pages_drop() subtracts one. A full zone in which no unit has a count is given back and reset.
 *
 * Errors. All calls return 0 or a negative errno and fill @err (which may be NULL).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "zns/err.h"

#define ZNS_PAGES_UNIT 65536u /* bytes */
#define ZNS_PAGES_FDS 1 /* number of descriptors that zns_pages_fds() returns */
#define ZNS_PAGES_PUT_MAX 4096u /* most units of one zns_pages_put() */
/* bytes of a piece, the smallest part that can be read and verified alone */
#define ZNS_PAGES_PIECE 4096u
#define ZNS_PAGES_PIECES (ZNS_PAGES_UNIT / ZNS_PAGES_PIECE)

struct zns_pages;

struct zns_pages_ref {
	uint64_t place; /* zone and index of the unit, encoded; never 0, less than 2^48 */
	uint64_t hash; /* XXH3 of the unit's 65536 bytes as they are stored: zns_hash() */
	union {
		/* not encrypted: the lower half of each piece's XXH3 */
		uint32_t piece[ZNS_PAGES_PIECES];
		struct { /* encrypted: the nonce and tag for decryption (zns/crypt_memory.h) */
			uint8_t nonce[12], tag[16];
		};
	};
};

struct zns_pages_params {
	const char *dev; /* path, name or UUID of a registered device; NULL: the only one */
	const char *container; /* the context's name, in the form of container names (zns/util.h) */
	uint32_t qos_mibps; /* MiB/s, limit for writes; 0: none */
	/*
	 * number of groups to use; 0: as many as @qos_mibps needs, or at most four if @qos_mibps is
	 * 0
	 */
	uint32_t width;
	/*
	 * The predecessor's descriptors from zns_pages_fds(), which the caller still owns; nr_fds
	 * 0: a new context. @dev and @container must be those of the predecessor.
	 */
	const int *fds;
	uint32_t nr_fds;
	/*
	 * With @fds: the predecessor's zns_pages_key_fd(), which the caller still owns. NULL: its
	 * units are not encrypted.
	 */
	const int *key_fd;
	bool encrypt; /* encrypt a new context even if no rule requires it */
};

/*
 * Opens a store. A new context is encrypted if new checkpoints would be (zns_encryption_wanted()),
 * or if @p->encrypt is set. An unencrypted context continues if encryption is required later, but
 * writes nothing more. Errors:
 *   -EBUSY   no open zone is left for it now
 *   -ENOSPC  the device is full
 *   -ESTALE  the context of @fds has ended
 */
int zns_pages_open(const struct zns_pages_params *p, struct zns_pages **out, struct zns_err *err);

/*
 * Writes @n units (at most ZNS_PAGES_PUT_MAX). @units[i] points to ZNS_PAGES_UNIT bytes. A buffer
 * that is aligned to the device's block (4096 bytes always suffice) is written directly, others are
 * copied first. Returns when all are written: @refs[i] are their places, each with a count of 1.
 * After an error no unit has a count. The data are not made durable. A second thread that calls
 * this waits until the first call is done.
 *
 * The call waits: for its rate, for dumps or restores that use all its dies (at most 1 s), and for
 * reads of the die that it writes. Errors:
 *   -EAGAIN  dumps use all its dies, or there is no broker: try again later, nothing is wrong
 *   -ENOSPC  the broker has no zone for this context
 *   -EDQUOT  the administrator's limit (tenants.conf) is reached, or encryption is required now
 *            and this context is not encrypted
 *   -EIO     four zones failed one after the other
 * A zone that fails a write is replaced, and the units that it did not take are written to the next
 * zone. Units that were written to the failed zone before may or may not be readable:
 * zns_pages_get() shows which.
 */
int zns_pages_put(struct zns_pages *ps, const void *const units[], uint32_t n,
		  struct zns_pages_ref *refs, struct zns_err *err);

/*
 * Reads one unit into @buf (ZNS_PAGES_UNIT bytes, aligned as for zns_pages_put()) and compares its
 * hash. Any thread may call this, also during a put, and without a broker. The caller should hold a
 * count on the unit: without one, expect -ENOENT. Errors:
 *   -EBADMSG  these are not the bytes that were written
 *   -EIO      the device cannot read the unit
 *   -ENOMEM   there was no memory for the read: the unit may be intact, try again
 *   -ENOENT   the unit had no count, and its zone was given back
 *   -EINVAL   there is no such place
 */
int zns_pages_get(struct zns_pages *ps, struct zns_pages_ref ref, void *buf, struct zns_err *err);

/*
 * Read and write units in the form in which they are on the device, encrypted or not, in order to
 * move them. Only the hash is compared. Only the places in @refs are set: the caller keeps hash,
 * nonce and tag of each unit. For unencrypted units these calls are equal to zns_pages_get() and
 * zns_pages_put().
 */
int zns_pages_get_as_is(struct zns_pages *ps, struct zns_pages_ref ref, void *buf,
			struct zns_err *err);
int zns_pages_put_as_is(struct zns_pages *ps, const void *const units[], uint32_t n,
			struct zns_pages_ref *refs, struct zns_err *err);

/*
 * Reads piece @nr of a unit alone, ZNS_PAGES_PIECE bytes, and compares the hash of this piece. This
 * is for a thread that waits for the piece. Errors as of zns_pages_get(), and
 *   -EOPNOTSUPP  the device has larger blocks, or the unit is encrypted and can only be verified as
 *                a whole
 */
int zns_pages_get_piece(struct zns_pages *ps, const struct zns_pages_ref *ref, uint32_t nr,
			void *buf, struct zns_err *err);

/*
 * Add a count to a unit, or subtract one. Any thread may call these; they make no I/O and do not
 * wait for the broker. A caller of zns_pages_hold() knows that the unit has another count, or is a
 * successor that has not called zns_pages_recounted() yet. Errors:
 *   -EINVAL  there is no such place
 *   -ENOENT  the unit has no count
 */
int zns_pages_hold(struct zns_pages *ps, struct zns_pages_ref ref);
int zns_pages_drop(struct zns_pages *ps, struct zns_pages_ref ref);

/*
 * A successor calls this when it has added a count to each unit that it knows: from then on zones
 * without counts may be given back. A new context need not call it.
 */
void zns_pages_recounted(struct zns_pages *ps);

/* Gets the UUIDs of the context and of its device. */
void zns_pages_id(const struct zns_pages *ps, uint8_t context[16], uint8_t device[16]);
/* Finds a unit's zone and its offset in the zone in bytes. -EINVAL: there is no such place. */
int zns_pages_where(const struct zns_pages *ps, uint64_t place, uint32_t *zone, uint64_t *off);

/*
 * Finds the zone that should be emptied next. True: the caller puts the units with places from
 * @first to @last again and drops the old ones, so that their zone can be given back. False: the
 * context's zones are at most 1.3 times its live units, plus one zone and those being written; or a
 * dump or restore uses the zones' dies. Zones with data that a checkpoint refers to are never
 * emptied, and are not counted here.
 */
bool zns_pages_dead(struct zns_pages *ps, uint64_t *first, uint64_t *last);

/* Changes the limit for writes, in MiB/s; 0: no limit. */
void zns_pages_rate(struct zns_pages *ps, uint32_t mibps);

/*
 * Tells the store how many bytes the program's cgroup may use; 0: no limit. The broker grants a
 * multiple of this.
 */
void zns_pages_group_limit(struct zns_pages *ps, uint64_t bytes);

struct zns_pages_stat {
	/* bytes of units with a count; a unit with two counts is counted twice */
	uint64_t live_bytes;
	/*
	 * bytes of units that were written and have no count any more, in zones that were not given
	 * back yet
	 */
	uint64_t dead_bytes;
	uint64_t written_bytes, read_bytes; /* bytes, by this process */
	/* write rate in bytes per second, when the store last wrote for at least a second */
	uint64_t rate;
	uint32_t qos_mibps; /* MiB/s, limit for writes; 0: none */
	uint32_t zones; /* number of zones of this context */
	uint32_t groups; /* number of groups that it uses */
	/* number of zones that failed a write since this process opened the store */
	uint32_t failed_zones;
	bool broker; /* is there a connection to the broker? */
};
/* any thread may call this */
void zns_pages_stat(struct zns_pages *ps, struct zns_pages_stat *out);

/*
 * Gets the ZNS_PAGES_FDS descriptors that keep the lease alive and that a successor needs. They
 * belong to the store, so send or dup them. As long as a process has copies, the context keeps all
 * its zones.
 */
int zns_pages_fds(const struct zns_pages *ps, int fds[ZNS_PAGES_FDS]);
/* Returns a descriptor of the key, which belongs to the store; -1: units are not encrypted. */
int zns_pages_key_fd(const struct zns_pages *ps);

/*
 * Closes the store in this process. @end: the context has ended, and its zones are given back and
 * reset. Otherwise the lease continues as long as copies of zns_pages_fds() exist. No other call
 * may be running. @ps may be NULL.
 */
void zns_pages_close(struct zns_pages *ps, bool end);

#endif
