/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TEST_CONTROLS_H
#define TEST_CONTROLS_H
/*
 * What tests can do to an emulated device: ask its timing model, disturb it, make it fail, cut its
 * power. Only test builds have it (build/test/libzns.a, build/test/bin): the product links
 * zns/dev/control_none.c in its place.
 *
 * Variables of the environment, read when a device is opened:
 *   ZNS_EMU_FAULT, ZNS_EMU_NOISE   see below
 *   ZNS_EMU_CLOCK=wall|thread      as zns_emu_set_clock
 *   ZNS_EMU_FLUSH=zones|device     device: zns_dev_flush_zones is a flush of all, as it is with
 * NVMe ZNS_EMU_DATA=none              this handle's writes and appends move write pointers and cost
 * model time, but store nothing, and its reads find zeroes. For load generators whose bytes nobody
 * wants back ZNS_NVME_IOCTL=1               NVMe passthrough by ioctl, also where io_uring would do
 * and, when a client starts a broker,
 *   ZNSD_KEEP_ENV=NAME[,NAME…]     what the broker keeps of the environment beside what it always
 * keeps
 */
#include "zns/emu.h"

/* --- The timing model, asked
 * ----------------------------------------------------------------------- */

/*
 * Ask the model alone: no data moves, zone states and limits do not matter, nothing sleeps.
 * @issue_ns is the caller's own idea of model time, so one thread can play several writers; submit
 * in the order of issue times. The same submissions give the same answers. -EINVAL while timing is
 * off.
 */
int zns_emu_model_submit(struct zns_dev *dev, enum zns_emu_op op, uint32_t zone, uint64_t bytes,
			 uint64_t issue_ns, uint64_t *done_ns, struct zns_err *err);

/* What a die, a channel or the controller did, over all processes. */
struct zns_emu_load {
	uint64_t busy_ns; /* so much model time in all */
	uint64_t idle_from_ns; /* nothing is booked after this */
	uint64_t written, read; /* bytes programmed (padding included) and read, or moved */
};
enum zns_emu_unit { ZNS_EMU_DIE, ZNS_EMU_CHANNEL, ZNS_EMU_CONTROLLER };
int zns_emu_model_load(struct zns_dev *dev, enum zns_emu_unit unit, uint32_t nr,
		       struct zns_emu_load *out, struct zns_err *err);

/* The device's model clock: when all that was asked of it so far was answered. A write is answered
 * by the buffer. */
int zns_emu_model_clock(struct zns_dev *dev, uint64_t *out_ns, struct zns_err *err);
uint64_t zns_emu_model_stalls(struct zns_dev *dev); /* garbage collections so far */

/* With ZNS_EMU_CLOCK_THREAD: the clock of the calling thread. */
uint64_t zns_emu_thread_clock(struct zns_dev *dev);
void zns_emu_set_thread_clock(struct zns_dev *dev, uint64_t ns);

/*
 * Noise: every program, sense and command of this handle takes @jitter_pct per cent longer or
 * shorter (uniform), and one in
 * @stall_every programs and senses, at random, @stall_us longer, which the die is busy with. By
 * call, or by
 * ZNS_EMU_NOISE=jitter=PCT,stall-every=N,stall-us=US,host-every-us=US,host-us=US,gc-every-us=US,gc-us=US,
 * erase-late-us=US,erase-us=US,calm-ms=MS,storm-ms=MS,seed=S in the environment (any of them, in
 * any order), read when a device is opened. Drawn from the seed: the same commands in the same
 * order take the same times.
 */
