/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timing model of the emulated device against its own parameters, in model time: every figure
 * is exact, and nothing sleeps. Four dies on two channels; zone z is on die z % 4, die d on channel
 * d % 2.
 */
#include "emu_timed.h"
#include "../bench/emu_drive.h"

#define PAGE_X UINT64_C(19531) /* 16 KiB over that */
#define RESET UINT64_C(3000000)

static struct zns_emu_load load_of(struct zns_dev *d, enum zns_emu_unit unit, uint32_t nr)
{
	struct zns_emu_load l;

	assert_ok(zns_emu_model_load(d, unit, nr, &l, &err));
	return l;
}

static struct client writer(uint32_t zone, uint64_t units)
{
	return (struct client){ .op = ZNS_EMU_OP_WRITE,
				.zone = zone,
				.size = UNIT,
				.total = units * UNIT,
				.depth = 1 };
}

static struct client reader(uint32_t zone, uint64_t commands)
{
	return (struct client){ .op = ZNS_EMU_OP_READ,
				.zone = zone,
				.size = KIB(256),
				.total = commands * KIB(256),
				.depth = 2 };
}

/* ---- writes
 * ---------------------------------------------------------------------------------------- */

static void one_writer(void **state)
{
	struct zns_dev *d = make_timed();
	struct zns_emu_load l;
	uint64_t t = 0, clock;

	/* two fit into the buffer at once; from then on one is answered when one is programmed */
	for (uint64_t k = 1; k <= 50; k++) {
		t = ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, t);
		assert_int_equal(t, k <= 2 ? k * C : C + X + (k - 2) * PROG);
	}
	assert_ok(zns_emu_model_clock(d, &clock, &err));
	assert_int_equal(clock, t);
	l = load_of(d, ZNS_EMU_DIE, 0);
	assert_int_equal(l.busy_ns, 50 * PROG);
	assert_int_equal(l.idle_from_ns, C + X + 50 * PROG); /* it was never idle: 100 MiB/s */
	assert_int_equal(l.written, 50 * UNIT);
	assert_int_equal(l.read, 0);
	l = load_of(d, ZNS_EMU_CHANNEL, 0);
	assert_int_equal(l.busy_ns, 50 * X);
	assert_int_equal(l.written, 50 * UNIT);
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 1).busy_ns, 0);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 2).busy_ns, 0);
	zns_dev_close(d);
}

/* The size of the commands does not matter, nor how many are in flight. */
static void any_size_of_command(void **state)
{
	static const uint64_t size[] = { KIB(4),   KIB(64), KIB(100), KIB(192),
					 KIB(256), MIB(1),  MIB(24) };
	struct zns_dev *d = make_timed();

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(size); i++) {
		for (unsigned depth = 1; depth <= 4; depth += 3) {
			struct client c = writer(0, 128);
			uint64_t start;

			assert_ok(zns_emu_power_cut(d, &err));
			assert_ok(zns_emu_model_clock(d, &start, &err));
			c.size = size[i];
			c.depth = depth;
			drive(d, &c, 1, start);
			/* the first unit may take several commands until it is full */
			assert_in_range(c.done_ns - start, C + X + 128 * PROG,
					C * (1 + (UNIT - 1) / size[i]) + X + 128 * PROG);
		}
	}
	zns_dev_close(d);
}

static void two_writers_on_one_die(void **state)
{
	struct zns_dev *d = make_timed();
	struct client c[2] = { writer(0, 60), writer(4, 60) };

	drive(d, c, 2, 0);
	/* units alternate: A's k-th ends at C + X + (2k - 1) PROG, B's a unit later; answered two
	 * units ahead */
	assert_int_equal(c[0].answered_ns, C + X + (2 * 58 - 1) * PROG);
	assert_int_equal(c[1].answered_ns, C + X + 2 * 58 * PROG);
	/* each half */
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns, C + X + 120 * PROG);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).busy_ns, 120 * PROG);
	zns_dev_close(d);
}

