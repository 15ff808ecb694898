/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_EMU_H
#define ZNS_EMU_H
/*
 * The emulated zoned device (design.md §7): a file or plain block device with strict zone
 * semantics. All processes that open it share it, and it survives the death of any of them.
 *
 * Durability: a flush makes first the data, then the zone state durable. A reset is durable when
 * the call returns. After a crash of the host the state is one that a real zoned device could have
 * left: each zone may have lost any suffix of what was written since the last flush.
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"
#include "zns/util.h"

/* Format of an emulated drive's file, the only one that is read. (Format 1 had only the bandwidths
 * of the timing model.) */
#define ZNS_EMU_FORMAT 2
/* format of a store on an ordinary disk ("file:PATH"): like that of an emulated drive, with a
 * longer header */
#define ZNS_FILE_FORMAT 3
#define ZNS_FILE_FORMAT_BLOCKS 4 /* format of a store on an ordinary disk that has a log_block */

enum zns_emu_map {
	/* zone i is on die i mod dies; consecutive dies are on different channels */
	ZNS_EMU_MAP_INTERLEAVED,
	/* a permutation drawn from map_seed, with the same number of zones on each die */
	ZNS_EMU_MAP_PERMUTED,
	ZNS_EMU_MAP_SHARED, /* every zone is spread over all dies (a large-zone drive): one group */
};

enum zns_emu_prealloc {
	/* space is reserved, not written; the file system takes longer for the first write to a
	 * block than for later ones */
	ZNS_EMU_ALLOCATED,
	/* space is reserved and filled with zeroes: every write has the disk's speed */
	ZNS_EMU_WRITTEN,
	/* nothing is reserved: the host's disk may be smaller than the device, and fill up */
	ZNS_EMU_SPARSE,
};

struct zns_emu_params {
	uint32_t nr_zones;
	uint32_t block_size; /* bytes, 512 or 4096 */
	uint64_t zone_size; /* bytes */
	uint64_t zone_capacity; /* bytes, <= zone_size */
	uint32_t max_open, max_active; /* limits of zones; 0 = no limit */
	uint32_t channels, ways; /* dies = channels * ways */
	enum zns_emu_map map;
	/* seed for ZNS_EMU_MAP_PERMUTED, and for which zones the small dies lack */
	uint64_t map_seed;
	enum zns_emu_prealloc prealloc; /* used by zns_emu_create only; not stored */
	/* for a store on an ordinary disk: how many zones at its start hold the log; 0: this is an
	 * emulated drive */
	uint32_t log_zones;
	uint64_t log_capacity; /* size of each log zone in bytes */
	uint32_t log_block; /* granularity of writes to the log zones, bytes; 0: block_size */
	/* For a store that was resized: where the data begin, where the tables are, and for how
	 * many zones the tables have room. 0 for others: there the tables come first and are as
	 * long as the zones need. */
	uint64_t data_off, table_off;
	uint32_t table_zones;
	bool is_volatile; /* used by zns_emu_create only: a file in memory (tmpfs) is accepted */
	/* Is the timing model on? If not, all fields below are ignored. */
	bool timing;
	uint32_t die_write_mibps, die_read_mibps, channel_mibps;
	uint32_t program_unit; /* bytes that a die programs at once */
	uint32_t buffer_units; /* write buffer of a zone, in program units: 1 to 4 */
	uint32_t command_us; /* latency of every command in us; no die is busy meanwhile */
	uint32_t reset_us; /* how long the die is busy erasing a zone that has data, us */
	/* limit of all reads and writes together, which wait in one queue; 0 = no limit */
	uint32_t controller_mibps;
	/* garbage collection: after each gc_every_mib of writes the controller stops for
	 * gc_stall_ms; 0 = never */
	uint32_t gc_every_mib, gc_stall_ms;
	/* A write cache in front of all dies. It accepts cache_mib more than the dies have
	 * programmed, and passes data on at cache_mibps at most (0: as fast as the dies take it).
	 * cache_mib 0: no cache. */
	uint32_t cache_mib, cache_mibps;
	/* the cache is backed by capacitors: a flush does not wait for the dies */
	bool cache_backed;
	/* the first odd_dies dies need odd_pct percent of the time of the other dies to read and to
	 * program; odd_dies 0: all dies are alike */
	uint32_t odd_dies, odd_pct;
	/* planes of each die. A zone is on one plane. Planes read independently, but program
	 * together. 0: one plane */
	uint32_t planes;
	/* the first small_dies dies have at most small_zones zones each; 0: all dies have the same
	 * number */
	uint32_t small_dies, small_zones;
	/* how many consecutive zones are on one die; 0: one. Not allowed with a shared map */
	uint32_t row;
	/*
	 * A zone is striped over this many consecutive dies, at most 4; its program units go to
	 * them in turn. 0: one die. Each zone begins at a multiple of zone_step. Zones with the
	 * same first die share all of their dies. Zones with different first dies share some of
	 * them if zone_step is less than zone_dies. Not allowed with a shared map or small dies.
	 */
	uint32_t zone_dies, zone_step;
	/* Throttling: each MiB that is programmed adds to the heat, and cool_mibps of it are
	 * removed per second. When the heat reaches heat_mib, all dies take throttle_pct percent of
	 * their normal time until half of the heat is gone. heat_mib 0: never. */
	uint32_t heat_mib, cool_mibps, throttle_pct;
};

