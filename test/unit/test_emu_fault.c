/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated device's faults: errors by count and zone, zones that wear out, power cuts with
 * every permitted loss. */
#include <signal.h>

#include "emu_common.h"

#define CAP KIB(960)

static void the_simple_ones(void **state)
{
	struct zns_dev *d = make_small();
	struct zns_emu_fault f = { .fail_write_after = 1, .fail_read_after = -1 };
	cleanup_free void *buf = aligned(4096);

	assert_ok(zns_emu_set_fault(d, &f));
	assert_ok(put(d, 0, 0, 4096, 1));
	assert_fails(put(d, 0, 4096, 4096, 1), -EIO, "media error");
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 4096);
	assert_ok(put(d, 0, 4096, 4096, 1)); /* once */
	f = (struct zns_emu_fault){ .fail_write_after = -1, .fail_read_after = 0 };
	assert_ok(zns_emu_set_fault(d, &f));
	assert_fails(zns_dev_read(d, 0, 0, buf, 4096, &err), -EIO,
		     "zone 0 at offset 0: media error");
	check(d, 0, 0, 8192, 1);
	zns_dev_close(d);

	setenv("ZNS_EMU_FAULT", "read-after=1,write-after=0", 1);
	d = open_dev();
	assert_fails(put(d, 0, 8192, 4096, 1), -EIO, "injected");
	assert_ok(zns_dev_read(d, 0, 0, buf, 4096, &err));
	assert_fails(zns_dev_read(d, 0, 0, buf, 4096, &err), -EIO, "injected");
	zns_dev_close(d);
}

static void bad_words(void **state)
{
	static const char *const bad[] = { "x",
					   "write-after",
					   "write-after=",
					   "write-after=-1",
					   "write-after=1K",
					   "other=1",
					   "write-after=1;read-after=2",
					   "write-after=99999999999999999999",
					   "write-after=1@",
					   "write-after=1@x2",
					   "write-after=1x",
					   "write-after=1x0",
					   "cut-after=1x2",
					   "loss=",
					   "loss=some",
					   "loss=1@2",
					   "conflict-after=1x0",
					   "read-only-after=1@2x*",
					   "write-after=1@4294967295",
					   "=1" };
	struct zns_dev *d = make_small();
	char many[400] = "loss=3";

	zns_dev_close(d);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++) {
		setenv("ZNS_EMU_FAULT", bad[i], 1);
		assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "ZNS_EMU_FAULT");
	}
	setenv("ZNS_EMU_FAULT", "write-after=1@16", 1);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "zones 0 to 15");
	for (int i = 0; i < 16; i++)
		strcat(many, ",write-after=1");
	setenv("ZNS_EMU_FAULT", many, 1);
	zns_dev_close(open_dev());
	strcat(many, ",write-after=1");
	setenv("ZNS_EMU_FAULT", many, 1);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "ZNS_EMU_FAULT");
}

static void add(struct zns_dev *d, struct zns_emu_rule r)
{
	assert_ok(zns_emu_add_fault(d, &r, &err));
}

static void by_zone_and_count(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free void *buf = aligned(4096);
	struct zns_emu_rule r = { .zone = 16 };

	add(d, (struct zns_emu_rule){ ZNS_EMU_FAIL_WRITE, .zone = 2, .after = 1, .times = 2 });
	add(d, (struct zns_emu_rule){ ZNS_EMU_FAIL_READ, .zone = 1, .times = UINT64_MAX });
	assert_ok(put(d, 1, 0, 8192, 1));
	assert_ok(put(d, 2, 0, 4096, 1));
	assert_ok(put(d, 3, 0, 8192, 1));
	for (int i = 0; i < 2; i++)
		assert_fails(put(d, 2, 4096, 4096, 1), -EIO, "zone 2 at offset 4096: media error");
	assert_ok(put(d, 2, 4096, 4096, 1));
	for (int i = 0; i < 5; i++)
		assert_fails(zns_dev_read(d, 1, 0, buf, 4096, &err), -EIO, "read of zone 1");
	check(d, 2, 0, 8192, 1);
	check(d, 3, 0, 8192, 1);
	assert_int_equal(zns_emu_clear_faults(d), 0);
	check(d, 1, 0, 8192, 1);
	assert_fails(zns_emu_add_fault(d, &r, &err), -EINVAL, "zones 0 to 15");
	r = (struct zns_emu_rule){ .kind = 9 };
	assert_fails(zns_emu_add_fault(d, &r, &err), -EINVAL, "unknown fault");
	r = (struct zns_emu_rule){ .after = 1000 };
	for (int i = 0; i < 16; i++)
		add(d, r);
	assert_fails(zns_emu_add_fault(d, &r, &err), -ENOSPC, "clear them");
	zns_dev_close(d);
}

