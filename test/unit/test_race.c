/* SPDX-License-Identifier: GPL-2.0-only */
/* zns_dev_race on both clocks, noise in the timing model, and a device's clock after somebody did
 * not sleep. */
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emu_common.h"
#include "../controls/control.h"

#define UNIT KIB(192)
#define C UINT64_C(10000) /* a command's latency */
#define PROG UINT64_C(1875000) /* time to write a unit at 100 MiB/s */
#define PAGE UINT64_C(39062) /* time to sense 16 KiB at 400 MiB/s */
#define X UINT64_C(234375) /* time of a unit on a channel of 800 MiB/s */

static struct zns_dev *make_timed(void)
{
	struct zns_emu_params p = small();
	struct zns_dev *d;

	p.timing = true;
	p.max_open = p.max_active = 0;
	d = make_dev(&p);
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	return d;
}

static struct zns_race client(bool write, uint32_t zone, uint32_t len, uint32_t count, void *buf,
			      uint64_t *done)
{
	return (struct zns_race){ .write = write,
				  .zone = zone,
				  .len = len,
				  .count = count,
				  .buf = buf,
				  .done_ns = done };
}

/* Each client has one command in flight; they meet on dies and channels as the model says, to the
 * nanosecond. */
static void model_time(void **state)
{
	cleanup_free uint8_t *buf = aligned(4 * UNIT);
	struct zns_dev *d = make_timed();
	uint64_t done[4][4], start;
	struct zns_race r[4];

	start = zns_dev_now_ns(d);
	assert_int_equal(start, 0);
	/* zones 0 and 4 are on die 0, 1 on die 1: two units each */
	for (uint32_t i = 0; i < 3; i++)
		r[i] = client(true, (uint32_t[]){ 0, 4, 1 }[i], UNIT, 4, buf + i * UNIT, done[i]);
	assert_ok(zns_dev_race(d, r, 3, &err));
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(done[i][0], C); /* into the buffer */
		assert_int_equal(done[i][1], 2 * C);
	}
	assert_int_equal(done[2][2], C + X + PROG); /* the first unit's place is free again */
	assert_int_equal(done[0][2], C + X + PROG);
	assert_int_equal(done[1][2], C + X + 2 * PROG); /* behind the other on the die */
	assert_int_equal(done[2][3], done[2][2] + PROG);
	assert_int_equal(done[0][3], done[0][2] + 2 * PROG);
	assert_int_equal(done[1][3], done[1][2] + 2 * PROG);
	assert_int_equal(zns_dev_now_ns(d), done[1][3]); /* nobody is done before the last */
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 4 * UNIT);
	assert_zone(d, 4, ZNS_ZONE_IMP_OPEN, 4 * UNIT);

	assert_ok(zns_dev_flush(d, &err));
	start = zns_dev_now_ns(d);
	for (uint32_t i = 0; i < 3; i++)
		r[i] = client(false, (uint32_t[]){ 0, 4, 1 }[i], 4096, 2, buf + i * UNIT, done[i]);
	r[0].step = KIB(16);
	assert_ok(zns_dev_race(d, r, 3, &err));
	assert_true(done[0][0] > C + PAGE && done[0][0] < C + PAGE + 6000);
	assert_true(done[1][0] > C + 2 * PAGE && done[1][0] < C + 2 * PAGE + 6000);
	assert_int_equal(done[2][0], done[0][0]);
	assert_true(done[2][1] < 2 * (C + PAGE + 6000));
	assert_int_equal(zns_dev_now_ns(d) - start, zns_max(done[0][1], done[1][1]));
	zns_dev_close(d);
}

static void errors(void **state)
{
	cleanup_free uint8_t *buf = aligned(2 * UNIT);
	struct zns_emu_params p = small();
	uint64_t done[2][3];
	struct zns_race r[2];

	for (int timing = 0; timing < 2; timing++) {
		struct zns_dev *d;

		p.timing = timing;
		assert_ok(zns_emu_create(dev_path, &p, true, &err));
		d = open_dev();
		r[0] = client(true, 2, UNIT, 2, buf, done[0]);
		r[1] = client(false, 3, 4096, 1, buf + UNIT, done[1]);
		assert_fails(zns_dev_race(d, r, 2, &err), -ENODATA, "beyond its write pointer");
		r[0].off = MIB(1);
		assert_fails(zns_dev_race(d, r, 1, &err), -EINVAL, "leaves the zone");
		assert_ok(zns_dev_race(d, r, 0, &err));
		assert_fails(zns_dev_race(d, r, 5000, &err), -EINVAL, "at most");
		zns_dev_close(d);
	}
}

