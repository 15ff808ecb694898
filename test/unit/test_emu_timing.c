/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timing model of the emulated device in use: shared by processes, by calls that sleep and by
 * calls that do not, after deaths and reboots; and that no order of commands can make a die do more
 * than it can.
 */
#include <signal.h>

#include "emu_timed.h"

static uint64_t clock_of(struct zns_dev *d)
{
	uint64_t ns;

	assert_ok(zns_emu_model_clock(d, &ns, &err));
	return ns;
}

static struct zns_emu_load die_load(struct zns_dev *d, uint32_t die)
{
	struct zns_emu_load l;

	assert_ok(zns_emu_model_load(d, ZNS_EMU_DIE, die, &l, &err));
	return l;
}

static void refusals(void **state)
{
	struct zns_emu_params p = small();
	struct zns_dev *d = make_dev(&p),
		       other = { .ops = &(struct zns_dev_ops){ .name = "x" }, .path = "/dev/x" };
	struct zns_emu_load l;
	uint64_t ns = 0;

	assert_fails(zns_emu_model_submit(d, ZNS_EMU_OP_WRITE, 0, 4096, 0, &ns, &err), -EINVAL,
		     "no timing model");
	assert_fails(zns_emu_model_clock(d, &ns, &err), -EINVAL, "--timing on");
	assert_fails(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err), -EINVAL, "no timing model");
	assert_int_equal(zns_emu_model_stalls(d), 0);
	assert_int_equal(zns_emu_thread_clock(d), 0);
	assert_int_equal(emu_timing_issue(emu_of(d)), 0);
	assert_int_equal(emu_timing_book(emu_of(d), ZNS_EMU_OP_WRITE, 0, 0, MIB(100), 0), 0);
	assert_int_equal(emu_of(d)->lay.live_len, 65536); /* and no room taken for it */
	zns_dev_close(d);
	p.timing = true;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	d = open_dev();
	assert_fails(zns_emu_model_submit(d, ZNS_EMU_OP_READ, 16, 4096, 0, &ns, &err), -EINVAL,
		     "zones 0 to 15");
	assert_fails(zns_emu_model_submit(d, 9, 0, 4096, 0, &ns, &err), -EINVAL,
		     "unknown command 9");
	assert_fails(zns_emu_model_submit(d, ZNS_EMU_OP_READ, 0, GIB(2000), 0, &ns, &err), -EINVAL,
		     "too large");
	assert_fails(zns_emu_model_load(d, ZNS_EMU_DIE, 4, &l, &err), -EINVAL, "no die");
	assert_fails(zns_emu_model_load(d, ZNS_EMU_CHANNEL, 2, &l, &err), -EINVAL,
		     "no die, channel");
	assert_fails(zns_emu_model_load(d, ZNS_EMU_CONTROLLER, 1, &l, &err), -EINVAL, "no die");
	assert_fails(zns_emu_model_clock(&other, &ns, &err), -EMEDIUMTYPE, "/dev/x");
	assert_int_equal(clock_of(d), 0);
	zns_dev_close(d);
	setenv("ZNS_EMU_CLOCK", "sun", 1);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "\"wall\" or \"thread\"");
}

/* ---- calls that do not sleep
 * ----------------------------------------------------------------------- */

/* What one writer needs durable is not the business of others, unless the device only has one flush
 * for all. */
static void flush_of_zones(void **state)
{
	const uint32_t mine = 2;

	for (int whole = 0; whole < 2; whole++) {
		struct zns_dev *d = make_timed();
		uint64_t t;

		zns_dev_close(d);
		setenv("ZNS_EMU_FLUSH", whole ? "device" : "zones", 1);
		d = open_dev();
		unsetenv("ZNS_EMU_FLUSH");
		assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
		assert_ok(put(d, mine, 0, 4096, 1));
		assert_ok(put(d, 3, 0, 4096, 1));
		t = zns_emu_thread_clock(d);
		assert_ok(zns_dev_flush_zones(d, &mine, 1, &err));
		assert_true(zns_emu_thread_clock(d) >= t + PROG);
		assert_true(zns_emu_thread_clock(d) < t + 2 * PROG);
		assert_int_equal(die_load(d, 3).written, whole ? UNIT : 0);
		zns_dev_close(d);
		unlink(dev_path);
	}
}