static void zones_wear_out(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free void *buf = aligned(4096);

	add(d, (struct zns_emu_rule){ ZNS_EMU_WEAR_READ_ONLY, .zone = 0, .after = 2 });
	add(d, (struct zns_emu_rule){ ZNS_EMU_WEAR_OFFLINE, .zone = ZNS_EMU_ANY_ZONE, .after = 3 });
	assert_ok(put(d, 0, 0, 4096, 1));
	assert_ok(put(d, 0, 4096, 4096, 1));
	assert_fails(put(d, 0, 8192, 4096, 1), -EROFS, "zone 0 is read-only");
	assert_zone(d, 0, ZNS_ZONE_READ_ONLY, 8192);
	check(d, 0, 0, 8192, 1);
	assert_ok(put(d, 1, 0, 4096, 1));
	/* whichever zone it hits */
	assert_fails(put(d, 1, 4096, 4096, 1), -ENXIO, "zone 1 is offline");
	assert_fails(zns_dev_read(d, 1, 0, buf, 4096, &err), -ENXIO, "offline");
	assert_ok(put(d, 2, 0, 4096, 1));
	/* worn for good */
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 0, ZNS_ZONE_READ_ONLY, 0);
	assert_zone(d, 1, ZNS_ZONE_OFFLINE, 0);
	zns_dev_close(d);
	setenv("ZNS_EMU_FAULT", "read-only-after=1@5,offline-after=2@6", 1);
	d = open_dev();
	assert_ok(put(d, 5, 0, 4096, 1));
	assert_fails(put(d, 5, 4096, 4096, 1), -EROFS, "zone 5");
	assert_ok(put(d, 6, 0, 4096, 1));
	assert_ok(put(d, 6, 4096, 4096, 1));
	assert_fails(put(d, 6, 8192, 4096, 1), -ENXIO, "zone 6");
	zns_dev_close(d);
}

/* ---- losses
 * --------------------------------------------------------------------------------------- */

/* Zones 0 to 7: four flushed blocks and i unflushed ones; every second zone is finished besides. */
static struct zns_dev *with_unflushed(void)
{
	struct zns_emu_params p = small();
	struct zns_dev *d;

	p.max_open = p.max_active = 0;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	d = open_dev();
	for (uint32_t z = 0; z < 8; z++)
		assert_ok(put(d, z, 0, 4 * 4096, 1));
	assert_ok(zns_dev_flush(d, &err));
	for (uint32_t z = 0; z < 8; z++) {
		if (z)
			assert_ok(put(d, z, 4 * 4096, z * 4096, 1));
		if (z % 2)
			assert_ok(zns_dev_finish(d, z, &err));
	}
	return d;
}

static void lose_all_or_nothing(void **state)
{
	struct zns_dev *d = with_unflushed();

	assert_ok(zns_emu_power_cut_losing(d, ZNS_EMU_LOSE_NOTHING, 0, &err));
	for (int again = 0; again < 2; again++) {
		for (uint32_t z = 0; z < 8; z++) {
			assert_zone(d, z, z % 2 ? ZNS_ZONE_FULL : ZNS_ZONE_CLOSED,
				    z % 2 ? CAP : (4 + z) * 4096);
			check(d, z, 0, (4 + z) * 4096, 1);
		}
		assert_ok(zns_emu_power_cut(d, &err)); /* what survived once is durable */
	}
	zns_dev_close(d);
	d = with_unflushed();
	assert_ok(zns_emu_power_cut_losing(d, ZNS_EMU_LOSE_ALL, 5, &err));
	for (uint32_t z = 0; z < 8; z++) {
		assert_zone(d, z, ZNS_ZONE_CLOSED, 4 * 4096);
		check(d, z, 0, 4 * 4096, 1);
	}
	assert_fails(zns_emu_power_cut_losing(d, 3, 0, &err), -EINVAL, "unknown loss");
	zns_dev_close(d);
}

