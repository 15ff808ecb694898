/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated device over power cuts and reboots, and after interrupted resets. */
#include <signal.h>

#include "emu_common.h"
#include "until.h"

#define CAP KIB(960)

static void power_cut_loses_the_unflushed_suffix(void **state)
{
	struct zns_dev *d = make_small();
	uint32_t z = 2;

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(put(d, 2, 0, CAP, 1));
	assert_ok(zns_dev_finish(d, 3, &err));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 0, 8192, 4096, 1));
	assert_ok(put(d, 1, 0, 4096, 1));
	assert_ok(zns_dev_finish(d, 4, &err));
	assert_ok(zns_dev_reset(d, &z, 1, &err)); /* durable without a flush */
	assert_ok(put(d, 2, 0, 4096, 2));
	assert_ok(zns_dev_open_zone(d, 5, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	check(d, 0, 0, 8192, 1);
	assert_zone(d, 1, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 2, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 3, ZNS_ZONE_FULL, CAP);
	assert_zone(d, 4, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 5, ZNS_ZONE_EMPTY, 0);
	/* written again and flushed, it stays */
	assert_ok(put(d, 0, 8192, 4096, 3));
	assert_ok(put(d, 2, 0, 4096, 3));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	check(d, 0, 8192, 4096, 3);
	check(d, 2, 0, 4096, 3);
	zns_dev_close(d);
}

static void durable_write_survives_alone(void **state)
{
	struct zns_dev *d = make_small();
	static uint8_t buf[8192] __attribute__((aligned(4096)));

	memset(buf, 7, sizeof(buf));
	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(put(d, 1, 0, 4096, 1));
	assert_ok(zns_dev_write_durable(d, 1, 4096, buf, sizeof(buf), &err));
	assert_fails(zns_dev_write_durable(d, 1, 0, buf, sizeof(buf), &err), -EIO, "write pointer");
	assert_ok(put(d, 1, 12288, 4096, 1));
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 0, ZNS_ZONE_EMPTY, 0); /* not a flush */
	assert_zone(d, 1, ZNS_ZONE_CLOSED, 12288);
	check(d, 1, 0, 4096, 1);
	memset(buf, 0, sizeof(buf));
	assert_ok(zns_dev_read(d, 1, 4096, buf, sizeof(buf), &err));
	for (size_t i = 0; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 7);
	/* data written beside it still need a flush */
	assert_ok(put(d, 0, 0, 4096, 2));
	assert_ok(zns_dev_write_durable(d, 1, 12288, buf, 4096, &err));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	check(d, 0, 0, 4096, 2);
	zns_dev_close(d);
}

static void some_zones_flushed(void **state)
{
	static const uint32_t some[] = { 1, 3, 4 }, bad[] = { 1, 99999 };
	struct zns_dev *d = make_small();
	uint32_t reset = 4;

	assert_ok(put(d, 4, 0, 4096, 9));
	assert_ok(zns_dev_flush(d, &err));
	for (uint32_t z = 0; z < 4; z += z + 1) /* 0, 1, 3 */
		assert_ok(put(d, z, 0, 8192, 1));
	assert_ok(zns_dev_reset(d, &reset, 1, &err));
	assert_ok(put(d, 4, 0, 4096, 2));
	assert_fails(zns_dev_flush_zones(d, bad, 2, &err), -EINVAL, "99999");
	assert_ok(zns_dev_flush_zones(d, some, 0, &err));
	assert_ok(zns_dev_flush_zones(d, some, 3, &err));
	assert_ok(put(d, 1, 8192, 4096, 1));
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 0, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 1, ZNS_ZONE_CLOSED, 8192);
	assert_zone(d, 3, ZNS_ZONE_CLOSED, 8192);
	check(d, 1, 0, 8192, 1);
	check(d, 3, 0, 8192, 1);
	check(d, 4, 0, 4096, 2);
	zns_dev_close(d);
	/* as for NVMe */
	setenv("ZNS_EMU_FLUSH", "device", 1);
	d = open_dev();
	assert_ok(put(d, 0, 0, 4096, 3));
	assert_ok(zns_dev_flush_zones(d, some, 1, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	check(d, 0, 0, 4096, 3);
	zns_dev_close(d);
	setenv("ZNS_EMU_FLUSH", "all", 1);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EINVAL, "ZNS_EMU_FLUSH");
	unsetenv("ZNS_EMU_FLUSH");
}