static void many_writers_on_one_die(void **state)
{
	struct zns_dev *d = make_timed();
	struct client c[4] = { writer(0, 40), writer(4, 40), writer(8, 40), writer(12, 40) };

	drive(d, c, 4, 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(c[i].answered_ns, C + X + (4 * 37 + i + 1) * PROG);
	zns_dev_close(d);
}

static void two_writers_on_one_channel(void **state)
{
	struct zns_dev *d = make_timed();
	struct client c[2] = { writer(0, 60), writer(2, 60) };

	drive(d, c, 2, 0);
	/* 200 of 800 MiB/s: only the very first unit of the second waits for the channel */
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns, C + X + 60 * PROG);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 2).idle_from_ns, C + 2 * X + 60 * PROG);
	zns_dev_close(d);
}

static void channel_bound(void **state)
{
	struct zns_emu_params p = timed();
	uint64_t x = UNIT * 1000000000 / MIB(150);
	struct client c[2] = { writer(0, 60), writer(2, 60) };
	struct zns_dev *d;

	p.channel_mibps = 150;
	d = make_dev(&p);
	drive(d, c, 2, 0);
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 0).busy_ns, 120 * x);
	/* never idle: 75 MiB/s each */
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 0).idle_from_ns, C + 120 * x);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 2).idle_from_ns, C + 120 * x + PROG);
	assert_in_range(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns, C + 118 * x + PROG,
			C + 119 * x + PROG);
	/* alone, one is bound by its die still */
	assert_ok(zns_emu_power_cut(d, &err));
	c[0] = writer(1, 60);
	drive(d, c, 1, ms(1000));
	assert_int_equal(c[0].done_ns - ms(1000), C + x + 60 * PROG);
	zns_dev_close(d);
}

static void one_writer_per_die(void **state)
{
	struct zns_dev *d = make_timed();
	struct client c[4] = { writer(0, 60), writer(1, 60), writer(2, 60), writer(3, 60) };

	drive(d, c, 4, 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(load_of(d, ZNS_EMU_DIE, i).idle_from_ns,
				 C + (i < 2 ? 1 : 2) * X + 60 * PROG);
	zns_dev_close(d);
}

static void buffer_answers_early(void **state)
{
	struct zns_dev *d = make_timed();

	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT, 0), C);
	/* full: waits for the first unit */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 4096, C), C + X + PROG);
	/* another zone has its own buffer */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 4, UNIT, C), 2 * C);
	/* long idle: the whole room again except 4 KiB */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT - 4096, ms(100)), ms(100) + C);
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 4096, ms(100) + C), ms(100) + C + X + PROG);
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 0, ms(500)), ms(500) + C);
	zns_dev_close(d);
}

/* One unit of buffer cannot be filled while it is programmed; three and four are no faster than
 * two. */
static void other_buffers(void **state)
{
	for (uint32_t units = 1; units <= 4; units++) {
		struct zns_emu_params p = timed();
		struct client c = writer(0, 50);
		struct zns_dev *d;

		p.buffer_units = units;
		assert_ok(zns_emu_create(dev_path, &p, true, &err));
		d = open_dev();
		assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 1, units * UNIT, 0), C);
		drive(d, &c, 1, 0);
		assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns,
				 units == 1 ? C + 50 * (X + PROG) : C + X + 50 * PROG);
		zns_dev_close(d);
	}
}

/* ---- reads
 * ----------------------------------------------------------------------------------------- */

static void one_reader(void **state)
{
	struct zns_dev *d = make_timed();
	struct client c = reader(0, 100);
	uint64_t sense = 625000, page = 39062;

	/* alone: the die's time and one page over the channel */
	assert_int_equal(ask(d, ZNS_EMU_OP_READ, 1, KIB(256), 0), C + sense + PAGE_X);
	/* a whole page is sensed */
	assert_int_equal(ask(d, ZNS_EMU_OP_READ, 1, 4096, ms(10)), ms(10) + C + page + 4882);
	drive(d, &c, 1, ms(20));
	/* never idle: 400 MiB/s */
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns, ms(20) + C + 100 * sense);
	assert_int_equal(c.answered_ns, ms(20) + C + 100 * sense + PAGE_X);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).read, MIB(25));
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 1).read, KIB(272));
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 1).read, KIB(260));
	zns_dev_close(d);
}