static void calls_on_a_thread_clock(void **state)
{
	struct zns_dev *d = make_timed();
	uint64_t t;
	uint32_t z = 1;

	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	assert_int_equal(zns_emu_thread_clock(d), 0);
	for (unsigned k = 1; k <= 5; k++) {
		assert_ok(put(d, 0, (k - 1) * UNIT, UNIT, 1));
		assert_int_equal(zns_emu_thread_clock(d), k <= 2 ? k * C : C + X + (k - 2) * PROG);
	}
	/* a refused command takes no time */
	assert_int_equal(zns_dev_write(d, 0, 0, NULL, 4096, &err), -ENOSPC);
	assert_int_equal(zns_emu_thread_clock(d), C + X + 3 * PROG);
	assert_ok(zns_dev_flush(d, &err));
	assert_int_equal(zns_emu_thread_clock(d), C + X + 5 * PROG);
	t = zns_emu_thread_clock(d);
	check(d, 0, 0, KIB(256), 1);
	t += C + 625000 + 19531;
	assert_int_equal(zns_emu_thread_clock(d), t);
	assert_ok(put(d, 1, 0, KIB(64), 1));
	t += C;
	assert_ok(zns_dev_finish(d, 1, &err));
	t += C + 78125 + 5 * PROG;
	assert_int_equal(zns_emu_thread_clock(d), t);
	assert_ok(zns_dev_finish(d, 1, &err)); /* full already */
	assert_int_equal(zns_emu_thread_clock(d), t);
	assert_ok(zns_dev_reset(d, &z, 1, &err));
	t += C + ms(3);
	assert_int_equal(zns_emu_thread_clock(d), t);
	assert_int_equal(clock_of(d), t);
	/* one thread may play several */
	zns_emu_set_thread_clock(d, ms(500));
	assert_ok(put(d, 2, 0, 4096, 1));
	assert_int_equal(zns_emu_thread_clock(d), ms(500) + C);
	zns_dev_close(d);
	setenv("ZNS_EMU_CLOCK", "thread", 1);
	d = open_dev();
	assert_int_equal(zns_emu_thread_clock(d), ms(500) + C); /* the present time of the device */
	zns_dev_close(d);
}

static void *thread_writes(void *arg)
{
	struct zns_dev *d = arg;
	struct zns_err e;
	cleanup_free void *buf = aligned(UNIT);

	if (zns_emu_thread_clock(d))
		return "a clock that does not start at 0";
	for (unsigned k = 0; k < 4; k++)
		if (zns_dev_write(d, 5, k * UNIT, buf, UNIT, &e))
			return "a failed write";
	return zns_emu_thread_clock(d) == C + X + 2 * PROG ? NULL : "a wrong clock";
}

/* Another die and channel: the two threads know nothing of each other, in whatever order they
 * really run. */
static void each_thread_has_its_own(void **state)
{
	struct zns_dev *d = make_timed();
	pthread_t t;
	void *said;

	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	assert_int_equal(pthread_create(&t, NULL, thread_writes, d), 0);
	for (unsigned k = 0; k < 4; k++)
		assert_ok(put(d, 0, k * UNIT, UNIT, 1));
	assert_int_equal(zns_emu_thread_clock(d), C + X + 2 * PROG);
	pthread_join(t, &said);
	if (said)
		fail_msg("%s", (char *)said);
	zns_dev_close(d);
}

/* ---- calls that sleep
 * ------------------------------------------------------------------------------ */

/* Never done before model time says so; how much later is up to this machine. */
static void calls_sleep(void **state)
{
	struct zns_dev *d = make_timed();
	uint64_t start = zns_mono_ns(), took;

	for (unsigned k = 0; k < 5; k++)
		assert_ok(put(d, 0, k * UNIT, UNIT, 1));
	took = zns_mono_ns() - start;
	assert_true(took >= X + 3 * PROG);
	assert_true(clock_of(d) <= zns_mono_ns() - emu_of(d)->model->origin_ns);
	assert_int_equal(die_load(d, 0).busy_ns, 5 * PROG);
	/*
	 * Somebody's work that is far ahead on the die holds up a read of another zone there. (Not
	 * while the last unit is still on the channel: the read may come before it, and the long
	 * work cannot.)
	 */
	assert_ok(zns_dev_flush(d, &err));
	start = zns_mono_ns() - emu_of(d)->model->origin_ns;
	ask(d, ZNS_EMU_OP_FINISH, 4, MIB(2), start);
	check(d, 0, 0, 4096, 1);
	assert_true(zns_mono_ns() - emu_of(d)->model->origin_ns >= start + C + 11 * PROG);
	zns_dev_close(d);
}

/* ---- several processes
 * ----------------------------------------------------------------------------- */

static int child_books(void)
{
	struct zns_dev *d;
	uint64_t done;

	if (zns_dev_open(dev_spec, 0, &d, &err))
		return 1;
	if (zns_emu_model_submit(d, ZNS_EMU_OP_WRITE, 4, 2 * UNIT, 0, &done, &err))
		return 2;
	return done != C;
}

