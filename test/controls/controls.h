/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TEST_CONTROLS_H
#define TEST_CONTROLS_H
/*
 * What tests can do to an emulated device: ask its timing model, disturb it, make it fail, cut its
 * power. They can switch off rules of zns/track, and stop the clock. Only test builds have it
 * (build/test/libzns.a, build/test/bin). The product links files named *_none.c instead.
 *
 * Environment variables, read when a device is opened:
 *   ZNS_EMU_FAULT, ZNS_EMU_NOISE   see below
 *   ZNS_EMU_CLOCK=wall|thread      as zns_emu_set_clock
 *   ZNS_EMU_FLUSH=zones|device     device: zns_dev_flush_zones flushes everything, as with NVMe
 *   ZNS_EMU_LIES=WORD              a drive that does not do what it says, in one of these ways:
 *       flush                      flushes do nothing
 *       open, low                  reports two more open and active zones than it can have, or two
 *                                  less
 *       capacity, pointer          reports one zone a block larger than it is, or written a block
 *                                  less far
 *       append                     every 16th append of a handle gets a place, but is lost
 *       hang                       appends and races never return
 *   ZNS_EMU_DATA=none              for load generators: this handle's writes and appends move write
 *                                  pointers and cost model time but store nothing; reads give 0
 *   ZNS_NVME_IOCTL=1               NVMe passthrough by ioctl, even where io_uring works
 *
 * Read by a live dump's helper:
 *   ZNS_TRACK_BREAK=WORD[,WORD…]   rules of zns/track_control.h that do not hold: barrier, aio,
 *                                  shared, vector, holes. And a fault of the kernel that holes are
 *                                  about: kernel-holes
 *
 * Read when a program begins:
 *   ZNS_CLOCK=FILE                 see below; a broker keeps this variable
 *
 * Read when a client starts a broker:
 *   ZNSD_KEEP_ENV=NAME[,NAME…]     variables that the broker keeps beside its usual ones
 *   ZNS_BROKER_HELLO_MS=MS         how long a client waits for a broker's first answer
 */
#include "zns/emu.h"

/*
 * --- The clock ---
 *
 * After zns_clock_stop, zns_mono_ns() says the same time in this process, and in all that it starts
 * with ZNS_CLOCK in their environment, until zns_clock_advance moves it. Nobody is woken by that: a
 * broker looks at the clock when something else wakes it, such as a request. zns_clock_run lets
 * time pass again, in this process. No other thread may ask for the time meanwhile.
 */
void zns_clock_stop(const char *file);
void zns_clock_advance(uint64_t ns);
void zns_clock_run(void);

/* --- The timing model --- */

/*
 * Asks the model alone: no data moves, zone states and limits do not matter, nothing sleeps.
 * @issue_ns is the caller's model time, so one thread can play several writers. Submit in the order
 * of issue times. The same submissions give the same answers. -EINVAL while timing is off.
 */
int zns_emu_model_submit(struct zns_dev *dev, enum zns_emu_op op, uint32_t zone, uint64_t bytes,
			 uint64_t issue_ns, uint64_t *done_ns, struct zns_err *err);

/* The work of a die, a channel or the controller, over all processes. */
struct zns_emu_load {
	uint64_t busy_ns; /* total model time */
	uint64_t idle_from_ns; /* no command is booked after this time */
	/* bytes programmed (with padding), and bytes read; or bytes moved */
	uint64_t written, read;
};
enum zns_emu_unit { ZNS_EMU_DIE, ZNS_EMU_CHANNEL, ZNS_EMU_CONTROLLER };
int zns_emu_model_load(struct zns_dev *dev, enum zns_emu_unit unit, uint32_t nr,
		       struct zns_emu_load *out, struct zns_err *err);

/* The device's model clock: when all calls so far were answered. The buffer answers a write. */
int zns_emu_model_clock(struct zns_dev *dev, uint64_t *out_ns, struct zns_err *err);
uint64_t zns_emu_model_stalls(struct zns_dev *dev); /* garbage collections so far */

/* The clock of the calling thread, with ZNS_EMU_CLOCK_THREAD. */
uint64_t zns_emu_thread_clock(struct zns_dev *dev);
void zns_emu_set_thread_clock(struct zns_dev *dev, uint64_t ns);

/*
 * Noise for this handle. Every program, sense and command takes up to @jitter_pct per cent longer
 * or shorter (uniform). One in @stall_every programs and senses, at random, takes @stall_us longer
 * and keeps the die busy. Set it by call, or when a device is opened by
 * ZNS_EMU_NOISE in the environment, with any of these words in any order:
 *   jitter=PCT,stall-every=N,stall-us=US,host-every-us=US,host-us=US,gc-every-us=US,gc-us=US,
 *   erase-late-us=US,erase-us=US,calm-ms=MS,storm-ms=MS,seed=S
 * Noise is drawn from the seed: the same commands in the same order take the same times.
 */
