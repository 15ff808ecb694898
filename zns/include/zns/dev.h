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
 * Threads: read, write and append may be called from several threads at once, for different
 * zones; one zone has one writer at a time (callers' duty; the emulator also survives two).
 * Processes: several processes may have the same device open. Nothing in this interface says
 * which zones share a die: that is found by probing or given by a vendor map.
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
 * The cases of zns/tools/selftest hold every backend to this. Devices differ in some points, and this
 * interface cannot hide it:
 *   - At the open limit most drives close a zone that was opened by a write, so that the next write
 *     can open another one. Other drives, and the emulator, refuse that write with -ETOOMANYREFS.
 *     Zones that were opened by command stay open, so for them the limit is hard everywhere.
 *   - To finish an empty or closed zone at a limit may be refused (emulator, null_blk) or not
 *     (QEMU).
 *   - If another process has written to the zone meanwhile, the write pointer is elsewhere, and a
 *     write fails with -EIO. NVMe passthrough writes by Zone Append: the data then stand at the end
 *     of the zone, and the call fails with -EIO as well.
 *   - On a real device, not every read looks at the state of its zone. If another process has reset
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
	ZNS_ZONE_CLOSED, /* active, not open */
	ZNS_ZONE_FULL,
	ZNS_ZONE_READ_ONLY,
	ZNS_ZONE_OFFLINE,
	ZNS_ZONE_NR_STATES
};

/* "empty", "open" (both kinds), "closed", "full", "read-only", "offline". */
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
	bool conventional; /* random-write zone: recognised, never striped over */
	uint64_t wp; /* bytes written from the zone's start; capacity when full */
	uint64_t capacity; /* writable bytes, <= geometry.zone_size */
};

struct zns_geometry {
	uint32_t nr_zones;
	uint32_t block_size; /* logical block, bytes: granularity of every transfer */
	uint64_t zone_size; /* address distance between zones */
	/* capacity of a typical zone; struct zns_zone has each zone's own */
	uint64_t zone_capacity;
	/* leading conventional zones, as far as a report or two show them */
	uint32_t nr_conventional;
	uint32_t max_open; /* 0 = no limit */
	uint32_t max_active; /* 0 = no limit */
	uint32_t max_io_bytes; /* largest single transfer that is not split by the kernel */
	uint32_t mem_align; /* required alignment of buffers, bytes */
	/* For an ordinary disk: how many zones its log has; each of these is larger than the other
	 * zones. The other zones of a disk are small units of space, which share no die. 0 for all
	 * other devices. */
	uint32_t log_zones;
	uint32_t log_block; /* granularity of transfers in the log's zones; 0: block_size */
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
 * One of several clients that start together. It issues @count commands of @len bytes at @off, @off
 * + @step, …, one at a time. Two clients may read the same zone; a zone has one writer, which
 * starts at the write pointer.
 */
struct zns_race {
	bool write;
	uint32_t zone;
	uint64_t off;
	uint32_t len, count;
	uint32_t step; /* bytes; 0, and for writes: @len */
	/* @len bytes, used by every command; two clients must not read into the same buffer */
	void *buf;
	/* out, @count values: when each command was complete, from the common start */
	uint64_t *done_ns;
};

struct zns_dev_ops {
	const char *name; /* "emu", "file", "block", "nvme", "zonefs" */
	int (*report)(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
		      struct zns_err *err);
	/* @off must be the write pointer; @len a multiple of the block size. */
	int (*write)(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *err);
	/* Zone Append: the device picks the place and returns it in *off. */
	int (*append)(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
		      struct zns_err *err);
	int (*read)(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		    struct zns_err *err);
	/* Several zones in one call, so that a backend that must sync does it once. */
	int (*reset)(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
	int (*open_zone)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	int (*close_zone)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	int (*finish)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	/* Everything written, reset or finished before this call survives a power cut after it. */
	int (*flush)(struct zns_dev *d, struct zns_err *err);
	/* See zns_dev_write_durable. NULL: a write, then a flush. */
	int (*write_durable)(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf,
			     size_t len, struct zns_err *err);
	/* See zns_dev_flush_zones. NULL: a flush. */
	int (*flush_zones)(struct zns_dev *d, const uint32_t *zones, uint32_t nr,
			   struct zns_err *err);
	void (*close)(struct zns_dev *d);
	/* See zns_dev_offer. Both are NULL where nothing can be written below a write pointer. */
	int (*offer)(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
		     struct zns_err *err);
	int (*take)(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end, uint64_t turn,
		    struct zns_err *err);
	/* See zns_dev_scrub. NULL: there is nothing to do. */
	int (*scrub)(struct zns_dev *d, uint32_t zone, struct zns_err *err);
	/* See zns_dev_allocate. Both are NULL where zones have their space from the start. */
	int (*allocate)(struct zns_dev *d, uint32_t first, uint32_t nr);
	void (*give_back)(struct zns_dev *d, uint32_t first, uint32_t nr);
	/* See zns_dev_follow. NULL: the device has the zones that it had. */
	void (*follow)(struct zns_dev *d);
	/* NULL where the wall clock is the device's; see zns_dev_race and zns_dev_now_ns */
	int (*race)(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err);
	uint64_t (*now_ns)(struct zns_dev *d);
	/*
	 * A descriptor for NVMe commands to this namespace; the device owns it. NULL or -1: none.
	 */
	int (*nvme_fd)(struct zns_dev *d);
};

/* A backend embeds this as its first member. */
struct zns_dev {
	const struct zns_dev_ops *ops;
	struct zns_geometry geo;
	char path[256]; /* as given to zns_dev_open, including "emu:" */
};

enum zns_dev_flags {
	ZNS_DEV_RDONLY = 1 << 0, /* write, reset … then fail with -EBADF */
	/* while this handle lives, nobody mounts, formats or claims the block device: that of a
	 * zoned drive, or the plain one below "file:" or "emu:" */
	ZNS_DEV_CLAIM = 1 << 1,
	/* a broker serves the device, and has claimed it: do not ask whether it is in use */
	ZNS_DEV_SERVED = 1 << 2,
};

/* Names of the drive behind @spec, from sysfs, which is mounted at @sys. "": not known, or no
 * drive. */
struct zns_drive {
	char model[64], firmware[64], serial[64];
};
void zns_dev_drive(const char *sys, const char *spec, struct zns_drive *out);

/*
 * Open "emu:PATH", "file:PATH", "zonefs:DIR", "/dev/nvmeXnY" or "/dev/ngXnY". The caller owns *out
 * and ends it with zns_dev_close. Errors:
 *   -ENOENT        there is no such path
 *   -EMEDIUMTYPE   it is no zoned device, or no file of the emulator
 */
int zns_dev_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err);
void zns_dev_close(struct zns_dev *dev); /* NULL is fine */

/*
 * Run all clients at once, until the last one has ended. Returns the first error of any of them.
 * Times are the device's own: model time of an emulator with timing on, else CLOCK_MONOTONIC with a
 * thread for each client (some 10 us of skew).
 */
int zns_dev_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err);
/* time of the same clock; only differences are meaningful */
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
 * A write that survives a power cut once it has returned (force unit access). Earlier writes, to
 * this zone or others, need not survive. A flush would make every zone wait for its buffer, and
 * take time of dies that others write; this write takes time of one die. A backend without such a
 * command does a write and a flush.
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