static void several_readers(void **state)
{
	uint64_t sense = 625000, move = 312500, slow = KIB(256) * 1000000000 / MIB(300);
	struct client same[2] = { reader(0, 100), reader(4, 100) },
		      both[2] = { reader(0, 100), reader(2, 100) }, all[4];
	struct zns_emu_params p = timed();
	struct zns_dev *d = make_dev(&p);

	drive(d, same, 2, 0);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns, C + 200 * sense); /* half each */
	assert_in_range(same[0].answered_ns, C + 198 * sense, C + 200 * sense);
	assert_int_equal(same[1].answered_ns, C + 200 * sense + PAGE_X);
	/* two of 400 MiB/s fill a channel of 800 exactly */
	drive(d, both, 2, ms(1000));
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 0).busy_ns, 400 * move);
	for (unsigned i = 0; i < 2; i++)
		assert_in_range(both[i].answered_ns - ms(1000), C + 100 * sense, C + 101 * sense);
	for (unsigned i = 0; i < 4; i++)
		all[i] = reader(i, 100);
	drive(d, all, 4, ms(2000));
	for (unsigned i = 0; i < 4; i++)
		assert_in_range(all[i].answered_ns - ms(2000), C + 100 * sense, C + 101 * sense);
	zns_dev_close(d);
	/* channel-bound: 300 MiB/s for two */
	p.channel_mibps = 300;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	d = open_dev();
	both[0] = reader(0, 100);
	both[1] = reader(2, 100);
	drive(d, both, 2, 0);
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 0).idle_from_ns -
				 load_of(d, ZNS_EMU_CHANNEL, 0).busy_ns,
			 C + 39062);
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 0).busy_ns, 200 * slow);
	zns_dev_close(d);
}

static void readers_and_writers_share(void **state)
{
	struct zns_dev *d = make_timed();
	struct client c[2] = { writer(0, 40), reader(4, 40) };

	drive(d, c, 2, 0);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).busy_ns, 40 * PROG + 40 * 625000);
	/* a read waits behind the units that were there before it */
	assert_ok(zns_emu_power_cut(d, &err));
	ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT, ms(1000));
	assert_int_equal(ask(d, ZNS_EMU_OP_READ, 4, KIB(256), ms(1000)),
			 ms(1000) + C + X + 2 * PROG + 625000 + PAGE_X);
	zns_dev_close(d);
}

/* ---- management commands
 * --------------------------------------------------------------------------- */

static void resets(void **state)
{
	struct zns_dev *d = make_timed();

	assert_int_equal(ask(d, ZNS_EMU_OP_RESET, 0, 0, 0), C); /* nothing in it */
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).busy_ns, 0);
	assert_int_equal(ask(d, ZNS_EMU_OP_RESET, 0, 4096, 0), C + RESET);
	assert_int_equal(ask(d, ZNS_EMU_OP_RESET, 4, 4096, 0), C + 2 * RESET); /* on the same die */
	assert_int_equal(ask(d, ZNS_EMU_OP_RESET, 1, 4096, 0), C + RESET); /* another */
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).busy_ns, 2 * RESET);
	/* a write beside it is taken in at once, and its unit waits */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 8, 2 * UNIT, 0), C);
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 8, UNIT, 0), C + 2 * RESET + PROG);
	/* a reset waits for the zone's own programs; what was buffered is gone with it */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 3, UNIT + 4096, ms(100)), ms(100) + C);
	assert_int_equal(ask(d, ZNS_EMU_OP_RESET, 3, UNIT, ms(100)),
			 ms(100) + C + X + PROG + RESET);
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, ms(200)), ms(200) + C);
	zns_dev_close(d);
}

static void finishes(void **state)
{
	struct zns_dev *d = make_timed();

	/* 896 KiB of padding behind 64 KiB of data, at the die's full rate; 64 KiB of data go over
	 * the channel */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, KIB(64), 0), C);
	assert_int_equal(ask(d, ZNS_EMU_OP_FINISH, 0, KIB(896), ms(1)),
			 ms(1) + C + 78125 + 5 * PROG);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).written, 5 * UNIT);
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 0).written, KIB(64));
	/* nothing is left in the buffer */
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, ms(100)), ms(100) + C);
	/* a neighbour on the die waits for all of it, one elsewhere does not */
	/* whole units */
	assert_int_equal(ask(d, ZNS_EMU_OP_FINISH, 4, KIB(900), ms(100)), ms(100) + C + 5 * PROG);
	assert_int_equal(ask(d, ZNS_EMU_OP_READ, 8, KIB(256), ms(100)),
			 ms(100) + C + 5 * PROG + 625000 + PAGE_X);
	assert_int_equal(ask(d, ZNS_EMU_OP_READ, 9, KIB(256), ms(100)),
			 ms(100) + C + 625000 + PAGE_X);
	/* behind the zone's own full units */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 3, 2 * UNIT, ms(200)), ms(200) + C);
	assert_int_equal(ask(d, ZNS_EMU_OP_FINISH, 3, UNIT, ms(200)), ms(200) + C + X + 3 * PROG);
	zns_dev_close(d);
}

