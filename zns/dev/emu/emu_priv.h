/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_EMU_PRIV_H
#define ZNS_DEV_EMU_PRIV_H
/*
 * The emulated device, inside. The file:
 *
 *   0        header       one 4 KiB block: magic, version, UUID, parameters, hash
 *   64 KiB   live area    mapped by every process that opens the device; valid only for the boot
 *            whose id is in its head:
 *                         head, live[zones], mirror[zones], and the timing model if there is one
 *   …        durable      one entry of 32 bytes for each zone, written only by flush and reset
 *   …        data         from the next MiB: zone i at i * capacity (rounded up to 4 KiB)
 *
 * A store that was resized may have the live area and the durable table behind the data. A store on
 * an ordinary disk has tables with room for more zones, so that it can be resized while others have
 * it open.
 *
 * live is the present state of the device. durable is the state after a power cut. mirror is a copy
 * of durable in memory, with which a flush finds the changed zones without reading the disk. The
 * invariants in emu_table.c keep all three consistent even if a process dies at any moment.
 *
 * Locks, in this order: stripe mutexes ascending, zone locks ascending, count, durable, model.
 * Between processes they are OFD byte locks far beyond the end of the file; the kernel drops them
 * when their holder dies. OFD locks do not exclude threads that share the fd, so each of them has a
 * mutex that is taken first. They do not exclude a forked child from its parent either, so a child
 * must open the device itself.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "../control.h"
#include "zns/emu.h"

#define EMU_MAGIC UINT64_C(0x3130564544534e5a) /* "ZNSDEV01", little-endian */
#define EMU_BLOCK 4096u /* size of the header and of a block of the durable table */
#define EMU_LIVE_OFF 65536u /* 64 KiB: a multiple of every page size */
#define EMU_DATA_ALIGN MIB(1)
#define EMU_MAX_ZONES (1u << 20)
#define EMU_MAX_IO MIB(1)
#define EMU_STRIPES 64

struct emu_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	uint8_t uuid[ZNS_UUID_LEN];
	uint32_t nr_zones, block_size;
	uint64_t zone_size, zone_capacity;
	uint32_t max_open, max_active;
	uint32_t channels, ways;
	uint64_t map_seed;
	uint32_t map, timing;
	uint32_t die_write_mibps, die_read_mibps, channel_mibps;
	uint32_t program_unit, buffer_units, command_us, reset_us, controller_mibps, gc_every_mib,
		gc_stall_ms;
	/* redundant: a device is refused if these differ from the computed layout */
	uint64_t data_off, total;
	uint64_t hash; /* hash of all fields above */
};

/* Behind the header of a store on an ordinary disk. */
struct emu_header_file {
	uint64_t log_capacity;
	uint32_t log_zones, log_block;
	uint64_t hash; /* hash of the header's hash and of the fields above */
};

/* Behind both of the headers above, if a resize has moved the tables or left room in them. */
struct emu_header_tables {
	uint64_t table_off; /* offset of the live area; the other tables follow it */
	uint32_t table_zones, zero; /* for how many zones the tables have room */
	uint64_t hash; /* hash of the previous hash and of the fields above */
};

/* Behind the header of an emulated drive, if one of these fields is not 0. */
struct emu_header_more {
	uint32_t cache_mib, cache_mibps, odd_dies, odd_pct, planes, small_dies, small_zones, row;
	uint32_t cache_backed, zone_dies, zone_step, heat_mib, cool_mibps, throttle_pct, zero[2];
	uint64_t hash; /* hash of the header's hash and of the fields above */
};
_Static_assert(sizeof(struct emu_header_more) == 72, "header format");

#define EMU_F_FINISHED (1u << 0) /* the zone is full although wp < capacity */
#define EMU_F_READ_ONLY (1u << 1)
#define EMU_F_OFFLINE (1u << 2)
/* only in mirror: a reset is under way, which may or may not have reached the disk */
#define EMU_F_PENDING (1u << 3)
#define EMU_F_DURABLE (EMU_F_FINISHED | EMU_F_READ_ONLY | EMU_F_OFFLINE)

/* 32 bytes, so that no entry is in two sectors: after a torn write each entry is either old or
 * new. */
struct emu_entry {
	uint64_t wp; /* bytes written; finishing the zone does not change it */
	uint64_t gen; /* number of resets */
	uint32_t flags; /* values EMU_F_* */
	/* only in the live table: EMPTY, IMP_OPEN, EXP_OPEN or CLOSED; see emu_state() */
	uint32_t state;
	union {
		/* in the durable table: hash of the fields above and of the zone's number */
		uint64_t check;
		/* only in the live table: the token of zns_dev_offer, incremented by each reset and
		 * each offer */
		uint64_t turn;
	};
};
_Static_assert(sizeof(struct emu_entry) == 32, "durable table format");
_Static_assert(sizeof(struct emu_header) == 152, "header format");