/* Can the device flush single zones? If not, zns_dev_flush_zones flushes all, and delays every
 * writer. */
static inline bool zns_dev_flushes_zones(const struct zns_dev *d)
{
	return d->ops->flush_zones != NULL;
}

/*
 * After this call, everything written to these zones before it survives a power cut, and so does a
 * reset or finish of them. Other zones need not, and their writers lose no time. NVMe has one flush
 * for the whole device, which is used there; it costs nothing on drives whose write cache is not
 * volatile. The emulator does it zone by zone.
 */
static inline int zns_dev_flush_zones(struct zns_dev *d, const uint32_t *zones, uint32_t nr,
				      struct zns_err *err)
{
	return d->ops->flush_zones ? d->ops->flush_zones(d, zones, nr, err) : zns_dev_flush(d, err);
}

/*
 * An ordinary disk can be written anywhere, so what was removed of a zone can be written anew while
 * the rest of it stays. Who knows what is free offers it: from then on only who has this *turn may
 * write below the zone's write pointer, and only *end bytes of the zone, at most its capacity, can
 * be had. The next offer, and a reset, end the turn, so that a late write of its holder fails.
 * -EOPNOTSUPP: not on this device.
 */
static inline int zns_dev_offer(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
				struct zns_err *err)
{
	*end = *turn = 0;
	return d->ops->offer ? d->ops->offer(d, zone, end, turn, err) :
			       zns_fail(err, -EOPNOTSUPP, "%s is no disk", d->path);
}

/* Uses a place that another process, or this one, has offered: from now on zns_dev_write accepts
 * offsets from @start up to @end through this handle, also beyond the write pointer, which moves
 * along. A handle has one such place in each zone. Must not run while the same zone is written. */
static inline int zns_dev_take(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end,
			       uint64_t turn, struct zns_err *err)
{
	return d->ops->take ? d->ops->take(d, zone, start, end, turn, err) :
			      zns_fail(err, -EOPNOTSUPP, "%s is no disk", d->path);
}

/* Erases what a reset left behind the zone's write pointer, as far as the host can reach it. The
 * emulator's file then has zeroes there, durable with the next flush. A real device never returns
 * such bytes; what its flash still holds is not known. */
static inline int zns_dev_scrub(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	return d->ops->scrub ? d->ops->scrub(d, zone, err) : 0;
}

/* Takes blocks of the file system below for a run of empty zones that are written next. That saves
 * half of the time of these writes on ext4, which lets one write at a time into a hole. A hint: it
 * does nothing, with an error, where there is no such file or the file system has little space
 * left. A write into the zones needs no allocation. */
static inline int zns_dev_allocate(struct zns_dev *d, uint32_t first, uint32_t nr)
{
	return d->ops->allocate ? d->ops->allocate(d, first, nr) : -EOPNOTSUPP;
}

/* Gives the blocks above the write pointers of a run of zones back to the file system. May run while
 * others write there. */
static inline void zns_dev_give_back(struct zns_dev *d, uint32_t first, uint32_t nr)
{
	if (d->ops->give_back)
		d->ops->give_back(d, first, nr);
}

/* Another process may have given a store on an ordinary disk more zones, or fewer. Updates
 * geo.nr_zones. Costs nothing. */
static inline void zns_dev_follow(struct zns_dev *d)
{
	if (d->ops->follow)
		d->ops->follow(d);
}

#endif