static int child_dies_inside(void)
{
	struct zns_dev *d;

	if (zns_dev_open(dev_spec, 0, &d, &err) || emu_model_enter(emu_of(d), &err))
		return 1;
	emu_of(d)->die_cal[0].nr = 99999; /* half-way through something */
	emu_of(d)->model_zone[0].fill = UINT32_MAX;
	raise(SIGKILL);
	return 0;
}

static void processes_share_a_die(void **state)
{
	struct zns_dev *d = make_timed();

	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT, 0), C);
	assert_int_equal(in_child(child_books), 0);
	/* two units of theirs lie before our third */
	assert_int_equal(die_load(d, 0).busy_ns, 4 * PROG);
	ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, C);
	assert_int_equal(die_load(d, 0).idle_from_ns, C + X + 5 * PROG);
	zns_dev_close(d);
	d = open_dev(); /* closing a handle does not end it */
	assert_int_equal(die_load(d, 0).busy_ns, 5 * PROG);
	assert_int_equal(clock_of(d), C + X + PROG);
	zns_dev_close(d);
}

static void death_inside_the_model(void **state)
{
	struct zns_dev *d = make_timed();
	uint64_t busy;

	ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT, 0);
	busy = die_load(d, 0).busy_ns;
	assert_int_equal(in_child(child_dies_inside), 128 + SIGKILL);
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, 0), C); /* the queue is forgotten */
	assert_int_equal(die_load(d, 0).busy_ns, busy + PROG); /* what was done is not */
	zns_dev_close(d);
}

/* A live area with wrong values: bounds are checked whatever it says. */
static void nonsense_in_the_live_area(void **state)
{
	struct zns_dev *d = make_timed();
	struct emu *e = emu_of(d);

	e->die_cal[0].nr = UINT32_MAX;
	e->channel_cal[0].nr = 65;
	e->model_zone[0].fill = UINT32_MAX;
	e->model_zone[4].fill = UNIT;
	assert_int_equal(die_load(d, 0).idle_from_ns, 0);
	ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, 0);
	ask(d, ZNS_EMU_OP_WRITE, 4, UNIT, 0);
	e->model_zone[8].fill = UINT32_MAX;
	ask(d, ZNS_EMU_OP_FLUSH, 0, 0, 0);
	ask(d, ZNS_EMU_OP_FINISH, 0, UNIT, 0);
	zns_dev_close(d);
}

static void power_cut_empties_the_queues(void **state)
{
	struct zns_dev *d = make_timed();
	uint64_t clock;

	for (unsigned i = 0; i < 40; i++)
		ask(d, ZNS_EMU_OP_WRITE, 0, UNIT, 0);
	clock = clock_of(d);
	assert_int_equal(clock, C + X + 38 * PROG);
	assert_ok(zns_emu_power_cut(d, &err));
	assert_int_equal(clock_of(d), clock); /* the clock does not go back */
	assert_int_equal(die_load(d, 0).idle_from_ns, 0);
	assert_int_equal(die_load(d, 0).busy_ns, 40 * PROG);
	assert_int_equal(ask(d, ZNS_EMU_OP_WRITE, 0, 2 * UNIT, clock), clock + C);
	zns_dev_close(d);
}

static void new_boot_new_time(void **state)
{
	struct zns_dev *d = make_timed();
	char other[64] = "00000000-1111-2222-3333-444444444444\n";
	int fd;

	ask(d, ZNS_EMU_OP_WRITE, 0, MIB(64), 0);
	zns_dev_close(d);
	fd = open(dev_path, O_RDWR);
	assert_int_equal(pwrite(fd, other, sizeof(other), EMU_LIVE_OFF), sizeof(other));
	close(fd);
	d = open_dev();
	assert_int_equal(clock_of(d), 0);
	assert_int_equal(die_load(d, 0).busy_ns, 0);
	assert_int_equal(die_load(d, 0).written, 0);
	assert_true(emu_of(d)->model->origin_ns <= zns_mono_ns());
	zns_dev_close(d);
}

/* ---- the calendar and the model against any order of commands
 * -------------------------------------- */