static void power_cut_needs_to_be_alone(void **state)
{
	struct zns_dev *a = make_small(), *b = open_dev();

	assert_fails(zns_emu_power_cut(a, &err), -EBUSY, "in use");
	zns_dev_close(b);
	assert_ok(zns_emu_power_cut(a, &err));
	b = open_dev(); /* and the device can be opened again */
	zns_dev_close(b);
	zns_dev_close(a);
}

/* A process that has just died may hold its files a little longer, since io_uring closes them
 * later. */
static void the_power_waits_for_the_dying(void **state)
{
	struct zns_dev *d = make_small();
	pid_t pid = fork();

	if (!pid) {
		struct zns_dev *mine;

		if (zns_dev_open(dev_spec, 0, &mine, &err))
			_exit(1);
		raise(SIGSTOP);
		/* it has tried to get the lock, and sleeps */
		until(task_state(getppid(), getppid()) == 'S');
		_exit(0);
	}
	waitpid(pid, NULL, WUNTRACED);
	kill(pid, SIGCONT);
	assert_ok(zns_emu_power_cut(d, &err));
	waitpid(pid, NULL, 0);
	zns_dev_close(d);
}

static void worn_zones_survive(void **state)
{
	struct zns_dev *d = make_small();

	assert_ok(put(d, 0, 0, 4096, 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 0, 4096, 4096, 1));
	assert_ok(zns_emu_set_zone_state(d, 0, ZNS_ZONE_READ_ONLY, &err));
	assert_ok(zns_emu_set_zone_state(d, 1, ZNS_ZONE_OFFLINE, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	/* the flag went to the disk, the unflushed data did not */
	assert_zone(d, 0, ZNS_ZONE_READ_ONLY, 4096);
	assert_zone(d, 1, ZNS_ZONE_OFFLINE, 0);
	zns_dev_close(d);
}

/* Changes the boot id in the file, as a reboot would. */
static void reboot(void)
{
	int fd = open(dev_path, O_RDWR);
	char other[64] = "00000000-1111-2222-3333-444444444444\n";

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, other, sizeof(other), EMU_LIVE_OFF), sizeof(other));
	close(fd);
}

static void new_boot_starts_from_the_durable_table(void **state)
{
	struct zns_dev *d = make_small(), *other;

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 0, 8192, 4096, 1));
	assert_ok(put(d, 1, 0, 4096, 1));
	zns_dev_close(d);
	d = open_dev(); /* the same boot: all data exist */
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 12288);
	zns_dev_close(d);
	reboot();
	d = open_dev();
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	assert_zone(d, 1, ZNS_ZONE_EMPTY, 0);
	check(d, 0, 0, 8192, 1);
	assert_ok(put(d, 0, 8192, 4096, 2));
	other = open_dev(); /* only the first opener of a boot does this */
	assert_zone(other, 0, ZNS_ZONE_IMP_OPEN, 12288);
	zns_dev_close(other);
	/* another process has it open under another boot id: another machine */
	reboot();
	assert_fails(zns_dev_open(dev_spec, 0, &other, &err), -EBUSY, "another process");
	zns_dev_close(d);
	d = open_dev();
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	zns_dev_close(d);
}