static void flushes(void **state)
{
	struct zns_dev *d = make_timed();

	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, 0), C);
	/* full units: until the last one is on the medium */
	ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT, 0);
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, 0), C + X + 2 * PROG);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).written, 2 * UNIT);
	/* a unit that is written in part costs a whole program, and another one when it is full */
	ask(d, ZNS_EMU_OP_WRITE, 1, KIB(64), ms(10));
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, ms(10)), ms(10) + C + 78125 + PROG);
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, ms(20)), ms(20) + C);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 1).busy_ns, PROG);
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 1, KIB(128), ms(20)), ms(20) + C);
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, ms(20)), ms(20) + C + X + PROG);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 1).busy_ns, 2 * PROG);
	/* dies drain side by side */
	for (uint32_t z = 0; z < 4; z += 3)
		ask(d, ZNS_EMU_OP_WRITE, z, KIB(64), ms(30));
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, ms(30)), ms(30) + C + 78125 + PROG);
	/* a durable write leaves the buffers of other zones alone */
	for (uint32_t z = 0; z < 3; z++)
		ask(d, ZNS_EMU_OP_WRITE, z + 4, KIB(64), ms(60));
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH_ZONE, 4, 0, ms(60)), ms(60) + C + 78125 + PROG);
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 1).busy_ns, 2 * PROG);
	zns_dev_close(d);
}

/* ---- other shapes
 * ---------------------------------------------------------------------------------- */

/* Each unit is spread over all four dies and both channels: it takes a quarter of a die's time, and half
 * of a channel's. */
static void shared_map(void **state)
{
	struct zns_emu_params p = timed();
	struct client c[2] = { writer(7, 100), writer(10, 100) };
	uint64_t t = PROG / 4, x = X / 2;
	struct zns_dev *d;

	p.map = ZNS_EMU_MAP_SHARED;
	d = make_dev(&p);
	drive(d, c, 1, 0);
	assert_int_equal(c[0].done_ns, C + x + 100 * t);
	assert_ok(zns_emu_power_cut(d, &err));
	c[0] = writer(7, 100);
	drive(d, c, 2, ms(1000));
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns - ms(1000), C + x + 200 * t);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(load_of(d, ZNS_EMU_DIE, i).busy_ns, 300 * t);
		assert_int_equal(load_of(d, ZNS_EMU_DIE, i).written, 75 * UNIT);
	}
	assert_int_equal(load_of(d, ZNS_EMU_CHANNEL, 1).written, 150 * UNIT);
	zns_dev_close(d);
}

static void conventional(void **state)
{
	struct client c[3] = { writer(0, 64), writer(1, 64), writer(2, 64) };
	struct zns_emu_params p;
	struct zns_dev *d;
	uint64_t ns = UNIT * 1000000000 / MIB(1000);

	assert_ok(zns_emu_profile("conventional", &p, &err));
	p.nr_zones = 16;
	p.prealloc = ZNS_EMU_SPARSE;
	p.gc_every_mib = 12; /* 64 units */
	p.gc_stall_ms = 7;
	d = make_dev(&p);
	for (unsigned i = 0; i < 3; i++)
		c[i].depth = 2;
	drive(d, c, 3, 0);
	/* one queue at the cap, and a stall after each 12 MiB, also behind the last */
	assert_int_equal(load_of(d, ZNS_EMU_CONTROLLER, 0).idle_from_ns, C + 3 * (64 * ns + ms(7)));
	assert_int_equal(load_of(d, ZNS_EMU_CONTROLLER, 0).busy_ns, 3 * (64 * ns + ms(7)));
	assert_int_equal(load_of(d, ZNS_EMU_CONTROLLER, 0).written, MIB(36));
	assert_int_equal(zns_emu_model_stalls(d), 3);
	/* everybody stalls: a read beside the write that brings the next one */
	for (unsigned k = 0; k < 64; k++)
		assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, ms(1000)),
				 ms(1000) + C + (k + 1) * ns);
	assert_int_equal(zns_emu_model_stalls(d), 4);
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 9, 4096, ms(1000)), ms(1007) + C + 64 * ns,
			ms(1008) + C + 64 * ns);
	/* reads make no garbage, and pass at the cap */
	c[0] = reader(0, 200);
	c[1] = reader(1, 200);
	drive(d, c, 2, ms(2000));
	assert_in_range(c[1].answered_ns - ms(2000), 400 * ms(1) / 4, 400 * ms(1) / 4 + ms(1));
	assert_int_equal(zns_emu_model_stalls(d), 4);
	zns_dev_close(d);
}