/* Fills in a drive of 4 GiB: 64 zones of 64 MiB, 4 KiB blocks, 8 channels x 4 ways, 100 MiB/s to
 * write a die, 400 MiB/s to read one, 800 MiB/s on a channel, no open limit, 32 active zones. */
void zns_emu_default_params(struct zns_emu_params *p);

/* Named presets, with as many zones as the real drive has: "default", "paper-conf", "paper-draft",
 * "paper-draft-18", "large-zone", "small-zone", "conventional"; "paper" is "paper-conf". -ENOENT
 * for an unknown name, with the known ones in @err. */
int zns_emu_profile(const char *name, struct zns_emu_params *p, struct zns_err *err);

/*
 * Chooses number and size of the zones for a store of @size bytes (everything included) on an
 * ordinary disk. Does not set their rate. -EINVAL: too small.
 */
int zns_file_params(uint64_t size, struct zns_emu_params *p, struct zns_err *err);

/* Computes how many zones an open store on an ordinary disk has when its file is @size bytes long.
 * The size of the zones does not change. -EINVAL: too small, or so close to the present size that
 * its tables could not be moved safely; -EFBIG: too large; -EMEDIUMTYPE: not such a store. */
int zns_file_zones_for(const struct zns_dev *dev, uint64_t size, uint32_t *nr, struct zns_err *err);

/*
 * Resizes an open store on an ordinary disk to @nr_zones zones, durably, and its file accordingly.
 * After a crash at any moment the store has the old number or the new one. The data of zones that
 * are cut off are lost: ask zns_store_fit() first. -ENOSPC: the device or file system has no room.
 * If the tables stay where they are (zns_file_resizes_in_place()), other processes may have the
 * store open: they see the change with zns_dev_follow(). Else the call fails with -EBUSY if another
 * process has it open, and afterwards @dev can only be closed.
 */
bool zns_file_resizes_in_place(const struct zns_dev *dev, uint32_t nr_zones);
int zns_file_resize(struct zns_dev *dev, uint32_t nr_zones, struct zns_err *err);

/*
 * Creates the device at @path (without "emu:" or "file:"; @p decides which it is) with a new UUID.
 * Refuses to replace an existing emulated device (-EEXIST) unless @force. Unless prealloc is
 * SPARSE, space is allocated at once where the file system can do that, so that a full disk is
 * noticed here and not during a dump.
 */
int zns_emu_create(const char *path, const struct zns_emu_params *p, bool force,
		   struct zns_err *err);

/* Returns the parameters and the UUID of an open emulated device; -EMEDIUMTYPE if @dev is not
 * one. */
int zns_emu_info(const struct zns_dev *dev, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN]);