struct zns_emu_noise {
	uint32_t jitter_pct; /* 0 to 90 */
	uint32_t stall_every, stall_us; /* 0: never */
	/*
	 * Disturbances that hit everything for a while, as bursts in model time: one in each
	 * stretch of @..._every_us, at a random place in it, of half to one and a half of @..._us.
	 * Where they are follows from the seed and the time.
	 */
	uint32_t host_every_us, host_us; /* the host does not run: what is done meanwhile is seen
					    when it is over */
	uint32_t gc_every_us, gc_us; /* every die is busy with itself */
	/* a reset's erase takes the die once more, up to so much later */
	uint32_t erase_late_us, erase_us;
	/* host and gc strike in storms of that length only, with calm between; 0: always */
	uint32_t calm_ms, storm_ms;
	uint64_t seed;
};
int zns_emu_set_noise(struct zns_dev *dev, const struct zns_emu_noise *n, struct zns_err *err);

/*
 * --- Faults --------------------------------------------------------------------------------------
 *
 * By call, or for a whole program by ZNS_EMU_FAULT in the environment, read when a device is
 * opened: words separated by commas, in any order, each several times,
 *
 *   write-after=N[@Z][xT]       N writes succeed, the next one fails with -EIO (T of them; x* =
 * all) read-after=N[@Z][xT]        the same for reads read-only-after=N[@Z]       N writes succeed,
 * the next one finds its zone read-only (-EROFS) offline-after=N[@Z]         the same, offline
 * (-ENXIO) conflict-after=N[@Z][xT]    the same: another host has reserved the device (-EBADE)
 *   cut-after=N[@Z]             after N writes the device loses power, before anything else happens
 *   loss=drop|keep|SEED         what that loses; drop if not given
 *
 * @Z counts and hits only what goes to zone Z; without it everything counts and the zone of that
 * write is hit. Appends are writes. Counters are the handle's own.
 *
 * A device without power answers every call of every process with -EIO. It comes back, with what
 * the cut left, when all have closed it and one opens it anew.
 */
enum zns_emu_fault_kind {
	ZNS_EMU_FAIL_WRITE,
	ZNS_EMU_FAIL_READ,
	ZNS_EMU_WEAR_READ_ONLY,
	ZNS_EMU_WEAR_OFFLINE,
	ZNS_EMU_CUT_POWER,
	ZNS_EMU_CONFLICT,
};

/* What a power cut takes: per zone a suffix of what was written since the last flush, an unflushed
 * finish too. */
enum zns_emu_loss {
	ZNS_EMU_LOSE_ALL, /* all that was not flushed */
	ZNS_EMU_LOSE_NOTHING,
	/* per zone all, nothing or something, by blocks: drawn from the seed */
	ZNS_EMU_LOSE_SEEDED,
};

#define ZNS_EMU_ANY_ZONE UINT32_MAX
struct zns_emu_rule {
	enum zns_emu_fault_kind kind;
	uint32_t zone; /* or ZNS_EMU_ANY_ZONE */
	uint64_t after;
	/* FAIL_*, CONFLICT: how many fail; 0 = one, UINT64_MAX = all from then on */
	uint64_t times;
	enum zns_emu_loss loss; /* CUT_POWER */
	uint64_t seed;
};
/* -ENOSPC: 16 at most */
int zns_emu_add_fault(struct zns_dev *dev, const struct zns_emu_rule *r, struct zns_err *err);
int zns_emu_clear_faults(struct zns_dev *dev);

/* The two simplest at once, in place of all others: the n-th write or read from now fails (0 = the
 * next); -1 = never. */
struct zns_emu_fault {
	int64_t fail_write_after;
	int64_t fail_read_after;
};
int zns_emu_set_fault(struct zns_dev *dev, const struct zns_emu_fault *f);

/* Put one zone into READ_ONLY or OFFLINE (or back to what its write pointer says, with EMPTY). */
int zns_emu_set_zone_state(struct zns_dev *dev, uint32_t zone, enum zns_zone_state s,
			   struct zns_err *err);

/*
 * Cut the power and give it back at once; no process may have the device open but this one
 * (-EBUSY). What survives is durable from then on. The first form loses all that was not flushed.
 */
int zns_emu_power_cut(struct zns_dev *dev, struct zns_err *err);
int zns_emu_power_cut_losing(struct zns_dev *dev, enum zns_emu_loss loss, uint64_t seed,
			     struct zns_err *err);

#endif
