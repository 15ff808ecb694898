/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_EMU_H
#define ZNS_EMU_H
/*
 * The emulated zoned device (design.md §7): a file or plain block device with strict zone
 * semantics, shared by every process that opens it and surviving the death of any.
 *
 * Durability: a flush makes data, then zone state durable; a reset is durable when the call
 * returns; after a host crash the state is one a zoned device could have left (per zone any
 * suffix written since the last flush is lost).
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"
#include "zns/util.h"

/* Of an emulated drive's file, the only one that is read. 1: of the timing model it had only the
 * bandwidths */
#define ZNS_EMU_FORMAT 2
/* format of a store on an ordinary disk ("file:PATH"): the same parts, with a longer header */
#define ZNS_FILE_FORMAT 3
#define ZNS_FILE_FORMAT_BLOCKS 4 /* format of such a store with a log_block */

enum zns_emu_map {
	ZNS_EMU_MAP_INTERLEAVED, /* zone i on die i mod dies, channel first */
	ZNS_EMU_MAP_PERMUTED, /* a permutation drawn from map_seed, balanced over dies */
	ZNS_EMU_MAP_SHARED, /* every zone on all dies (a large-zone drive): one domain */
};

enum zns_emu_prealloc {
	/* space is reserved; the file system takes longer for the first write to a place than for
	 * later ones */
	ZNS_EMU_ALLOCATED,
	/* space is reserved and written with zeroes: every write has the disk's speed */
	ZNS_EMU_WRITTEN,
	/* nothing is reserved: the host's disk may be smaller than the device, and fill up */
	ZNS_EMU_SPARSE,
};

struct zns_emu_params {
	uint32_t nr_zones;
	uint32_t block_size; /* bytes, 512 or 4096 */
	uint64_t zone_size; /* bytes */
	uint64_t zone_capacity; /* bytes, <= zone_size */
	uint32_t max_open, max_active; /* 0 = no limit */
	uint32_t channels, ways; /* dies = channels * ways */
	enum zns_emu_map map;
	uint64_t map_seed; /* for ZNS_EMU_MAP_PERMUTED, and to draw the zones of small dies */
	enum zns_emu_prealloc prealloc; /* used by zns_emu_create only; not stored */
	/* a store on an ordinary disk: how many zones at its start are for the log; 0: an emulated
	 * drive */
	uint32_t log_zones;
	uint64_t log_capacity; /* size of each of them in bytes */
	uint32_t log_block; /* granularity of writes to them; 0: block_size */
	/* Of a store that was resized; else 0, and the tables are in front, as long as the zones
	 * need. Where the data begin, where the tables are, and how many zones these have room for.
	 */
	uint64_t data_off, table_off;
	uint32_t table_zones;
	bool is_volatile; /* used by zns_emu_create only: a file in memory (tmpfs) is accepted */
	/* the timing model; all fields below are ignored if timing is false */
	bool timing;
	uint32_t die_write_mibps, die_read_mibps, channel_mibps;
	uint32_t program_unit; /* bytes a die programs at once */
	uint32_t buffer_units; /* write buffer of a zone, in program units: 1 to 4 */
	uint32_t command_us; /* latency of every command; it occupies no die */
	uint32_t reset_us; /* the die is busy so long with erasing a zone that has data */
	uint32_t controller_mibps; /* all reads and writes together, in one queue; 0 = no limit */
	/* garbage collection: after each gc_every_mib of writes the controller stops for
	 * gc_stall_ms; 0 = never */
	uint32_t gc_every_mib, gc_stall_ms;
	/* A write cache in front of all dies: accepts this much more than the dies have programmed,
	 * and passes it on at cache_mibps at most (0: as fast as the dies take it). 0: none. */
	uint32_t cache_mib, cache_mibps;
	bool cache_backed; /* by capacitors: a flush does not wait for the dies */
	/* the first odd_dies dies need odd_pct percent of the other dies' time to read and to
	 * program; 0 dies: all are alike */
	uint32_t odd_dies, odd_pct;
	/* planes of each die; a zone is on one of them. They read independently, and program
	 * together. 0: one */
	uint32_t planes;
	/* the first small_dies dies have at most small_zones zones each; 0: all have the same
	 * number */
	uint32_t small_dies, small_zones;
	uint32_t row; /* how many consecutive zones are on one die; 0: one. Not with a shared map */
	/*
	 * A zone is striped over this many consecutive dies, at most 4; its program units go to
	 * them in turn. 0: one die. Each zone begins at a multiple of zone_step: zones with the
	 * same first die share all of their dies; zones with different first dies share some if
	 * zone_step is less than zone_dies. Not with a shared map or small dies
	 */
	uint32_t zone_dies, zone_step;
	/* Throttling: each MiB that is programmed heats, and cool_mibps of them cool down in a
	 * second. From heat_mib on all dies take throttle_pct hundredths of their time, until half
	 * of that has cooled down. 0: never */
	uint32_t heat_mib, cool_mibps, throttle_pct;
};

/* 4 GiB: 64 zones of 64 MiB, 4 KiB blocks, 8 channels x 4 ways, 100/400/800 MiB/s, no limits on
 * open zones but 32 active. */
void zns_emu_default_params(struct zns_emu_params *p);

/* Named presets, with as many zones as the real drive has: "default", "paper-conf", "paper-draft",
 * "paper-draft-18", "large-zone", "small-zone", "conventional"; "paper" is "paper-conf". -ENOENT
 * for an unknown name, with the known ones in @err. */
int zns_emu_profile(const char *name, struct zns_emu_params *p, struct zns_err *err);