/*
 * Returns the true map of an open emulated device: @die_of_zone has nr_zones entries; die d is on
 * channel d % channels. With ZNS_EMU_MAP_SHARED all entries are 0. For a zone on several dies the
 * entry is its first die. Only `format` and tests call this; probing must find the map by
 * measuring.
 */
int zns_emu_zone_map(const struct zns_dev *dev, uint32_t *die_of_zone, struct zns_err *err);

/* Do some zones share some but not all of their dies? Then no map of groups describes the
 * device. */
bool zns_emu_zones_overlap(const struct zns_emu_params *p);

/*
 * --- The timing model ----------------------------------------------------------------------------
 *
 * It works in model time: nanoseconds since the first opening since boot, shared by all processes.
 *
 *   command      It arrives command_us after it was issued. Reads and writes then pass the
 *                controller, if that has a limit.
 *   write        It is complete when its last byte is in the zone's buffer, which has buffer_units
 *                program units. A full unit is transferred over the channel, then programmed by the
 *                die; then its place in the buffer is free again. So the first writes complete at
 *                once, and a steady stream runs at the die's rate. With buffer_units = 1 a unit
 *                cannot be transferred while another one is programmed: such a zone gets 1 / (1/die
 *                + 1/channel).
 *   read         It occupies the die in pages of 16 KiB, and the channel by its bytes. Both work at
 *                the same time, the channel one page behind the die.
 *   flush        It also programs incomplete units, which takes the time of whole units, and the
 *                same again when they are full later. It is complete when all buffers are
 *                programmed. A durable write and zns_dev_flush_zones do that for their zones only.
 *   reset        It occupies the die for reset_us; a zone without data only costs the command.
 *   finish       It pads the rest of the zone at the die's full rate, and the die does nothing else
 *                meanwhile. Padding does not cross the channel.
 *   shared map   Every unit is spread over all dies and channels, which act as one.
 *   write cache  It replaces the zones' buffers. A unit occupies its place in the cache until it is
 *                programmed. When the cache is full, an arriving unit waits for the next free
 *                place, whichever die frees it. So the writers of a slow die delay all others. A
 *                flush waits for the dies.
 *   planes       A read occupies the plane of its zone. A program, a reset or a finish occupies all
 *                planes of the die.
 *
 * Commands are served in the order in which they are submitted, each at the earliest time at which
 * everything it needs is idle. If a command is submitted late, it may still use an idle period
 * between the time at which it was issued and the present; for that the model remembers the last 64
 * busy periods of each die and channel. Once a command has booked its time, it is not moved any
 * more. So with buffer_units = 1, clients that share a die leave it idle for some channel transfers
 * (7 % at the default rates); with two or more units they do not.
 */
enum zns_emu_op {
	ZNS_EMU_OP_WRITE, /* @bytes: written */
	ZNS_EMU_OP_READ, /* @bytes: read */
	ZNS_EMU_OP_RESET, /* @bytes: how much data the zone holds; 0 = nothing to erase */
	ZNS_EMU_OP_FINISH, /* @bytes: how much is padded */
	ZNS_EMU_OP_FLUSH, /* @zone and @bytes are ignored */
	/* what a durable write takes in addition to the write itself; @bytes is ignored */
	ZNS_EMU_OP_FLUSH_ZONE,
};

/*
 * How the calls of zns/dev.h take time while timing is on.
 * WALL: a command is issued when its call is made, and the call sleeps until the command is
 * complete in model time.
 * THREAD: calls do not sleep. Each thread has a model clock of its own for this handle. It starts
 * at the device's clock at the time of this call, and advances with the thread's calls. When the
 * mode is set back to WALL, or the handle is closed, the device's clock advances to the end of the
 * model, so that nobody sleeps for time that was only computed. The same happens when a device is
 * opened that nobody else has open. So do not use THREAD while others use the device in WALL mode.
 *
 * zns_dev_race simulates its clients in one thread, in the order of their issue times; that is
 * exact in both modes.
 */
enum zns_emu_clock { ZNS_EMU_CLOCK_WALL, ZNS_EMU_CLOCK_THREAD };
int zns_emu_set_clock(struct zns_dev *dev, enum zns_emu_clock clock, struct zns_err *err);
#endif