struct emu_live_head {
	char boot_id[64];
	/* number of changes so far; separate cache lines, because every write increments it */
	uint64_t change_seq __attribute__((aligned(64)));
	/* value of change_seq up to which all changes are flushed */
	uint64_t durable_seq __attribute__((aligned(64)));
	uint64_t of_tests[8] __attribute__((aligned(64))); /* only used by test/controls; else 0 */
	/* for a store on a disk: its present number of zones, for processes that opened it before a
	 * resize */
	uint32_t nr_zones __attribute__((aligned(64)));
};

#define EMU_CAL_PERIODS 64
struct emu_period {
	uint64_t from, to;
};

/* The calendar of a die, a channel or the controller: when it is busy, in model time, and its
 * counters. */
struct emu_cal {
	uint32_t nr, zero;
	uint64_t floor_ns; /* no operation can start before this time */
	uint64_t busy_ns, written, read;
	struct emu_period busy[EMU_CAL_PERIODS]; /* busy periods in ascending order */
};

#define EMU_MAX_BUFFER_UNITS 4
struct emu_model_zone {
	/* when each of the last units is programmed: unit k is in slot k % buffer_units */
	uint64_t end_ns[EMU_MAX_BUFFER_UNITS];
	uint64_t accept_ns; /* when the last byte was accepted by the buffer */
	uint64_t flush_ns; /* when a flush last programmed an incomplete unit */
	uint32_t units; /* number of full units so far */
	/* bytes of the incomplete unit, and how many of these a flush has programmed */
	uint32_t fill, staged;
	uint32_t zero;
};
_Static_assert(sizeof(struct emu_model_zone) == 64, "one cache line");

struct emu_model {
	uint64_t origin_ns; /* value of CLOCK_MONOTONIC at model time 0 */
	uint64_t clock_ns;
	uint64_t since_gc, stalls;
	/* broken: a process is changing the model, or has died while it did */
	uint32_t broken, zero;
	struct emu_cal controller;
};

/* The write cache. When it is full, the next unit waits for the earliest end time in the heap. */
struct emu_cache {
	struct emu_cal drain;
	uint32_t nr, zero;
	/* a heap with the earliest time first: when each unit in the cache will be programmed */
	uint64_t end_ns[];
};

/* The heat of all dies together. */
struct emu_heat {
	/* bytes: heat, in programmed bytes that have not cooled down yet, at the time at_ns */
	uint64_t bytes, at_ns;
	/* hot: the dies are throttled now; times: how often throttling has begun */
	uint32_t hot, times;
};

struct emu_layout {
	/* offsets; the last four are inside the live area */
	uint64_t live_off, live_len, mirror_off, model_off, cache_off, heat_off;
	uint64_t dur_off, dur_len;
	uint64_t data_off, data_end, log_stride, stride, total;
};

struct emu {
	struct zns_dev dev;
	struct zns_emu_params p;
	struct emu_layout lay;
	uint8_t uuid[ZNS_UUID_LEN];
	bool rdonly; /* the caller opened it for reading only */
	/* there is no write permission, so no locks are taken and nothing is repaired */
	bool fd_rdonly;
	int fd; /* descriptor for I/O through the page cache, and for the locks */
	int dfd; /* descriptor for I/O with O_DIRECT, or -1 */
	int claim_fd; /* descriptor opened with O_EXCL, which claims the block device, or -1 */
	bool is_file; /* the device is in a file, not on a block device */
	atomic_bool direct; /* does O_DIRECT work on dfd? */
	uint32_t dio_mem, dio_off; /* alignment of memory and of file offsets for O_DIRECT */
	void *map;
	size_t map_len;
	struct emu_live_head *head;
	struct emu_entry *live, *mirror;
	struct emu_model *model; /* NULL: timing is off */
	struct emu_model_zone *model_zone;
	/* die_cal: calendars of the first plane of each die, then of the second plane of each die,
	 * and so on */
	struct emu_cal *die_cal, *channel_cal;
	struct emu_cache *cache; /* NULL: there is no cache */
	struct emu_heat *heat; /* NULL: the drive is never throttled */
	const struct emu_clock *clock; /* NULL: the wall clock; see zns_emu_set_clock() */
	uint64_t thread_start_ns, serial;
	uint32_t *die_of_zone;
	pthread_mutex_t stripe[EMU_STRIPES], count_mutex, durable_mutex, model_mutex;
	struct emu_control *control; /* set by a test build; otherwise NULL */
	/*
	 * file_reuse.c: for each zone the part below the write pointer that this handle may write;
	 * NULL: it has none in any zone yet
	 */
	struct file_place *taken;
	/* a sync has failed: from then on it is not known what is on the disk */
	atomic_bool sync_failed;
};