static void calendar_fills_gaps(void **state)
{
	struct emu_cal c = { 0 };

	assert_int_equal(emu_cal_book(&c, 100, 0), 100);
	assert_int_equal(c.nr, 0);
	assert_int_equal(emu_cal_book(&c, 100, 10), 100);
	assert_int_equal(emu_cal_book(&c, 200, 10), 200);
	assert_int_equal(emu_cal_book(&c, 105, 20), 110); /* behind the first, and one with it */
	assert_int_equal(c.nr, 2);
	assert_int_equal(emu_cal_book(&c, 0, 101), 210); /* before or between is not enough room */
	assert_int_equal(emu_cal_book(&c, 120, 70), 130); /* exactly the gap */
	assert_int_equal(c.nr, 1);
	assert_int_equal(emu_cal_book(&c, 0, 100), 0);
	assert_int_equal(c.nr, 1);
	assert_int_equal(emu_cal_idle_from(&c), 311);
	assert_int_equal(c.busy_ns, 311);
	/* a full list joins two short neighbours into one period: most gaps stay */
	for (uint64_t i = 0; i < 2 * EMU_CAL_PERIODS; i++)
		assert_int_equal(emu_cal_book(&c, 1000 + i * 10, 5), 1000 + i * 10);
	assert_int_equal(c.nr, EMU_CAL_PERIODS);
	assert_int_equal(emu_cal_book(&c, 0, 5), 311);
	assert_in_range(emu_cal_book(&c, 1000, 5), 1000, 1000 + 4 * 10);
	assert_in_range(emu_cal_book(&c, 1600, 5), 1600, 1600 + 4 * 10);
	/* a command forgets what ended before it, with what was free before that */
	emu_cal_pass(&c, 100);
	assert_int_equal(c.floor_ns, 0);
	emu_cal_pass(&c, 1600);
	assert_in_range(c.floor_ns, 1400, 1600);
	assert_int_equal(emu_cal_book(&c, 0, 1), c.floor_ns);
	emu_cal_clear(&c);
	assert_int_equal(emu_cal_book(&c, 0, 5), 0);
}

static void check_calendar(const struct emu_cal *c)
{
	uint64_t sum = 0;

	assert_true(c->nr <= EMU_CAL_PERIODS);
	for (uint32_t i = 0; i < c->nr; i++) {
		assert_true(c->busy[i].from < c->busy[i].to);
		assert_true(i ? c->busy[i].from > c->busy[i - 1].to :
				c->busy[0].from >= c->floor_ns);
		sum += c->busy[i].to - c->busy[i].from;
	}
	assert_true(sum + c->floor_ns >= c->busy_ns); /* never more work than time */
}

/* Commands of all kinds, sizes and zones, with issue times that go back and forth; the answers'
 * hash. */
static uint64_t storm(uint64_t seed, const struct zns_emu_params *p)
{
	struct zns_dev *d;
	struct emu *e;
	uint64_t hash = 0, now = 0;

	assert_ok(zns_emu_create(dev_path, p, true, &err));
	d = open_dev();
	e = emu_of(d);
	for (unsigned i = 0; i < 3000; i++) {
		unsigned kind = emu_random(&seed) % 40;
		enum zns_emu_op op = kind < 20 ? ZNS_EMU_OP_WRITE :
				     kind < 34 ? ZNS_EMU_OP_READ :
				     kind < 36 ? ZNS_EMU_OP_RESET :
				     kind < 37 ? ZNS_EMU_OP_FINISH :
						 ZNS_EMU_OP_FLUSH;
		uint64_t back = emu_random(&seed) % ms(20), issue, done;

		now += emu_random(&seed) % ms(2);
		issue = now - zns_min(now, back);
		done = ask(d, op, emu_random(&seed) % 16, emu_random(&seed) % KIB(700), issue);
		assert_true(done >= issue + C);
		hash = zns_hash_seeded(&done, sizeof(done), hash);
		for (unsigned c = 0; c < 4; c++)
			check_calendar(&e->die_cal[c]);
		check_calendar(&e->channel_cal[i % 2]);
		check_calendar(&e->model->controller);
	}
	zns_dev_close(d);
	return hash;
}

static void same_commands_same_answers(void **state)
{
	struct zns_emu_params p = timed();
	uint64_t first, conventional;

	first = storm(1, &p);
	assert_int_equal(storm(1, &p), first);
	assert_int_not_equal(storm(2, &p), first);
	p.buffer_units = 1;
	storm(3, &p);
	p.map = ZNS_EMU_MAP_SHARED;
	p.controller_mibps = 500;
	p.gc_every_mib = 8;
	p.gc_stall_ms = 3;
	conventional = storm(1, &p);
	assert_int_equal(storm(1, &p), conventional);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(refusals),
		T(calls_on_a_thread_clock),
		T(flush_of_zones),
		T(each_thread_has_its_own),
		T(calls_sleep),
		T(processes_share_a_die),
		T(death_inside_the_model),
		T(nonsense_in_the_live_area),
		T(power_cut_empties_the_queues),
		T(new_boot_new_time),
		T(calendar_fills_gaps),
		T(same_commands_same_answers),
	};

	return cmocka_run_group_tests_name("emu-timing", tests, NULL, NULL);
}
