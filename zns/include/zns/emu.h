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

enum zns_emu_map {
	ZNS_EMU_MAP_INTERLEAVED,	/* zone i on die i mod dies, channel first */
	ZNS_EMU_MAP_PERMUTED,		/* a permutation drawn from map_seed, balanced over dies */
	ZNS_EMU_MAP_SHARED,		/* every zone on all dies (a large-zone drive): one domain */
};

enum zns_emu_prealloc {
	ZNS_EMU_ALLOCATED,	/* space reserved at once; a first write into it costs the file system more than a second */
	ZNS_EMU_WRITTEN,	/* and written once with zeroes: every write is at the disk's speed from the start */
	ZNS_EMU_SPARSE,		/* nothing reserved: the host's disk may be smaller than the device, and fill up under it */
};

struct zns_emu_params {
	uint32_t nr_zones;
	uint32_t block_size;		/* bytes, 512 or 4096 */
	uint64_t zone_size;		/* bytes */
	uint64_t zone_capacity;		/* bytes, <= zone_size */
	uint32_t max_open, max_active;	/* 0 = no limit */
	uint32_t channels, ways;	/* dies = channels * ways */
	enum zns_emu_map map;
	uint64_t map_seed;		/* for ZNS_EMU_MAP_PERMUTED */
	enum zns_emu_prealloc prealloc;	/* of zns_emu_create only; not kept */
	/* the timing model; all of it is of no account while timing is off */
	bool timing;
	uint32_t die_write_mibps, die_read_mibps, channel_mibps;
	uint32_t program_unit;		/* bytes a die programs at once */
	uint32_t buffer_units;		/* write buffer of a zone, in program units: 1 to 4 */
	uint32_t command_us;		/* latency of every command; occupies nothing */
	uint32_t reset_us;		/* the die is busy so long with erasing a zone that has data */
	uint32_t controller_mibps;	/* all reads and writes together, in one queue; 0 = no limit */
	uint32_t gc_every_mib, gc_stall_ms;	/* garbage collection: the controller stops so long after so much written; 0 = never */
};

/* 4 GiB: 64 zones of 64 MiB, 4 KiB blocks, 8 channels x 4 ways, 100/400/800 MiB/s, no limits on open zones but 32 active. */
void zns_emu_default_params(struct zns_emu_params *p);

/*
 * Named presets, with as many zones as the drive they stand for: "default", "paper-conf", "paper-draft",
 * "paper-draft-18", "large-zone", "small-zone", "conventional"; "paper" is "paper-conf". -ENOENT for an unknown
 * name, with the known ones in @err.
 */
int zns_emu_profile(const char *name, struct zns_emu_params *p, struct zns_err *err);

/*
 * Make the device at @path (without "emu:"). Refuses an existing emulator device (-EEXIST)
 * unless @force. Space is allocated at once where the file system can, so that a full host disk
 * shows here and not in the middle of a dump (unless prealloc is SPARSE). Draws a device UUID.
 */
int zns_emu_create(const char *path, const struct zns_emu_params *p, bool force, struct zns_err *err);

/* The parameters and the UUID of an open emulated device; -EMEDIUMTYPE if @dev is not one. */
int zns_emu_info(const struct zns_dev *dev, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN]);

/*
 * The vendor's map of an open emulated device: @die_of_zone has nr_zones entries; die d sits on
 * channel d % channels. With ZNS_EMU_MAP_SHARED all entries are 0. Only `format` and tests call
 * this: probing must not.
 */
int zns_emu_zone_map(const struct zns_dev *dev, uint32_t *die_of_zone, struct zns_err *err);

/*
 * --- The timing model ----------------------------------------------------------------------------
 *
 * Kept in model time: nanoseconds since the first opening of this boot, shared by all processes. What it does:
 *
 *   command   arrives command_us after it was issued; reads and writes then pass the controller, if it has a limit.
 *   write     is done when its last byte is in the zone's buffer (buffer_units program units). A full unit goes over
 *             the channel, then to the die; its place is free again when it is programmed. So the first writes are
 *             done at once and a steady stream runs at the die's rate. One buffer unit cannot transfer while it
 *             programs: such a zone gets 1 / (1/die + 1/channel).
 *   read      occupies the die by pages of 16 KiB and the channel by its bytes, both at the same time but for a page.
 *   flush     programs incomplete units too (a whole unit's time each, and once more when they are full) and is done
 *             when every buffer is on the medium.
 *             After a durable write, and by zns_dev_flush_zones, the same for these zones alone; with
 *             ZNS_EMU_FLUSH=device in the environment the latter is a flush, as it is with NVMe.
 *   reset     occupies the die for reset_us; a zone without data costs only the command.
 *   finish    pads the rest of the zone at the die's full rate; padding does not cross the channel. The die does
 *             nothing else meanwhile.
 *   shared    map: every unit is spread over all dies and channels, which act as one.
 *
 * Commands are served in the order in which they are submitted, each at the earliest time at which what it needs is
 * idle; time already passed in which something was idle is not lost to a command that was issued then (within the last
 * 64 busy periods of a die or channel). What a command books ahead is not moved any more: with one buffer unit, clients
 * that share a die leave it idle for some channel transfers (7 % at the default rates); with two or more they do not.
 */