struct zns_emu_noise {
	uint32_t jitter_pct; /* 0 to 90 */
	uint32_t stall_every, stall_us; /* 0: never */
	/*
	 * Disturbances that hit everything for a while, as bursts in model time. Each stretch of
	 * @..._every_us has one, at a random place, lasting half to one and a half of @..._us.
	 * Their places follow from the seed and the time.
	 */
	/* the host does not run: it sees ended commands only afterwards */
	uint32_t host_every_us, host_us;
	uint32_t gc_every_us, gc_us; /* every die does internal work */
	/* the erase of a reset occupies the die again, up to erase_late_us later */
	uint32_t erase_late_us, erase_us;
	/* host and gc bursts come only in storms of this length, with calm periods in between; 0:
	 * always */
	uint32_t calm_ms, storm_ms;
	uint64_t seed;
};
int zns_emu_set_noise(struct zns_dev *dev, const struct zns_emu_noise *n, struct zns_err *err);

/*
 * --- Faults ---
 *
 * Set by call, or for a whole program by ZNS_EMU_FAULT in the environment, read when a device is
 * opened. Words have commas between them, come in any order, and may repeat:
 *
 *   write-after=N[@Z][xT]       N writes succeed, then T writes fail with -EIO (default 1; x*: all)
 *   read-after=N[@Z][xT]        the same for reads
 *   read-only-after=N[@Z]       N writes succeed, the next one finds its zone read-only (-EROFS)
 *   offline-after=N[@Z]         the same, offline (-ENXIO)
 *   conflict-after=N[@Z][xT]    the same: another host has reserved the device (-EBADE)
 *   stop-after=N[@Z]            N writes succeed, then the process stops itself (SIGSTOP), as at a
 *                               barrier; the next write is done when somebody continues it
 *   stop-read-after=N[@Z]       the same for reads
 *   cut-after=N[@Z]             the device loses power right after N writes
 *   loss=drop|keep|SEED         what the power cut loses; default: drop
 *
 * With @Z, only calls to zone Z count and are hit. Without it, all calls count, and the zone of the
 * last one is hit. Appends are writes. Each handle has its own counters.
 *
 * A device without power answers every call of every process with -EIO. It comes back, with the
 * data that survived, when all have closed it and one opens it again.
 */
enum zns_emu_fault_kind {
	ZNS_EMU_FAIL_WRITE,
	ZNS_EMU_FAIL_READ,
	ZNS_EMU_WEAR_READ_ONLY,
	ZNS_EMU_WEAR_OFFLINE,
	ZNS_EMU_CUT_POWER,
	ZNS_EMU_CONFLICT,
	ZNS_EMU_STOP,
	ZNS_EMU_STOP_READ,
};

/* What a power cut loses: per zone the end of the data since the last flush, and an unflushed
 * finish. */
enum zns_emu_loss {
	ZNS_EMU_LOSE_ALL, /* everything unflushed */
	ZNS_EMU_LOSE_NOTHING,
	/* per zone everything, nothing or some blocks, by the seed */
	ZNS_EMU_LOSE_SEEDED,
};

#define ZNS_EMU_ANY_ZONE UINT32_MAX
struct zns_emu_rule {
	enum zns_emu_fault_kind kind;
	uint32_t zone; /* or ZNS_EMU_ANY_ZONE */
	uint64_t after;
	/* FAIL_*, CONFLICT: how many fail; 0: one, UINT64_MAX: all from then on */
	uint64_t times;
	enum zns_emu_loss loss; /* for CUT_POWER */
	uint64_t seed;
};
/* -ENOSPC: there are 16 rules already */
int zns_emu_add_fault(struct zns_dev *dev, const struct zns_emu_rule *r, struct zns_err *err);
int zns_emu_clear_faults(struct zns_dev *dev);

/* The two simplest faults, in place of all others: the n-th write or read from now fails (0: the
 * next one; -1: never). */
struct zns_emu_fault {
	int64_t fail_write_after;
	int64_t fail_read_after;
};
int zns_emu_set_fault(struct zns_dev *dev, const struct zns_emu_fault *f);

/* Makes a zone READ_ONLY or OFFLINE. EMPTY returns it to the state of its write pointer. */
int zns_emu_set_zone_state(struct zns_dev *dev, uint32_t zone, enum zns_zone_state s,
			   struct zns_err *err);

/* Cuts the power and restores it at once. No other process may have the device open (-EBUSY).
 * The surviving data is durable then. The first form loses everything unflushed. */
int zns_emu_power_cut(struct zns_dev *dev, struct zns_err *err);
int zns_emu_power_cut_losing(struct zns_dev *dev, enum zns_emu_loss loss, uint64_t seed,
			     struct zns_err *err);

#endif