static inline struct emu *emu_of(const struct zns_dev *d)
{
	return (struct emu *)d;
}

static inline uint64_t emu_capacity(const struct emu *e, uint32_t zone)
{
	return zone < e->p.log_zones ? e->p.log_capacity : e->p.zone_capacity;
}

static inline uint32_t emu_block(const struct emu *e, uint32_t zone)
{
	return zone < e->p.log_zones && e->p.log_block ? e->p.log_block : e->p.block_size;
}

/* Offset of the zone's first byte in the file. */
static inline uint64_t emu_zone_pos(const struct emu *e, uint32_t zone)
{
	uint32_t logs = zone < e->p.log_zones ? zone : e->p.log_zones;

	return e->lay.data_off + e->lay.log_stride * logs + e->lay.stride * (zone - logs);
}

/* The number of zones for which the tables have room. Entries above nr_zones have no meaning. */
static inline uint32_t emu_room(const struct emu *e)
{
	return e->p.table_off ? e->p.table_zones : e->p.nr_zones;
}

/* What messages call the device. */
static inline const char *emu_noun(const struct emu *e)
{
	return e->p.log_zones ? "store" : "emulated device";
}

#define emu_load(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define emu_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

static inline uint32_t emu_planes(const struct zns_emu_params *p)
{
	return p->planes ? p->planes : 1;
}

static inline uint32_t emu_zone_dies(const struct zns_emu_params *p)
{
	return p->zone_dies ? p->zone_dies : 1;
}

/* Size of a zone's write buffer in units: each die of the zone adds buffer_units. */
static inline uint32_t emu_buffer_units(const struct zns_emu_params *p)
{
	return zns_min(p->buffer_units * emu_zone_dies(p), (uint32_t)EMU_MAX_BUFFER_UNITS);
}

/* ---- emu_params.c ---- */
int emu_params_check(const struct zns_emu_params *p, struct zns_err *err);
void emu_map_build(const struct zns_emu_params *p, uint32_t *die_of_zone);

/* emu_random.c: its sequence never changes, so that a seed always gives the same result */
uint64_t emu_random(uint64_t *state);

/* ---- emu_header.c ---- */
void emu_layout_of(const struct zns_emu_params *p, struct emu_layout *lay);
int emu_header_write(int fd, const struct zns_emu_params *p, const uint8_t uuid[ZNS_UUID_LEN]);
/* @spec is "emu:PATH" or "file:PATH". The kind of the file must match the prefix. */
int emu_header_read(int fd, const char *spec, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN],
		    struct zns_err *err);
bool emu_header_present(int fd); /* only checks the magic number */

/* emu_create.c: writes zeroes through the page cache; 0 or -errno */
int emu_write_zeroes(int fd, uint64_t pos, uint64_t len);

/* emu_lock.c: locks between processes. These take a descriptor, as they are needed before there is
 * a struct emu */
/* the init lock, held while a device is opened, created or resized */
int emu_lock_init(int fd, bool write, struct zns_err *err);
void emu_unlock_init(int fd);
/* the presence lock: every process that has the device open holds it shared */
int emu_presence_share(int fd, struct zns_err *err);
/* tries to hold it exclusively. 0, or -EBUSY without a change */
int emu_presence_try_alone(int fd);
int emu_presence_wait_alone(int fd); /* like emu_presence_try_alone(), but waits at most 3 s */
/* only to be called by emu_hold.c */
int emu_zone_lock_bare(struct emu *e, uint32_t zone, struct zns_err *err);
void emu_zone_unlock(struct emu *e, uint32_t zone);
/* @zones is ascending, without duplicates */
int emu_zones_lock_bare(struct emu *e, const uint32_t *zones, uint32_t nr, struct zns_err *err);
void emu_zones_unlock(struct emu *e, const uint32_t *zones, uint32_t nr);
int emu_count_lock(struct emu *e, struct zns_err *err);
void emu_count_unlock(struct emu *e);
int emu_durable_lock(struct emu *e, struct zns_err *err);
void emu_durable_unlock(struct emu *e);
int emu_model_lock(struct emu *e, struct zns_err *err);
void emu_model_unlock(struct emu *e);