/* Without a timing model: in real time, in threads; the data still arrive. */
static void threads(void **state)
{
	cleanup_free uint8_t *buf = aligned(8 * KIB(64));
	struct zns_emu_params p = small();
	struct zns_dev *d;
	uint64_t done[8][3], before, spent;
	struct zns_race r[8];

	p.max_open = p.max_active = 0;
	d = make_dev(&p);
	for (uint32_t i = 0; i < 8; i++) {
		pattern(buf + i * KIB(64), KIB(64), i, 0, 1);
		r[i] = client(true, i, KIB(64), 3, buf + i * KIB(64), done[i]);
	}
	before = zns_dev_now_ns(d);
	assert_ok(zns_dev_race(d, r, 8, &err));
	spent = zns_dev_now_ns(d) - before;
	for (uint32_t i = 0; i < 8; i++) {
		assert_zone(d, i, ZNS_ZONE_IMP_OPEN, 3 * KIB(64));
		assert_true(done[i][0] > 0 && done[i][0] <= done[i][1] &&
			    done[i][1] <= done[i][2] && done[i][2] <= spent);
		check(d, i, 0, KIB(64), 1);
	}
	zns_dev_close(d);
}

static void once_noisy(struct zns_dev *d, uint64_t seed, uint32_t jitter, uint64_t t[8])
{
	struct zns_emu_noise n = { .jitter_pct = jitter, .seed = seed };
	cleanup_free uint8_t *buf = aligned(UNIT);
	struct zns_race r = client(false, 0, 4096, 8, buf, t);

	assert_ok(zns_emu_set_noise(d, &n, &err));
	assert_ok(zns_dev_race(d, &r, 1, &err));
}

static void noise(void **state)
{
	struct zns_emu_noise n = { .stall_every = 1, .stall_us = 700 };
	struct zns_dev *d = make_timed();
	uint64_t plain[8], a[8], b[8], c[8];

	assert_ok(put(d, 0, 0, UNIT, 1));
	assert_ok(zns_dev_flush(d, &err));
	once_noisy(d, 0, 0, plain);
	once_noisy(d, 1, 10, a);
	once_noisy(d, 1, 10, b);
	once_noisy(d, 2, 10, c);
	assert_memory_equal(a, b, sizeof(a));
	assert_true(memcmp(a, c, sizeof(a)));
	assert_true(memcmp(a, plain, sizeof(a)));
	for (uint32_t i = 0; i < 8; i++)
		assert_true(a[i] > plain[i] * 89 / 100 && a[i] < plain[i] * 111 / 100);
	assert_ok(zns_emu_set_noise(d, &n, &err));
	{
		cleanup_free uint8_t *buf = aligned(4096);
		struct zns_race r = client(false, 0, 4096, 2, buf, a);

		assert_ok(zns_dev_race(d, &r, 1, &err));
		assert_int_equal(a[1], plain[1] + 2 * 700000);
	}
	n.stall_us = 0;
	assert_fails(zns_emu_set_noise(d, &n, &err), -EINVAL, "needs both");
	n = (struct zns_emu_noise){ .jitter_pct = 91 };
	assert_fails(zns_emu_set_noise(d, &n, &err), -EINVAL, "at most 90");
	zns_dev_close(d);

	setenv("ZNS_EMU_NOISE", "jitter=5,stall-every=100,stall-us=10,seed=3", 1);
	d = open_dev();
	assert_int_equal(emu_of(d)->control->noise.jitter_pct, 5);
	assert_int_equal(emu_of(d)->control->noise.stall_every, 100);
	assert_int_equal(emu_of(d)->control->noise.stall_us, 10);
	assert_int_equal(emu_of(d)->control->noise.seed, 3);
	zns_dev_close(d);
	for (uint32_t i = 0; i < 5; i++) {
		setenv("ZNS_EMU_NOISE",
		       (const char *[]){ "jitter", "jitter=", "jitter=x", "loud=1",
					 "jitter=5000000000" }[i],
		       1);
		assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "ZNS_EMU_NOISE");
	}
	setenv("ZNS_EMU_NOISE",
	       "host-every-us=1000,host-us=500,gc-every-us=20,gc-us=10,erase-late-us=8,erase-us=7,calm-ms=6,storm-ms=5",
	       1);
	d = open_dev();
	assert_int_equal(emu_of(d)->control->noise.host_every_us, 1000);
	assert_int_equal(emu_of(d)->control->noise.host_us, 500);
	assert_int_equal(emu_of(d)->control->noise.gc_every_us, 20);
	assert_int_equal(emu_of(d)->control->noise.gc_us, 10);
	assert_int_equal(emu_of(d)->control->noise.erase_late_us, 8);
	assert_int_equal(emu_of(d)->control->noise.erase_us, 7);
	assert_int_equal(emu_of(d)->control->noise.calm_ms, 6);
	assert_int_equal(emu_of(d)->control->noise.storm_ms, 5);
	zns_dev_close(d);
	setenv("ZNS_EMU_NOISE", "host-us=500", 1);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "needs both");
	setenv("ZNS_EMU_NOISE", "gc-us=500,gc-every-us=499", 1);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "at most as long");
	unsetenv("ZNS_EMU_NOISE");
}