enum zns_emu_op {
	ZNS_EMU_OP_WRITE,	/* bytes: written */
	ZNS_EMU_OP_READ,	/* bytes: read */
	ZNS_EMU_OP_RESET,	/* bytes: what the zone holds; 0 = nothing to erase */
	ZNS_EMU_OP_FINISH,	/* bytes: what is padded */
	ZNS_EMU_OP_FLUSH,	/* zone and bytes of no account */
	ZNS_EMU_OP_FLUSH_ZONE,	/* what a durable write costs beside the write; bytes of no account */
};

/*
 * Ask the model alone: no data moves, zone states and limits do not matter, nothing sleeps. @issue_ns is the caller's
 * own idea of model time, so one thread can play several writers; submit in the order of issue times. The same
 * submissions give the same answers. -EINVAL while timing is off.
 */
int zns_emu_model_submit(struct zns_dev *dev, enum zns_emu_op op, uint32_t zone, uint64_t bytes, uint64_t issue_ns,
			 uint64_t *done_ns, struct zns_err *err);

/* What a die, a channel or the controller did, over all processes. */
struct zns_emu_load {
	uint64_t busy_ns;	/* so much model time in all */
	uint64_t idle_from_ns;	/* nothing is booked after this */
	uint64_t written, read;	/* bytes programmed (padding included) and read, or moved */
};
enum zns_emu_unit { ZNS_EMU_DIE, ZNS_EMU_CHANNEL, ZNS_EMU_CONTROLLER };
int zns_emu_model_load(struct zns_dev *dev, enum zns_emu_unit unit, uint32_t nr, struct zns_emu_load *out,
		       struct zns_err *err);

/* The device's model clock: when all that was asked of it so far was answered. A write is answered by the buffer. */
int zns_emu_model_clock(struct zns_dev *dev, uint64_t *out_ns, struct zns_err *err);
uint64_t zns_emu_model_stalls(struct zns_dev *dev);	/* garbage collections so far */

/*
 * When the calls of zns/dev.h are issued, while timing is on.
 * WALL: when they are made; they sleep until they are done in model time.
 * THREAD: they do not sleep; each thread has a model clock of its own for this handle, which starts at the device's
 * clock of the moment of this call (or of the opening, with ZNS_EMU_CLOCK=thread in the environment), and stands at
 * what its last call returned. When the clock is set back to WALL or the handle is closed, the device's clock is moved
 * on to where the model is, so that nobody has to sleep for what was only computed; the same when a device is opened
 * that nobody else has open. So: not while others use it by the wall clock.
 *
 * zns_dev_race plays its clients in one thread, in order of their issue times: exact with either clock.
 */
enum zns_emu_clock { ZNS_EMU_CLOCK_WALL, ZNS_EMU_CLOCK_THREAD };
int zns_emu_set_clock(struct zns_dev *dev, enum zns_emu_clock clock, struct zns_err *err);
uint64_t zns_emu_thread_clock(struct zns_dev *dev);			/* of the calling thread */
void zns_emu_set_thread_clock(struct zns_dev *dev, uint64_t ns);

/*
 * Noise: every program, sense and command of this handle takes @jitter_pct per cent longer or shorter (uniform), and one in
 * @stall_every programs and senses, at random, @stall_us longer, which the die is busy with. By call, or by
 * ZNS_EMU_NOISE=jitter=PCT,stall-every=N,stall-us=US,host-every-us=US,host-us=US,gc-every-us=US,gc-us=US,
 * erase-late-us=US,erase-us=US,calm-ms=MS,storm-ms=MS,seed=S in the environment (any of them, in any order), read when a
 * device is opened. Drawn from the seed: the same commands in the same order take the same times.
 */
