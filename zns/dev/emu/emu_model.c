/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The NAND timing model: books the cost of each command (zns/emu.h) in the calendars of die,
 * channel and controller. It is in the live area, under one lock for all processes. If a process is
 * killed while it holds the lock, `broken` stays set. Then all booked work is dropped (the device
 * looks idle for a moment); the counters stay.
 */
#include <string.h>

#include "emu_priv.h"

#define PAGE KIB(16) /* bytes that a die reads in one operation */

uint64_t emu_cost_ns(uint64_t bytes, uint64_t mibps)
{
	return (unsigned __int128)bytes * 1000000000u / (mibps << 20);
}

/* The resources that a unit of a zone uses: its die and channel. With a shared map the whole device
 * has one of each. */
struct lane {
	struct emu_cal *die, *plane, *channel;
	/* planes of the die, and the distance of their calendars in the array */
	uint32_t planes, step;
	uint64_t write_mibps, read_mibps, channel_mibps;
	uint32_t pct; /* the die's times in percent of the normal ones */
};

static struct lane lane_of(struct emu *e, uint32_t zone, uint64_t unit, uint64_t now)
{
	bool wide = e->p.map == ZNS_EMU_MAP_SHARED;
	uint32_t all = e->p.channels * e->p.ways, planes = emu_planes(&e->p), dies = wide ? all : 1,
		 die = (e->die_of_zone[zone] + (uint32_t)(unit % emu_zone_dies(&e->p))) % all;
	struct lane l = {
		.die = &e->die_cal[die],
		.plane = &e->die_cal[die + (size_t)all * (zone / all % planes)],
		.planes = planes,
		.step = all,
		.pct = (die < e->p.odd_dies && !wide ? e->p.odd_pct : 100) * emu_heat_pct(e, now) /
		       100,
		.channel = &e->channel_cal[die % e->p.channels],
		.write_mibps = (uint64_t)e->p.die_write_mibps * dies,
		.read_mibps = (uint64_t)e->p.die_read_mibps * dies,
		.channel_mibps = (uint64_t)e->p.channel_mibps * (wide ? e->p.channels : 1),
	};

	for (uint32_t i = 0; i < planes; i++)
		emu_cal_pass(l.die + (size_t)i * all, now);
	emu_cal_pass(l.channel, now);
	emu_cal_pass(&e->model->controller, now);
	return l;
}

/* Books a program or an erase, which occupies all planes of the die. */
static uint64_t book_die(const struct lane *l, uint64_t ready, uint64_t ns)
{
	return emu_cal_book_all(l->die, l->planes, l->step, ready, ns);
}

static uint64_t die_cost_ns(const struct lane *l, uint64_t bytes, uint64_t mibps)
{
	return emu_cost_ns(bytes, mibps) * l->pct / 100;
}

void emu_model_idle(struct emu *e)
{
	if (!e->model)
		return;
	for (uint32_t i = 0; i < e->p.channels * e->p.ways * emu_planes(&e->p); i++)
		emu_cal_clear(&e->die_cal[i]);
	for (uint32_t i = 0; i < e->p.channels; i++)
		emu_cal_clear(&e->channel_cal[i]);
	emu_cal_clear(&e->model->controller);
	emu_cache_clear(e);
	emu_heat_clear(e);
	memset(e->model_zone, 0, e->p.nr_zones * sizeof(*e->model_zone));
}

int emu_model_enter(struct emu *e, struct zns_err *err)
{
	int ret = emu_model_lock(e, err);

	if (ret)
		return ret;
	if (e->model->broken)
		emu_model_idle(e);
	emu_store(&e->model->broken, 1);
	return 0;
}

int emu_model_ask(struct emu *e, struct zns_err *err)
{
	if (e->fd_rdonly)
		return zns_fail(
			err, -EBADF,
			"%s is open for reading only, but its timing model needs write access",
			e->dev.path);
	if (!e->model)
		return zns_fail(err, -EINVAL, "%s has no timing model: create it with --timing on",
				e->dev.path);
	return emu_model_enter(e, err);
}

void emu_model_leave(struct emu *e)
{
	emu_store(&e->model->broken, 0);
	emu_model_unlock(e);
}

/* Books the second of two resources that data pass through page by page. It must not start before
 * its first page is there, and must not end before it has processed the last page. */
static uint64_t follow(struct emu_cal *next, uint64_t start, uint64_t end, uint64_t ns,
		       uint64_t first, uint64_t last)
{
	uint64_t ready = start + first;

	if (end + last > ready + ns)
		ready = end + last - ns;
	return emu_cal_book(next, ready, ns) + ns;
}

/* Moves data through the controller, if there is one, then books the garbage collection that it
 * causes. */
