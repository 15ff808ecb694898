/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_H
#define ZNS_DEV_H
/*
 * One zoned device behind one vtable: emulator (emu:PATH), a store on an ordinary disk (file:PATH),
 * kernel zoned block device, NVMe passthrough, a mounted zonefs (zonefs:DIR). The rules are those
 * of the NVMe Zoned Namespace Command Set.
 *
 * Addresses are (zone index, byte offset inside the zone); offsets run from 0 to the zone's
 * capacity, never to its size. Everything is in bytes unless the name says otherwise.
 *
 * Threads: read, write and append may be called from several threads at once, for different zones;
 * one zone may have only one writer at a time, which the callers must ensure (the emulator
 * tolerates two). Processes: several processes may have the same device open. Nothing in this
 * interface says which zones share a die: that is found by probing or given by a vendor map.
 *
 * All calls return 0 or a negative errno and fill @err. The errors a zoned device gives:
 *   -EINVAL        not block-aligned, or zone/offset out of range
 *   -EIO           write not at the write pointer; media error
 *   -ENOSPC        write beyond the zone's capacity, or to a full zone
 *   -ETOOMANYREFS  would exceed the open limit
 *   -EOVERFLOW     would exceed the active limit
 *   -EROFS         zone is read-only
 *   -ENXIO         zone is offline
 *   -ENODATA       read beyond the write pointer
 *   -EBADE         another host has reserved the device (zns/reserve.h); the zone is in order
 *   -EDQUOT        emulator: the file system below has no room; the zone is in order
 *   -ESTALE        emulator: the file below was deleted, replaced or cut short
 *
 * zns/tools/selftest tests every backend against these rules. Devices differ in some points which
 * this interface cannot hide:
 *   - At the open limit most drives close a zone that was opened by a write, so that the next write
 *     can open another one. Other drives, and the emulator, refuse that write with -ETOOMANYREFS.
 *     Zones that were opened by command stay open, so for them the limit is hard everywhere.
 *   - When the open or active limit is reached, finishing an empty or closed zone may be refused
 *     (emulator, null_blk) or not (QEMU).
 *   - If another process has written to the zone meanwhile, the write pointer is elsewhere, and a
 *     write fails with -EIO. NVMe passthrough writes by Zone Append: the data are then written at
 *     the present write pointer, and the call fails with -EIO as well.
 *   - On a real device, not every read checks the state of its zone. If another process has reset
 *     the zone since this handle last reported it, a read may still succeed, with old data or
 *     anything else.
 *   - The write pointer of a read-only zone is an upper bound, if the device does not report it.
 *     The write pointer of an offline zone means nothing.
 *   - The part of a finished zone that was never written can be read, and may hold anything.
 * Conventional zones are reported; every other call refuses them with -EINVAL. A zone opened and
 * closed without a write is empty. Buffers that are not aligned to mem_align work, but are copied.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "zns/err.h"

enum zns_zone_state {
	ZNS_ZONE_EMPTY = 0,
	ZNS_ZONE_IMP_OPEN, /* opened implicitly, by a write */
	ZNS_ZONE_EXP_OPEN, /* opened explicitly, by a command */
	ZNS_ZONE_CLOSED, /* active, but not open */
	ZNS_ZONE_FULL,
	ZNS_ZONE_READ_ONLY,
	ZNS_ZONE_OFFLINE,
	ZNS_ZONE_NR_STATES
};

/* Returns "empty", "open" (for both kinds), "closed", "full", "read-only" or "offline". */
const char *zns_zone_state_name(enum zns_zone_state state);

static inline bool zns_zone_is_open(enum zns_zone_state s)
{
	return s == ZNS_ZONE_IMP_OPEN || s == ZNS_ZONE_EXP_OPEN;
}
static inline bool zns_zone_is_active(enum zns_zone_state s)
{
	return zns_zone_is_open(s) || s == ZNS_ZONE_CLOSED;
}