static void corrupt_entry_costs_its_zone_only(void **state)
{
	struct zns_dev *d = make_small();
	struct emu_entry en;
	uint64_t off;
	int fd;

	for (uint32_t z = 0; z < 3; z++)
		assert_ok(put(d, z, 0, 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	off = emu_of(d)->lay.dur_off + sizeof(en);
	zns_dev_close(d);
	fd = open(dev_path, O_RDWR);
	assert_int_equal(pread(fd, &en, sizeof(en), off), sizeof(en));
	assert_int_equal(en.wp, 8192);
	en.wp = 4096;
	assert_int_equal(pwrite(fd, &en, sizeof(en), off), sizeof(en));
	close(fd);
	reboot();
	d = open_dev();
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	assert_zone(d, 1, ZNS_ZONE_OFFLINE, 0);
	assert_zone(d, 2, ZNS_ZONE_CLOSED, 8192);
	/* the test repairs the zone, and that is durable */
	assert_ok(zns_emu_set_zone_state(d, 1, ZNS_ZONE_EMPTY, &err));
	assert_ok(put(d, 1, 0, 4096, 2));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	check(d, 1, 0, 4096, 2);
	zns_dev_close(d);
}

/* The host lost pages of the live area without a reboot (a disk was pulled): the durable table
 * is ahead. */
static void stale_live_table_is_noticed(void **state)
{
	struct zns_dev *d = make_small();
	struct emu *e = emu_of(d);

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	emu_store(&e->live[0].wp, 4096);
	emu_store(&e->mirror[0].wp, 4096);
	zns_dev_close(d);
	d = open_dev();
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	check(d, 0, 0, 8192, 1);
	zns_dev_close(d);
}

/* ---- a process that died inside a reset: the table as it left it, set up by hand
 * ------------------ */

static void reset_died_before_live_changed(void **state)
{
	struct zns_dev *d = make_small();
	struct emu *e = emu_of(d);
	struct emu_change ch = { .zone = 0 };

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	ch.to.gen = e->live[0].gen + 1;
	assert_ok(emu_durable_lock(e, &err));
	assert_ok(emu_durable_commit(e, &ch, 1, &err));
	emu_durable_unlock(e);
	assert_zone(d, 0, ZNS_ZONE_EMPTY, 0); /* shown as reset */
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 0, 0, 4096, 2)); /* completed by the next process that uses the zone */
	check(d, 0, 0, 4096, 2);
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 4096);
	check(d, 0, 0, 4096, 2);
	zns_dev_close(d);
}

/* The disk has the new generation already, mirror and live area still the old one: the next user
 * restores the old one. */
static char by_open, by_flush, by_lock;

static void reset_died_before_mirror_changed(void **state)
{
	struct zns_dev *d = make_small();
	struct emu *e = emu_of(d);
	struct emu_entry en = { .gen = e->live[0].gen + 1 };
	int fd;

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	__atomic_fetch_add(&e->head->change_seq, 1, __ATOMIC_ACQ_REL);
	e->mirror[0].flags |= EMU_F_PENDING;
	emu_durable_seal(&en, 0);
	fd = open(dev_path, O_RDWR);
	assert_int_equal(pwrite(fd, &en, sizeof(en), e->lay.dur_off), sizeof(en));
	fsync(fd);
	close(fd);
	if (*state == &by_flush) {
		assert_ok(zns_dev_flush(d, &err));
	} else if (*state == &by_lock) {
		assert_ok(put(d, 0, 8192, 4096, 1));
	} else {
		zns_dev_close(d);
		d = open_dev();
		e = emu_of(d);
	}
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, *state == &by_lock ? 12288 : 8192);
	check(d, 0, 0, 8192, 1);
	assert_int_equal(e->mirror[0].flags, 0); /* settled */
	assert_ok(zns_emu_power_cut(d, &err));
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	check(d, 0, 0, 8192, 1);
	zns_dev_close(d);
}

/* A flush that collected its list before a reset must not bring back the old generation. */
static void flush_never_undoes_a_reset(void **state)
{
	struct zns_dev *a = make_small(), *b = open_dev();
	uint32_t z = 0;
	uint64_t gen;

	assert_ok(put(a, 0, 0, 8192, 1));
	gen = emu_of(a)->live[0].gen;
	assert_ok(zns_dev_reset(b, &z, 1, &err));
	assert_ok(zns_dev_flush(a, &err));
	assert_int_equal(emu_of(b)->live[0].gen, gen + 1);
	zns_dev_close(b);
	assert_ok(zns_emu_power_cut(a, &err));
	assert_zone(a, 0, ZNS_ZONE_EMPTY, 0);
	assert_int_equal(emu_of(a)->live[0].gen, gen + 1);
	zns_dev_close(a);
}