/* A cache takes writes at the host's speed until it is full; from then on there is room when a unit
 * is programmed. It takes writes of a zone beyond what the zone's own buffer holds. */
static void cache(void **state)
{
	struct zns_emu_params p = timed();
	struct zns_dev *d;
	uint64_t t = 0;

	p.cache_mib = 3; /* 16 units */
	d = make_dev(&p);
	for (uint64_t k = 1; k <= 40; k++) {
		t = ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, t);
		assert_int_equal(t, k <= 16 ? k * C : C + X + (k - 16) * PROG);
	}
	assert_int_equal(load_of(d, ZNS_EMU_DIE, 0).idle_from_ns, C + X + 40 * PROG);
	/* full of what goes to that die: a writer of an idle die waits for the same place */
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 1, UNIT, t), C + X + 25 * PROG);
	/* a flush waits for the dies */
	t = ask(d, ZNS_EMU_OP_FLUSH, 0, 0, t);
	assert_int_equal(t, C + X + 40 * PROG);
	/* units on the medium have left the cache: 16 more fit at once */
	for (uint64_t k = 1; k <= 16; k++)
		assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 2, UNIT, t), t + C);
	assert_int_not_equal(ask(d, ZNS_EMU_OP_WRITE, 2, UNIT, t), t + C);
	zns_dev_close(d);
	unlink(dev_path);
	/* capacitors back it: a flush does not wait, and neither do reads of cached units */
	p.cache_backed = true;
	d = make_dev(&p);
	for (uint64_t k = t = 0; k < 16; k++)
		t = ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, t);
	assert_int_equal(ask(d, ZNS_EMU_OP_FLUSH, 0, 0, t), t + C);
	assert_int_equal(ask(d, ZNS_EMU_OP_READ, 0, UNIT, t), t + C);
	zns_dev_close(d);
	unlink(dev_path);
	p.cache_backed = false;
	/* four dies could take 400 MiB/s, the way out of the cache is narrower */
	p.cache_mibps = 200;
	d = make_dev(&p);
	struct client c[4] = { writer(0, 80), writer(1, 80), writer(2, 80), writer(3, 80) };

	drive(d, c, 4, 0);
	assert_in_range(c[3].done_ns, 320 * PROG / 2, 320 * PROG / 2 + 2 * PROG);
	zns_dev_close(d);
}

/* A die with its own rate, in both directions; other dies are not affected. */
static void odd_die(void **state)
{
	struct zns_emu_params p = timed();
	struct client c[2] = { writer(0, 40), writer(1, 40) };
	uint64_t usual, slow;
	struct zns_dev *d;

	p.odd_dies = 1;
	p.odd_pct = 250;
	d = make_dev(&p);
	drive(d, c, 2, 0);
	assert_in_range(c[0].done_ns, 40 * PROG * 5 / 2, 41 * PROG * 5 / 2);
	assert_in_range(c[1].done_ns, 40 * PROG, 41 * PROG);
	slow = ask(d, ZNS_EMU_OP_READ, 0, UNIT, ms(1000)) - ms(1000);
	usual = ask(d, ZNS_EMU_OP_READ, 1, UNIT, ms(1000)) - ms(1000);
	assert_in_range(slow - C - PAGE_X, (usual - C - PAGE_X) * 5 / 2 - 10,
			(usual - C - PAGE_X) * 5 / 2 + 10);
	zns_dev_close(d);
}

/* Zones 0 and 4 are on two planes of die 0, 8 is on the first one again. Reads of two planes are as
 * fast as one alone; programs take the whole die. */