struct zns_zone {
	uint32_t index;
	enum zns_zone_state state;
	bool conventional; /* a random-write zone: reported, but never striped over */
	uint64_t wp; /* bytes written from the zone's start; capacity when full */
	uint64_t capacity; /* writable bytes, <= geometry.zone_size */
};

struct zns_geometry {
	uint32_t nr_zones;
	uint32_t block_size; /* logical block size in bytes; every transfer is a multiple of it */
	uint64_t zone_size; /* distance between the start addresses of two zones, bytes */
	/* capacity of a typical zone; struct zns_zone has each zone's own */
	uint64_t zone_capacity;
	/* number of conventional zones at the start, as far as the first one or two reports show
	 * them */
	uint32_t nr_conventional;
	uint32_t max_open; /* 0 = no limit */
	uint32_t max_active; /* 0 = no limit */
	uint32_t max_io_bytes; /* largest single transfer that is not split by the kernel */
	uint32_t mem_align; /* required alignment of buffers, bytes */
	/* For an ordinary disk: how many zones its log has. Each of these is larger than the other
	 * zones. The other zones of a disk are small units of space, which are not assigned to
	 * dies. 0 for all other devices. */
	uint32_t log_zones;
	uint32_t log_block; /* granularity of transfers in the log's zones, bytes; 0: block_size */
};

static inline uint32_t zns_geo_log_block(const struct zns_geometry *g)
{
	return g->log_block ? g->log_block : g->block_size;
}

static inline bool zns_geo_is_disk(const struct zns_geometry *g)
{
	return g->log_zones != 0;
}

struct zns_dev;

/*
 * One of several clients that start together. It issues @count commands of @len bytes one after the
 * other, at offsets @off, @off + @step and so on. Two clients may read the same zone. A zone has at
 * most one writing client, which starts at the write pointer.
 */
struct zns_race {
	bool write;
	uint32_t zone;
	uint64_t off;
	uint32_t len, count;
	uint32_t step; /* distance of two commands in bytes; 0, and for writes: @len */
	/* @len bytes, used by every command; two clients must not read into one buffer */
	void *buf;
	/* out, @count values: when each command was complete, in nanoseconds since the common
	 * start */
	uint64_t *done_ns;
};

