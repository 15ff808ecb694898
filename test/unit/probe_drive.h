/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_PROBE_DRIVE_H
#define TEST_PROBE_DRIVE_H
/*
 * A drive in memory that has nothing in common with the emulator's model: commands issued at the
 * same time arrive in any order, each die has one queue, two dies of a channel slow each other's
 * long reads by a factor, times are noisy. Reads and writes may conflict by different maps. No
 * data: reads give zeroes.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "zns/dev.h"
#include "zns/util.h"

#define DRIVE_ZONES 600u
#define DRIVE_DIES 64u

struct drive {
	struct zns_dev dev;
	uint32_t dies, channels, read_die[DRIVE_ZONES], write_die[DRIVE_ZONES];
	bool wanders; /* each write goes to a random die */
	uint32_t
		quick; /* a zone's number plus 1: its writes take 0.8 of the others' time; 0: none */
	bool odd_slow; /* a write to a zone with an odd number takes half as long again */
	/* Stripes of 192 KiB of a zone go in turn to this many dies, beginning with the zone's
	 * die. Zones in one of @rows share their dies. */
	uint32_t stripe;
	bool rows;
	/* in every other period of this length all operations take twice as long */
	uint64_t hot_ns;
	double channel_factor; /* factor for a long read beside another one on the channel */
	uint32_t noise_pct, stall_every;
	uint32_t race_pct; /* the writes of a race all take up to this much longer or shorter */
	uint32_t race_per_mille; /* the same, as drawn for the present race */
	uint32_t unreadable; /* the first so many zones cannot be read */
	/* until then the host does not run for about @host_ns in each @host_every: it sees what is
	 * done when that is over */
	uint64_t host_every, host_ns, host_until;
	/* for the next this many times, these two dies take @slow_factor as long when whole
	 * units of both are read at once */
	uint32_t slow_die[2], slow_left;
	double slow_factor;
	enum zns_zone_state state[DRIVE_ZONES];
	uint64_t wp[DRIVE_ZONES], ends[DRIVE_ZONES][2], units[DRIVE_ZONES];
	uint64_t now, busy[DRIVE_DIES], seed;
	/* counts of what the prober did */
	uint64_t written, resets, finishes;
	uint32_t active_max;
	/* set to 1 in the race with this number from now on; 0: never */
	volatile sig_atomic_t *stop;
	uint32_t stop_in;
};

static inline struct drive *drive_of(struct zns_dev *d)
{
	return (struct drive *)d;
}

static inline uint64_t drive_random(struct drive *v)
{
	v->seed = v->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return v->seed >> 33;
}

static inline uint64_t drive_noise(struct drive *v, uint64_t ns)
{
	if (v->noise_pct)
		ns = ns * (1000 - 10 * v->noise_pct + drive_random(v) % (20 * v->noise_pct)) / 1000;
	if (v->stall_every && !(drive_random(v) % v->stall_every))
		ns += 4000000;
	return ns;
}

static inline uint64_t drive_seen(const struct drive *v, uint64_t done)
{
	uint64_t k, from;

	if (!v->host_every || done >= v->host_until)
		return done;
	k = done / v->host_every;
	from = k * v->host_every + zns_hash(&k, sizeof(k)) % (v->host_every - v->host_ns + 1);
	return done >= from && done < from + v->host_ns ? from + v->host_ns : done;
}

static int drive_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
			struct zns_err *err)
{
	for (uint32_t i = 0; i < nr; i++)
		out[i] = (struct zns_zone){ .index = first + i,
					    .state = drive_of(d)->state[first + i],
					    .wp = drive_of(d)->wp[first + i],
					    .capacity = d->geo.zone_capacity };
	return 0;
}

static int drive_accept(struct drive *v, uint32_t zone, uint64_t off, uint64_t len,
			struct zns_err *err)
{
	uint32_t active = 0;

	if (off != v->wp[zone] || off + len > v->dev.geo.zone_capacity)
		return zns_fail(err, -EIO, "zone %u: write at %llu, write pointer %llu", zone,
				(unsigned long long)off, (unsigned long long)v->wp[zone]);
	for (uint32_t z = 0; z < v->dev.geo.nr_zones; z++)
		active += z != zone && zns_zone_is_active(v->state[z]);
	if (v->dev.geo.max_active && active >= v->dev.geo.max_active)
		return zns_fail(err, -EOVERFLOW, "too many active zones");
	v->active_max = zns_max(v->active_max, active + 1);
	v->state[zone] = ZNS_ZONE_IMP_OPEN;
	v->wp[zone] += len;
	v->written += len;
	return 0;
}