static uint64_t through_controller(struct emu *e, uint64_t at, uint64_t bytes, bool write)
{
	struct emu_cal *c = &e->model->controller;
	uint64_t ns, end;

	if (!e->p.controller_mibps)
		return at;
	ns = emu_cost_ns(bytes, e->p.controller_mibps);
	end = emu_cal_book(c, at, ns) + ns;
	*(write ? &c->written : &c->read) += bytes;
	if (!write || !e->p.gc_every_mib)
		return end;
	e->model->since_gc += bytes;
	for (; e->model->since_gc >= MIB(e->p.gc_every_mib);
	     e->model->since_gc -= MIB(e->p.gc_every_mib)) {
		emu_cal_book(c, end, e->p.gc_stall_ms * UINT64_C(1000000));
		e->model->stalls++;
	}
	return end;
}

/* Transfers one unit over the channel and programs it on the die. A unit in the write cache is
 * transferred when the die can take it, and does not use the channel before that. */
static uint64_t program(struct emu *e, const struct lane *l, uint64_t ready, uint64_t bytes)
{
	uint64_t move = emu_cost_ns(bytes, l->channel_mibps);
	uint64_t ns = emu_noise(e, die_cost_ns(l, e->p.program_unit, l->write_mibps));

	if (e->cache && e->p.cache_mibps) {
		uint64_t out = emu_cost_ns(bytes, e->p.cache_mibps);

		emu_cal_pass(&e->cache->drain, ready);
		ready = emu_cal_book(&e->cache->drain, ready, out) + out;
	}
	if (e->cache) {
		uint64_t idle = emu_cal_idle_from(l->die);

		ready = zns_max(ready, idle - zns_min(idle, move));
	}
	ready = emu_cal_book(l->channel, ready, move) + move;
	l->channel->written += bytes;
	l->die->written += e->p.program_unit;
	emu_heat_add(e, e->p.program_unit);
	return book_die(l, ready, ns) + ns;
}

/* The time when all full units of a zone are on the medium. */
static uint64_t programmed(const struct emu *e, const struct emu_model_zone *z)
{
	uint64_t end = z->accept_ns;

	for (uint32_t i = 0; i < emu_buffer_units(&e->p); i++)
		end = zns_max(end, z->end_ns[i]);
	return end;
}

static uint64_t do_write(struct emu *e, uint32_t zone, uint64_t bytes, uint64_t at)
{
	struct emu_model_zone *z = &e->model_zone[zone];
	uint64_t accept = through_controller(e, at, bytes, true);

	accept = zns_max(accept, z->accept_ns);
	while (bytes) {
		uint64_t *slot = &z->end_ns[z->units % emu_buffer_units(&e->p)], take;
		struct lane l = lane_of(e, zone, z->units, at);

		/* the previous unit in this slot must be on the medium before the first byte of
		 * this one is accepted */
		if (!e->cache)
			accept = zns_max(accept, *slot);
		take = zns_min(bytes, e->p.program_unit - z->fill);
		bytes -= take;
		z->fill += take;
		if (z->fill < e->p.program_unit)
			continue;
		if (e->cache)
			accept = emu_cache_accept(e, accept);
		*slot = program(e, &l, accept, e->p.program_unit);
		if (e->cache)
			emu_cache_hold(e, *slot);
		z->units++;
		z->fill = z->staged = 0;
	}
	z->accept_ns = accept;
	return accept;
}

static uint64_t read_die(struct emu *e, uint32_t zone, uint64_t unit, uint64_t bytes, uint64_t at)
{
	struct lane l = lane_of(e, zone, unit, at);
	uint64_t pages = zns_align_up(bytes, PAGE), first = zns_min(bytes, PAGE);
	uint64_t sense = emu_noise(e, die_cost_ns(&l, pages, l.read_mibps)),
		 move = emu_cost_ns(bytes, l.channel_mibps), start, end;

	start = emu_cal_book(l.plane, at, sense);
	end = follow(l.channel, start, start + sense, move, die_cost_ns(&l, PAGE, l.read_mibps),
		     emu_cost_ns(first, l.channel_mibps));
	l.die->read += pages;
	l.channel->read += bytes;
	return end;
}

static uint64_t do_read(struct emu *e, uint32_t zone, uint64_t off, uint64_t bytes, uint64_t at)
{
	uint64_t end = at, all = bytes;

	if (!bytes)
		return at;
	/*
	 * if the last unit of the zone is still in the cache, all reads of the zone count as served
	 * from the cache
	 */
	if (e->cache && programmed(e, &e->model_zone[zone]) > at)
		return through_controller(e, at, bytes, false);
	while (bytes) {
		uint64_t unit = off / e->p.program_unit, take = bytes, done;

		if (e->p.zone_dies)
			take = zns_min(bytes, (unit + 1) * e->p.program_unit - off);
		done = read_die(e, zone, unit, take, at);
		end = zns_max(end, done);
		off += take;
		bytes -= take;
	}
	return through_controller(e, end, all, false);
}