struct zns_dev_ops {
	const char *name; /* "emu", "file", "block", "nvme", "zonefs" */
	int (*report)(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
		      struct zns_err *err);
	/* @off must be the write pointer; @len must be a multiple of the block size. */
	int (*write)(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *err);
	/* Zone Append: the device chooses the offset and returns it in *off. */
	int (*append)(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
		      struct zns_err *err);
	int (*read)(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		    struct zns_err *err);
	/* Resets several zones in one call, so that a backend that must sync does so only once. */
	int (*reset)(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
	int (*open_zone)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	int (*close_zone)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	int (*finish)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	/* Everything written, reset or finished before this call survives a power cut after it. */
	int (*flush)(struct zns_dev *d, struct zns_err *err);
	/* See zns_dev_write_durable. NULL: a write and a flush are done instead. */
	int (*write_durable)(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf,
			     size_t len, struct zns_err *err);
	/* See zns_dev_flush_zones. NULL: the whole device is flushed instead. */
	int (*flush_zones)(struct zns_dev *d, const uint32_t *zones, uint32_t nr,
			   struct zns_err *err);
	void (*close)(struct zns_dev *d);
	/* See zns_dev_offer and zns_dev_take. Both are NULL for devices that accept no write below
	 * a write pointer. */
	int (*offer)(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
		     struct zns_err *err);
	int (*take)(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end, uint64_t turn,
		    struct zns_err *err);
	/* See zns_dev_scrub. NULL: reset data cannot be reached any more, so nothing is left to
	 * erase. */
	int (*scrub)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	/* See zns_dev_allocate and zns_dev_give_back. Both are NULL for devices whose zones always
	 * have their space. */
	int (*allocate)(struct zns_dev *d, uint32_t first, uint32_t nr);
	void (*give_back)(struct zns_dev *d, uint32_t first, uint32_t nr);
	/* See zns_dev_follow. NULL: the number of zones never changes. */
	void (*follow)(struct zns_dev *d);
	/* See zns_dev_race and zns_dev_now_ns. NULL: the device has no clock but CLOCK_MONOTONIC */
	int (*race)(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err);
	uint64_t (*now_ns)(struct zns_dev *d);
	/*
	 * Returns a descriptor for NVMe commands to this namespace; the device owns it. NULL, or -1
	 * returned: there is none.
	 */
	int (*nvme_fd)(struct zns_dev *d);
};

/* A backend's own device structure has this as its first member. */
struct zns_dev {
	const struct zns_dev_ops *ops;
	struct zns_geometry geo;
	char path[256]; /* as given to zns_dev_open, including "emu:" */
};

enum zns_dev_flags {
	ZNS_DEV_RDONLY = 1 << 0, /* write, reset and other changes then fail with -EBADF */
	/* While this handle is open, nobody else can mount, format or claim the block device: the
	 * zoned drive, or the plain block device below "file:" or "emu:" */
	ZNS_DEV_CLAIM = 1 << 1,
	/* a broker serves the device and has claimed it: open it without checking whether it is in
	 * use */
	ZNS_DEV_SERVED = 1 << 2,
};

/* The names of the drive below @spec, from sysfs, which is mounted at @sys. A name is "" if it is
 * not known or if @spec is not on a drive. */
struct zns_drive {
	char model[64], firmware[64], serial[64];
};
void zns_dev_drive(const char *sys, const char *spec, struct zns_drive *out);

/*
 * Open "emu:PATH", "file:PATH", "zonefs:DIR", "/dev/nvmeXnY" or "/dev/ngXnY". The caller owns *out
 * and ends it with zns_dev_close. Errors:
 *   -ENOENT        there is no such path
 *   -EMEDIUMTYPE   the path is neither a zoned device nor a file of the emulator
 */
int zns_dev_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err);
void zns_dev_close(struct zns_dev *dev); /* @dev may be NULL */

/*
 * Runs all clients at once and returns when the last one has ended, with the first error of any of
 * them. Times are the device's own: model time of an emulator with timing on, else CLOCK_MONOTONIC
 * with one thread per client (the clients start within some 10 us).
 */
int zns_dev_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err);
/* the present time of the clock that zns_dev_race uses; only differences are meaningful */
uint64_t zns_dev_now_ns(struct zns_dev *d);

#define zns_dev_write(d, ...) ((d)->ops->write((d), __VA_ARGS__))
#define zns_dev_append(d, ...) ((d)->ops->append((d), __VA_ARGS__))
#define zns_dev_read(d, ...) ((d)->ops->read((d), __VA_ARGS__))
#define zns_dev_report(d, ...) ((d)->ops->report((d), __VA_ARGS__))
#define zns_dev_reset(d, ...) ((d)->ops->reset((d), __VA_ARGS__))
#define zns_dev_open_zone(d, ...) ((d)->ops->open_zone((d), __VA_ARGS__))
#define zns_dev_close_zone(d, ...) ((d)->ops->close_zone((d), __VA_ARGS__))
#define zns_dev_finish(d, ...) ((d)->ops->finish((d), __VA_ARGS__))
#define zns_dev_flush(d, err) ((d)->ops->flush((d), (err)))

/*
 * Writes so that the data survive a power cut once the call has returned (force unit access).
 * Earlier writes, to this zone or others, need not survive. Unlike a flush, which makes every zone
 * write out its buffer and so delays other writers, this write occupies one die. A backend without
 * such a command does a write and a flush.
 */