/*
 * A store of @size bytes, all told, on an ordinary disk: how many zones, how large. Their rate is
 * not set. -EINVAL: too small.
 */
int zns_file_params(uint64_t size, struct zns_emu_params *p, struct zns_err *err);

/* How many zones an open store on an ordinary disk has if its whole file takes @size bytes. The
 * zones keep their size. -EINVAL: too small, or so near to the present size that its tables could
 * not be moved safely; -EFBIG: too large; -EMEDIUMTYPE: not such a store. */
int zns_file_zones_for(const struct zns_dev *dev, uint64_t size, uint32_t *nr, struct zns_err *err);

/*
 * Gives an open store on an ordinary disk so many zones, durably, and the file that length. A crash
 * at any moment leaves the old number or the new one. What zones that go hold is lost: ask
 * zns_store_fit() before. -ENOSPC: a device or file system has no room. Others may have the store
 * open if its tables stay where they are (zns_file_resizes_in_place()): they notice it by
 * zns_dev_follow(). Else -EBUSY if somebody has, and @dev may only be closed afterwards.
 */
bool zns_file_resizes_in_place(const struct zns_dev *dev, uint32_t nr_zones);
int zns_file_resize(struct zns_dev *dev, uint32_t nr_zones, struct zns_err *err);

/*
 * Make the device at @path (without "emu:" or "file:"; @p says which). Refuses an existing emulator
 * device (-EEXIST) unless @force. Space is allocated at once where the file system can, so that a
 * full host disk shows here and not in the middle of a dump (unless prealloc is SPARSE). Draws a
 * device UUID.
 */
int zns_emu_create(const char *path, const struct zns_emu_params *p, bool force,
		   struct zns_err *err);

/* The parameters and the UUID of an open emulated device; -EMEDIUMTYPE if @dev is not one. */
int zns_emu_info(const struct zns_dev *dev, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN]);

/*
 * The vendor's map of an open emulated device: @die_of_zone has nr_zones entries; die d sits on
 * channel d % channels. With ZNS_EMU_MAP_SHARED all entries are 0; of a zone on several dies it is
 * the first. Only `format` and tests call this: probing must not.
 */
int zns_emu_zone_map(const struct zns_dev *dev, uint32_t *die_of_zone, struct zns_err *err);

/* Do some zones share a part of their dies, but not all? Then no map of groups describes it. */
bool zns_emu_zones_overlap(const struct zns_emu_params *p);

/*
 * --- The timing model ----------------------------------------------------------------------------
 *
 * Kept in model time: nanoseconds since the first opening of this boot, shared by all processes.
 * What it does:
 *
 *   command   arrives command_us after it was issued; reads and writes then pass the controller, if
 * it has a limit. write     is done when its last byte is in the zone's buffer (buffer_units
 * program units). A full unit goes over the channel, then to the die; its place is free again when
 * it is programmed. So the first writes are done at once and a steady stream runs at the die's
 * rate. One buffer unit cannot transfer while it programs: such a zone gets 1 / (1/die +
 * 1/channel). read      occupies the die by pages of 16 KiB and the channel by its bytes, both at
 * the same time but for a page. flush     programs incomplete units too (a whole unit's time each,
 * and once more when they are full) and is done when every buffer is on the medium. After a durable
 * write, and by zns_dev_flush_zones, the same for these zones alone. reset     occupies the die for
 * reset_us; a zone without data costs only the command. finish    pads the rest of the zone at the
 * die's full rate; padding does not cross the channel. The die does nothing else meanwhile. shared
 * map: every unit is spread over all dies and channels, which act as one. write cache: in place of
 * the zones' buffers. A unit has its place in there until it is programmed. Once it is full, a unit
 * that comes in waits for the next place that any die makes free: the writers of a slow die then
 * slow all others. Flush waits for the dies. planes: a read occupies the plane of its zone; a
 * program, a reset or a finish all planes of the die.
 *
 * Commands are served in the order in which they are submitted, each at the earliest time at which
 * what it needs is idle; time already passed in which something was idle is not lost to a command
 * that was issued then (within the last 64 busy periods of a die or channel). What a command books
 * ahead is not moved any more: with one buffer unit, clients that share a die leave it idle for
 * some channel transfers (7 % at the default rates); with two or more they do not.
 */
enum zns_emu_op {
	ZNS_EMU_OP_WRITE, /* bytes: written */
	ZNS_EMU_OP_READ, /* bytes: read */
	ZNS_EMU_OP_RESET, /* bytes: how much the zone holds; 0 = nothing to erase */
	ZNS_EMU_OP_FINISH, /* bytes: how much is padded */
	ZNS_EMU_OP_FLUSH, /* zone and bytes are ignored */
	/* the time that a durable write takes besides the write itself; bytes are ignored */
	ZNS_EMU_OP_FLUSH_ZONE,
};

/*
 * When the calls of zns/dev.h are issued, while timing is on.
 * WALL: when they are made; they sleep until they are done in model time.
 * THREAD: they do not sleep. Each thread has a model clock of its own for this handle. It starts at
 * the device's clock at this call, and stands where the thread's last call ended. When the clock is
 * set back to WALL, or the handle is closed, the device's clock moves on to where the model is, so
 * that nobody sleeps for what was only computed. The same happens when a device is opened that
 * nobody else has open. So do not use it while others use the device by the wall clock.
 *
 * zns_dev_race plays its clients in one thread, in order of their issue times: exact with either
 * clock.
 */
enum zns_emu_clock { ZNS_EMU_CLOCK_WALL, ZNS_EMU_CLOCK_THREAD };
int zns_emu_set_clock(struct zns_dev *dev, enum zns_emu_clock clock, struct zns_err *err);
#endif