/* ---- emu_table.c ---- */
struct emu_change {
	uint32_t zone;
	struct emu_entry to;
};
void emu_durable_seal(struct emu_entry *en, uint32_t zone); /* computes the field check */
/* copies the durable table to the live one; no other process may have the device open */
int emu_table_rebuild(struct emu *e, struct zns_err *err);
/* 1: the live table is older than the durable one */
int emu_table_is_stale(struct emu *e, struct zns_err *err);
/* to be called with the zone locked */
int emu_table_heal(struct emu *e, uint32_t zone, struct zns_err *err);
/* sets the live entry to empty, with the generation of the mirror */
void emu_live_reset(struct emu *e, uint32_t zone);
/* Writes entries, syncs, and copies them to the mirror. @ch is ascending; the durable lock must be
 * held. */
int emu_durable_commit(struct emu *e, const struct emu_change *ch, size_t nr, struct zns_err *err);
int emu_sync(struct emu *e, struct zns_err *err);
/* returns the error that follows an earlier failed sync */
int emu_sync_lost(struct emu *e, struct zns_err *err);
bool emu_entry_unflushed(const struct emu_entry *live, const struct emu_entry *mirror);
struct emu_entry emu_entry_snapshot(const struct emu_entry *en);
/* Lists the changes that live has and durable does not have yet, ascending. The caller frees *out.
 * 0 or -ENOMEM. */
int emu_table_unflushed(struct emu *e, struct emu_change **out, size_t *nr);

/* emu_hold.c: locks zones for a change; @zones is ascending, without duplicates. To be unlocked
 * with emu_zone_unlock or emu_zones_unlock. */
int emu_zone_lock(struct emu *e, uint32_t zone, struct zns_err *err);
/* Like emu_zone_lock, but fails if the device may not be written, has no power, or has no such
 * zone. */
int emu_zone_lock_to_change(struct emu *e, uint32_t zone, struct zns_err *err);
int emu_zones_lock(struct emu *e, const uint32_t *zones, uint32_t nr, struct zns_err *err);

/* ---- emu_flush.c ---- */
int emu_flush(struct zns_dev *d, struct zns_err *err);
int emu_flush_zones(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int emu_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		      struct zns_err *err);

/* ---- emu_state.c ---- */
enum zns_zone_state emu_state(const struct emu *e, const struct emu_entry *en);
/* checks that the zone is in range and that the device has power */
int emu_check_zone(struct emu *e, uint32_t zone, struct zns_err *err);
int emu_check_writable(struct emu *e, struct zns_err *err); /* -EBADF: it is not writable */
int emu_zone_refuses(uint32_t zone, enum zns_zone_state st, struct zns_err *err);
int emu_zone_activate(struct emu *e, uint32_t zone, enum zns_zone_state to, struct zns_err *err);

/* ---- emu_zone.c ---- */
int emu_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
	       struct zns_err *err);
int emu_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int emu_scrub(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int emu_open_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int emu_close_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int emu_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err);

/* ---- emu_data.c ---- */
int emu_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
	      struct zns_err *err);
int emu_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
	       struct zns_err *err);
int emu_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
	     struct zns_err *err);
int emu_write_at(struct emu *e, uint32_t zone, uint64_t off, const void *buf, size_t len,
		 uint64_t *at, uint64_t issue, uint64_t *done, struct zns_err *err);
/* @cached: read through the host's page cache; for callers that repeat their reads */
int emu_read_at(struct emu *e, uint32_t zone, uint64_t off, void *buf, size_t len, bool cached,
		uint64_t issue, uint64_t *done, struct zns_err *err);

/* frees the host's blocks above the write pointers of zones, if the file is sparse. @zones is
 * ascending; zones of a log keep their blocks */
void emu_give_back(struct emu *e, const uint32_t *zones, uint32_t nr);

/* ---- emu_race.c ---- */
int emu_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err);
uint64_t emu_now_ns(struct zns_dev *d);

/* file_reuse.c: the part of a zone of a store on a disk that this handle may write below the write
 * pointer */
struct file_place {
	uint64_t start, end, turn;
};
int file_offer(struct zns_dev *d, uint32_t zone, uint64_t *end, uint64_t *turn,
	       struct zns_err *err);
int file_take(struct zns_dev *d, uint32_t zone, uint64_t start, uint64_t end, uint64_t turn,
	      struct zns_err *err);
/* May this handle write there, because it has taken that part and its token is still valid? To be
 * called with the zone locked. */
bool file_has_taken(const struct emu *e, uint32_t zone, uint64_t off, size_t len);

/* file_allocate.c: see zns_dev_allocate */
int file_allocate(struct zns_dev *d, uint32_t first, uint32_t nr);
void file_give_back(struct zns_dev *d, uint32_t first, uint32_t nr);