/* Over many seeds every permitted outcome of every zone occurs, no other one does, and a seed
 * always gives the same. */
static void lose_by_seed(void **state)
{
	unsigned seen[8][13] = { 0 };

	for (uint64_t seed = 0; seed < 200; seed++) {
		struct zns_dev *d = with_unflushed();

		assert_ok(zns_emu_power_cut_losing(d, ZNS_EMU_LOSE_SEEDED, seed, &err));
		for (uint32_t z = 0; z < 8; z++) {
			struct zns_zone zone = zone_of(d, z);
			bool full = zone.state == ZNS_ZONE_FULL;
			uint64_t blocks = full ? 12 : zone.wp / 4096;

			assert_true(full ? z % 2 : zone.state == ZNS_ZONE_CLOSED);
			assert_in_range(blocks, 4, full ? 12 : 4 + z);
			check(d, z, 0, full ? (4 + z) * 4096 : zone.wp, 1);
			seen[z][blocks]++;
		}
		zns_dev_close(d);
	}
	for (uint32_t z = 0; z < 8; z++) {
		for (uint32_t blocks = 4; blocks <= 4 + z; blocks++)
			assert_true(seen[z][blocks]);
		assert_true(!(z % 2) == !seen[z][12]);
	}
	for (int i = 0; i < 2; i++) {
		static struct zns_zone first[16];
		struct zns_zone zone[16];
		struct zns_dev *d = with_unflushed();

		assert_ok(zns_emu_power_cut_losing(d, ZNS_EMU_LOSE_SEEDED, 77, &err));
		assert_ok(zns_dev_report(d, 0, 16, i ? zone : first, &err));
		if (i)
			assert_memory_equal(zone, first, sizeof(first));
		zns_dev_close(d);
	}
}

/* ---- a cut in the middle of something
 * --------------------------------------------------------------- */

static void cut_after_a_write(void **state)
{
	struct zns_dev *d = make_small(), *other = open_dev(), *none;
	cleanup_free void *buf = aligned(4096);
	struct zns_zone z;
	uint32_t zero = 0;
	uint64_t off;

	assert_ok(put(d, 0, 0, 4096, 1));
	assert_ok(zns_dev_flush(d, &err));
	add(d, (struct zns_emu_rule){ ZNS_EMU_CUT_POWER, .zone = ZNS_EMU_ANY_ZONE, .after = 2,
				      .loss = ZNS_EMU_LOSE_NOTHING });
	assert_ok(put(other, 1, 0, 4096, 1)); /* not this handle's */
	assert_ok(put(d, 1, 4096, 4096, 1));
	assert_ok(put(d, 2, 0, 4096, 1));
	/* dark, for everybody */
	for (int i = 0; i < 2; i++) {
		struct zns_dev *h = i ? other : d;

		assert_fails(put(h, 0, 4096, 4096, 1), -EIO, "lost its power");
		assert_fails(zns_dev_append(h, 0, buf, 4096, &off, &err), -EIO, "lost its power");
		assert_fails(zns_dev_read(h, 0, 0, buf, 4096, &err), -EIO, "lost its power");
		assert_fails(zns_dev_report(h, 0, 1, &z, &err), -EIO, "lost its power");
		assert_fails(zns_dev_reset(h, &zero, 1, &err), -EIO, "lost its power");
		assert_fails(zns_dev_open_zone(h, 0, &err), -EIO, "lost its power");
		assert_fails(zns_dev_close_zone(h, 0, &err), -EIO, "lost its power");
		assert_fails(zns_dev_finish(h, 0, &err), -EIO, "lost its power");
		assert_fails(zns_dev_flush(h, &err), -EIO, "lost its power");
	}
	zns_dev_close(d);
	assert_fails(zns_dev_open(dev_spec, 0, &none, &err), -EBUSY,
		     "another process still has it open");
	zns_dev_close(other);
	d = open_dev();
	assert_zone(d, 1, ZNS_ZONE_CLOSED, 8192);
	assert_zone(d, 2, ZNS_ZONE_CLOSED, 4096);
	check(d, 2, 0, 4096, 1);
	assert_ok(put(d, 2, 4096, 4096, 1));
	/* at once, and given back by the call */
	add(d, (struct zns_emu_rule){ ZNS_EMU_CUT_POWER, .zone = ZNS_EMU_ANY_ZONE });
	assert_fails(put(d, 2, 8192, 4096, 1), -EIO, "lost its power");
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 2, ZNS_ZONE_CLOSED, 4096);
	zns_dev_close(d);
}