/* Bursts are where the seed and the time say, and what falls into one is seen at its end. */
static void bursts(void **state)
{
	struct zns_emu_params p = small();
	struct zns_emu_noise n = { .host_every_us = 1000, .host_us = 600, .seed = 4 };
	uint64_t done, last = 0, moved = 0;
	struct zns_dev *d;

	p.timing = true;
	d = make_dev(&p);
	for (uint64_t at = 0; at < 50000000; at += 70000) {
		uint64_t plain, again;

		assert_ok(zns_emu_set_noise(d, &(struct zns_emu_noise){ 0 }, &err));
		assert_ok(zns_emu_model_submit(d, ZNS_EMU_OP_FLUSH_ZONE, 0, 0, at, &plain, &err));
		assert_ok(zns_emu_set_noise(d, &n, &err));
		assert_ok(zns_emu_model_submit(d, ZNS_EMU_OP_FLUSH_ZONE, 0, 0, at, &done, &err));
		assert_ok(zns_emu_model_submit(d, ZNS_EMU_OP_FLUSH_ZONE, 0, 0, at, &again, &err));
		assert_int_equal(done, again);
		assert_true(done >= plain && done <= plain + 900000 && done >= last);
		moved += done != plain;
		last = done;
	}
	assert_in_range(moved, 714 * 45 / 100, 714 * 75 / 100);
	zns_dev_close(d);
}

static uint64_t longest; /* sleep that was asked for */

/* Replaces libc's function. */
int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	uint64_t end = (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec, now = zns_mono_ns();

	if (flags & TIMER_ABSTIME && id == CLOCK_MONOTONIC && end > now)
		longest = zns_max(longest, end - now);
	return syscall(SYS_clock_nanosleep, id, flags, t, left) ? errno : 0;
}

/* How long the device made it wait. */
static uint64_t wall_read(struct zns_dev *d)
{
	cleanup_free void *buf = aligned(4096);

	longest = 0;
	assert_ok(zns_dev_read(d, 0, 0, buf, 4096, &err));
	return longest;
}

static int run_ahead(void)
{
	struct zns_dev *d = open_dev();
	cleanup_free void *buf = aligned(UNIT);

	if (zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, NULL))
		return 1;
	for (uint32_t i = 0; i < 50000; i++) /* 24 s of model time */
		if (zns_emu_model_submit(d, ZNS_EMU_OP_READ, 0, UNIT, 0, &(uint64_t){ 0 }, NULL))
			return 2;
	kill(getpid(), SIGKILL);
	return 3;
}

/* Who computes an hour of model time leaves nobody waiting for it: by its last act, or the next
 * opener's first. */
static void catch_up(void **state)
{
	struct zns_dev *d = make_timed();
	cleanup_free void *buf = aligned(UNIT);
	uint64_t ahead, t[3];

	assert_ok(put(d, 0, 0, UNIT, 1));
	zns_emu_set_thread_clock(d, UINT64_C(3600000000000));
	for (uint32_t i = 0; i < 100; i++)
		assert_ok(zns_dev_read(d, 0, 0, buf, UNIT, &err));
	assert_ok(zns_emu_model_clock(d, &ahead, &err));
	assert_true(ahead > UINT64_C(3600000000000));
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_WALL, &err));
	t[0] = wall_read(d);
	assert_true(zns_dev_now_ns(d) >= ahead);
	assert_ok(zns_emu_set_clock(d, ZNS_EMU_CLOCK_THREAD, &err));
	zns_emu_set_thread_clock(d, ahead + UINT64_C(7200000000000));
	assert_ok(zns_dev_read(d, 0, 0, buf, UNIT, &err));
	zns_dev_close(d);
	d = open_dev();
	t[1] = wall_read(d);
	zns_dev_close(d);
	assert_int_equal(in_child(run_ahead), 128 + SIGKILL);
	d = open_dev();
	t[2] = wall_read(d);
	zns_dev_close(d);
	for (uint32_t i = 0; i < 3; i++)
		assert_true(t[i] < UINT64_C(1000000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(model_time), T(errors), T(threads), T(noise), T(bursts), T(catch_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