struct zns_emu_noise {
	uint32_t jitter_pct;		/* 0 to 90 */
	uint32_t stall_every, stall_us;	/* 0: never */
	/*
	 * Disturbances that hit everything for a while, as bursts in model time: one in each stretch of @..._every_us, at
	 * a random place in it, of half to one and a half of @..._us. Where they are follows from the seed and the time.
	 */
	uint32_t host_every_us, host_us;	/* the host does not run: what is done meanwhile is seen when it is over */
	uint32_t gc_every_us, gc_us;		/* every die is busy with itself */
	uint32_t erase_late_us, erase_us;	/* a reset's erase takes the die once more, up to so much later */
	uint32_t calm_ms, storm_ms;		/* host and gc strike in storms of that length only, with calm between; 0: always */
	uint64_t seed;
};
int zns_emu_set_noise(struct zns_dev *dev, const struct zns_emu_noise *n, struct zns_err *err);

/*
 * ZNS_EMU_DATA=none in the environment when a device is opened: this handle's writes and appends move write pointers
 * and cost model time, but store nothing, and its reads find zeroes. For load generators whose bytes nobody wants back.
 */

/*
 * --- Faults --------------------------------------------------------------------------------------
 *
 * By call, or for a whole program by ZNS_EMU_FAULT in the environment, read when a device is opened: words separated
 * by commas, in any order, each several times,
 *
 *   write-after=N[@Z][xT]       N writes succeed, the next one fails with -EIO (T of them; x* = all)
 *   read-after=N[@Z][xT]        the same for reads
 *   read-only-after=N[@Z]       N writes succeed, the next one finds its zone read-only (-EROFS)
 *   offline-after=N[@Z]         the same, offline (-ENXIO)
 *   conflict-after=N[@Z][xT]    the same: another host has reserved the device (-EBADE)
 *   cut-after=N[@Z]             after N writes the device loses power, before anything else happens
 *   loss=drop|keep|SEED         what that loses; drop if not given
 *
 * @Z counts and hits only what goes to zone Z; without it everything counts and the zone of that write is hit. Appends
 * are writes. Counters are the handle's own.
 *
 * A device without power answers every call of every process with -EIO. It comes back, with what the cut left, when
 * all have closed it and one opens it anew.
 */
enum zns_emu_fault_kind {
	ZNS_EMU_FAIL_WRITE,
	ZNS_EMU_FAIL_READ,
	ZNS_EMU_WEAR_READ_ONLY,
	ZNS_EMU_WEAR_OFFLINE,
	ZNS_EMU_CUT_POWER,
	ZNS_EMU_CONFLICT,
};

/* What a power cut takes: per zone a suffix of what was written since the last flush, an unflushed finish too. */
enum zns_emu_loss {
	ZNS_EMU_LOSE_ALL,	/* all that was not flushed */
	ZNS_EMU_LOSE_NOTHING,
	ZNS_EMU_LOSE_SEEDED,	/* per zone all, nothing or something, by blocks: drawn from the seed */
};

#define ZNS_EMU_ANY_ZONE UINT32_MAX
struct zns_emu_rule {
	enum zns_emu_fault_kind kind;
	uint32_t zone;		/* or ZNS_EMU_ANY_ZONE */
	uint64_t after;
	uint64_t times;		/* FAIL_*, CONFLICT: how many fail; 0 = one, UINT64_MAX = all from then on */
	enum zns_emu_loss loss;	/* CUT_POWER */
	uint64_t seed;
};
int zns_emu_add_fault(struct zns_dev *dev, const struct zns_emu_rule *r, struct zns_err *err);	/* -ENOSPC: 16 at most */
int zns_emu_clear_faults(struct zns_dev *dev);

/* The two simplest at once, in place of all others: the n-th write or read from now fails (0 = the next); -1 = never. */
struct zns_emu_fault {
	int64_t fail_write_after;
	int64_t fail_read_after;
};
int zns_emu_set_fault(struct zns_dev *dev, const struct zns_emu_fault *f);

/* Put one zone into READ_ONLY or OFFLINE (or back to what its write pointer says, with EMPTY). */
int zns_emu_set_zone_state(struct zns_dev *dev, uint32_t zone, enum zns_zone_state s, struct zns_err *err);

/*
 * Cut the power and give it back at once; no process may have the device open but this one (-EBUSY). What survives
 * is durable from then on. The first form loses all that was not flushed.
 */
int zns_emu_power_cut(struct zns_dev *dev, struct zns_err *err);
int zns_emu_power_cut_losing(struct zns_dev *dev, enum zns_emu_loss loss, uint64_t seed, struct zns_err *err);

#endif