static inline int zns_dev_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off,
					const void *buf, size_t len, struct zns_err *err)
{
	int ret;

	if (d->ops->write_durable)
		return d->ops->write_durable(d, zone, off, buf, len, err);
	ret = zns_dev_write(d, zone, off, buf, len, err);
	return ret ? ret : zns_dev_flush(d, err);
}

/* Can the device flush single zones? If not, zns_dev_flush_zones flushes the whole device and
 * delays every writer. */
static inline bool zns_dev_flushes_zones(const struct zns_dev *d)
{
	return d->ops->flush_zones != NULL;
}

/*
 * Flushes single zones: what was written to them before this call, and a reset or finish of them,
 * survives a power cut after it. Other zones are not flushed, and their writers are not delayed.
 * The emulator can do that. NVMe only has a flush of the whole device, so that is sent there; it
 * costs nothing on drives whose write cache is not volatile.
 */
static inline int zns_dev_flush_zones(struct zns_dev *d, const uint32_t *zones, uint32_t nr,
				      struct zns_err *err)
{
	return d->ops->flush_zones ? d->ops->flush_zones(d, zones, nr, err) : zns_dev_flush(d, err);
}

/*
 * On an ordinary disk, a part of a zone whose data were removed can be written again while the rest
 * of the zone stays. The broker, which knows what is free, offers such a part: it gets a token
 * (*turn), and from then on only a holder of this token may write below the zone's write pointer.
 * *end: how many bytes of the zone can be used, at most its capacity. The next offer for the zone,
 * or a reset, makes the token invalid, so a late write of its holder fails. -EOPNOTSUPP: the device
 * does not support this.
 */
static inline int zns_dev_offer(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
				struct zns_err *err)
{
	*end = *turn = 0;
	return d->ops->offer ? d->ops->offer(d, zone, end, turn, err) :
			       zns_fail(err, -EOPNOTSUPP, "%s is no disk", d->path);
}

/*
 * Uses a part of a zone that this or another process has offered with the token @turn: from now on
 * zns_dev_write accepts offsets from @start to @end through this handle, also beyond the write
 * pointer, which then moves along. A handle can use one such part in each zone. Must not be called
 * while the zone is being written.
 */
static inline int zns_dev_take(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end,
			       uint64_t turn, struct zns_err *err)
{
	return d->ops->take ? d->ops->take(d, zone, start, end, turn, err) :
			      zns_fail(err, -EOPNOTSUPP, "%s is no disk", d->path);
}

/* Erases the old data that a reset left above the zone's write pointer, as far as the host can
 * reach them. In the emulator's file that area then has zeroes, durable with the next flush. A real
 * device never returns such data; whether its flash still holds them is not known. */
static inline int zns_dev_scrub(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	return d->ops->scrub ? d->ops->scrub(d, zone, err) : 0;
}

/*
 * Allocates blocks of the file system below for a run of empty zones that will be written next. On
 * ext4 these writes then take half the time, since ext4 serialises writes into holes. This is a
 * hint: if there is no such file, or the file system has little space left, it fails without
 * effect. It need not be called: a write allocates what it needs.
 */
static inline int zns_dev_allocate(struct zns_dev *d, uint32_t first, uint32_t nr)
{
	return d->ops->allocate ? d->ops->allocate(d, first, nr) : -EOPNOTSUPP;
}

/* Returns the blocks above the write pointers of a run of zones to the file system. Others may
 * write to these zones meanwhile. */
static inline void zns_dev_give_back(struct zns_dev *d, uint32_t first, uint32_t nr)
{
	if (d->ops->give_back)
		d->ops->give_back(d, first, nr);
}

/* Updates geo.nr_zones, as another process may have resized a store on an ordinary disk. Cheap
 * enough to be called before every use. */
static inline void zns_dev_follow(struct zns_dev *d)
{
	if (d->ops->follow)
		d->ops->follow(d);
}

#endif