static uint32_t drive_die(struct drive *v, uint32_t die, uint64_t off)
{
	uint32_t at = v->stripe ? off / KIB(192) % v->stripe : 0;

	return v->rows ? die / v->stripe * v->stripe + (die + at) % v->stripe :
			 (die + at) % v->dies;
}

static uint64_t drive_hot(const struct drive *v, uint64_t at, uint64_t ns)
{
	return v->hot_ns && at / v->hot_ns % 2 ? 2 * ns : ns;
}

static bool drive_beside(struct drive *v, const struct zns_race *r, uint32_t nr, uint32_t i)
{
	uint32_t die = v->read_die[r[i].zone];

	for (uint32_t k = 0; k < nr; k++)
		if (v->read_die[r[k].zone] != die &&
		    v->read_die[r[k].zone] % v->channels == die % v->channels)
			return true;
	return false;
}

static bool drive_is_slow_pair(const struct drive *v, const struct zns_race *r, uint32_t nr)
{
	uint32_t a, b;

	if (nr != 2 || r[0].write || r[1].write || zns_min(r[0].len, r[1].len) <= KIB(32))
		return false;
	a = v->read_die[r[0].zone];
	b = v->read_die[r[1].zone];
	return (a == v->slow_die[0] && b == v->slow_die[1]) ||
	       (a == v->slow_die[1] && b == v->slow_die[0]);
}

static int drive_one(struct drive *v, const struct zns_race *r, uint32_t nr, uint32_t i,
		     uint64_t off, uint64_t *due, struct zns_err *err)
{
	uint32_t z = r[i].zone;
	uint64_t *busy = &v->busy[!r[i].write ? drive_die(v, v->read_die[z], off) :
				  v->wanders  ? drive_random(v) % v->dies :
						drive_die(v, v->write_die[z], off)],
		 ns, *slot;
	int rc;

	if (!r[i].write) {
		if (off + r[i].len > v->wp[z])
			return zns_fail(err, -ENODATA, "zone %u: read beyond the write pointer", z);
		memset(r[i].buf, 0, r[i].len);
		ns = 45000 + (uint64_t)r[i].len * 2;
		if (r[i].len > KIB(32) && drive_beside(v, r, nr, i))
			ns *= v->channel_factor;
		if (v->slow_left && drive_is_slow_pair(v, r, nr))
			ns *= v->slow_factor;
		*busy = zns_max(*busy, *due);
		*busy += drive_hot(v, *busy, drive_noise(v, ns));
		*due = *busy + 9000;
		return 0;
	}
	rc = drive_accept(v, z, off, r[i].len, err);
	if (rc)
		return rc;
	slot = &v->ends[z][v->units[z]++ % 2];
	*due = zns_max(*due, *slot) + 9000;
	*busy = zns_max(*busy, *due);
	ns = r[i].len * UINT64_C(10);
	if (v->odd_slow && z % 2)
		ns += ns / 2;
	if (z + 1 == v->quick)
		ns = ns * 4 / 5;
	if (v->race_pct)
		ns = ns * v->race_per_mille / 1000;
	*busy += drive_hot(v, *busy, drive_noise(v, ns));
	*slot = *busy;
	return 0;
}