static void cut_by_environment(void **state)
{
	struct zns_dev *d = make_small();

	zns_dev_close(d);
	setenv("ZNS_EMU_FAULT", "cut-after=2@3", 1);
	d = open_dev();
	assert_ok(put(d, 2, 0, 4096, 1));
	assert_ok(put(d, 3, 0, 4096, 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 3, 4096, 4096, 1));
	assert_fails(zns_dev_flush(d, &err), -EIO, "lost its power");
	zns_dev_close(d);
	unsetenv("ZNS_EMU_FAULT");
	d = open_dev();
	assert_zone(d, 2, ZNS_ZONE_CLOSED, 4096);
	assert_zone(d, 3, ZNS_ZONE_CLOSED, 4096); /* drop is the default */
	zns_dev_close(d);
	setenv("ZNS_EMU_FAULT", "loss=keep,cut-after=1", 1);
	d = open_dev();
	assert_ok(put(d, 3, 4096, 4096, 1));
	zns_dev_close(d);
	unsetenv("ZNS_EMU_FAULT");
	d = open_dev();
	assert_zone(d, 3, ZNS_ZONE_CLOSED, 8192);
	zns_dev_close(d);
	setenv("ZNS_EMU_FAULT", "loss=12,cut-after=0", 1);
	d = open_dev();
	assert_fails(put(d, 3, 8192, 4096, 1), -EIO, "lost its power");
	zns_dev_close(d);
}

/* ---- a killed program, then a power cut
 * -------------------------------------------------------------- */

/* Writes into a pipe how far it has flushed, until it is killed. */
static int writer_pipe;

static void write_for_ever(void)
{
	struct zns_dev *d;
	uint32_t said = 0;

	if (zns_dev_open(dev_spec, 0, &d, &err))
		_exit(1);
	for (uint32_t block = 0; block < 120; block++) {
		for (uint32_t z = 0; z < 4; z++)
			if (put(d, z, block * 8192, 8192, 7))
				_exit(2);
		if (block % 3 != 2)
			continue;
		if (zns_dev_flush(d, &err))
			_exit(3);
		said = block + 1;
		if (write(writer_pipe, &said, sizeof(said)) != sizeof(said))
			_exit(4);
	}
	pause();
}

static void killed_then_cut(void **state)
{
	for (uint32_t round = 0; round < 12; round++) {
		struct zns_emu_params p = small();
		uint32_t flushed = 0, want = 3 + round * 9;
		struct zns_dev *d;
		int fd[2], st;
		pid_t pid;

		assert_ok(zns_emu_create(dev_path, &p, true, &err));
		assert_int_equal(pipe(fd), 0);
		writer_pipe = fd[1];
		pid = fork();
		if (!pid)
			write_for_ever();
		close(fd[1]);
		while (flushed < want)
			assert_int_equal(read(fd[0], &flushed, sizeof(flushed)), sizeof(flushed));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &st, 0), pid);
		while (read(fd[0], &flushed, sizeof(flushed)) == sizeof(flushed))
			;
		close(fd[0]);
		d = open_dev();
		assert_ok(zns_emu_power_cut_losing(d, round % 3, round, &err));
		for (uint32_t z = 0; z < 4; z++) {
			uint64_t wp = zone_of(d, z).wp;

			assert_true(wp >= flushed * 8192);
			for (uint64_t off = 0; off < wp; off += 8192)
				check(d, z, off, zns_min(UINT64_C(8192), wp - off), 7);
		}
		zns_dev_close(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_simple_ones),   T(bad_words),           T(by_zone_and_count),
		T(zones_wear_out),    T(lose_all_or_nothing), T(lose_by_seed),
		T(cut_after_a_write), T(cut_by_environment),  T(killed_then_cut),
	};

	return cmocka_run_group_tests_name("emu-fault", tests, NULL, NULL);
}