/* emu_io.c: transfers of any position, length and buffer; with O_DIRECT where possible. 0 or
 * -errno */
void emu_io_open(struct emu *e, const char *path);
int emu_io_write(struct emu *e, uint64_t pos, const void *buf, size_t len);
int emu_io_read(struct emu *e, uint64_t pos, void *buf, size_t len);
int emu_io_read_cached(struct emu *e, uint64_t pos, void *buf, size_t len);
int emu_io_punch(struct emu *e, uint64_t pos, uint64_t len);
/* frees the blocks where possible, unless @keep */
int emu_io_zero(struct emu *e, uint64_t pos, uint64_t len, bool keep);

/* emu_file.c: checks of the host's file, which other programs may change */
/* checks that the file exists and has its full length; -ESTALE: it does not */
int emu_file_whole(struct emu *e, struct zns_err *err);
/* also checks that the path still leads to this file */
int emu_file_ours(struct emu *e, struct zns_err *err);
int emu_file_no_room(struct emu *e, struct zns_err *err); /* returns -EDQUOT with a message */
bool emu_file_is_sparse(const struct emu *e);
/* sets the number of zones that this handle sees */
void emu_set_zones(struct emu *e, uint32_t nr_zones);
void emu_follow(struct zns_dev *d);

/* ---- emu_cal.c ---- */
/* called when a command is issued at @now: if there are many periods, drops those that end
 * before */
void emu_cal_pass(struct emu_cal *c, uint64_t now);
/* returns the start of the booked period, which is @ready or later */
uint64_t emu_cal_book(struct emu_cal *c, uint64_t ready, uint64_t ns);
/* books the same period in all of @nr calendars, which are @step apart */
uint64_t emu_cal_book_all(struct emu_cal *c, uint32_t nr, uint32_t step, uint64_t ready,
			  uint64_t ns);
uint64_t emu_cal_idle_from(const struct emu_cal *c);
void emu_cal_clear(struct emu_cal *c); /* drops all periods, but keeps the counters */

/* ---- emu_cache.c ---- */
uint32_t emu_cache_units(const struct zns_emu_params *p);
/* the earliest time, from @at on, at which the cache has room for one more unit */
uint64_t emu_cache_accept(struct emu *e, uint64_t at);
/* puts a unit into the cache until it is programmed at @end */
void emu_cache_hold(struct emu *e, uint64_t end);
void emu_cache_clear(struct emu *e);

/* ---- emu_heat.c ---- */
void emu_heat_add(struct emu *e, uint64_t bytes); /* records that @bytes were programmed */
/* the present durations in percent of the normal ones */
uint32_t emu_heat_pct(struct emu *e, uint64_t now);
void emu_heat_clear(struct emu *e);

/* emu_model.c: all of these must be called between emu_model_enter and emu_model_leave */
uint64_t emu_cost_ns(uint64_t bytes, uint64_t mibps);
int emu_model_enter(struct emu *e, struct zns_err *err);
/* like emu_model_enter(), but fails if the device has no model */
int emu_model_ask(struct emu *e, struct zns_err *err);
void emu_model_leave(struct emu *e);
void emu_model_idle(struct emu *e); /* to be called after a power cut: drops all booked work */
/* @off: where a read begins; ignored for other operations */
uint64_t emu_model_run(struct emu *e, enum zns_emu_op op, uint32_t zone, uint64_t off,
		       uint64_t bytes, uint64_t issue);

/* emu_timing.c: when a call is issued in model time, when it is complete (0: at once), and the wait
 * until then. With timing off, none of them has an effect. */
uint64_t emu_timing_issue(struct emu *e);
uint64_t emu_timing_book(struct emu *e, enum zns_emu_op op, uint32_t zone, uint64_t off,
			 uint64_t bytes, uint64_t issue);
void emu_timing_wait(struct emu *e, uint64_t done);
bool emu_timing_active(const struct emu *e);
/* to be called when a thread clock may have run ahead of the wall clock: moves the wall clock
 * forward, so that nobody sleeps for that time */
void emu_timing_catch_up(struct emu *e);

/* emu_clock.c: another clock than the wall clock */
struct emu_clock {
	uint64_t (*issue)(struct emu *e);
	void (*wait)(struct emu *e, uint64_t done);
};
uint64_t *emu_thread_clock(struct emu *e); /* the clock of the calling thread */

/* ---- emu_open.c ---- */
/* -EMEDIUMTYPE: @dev is not an emulated device */
int emu_refuse_foreign(const struct zns_dev *dev, struct zns_err *err);
extern const struct zns_dev_ops emu_ops, file_ops;

#endif