static int drive_race(struct zns_dev *d, const struct zns_race *r, uint32_t nr, struct zns_err *err)
{
	struct drive *v = drive_of(d);
	cleanup_free uint64_t *due = calloc(nr, sizeof(*due));
	cleanup_free uint32_t *done = calloc(nr, sizeof(*done));
	uint64_t end = v->now;
	int rc = 0;

	if (v->stop_in && !--v->stop_in)
		*v->stop = 1;
	if (!due || !done)
		return -ENOMEM;
	if (v->race_pct)
		v->race_per_mille = 1000 - 10 * v->race_pct + drive_random(v) % (20 * v->race_pct);
	for (uint32_t i = 0; i < nr; i++)
		if (!r[i].write && r[i].zone < v->unreadable)
			return zns_fail(err, -EIO, "zone %u cannot be read", r[i].zone);
	for (uint32_t i = 0; i < nr; i++)
		due[i] = v->now + drive_random(v) % 15000; /* threads start in any order */
	while (!rc) {
		uint32_t next = nr;

		for (uint32_t i = 0; i < nr; i++)
			if (done[i] < r[i].count && (next == nr || due[i] < due[next]))
				next = i;
		if (next == nr)
			break;
		rc = drive_one(v, r, nr, next,
			       r[next].off + (uint64_t)done[next] *
						     (r[next].step ? r[next].step : r[next].len),
			       &due[next], err);
		due[next] = drive_seen(v, due[next]);
		r[next].done_ns[done[next]++] = due[next] - v->now;
		end = zns_max(end, due[next]);
	}
	v->now = end;
	v->slow_left -= v->slow_left && drive_is_slow_pair(v, r, nr);
	return rc;
}

static int drive_alone(struct zns_dev *d, bool write, uint32_t zone, uint64_t off, void *buf,
		       size_t len, struct zns_err *err)
{
	uint64_t done;
	struct zns_race r = { .write = write,
			      .zone = zone,
			      .off = off,
			      .len = len,
			      .count = 1,
			      .buf = buf,
			      .done_ns = &done };

	return drive_race(d, &r, 1, err);
}

static int drive_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		       struct zns_err *err)
{
	return drive_alone(d, true, zone, off, (void *)buf, len, err);
}

static int drive_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
		      struct zns_err *err)
{
	return drive_alone(d, false, zone, off, buf, len, err);
}

static int drive_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err)
{
	struct drive *v = drive_of(d);

	for (uint32_t i = 0; i < nr; i++) {
		v->wp[zones[i]] = 0;
		v->state[zones[i]] = ZNS_ZONE_EMPTY;
		memset(v->ends[zones[i]], 0, sizeof(v->ends[0]));
		v->resets++;
	}
	return 0;
}

static int drive_open_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	return drive_accept(drive_of(d), zone, drive_of(d)->wp[zone], 0, err);
}

static int drive_close_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	drive_of(d)->state[zone] = drive_of(d)->wp[zone] ? ZNS_ZONE_CLOSED : ZNS_ZONE_EMPTY;
	return 0;
}

static int drive_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err)
{
	drive_of(d)->finishes++;
	drive_of(d)->state[zone] = ZNS_ZONE_FULL;
	return 0;
}

static int drive_flush(struct zns_dev *d, struct zns_err *err)
{
	struct drive *v = drive_of(d);

	for (uint32_t i = 0; i < DRIVE_DIES; i++)
		v->now = zns_max(v->now, v->busy[i]);
	return 0;
}

static uint64_t drive_now(struct zns_dev *d)
{
	return drive_of(d)->now;
}

static void drive_close(struct zns_dev *d)
{
	free(d);
}

/* @map: die of each zone, for reads and for writes; the caller may change write_die afterwards. */
static inline struct drive *drive_new(uint32_t zones, uint32_t dies, uint32_t channels,
				      uint32_t max_active, uint64_t seed)
{
	static const struct zns_dev_ops ops = {
		.name = "drive",
		.report = drive_report,
		.write = drive_write,
		.read = drive_read,
		.reset = drive_reset,
		.open_zone = drive_open_zone,
		.close_zone = drive_close_zone,
		.finish = drive_finish,
		.flush = drive_flush,
		.close = drive_close,
		.race = drive_race,
		.now_ns = drive_now,
	};
	struct drive *v = calloc(1, sizeof(*v));

	if (!v)
		abort();
	v->dev.ops = &ops;
	v->dev.geo = (struct zns_geometry){ .nr_zones = zones,
					    .block_size = 4096,
					    .zone_size = MIB(32),
					    .zone_capacity = MIB(24),
					    .max_open = max_active,
					    .max_active = max_active,
					    .max_io_bytes = MIB(1),
					    .mem_align = 4096 };
	v->dies = dies;
	v->channels = channels;
	v->channel_factor = 1.23;
	v->seed = seed;
	/* unbalanced and in no order */
	for (uint32_t z = 0; z < zones; z++)
		v->read_die[z] = v->write_die[z] = z < dies ? z : drive_random(v) % dies;
	return v;
}

#endif