static void planes(void **state)
{
	struct zns_emu_params p = timed();
	struct client c[2] = { writer(0, 40), writer(4, 40) };
	struct zns_dev *d;
	uint64_t one;

	p.planes = 2;
	p.channel_mibps = 100000;
	d = make_dev(&p);
	one = ask(d, ZNS_EMU_OP_READ, 0, UNIT, ms(0));
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 4, UNIT, ms(0)), one - C, one + C);
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 8, UNIT, ms(0)), 2 * one - 2 * C, 2 * one + C);
	drive(d, c, 2, ms(1000));
	assert_in_range(c[1].done_ns - ms(1000), 80 * PROG, 81 * PROG);
	/* a read of the other plane waits for a program */
	ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, ms(2000));
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 4, KIB(4), ms(2000) + 5 * C), ms(2000) + PROG,
			ms(2000) + PROG + 10 * C);
	zns_dev_close(d);
}

/* Zone 0 has dies 0 and 1, zone 1 has 1 and 2, zone 2 has 2 and 3: alone each is written at the
 * rate of two dies, and two that share one of them at that of one. */
static void zone_on_two_dies(void **state)
{
	struct zns_emu_params p = timed();
	struct client a = writer(0, 40), b[2] = { writer(0, 40), writer(1, 40) },
		      c[2] = { writer(0, 40), writer(2, 40) };
	struct zns_dev *d;
	uint64_t one;

	p.zone_dies = 2;
	p.zone_step = 1;
	p.channel_mibps = 100000;
	d = make_dev(&p);
	drive(d, &a, 1, 0);
	assert_in_range(a.done_ns, 20 * PROG - 2 * PROG, 21 * PROG);
	drive(d, b, 2, ms(1000));
	assert_in_range(b[1].done_ns - ms(1000), 38 * PROG, 42 * PROG);
	drive(d, c, 2, ms(2000));
	assert_in_range(c[1].done_ns - ms(2000), 20 * PROG - 2 * PROG, 21 * PROG);
	/* both dies read at the same time */
	one = ask(d, ZNS_EMU_OP_READ, 0, UNIT, ms(3000)) - ms(3000);
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 0, 2 * UNIT, ms(4000)) - ms(4000), one, one + C);
	/* a second read of the first unit waits, and one of the next zone's first unit does not */
	ask(d, ZNS_EMU_OP_READ, 0, UNIT, ms(5000));
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 0, UNIT, ms(5000)) - ms(5000), 2 * one - 2 * C,
			2 * one + C);
	assert_in_range(ask(d, ZNS_EMU_OP_READ, 1, UNIT, ms(5000)) - ms(5000), one, one + C);
	zns_dev_close(d);
}

/* The drive is hot when 8 MiB more were written than it cooled off. Then it has half of its rate
 * until half of that is gone. */
static void throttled(void **state)
{
	struct zns_emu_params p = timed();
	struct client cold = writer(0, 40), warm = writer(1, 40), later = writer(2, 40);
	struct zns_dev *d;

	p.heat_mib = 8; /* UNIT is 192 KiB: 7.5 MiB of the first 40 of them */
	p.cool_mibps = 10;
	p.throttle_pct = 200;
	d = make_dev(&p);
	drive(d, &cold, 1, 0);
	assert_in_range(cold.done_ns, 40 * PROG, 41 * PROG);
	drive(d, &warm, 1, cold.done_ns);
	assert_in_range(warm.done_ns - cold.done_ns, 70 * PROG, 81 * PROG);
	/* it has cooled down in a second */
	drive(d, &later, 1, warm.done_ns + ms(1500));
	assert_in_range(later.done_ns - warm.done_ns - ms(1500), 40 * PROG, 50 * PROG);
	zns_dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_writer),
		T(any_size_of_command),
		T(two_writers_on_one_die),
		T(many_writers_on_one_die),
		T(two_writers_on_one_channel),
		T(channel_bound),
		T(one_writer_per_die),
		T(buffer_answers_early),
		T(other_buffers),
		T(one_reader),
		T(several_readers),
		T(readers_and_writers_share),
		T(resets),
		T(finishes),
		T(flushes),
		T(shared_map),
		T(conventional),
		T(cache),
		T(odd_die),
		T(planes),
		T(zone_on_two_dies),
		T(throttled),
	};

	return cmocka_run_group_tests_name("emu-model", tests, NULL, NULL);
}