static void flush_skips_when_nothing_changed(void **state)
{
	struct zns_dev *d = make_small();
	struct emu *e = emu_of(d);
	uint64_t seq;

	assert_ok(zns_dev_flush(d, &err));
	assert_ok(put(d, 0, 0, 4096, 1));
	seq = e->head->change_seq;
	assert_true(e->head->durable_seq < seq);
	assert_ok(zns_dev_flush(d, &err));
	assert_int_equal(e->head->durable_seq, seq);
	assert_ok(zns_dev_open_zone(d, 1, &err)); /* no change that must be durable */
	assert_int_equal(e->head->change_seq, seq);
	assert_ok(zns_dev_flush(d, &err));
	zns_dev_close(d);
}

static void failed_sync_is_final(void **state)
{
	struct zns_dev *d = make_small();
	uint32_t z = 0;

	assert_ok(put(d, 0, 0, 4096, 1));
	atomic_store(&emu_of(d)->sync_failed, true);
	assert_fails(zns_dev_flush(d, &err), -EIO, "open the device anew");
	assert_fails(zns_dev_reset(d, &z, 1, &err), -EIO, "open the device anew");
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 4096);
	zns_dev_close(d);
	d = open_dev();
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	check(d, 0, 0, 4096, 1);
	zns_dev_close(d);
}

/* More zones than one block of the durable table holds. */
static void many_zones(void **state)
{
	struct zns_emu_params p = small();
	static uint32_t all[1000];
	struct zns_dev *d;

	p.nr_zones = 1000;
	p.zone_size = p.zone_capacity = 8192;
	p.max_open = p.max_active = 0;
	d = make_dev(&p);
	for (uint32_t z = 0; z < 1000; z += 3)
		assert_ok(put(d, z, 0, z % 2 ? 4096 : 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	for (uint32_t z = 0; z < 1000; z++) {
		if (z % 3)
			assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
		else
			check(d, z, 0, z % 2 ? 4096 : 8192, 1);
		all[z] = z;
	}
	assert_ok(zns_dev_reset(d, all, 1000, &err));
	assert_ok(zns_emu_power_cut(d, &err));
	for (uint32_t z = 0; z < 1000; z++)
		assert_zone(d, z, ZNS_ZONE_EMPTY, 0);
	zns_dev_close(d);
}

/* A user who may only read gets a private copy of the live table if the table is of an earlier
 * boot. */
static int reader(void)
{
	struct zns_dev *d;
	struct zns_zone z;

	if (setgid(65534) || setuid(65534))
		return 1;
	if (zns_dev_open(dev_spec, 0, &d, &err) != -EACCES)
		return 2;
	if (zns_dev_open(dev_spec, ZNS_DEV_RDONLY, &d, &err))
		return 3;
	if (zns_dev_report(d, 0, 1, &z, &err) || z.wp != 8192)
		return 4;
	check(d, 0, 0, 8192, 1);
	zns_dev_close(d);
	return 0;
}

static void reading_without_the_right_to_write(void **state)
{
	struct zns_dev *d;

	if (geteuid()) {
		print_message("not root\n");
		skip();
	}
	d = make_small();
	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_int_equal(chmod(dev_path, 0644), 0);
	assert_int_equal(chmod(test_dir, 0755), 0);
	assert_int_equal(in_child(reader), 0);
	zns_dev_close(d);
	reboot();
	assert_int_equal(in_child(reader), 0);
}

#define WHO(s)                                                                                \
	cmocka_unit_test_prestate_setup_teardown(reset_died_before_mirror_changed, emu_begin, \
						 emu_end, s)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(power_cut_loses_the_unflushed_suffix),
		T(durable_write_survives_alone),
		T(some_zones_flushed),
		T(power_cut_needs_to_be_alone),
		T(the_power_waits_for_the_dying),
		T(worn_zones_survive),
		T(new_boot_starts_from_the_durable_table),
		T(corrupt_entry_costs_its_zone_only),
		T(stale_live_table_is_noticed),
		T(reset_died_before_live_changed),
		WHO(&by_open),
		WHO(&by_flush),
		WHO(&by_lock),
		T(flush_never_undoes_a_reset),
		T(flush_skips_when_nothing_changed),
		T(failed_sync_is_final),
		T(many_zones),
		T(reading_without_the_right_to_write),
	};

	return cmocka_run_group_tests_name("emu-durable", tests, NULL, NULL);
}