static uint64_t do_flush_zone(struct emu *e, uint32_t zone, uint64_t at)
{
	struct emu_model_zone *z = &e->model_zone[zone];
	struct lane l = lane_of(e, zone, z->units, at);
	uint64_t done = programmed(e, z);

	if (e->cache && e->p.cache_backed)
		return zns_max(z->accept_ns, at);
	done = zns_max(done, at);

	if (z->fill > z->staged) {
		uint64_t end = program(e, &l, zns_max(at, z->accept_ns), z->fill - z->staged);

		z->staged = z->fill;
		z->flush_ns = end;
	}
	return zns_max(done, z->flush_ns);
}

static uint64_t do_flush(struct emu *e, uint64_t at)
{
	uint64_t done = at;

	for (uint32_t z = 0; z < e->p.nr_zones; z++) {
		uint64_t end = do_flush_zone(e, z, at);

		done = zns_max(done, end);
	}
	return done;
}

/* Pads the rest of a zone; each of the zone's dies gets an equal part of the padding. */
static uint64_t do_finish(struct emu *e, uint32_t zone, uint64_t bytes, uint64_t at)
{
	struct emu_model_zone *z = &e->model_zone[zone];
	struct lane l = lane_of(e, zone, z->units, at);
	uint64_t ready = programmed(e, z), move = emu_cost_ns(z->fill, l.channel_mibps), total,
		 end = 0;
	uint32_t n = emu_zone_dies(&e->p), first = z->units;

	ready = zns_max(ready, at);
	total = zns_align_up(z->fill + bytes, e->p.program_unit);
	ready = emu_cal_book(l.channel, ready, move) + move;
	l.channel->written += z->fill;
	l.die->written += total;
	/* A flush need not wait for padding, since the data are durable. A reset must wait, since
	 * the die is busy until then. */
	memset(z, 0, sizeof(*z));
	for (uint32_t i = 0; i < n; i++) {
		struct lane one = lane_of(e, zone, first + i, at);
		uint64_t ns = die_cost_ns(&one, total / n, one.write_mibps),
			 done = book_die(&one, ready, ns) + ns;

		end = zns_max(end, done);
	}
	return end;
}

static uint64_t do_reset(struct emu *e, uint32_t zone, uint64_t bytes, uint64_t at)
{
	struct emu_model_zone *z = &e->model_zone[zone];
	uint64_t ready = programmed(e, z), ns = bytes ? e->p.reset_us * UINT64_C(1000) : 0;

	ready = zns_max(ready, at);
	memset(z, 0, sizeof(*z));
	for (uint32_t i = 0; i < emu_zone_dies(&e->p); i++) {
		struct lane l = lane_of(e, zone, i, at);
		uint64_t end = book_die(&l, ready, ns) + ns;

		if (bytes)
			emu_noise_erase(e, l.die, end);
		z->accept_ns = zns_max(z->accept_ns, end);
	}
	return z->accept_ns;
}

uint64_t emu_model_run(struct emu *e, enum zns_emu_op op, uint32_t zone, uint64_t off,
		       uint64_t bytes, uint64_t issue)
{
	uint64_t at = issue + emu_noise_command(e, e->p.command_us * UINT64_C(1000)), done = 0;

	if (op != ZNS_EMU_OP_FLUSH && e->model_zone[zone].fill >= e->p.program_unit)
		e->model_zone[zone].fill = 0; /* another process has damaged the shared memory */
	emu_noise_collect(e, at);
	switch (op) {
	case ZNS_EMU_OP_WRITE:
		done = do_write(e, zone, bytes, at);
		break;
	case ZNS_EMU_OP_READ:
		done = do_read(e, zone, off, bytes, at);
		break;
	case ZNS_EMU_OP_RESET:
		done = do_reset(e, zone, bytes, at);
		break;
	case ZNS_EMU_OP_FINISH:
		done = do_finish(e, zone, bytes, at);
		break;
	case ZNS_EMU_OP_FLUSH_ZONE:
		done = do_flush_zone(e, zone, at);
		break;
	case ZNS_EMU_OP_FLUSH:
		done = do_flush(e, at);
		break;
	}
	done = emu_noise_seen(e, done);
	e->model->clock_ns = zns_max(e->model->clock_ns, done);
	return done;
}
