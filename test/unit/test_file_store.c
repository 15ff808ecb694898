/* SPDX-License-Identifier: GPL-2.0-only */
/* A store on an ordinary disk ("file:PATH"): its shape, what it refuses, and its blocks. */
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>
#include "emu_common.h"
#include "file_cuts.h"
#include "../../zns/dev/file_priv.h"

static struct zns_emu_params shape(uint64_t size)
{
	struct zns_emu_params p;

	assert_ok(zns_file_params(size, &p, &err));
	return p;
}

static struct zns_dev *make_store(uint64_t size)
{
	struct zns_emu_params p = shape(size);

	snprintf(dev_spec, sizeof(dev_spec), "file:%s", dev_path);
	return make_dev(&p);
}

static uint64_t blocks(void)
{
	struct stat st;

	assert_int_equal(stat(dev_path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* A store takes the space that was requested, and gives nearly all of it to checkpoints. */
static void shapes(void **state)
{
	static const struct {
		uint64_t size, zone;
	} some[] = { { MIB(64), MIB(1) }, { GIB(4), MIB(1) },   { GIB(64), MIB(1) },
		     { GIB(65), MIB(2) }, { GIB(200), MIB(4) }, { GIB(4096), MIB(64) } };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(some); i++) {
		struct zns_emu_params p = shape(some[i].size);
		struct emu_layout lay;
		uint64_t data = (p.nr_zones - p.log_zones) * p.zone_capacity;

		emu_layout_of(&p, &lay);
		assert_int_equal(p.zone_size, some[i].zone);
		assert_true(lay.total <= some[i].size);
		assert_true(lay.total + 2 * p.zone_size > some[i].size);
		if (some[i].size >= GIB(4))
			assert_true(data > some[i].size / 100 * 98);
		/* two blocks for each 256 KiB, as far as the log goes */
		assert_int_equal(p.log_block, 512);
		assert_true(p.log_capacity / 1024 >=
			    zns_min(some[i].size / KIB(256), UINT64_C(262144)));
	}
	err.msg[0] = 0;
	struct zns_emu_params p;
	assert_fails(zns_file_params(MIB(63), &p, &err), -EINVAL, "64 MiB at least");
}

/* The log is written in sectors, the rest in blocks; a store of an older version in blocks alone.
 */
static void blocks_of_the_log(void **state)
{
	struct zns_emu_params p = shape(MIB(64)), was;
	struct zns_dev *d = make_store(MIB(64));

	assert_int_equal(zns_geo_log_block(&d->geo), 512);
	assert_ok(put(d, 0, 0, 512, 1));
	assert_fails(put(d, 3, 0, 512, 1), -EINVAL, "block size of 4096");
	assert_fails(put(d, 0, 512, 256, 1), -EINVAL, "block size of 512");
	assert_ok(zns_dev_flush(d, &err));
	zns_dev_close(d);
	d = open_dev();
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 512);
	check(d, 0, 0, 512, 1);
	zns_dev_close(d);
	assert_int_equal(unlink(dev_path), 0);
	p.log_block = 0;
	d = make_dev(&p);
	assert_ok(zns_emu_info(d, &was, NULL));
	assert_int_equal(was.log_block, 0);
	assert_int_equal(zns_geo_log_block(&d->geo), 4096);
	assert_fails(put(d, 0, 0, 512, 1), -EINVAL, "block size of 4096");
	zns_dev_close(d);
}

/* What was removed of a zone is written anew by whom it was given to last, and the rest stays. */
static void written_anew(void **state)
{
	struct zns_dev *d = make_store(MIB(64)), *other = open_dev();
	uint64_t end, turn, late;
	uint32_t three = 3;

	assert_ok(put(d, 3, 0, KIB(64), 1));
	assert_fails(put(other, 3, KIB(16), KIB(16), 2), -EIO, "write pointer");
	assert_ok(zns_dev_offer(d, 3, &end, &late, &err));
	assert_int_equal(end, MIB(1));
	assert_ok(zns_dev_take(other, 3, KIB(16), KIB(32), late, &err));
	assert_fails(put(d, 3, KIB(16), KIB(16), 2), -EIO, "write pointer");
	assert_ok(put(other, 3, KIB(16), KIB(16), 2));
	assert_fails(put(other, 3, KIB(32), KIB(16), 2), -EIO, "write pointer");
	check(d, 3, 0, KIB(16), 1);
	check(d, 3, KIB(16), KIB(16), 2);
	assert_zone(d, 3, ZNS_ZONE_IMP_OPEN, KIB(64));
	/* beyond the write pointer, up to the end of the zone */
	assert_ok(zns_dev_offer(d, 3, &end, &turn, &err));
	assert_fails(put(other, 3, KIB(16), KIB(16), 3), -EIO, "write pointer");
	assert_ok(zns_dev_take(d, 3, KIB(48), MIB(1), turn, &err));
	for (uint64_t off = KIB(48); off < MIB(1); off += KIB(16))
		assert_ok(put(d, 3, off, KIB(16), 4));
	assert_zone(d, 3, ZNS_ZONE_FULL, MIB(1));
	assert_ok(put(d, 3, KIB(64), KIB(16), 5)); /* full, and yet */
	assert_ok(zns_dev_flush(d, &err));
	/* a reset ends it */
	assert_ok(zns_dev_reset(d, &three, 1, &err));
	assert_ok(put(other, 3, 0, KIB(128), 6));
	assert_fails(put(d, 3, KIB(64), KIB(16), 5), -EIO, "write pointer");
	/* a finished zone has zeroes above its write pointer */
	assert_ok(zns_dev_finish(d, 3, &err));
	assert_ok(zns_dev_offer(d, 3, &end, &turn, &err));
	assert_int_equal(end, KIB(128));
	assert_fails(zns_dev_take(d, 0, 0, KIB(64), turn, &err), -EINVAL, "written anew");
	zns_dev_close(other);
	zns_dev_close(d);
}

/* The zones of the log are larger, and both kinds keep to the rules of zones. */
static void zones_of_two_sizes(void **state)
{
	struct zns_dev *d = make_store(MIB(64));
	uint64_t log = zone_of(d, 0).capacity;

	assert_int_equal(d->geo.log_zones, 3);
	assert_int_equal(log, MIB(4));
	assert_int_equal(zone_of(d, 3).capacity, MIB(1));
	for (uint64_t off = 0; off < log; off += MIB(1))
		assert_ok(put(d, 2, off, MIB(1), 2));
	assert_ok(put(d, 3, 0, MIB(1), 3));
	assert_fails(put(d, 2, log - 4096, 4096, 1), -ENOSPC, "full");
	assert_fails(put(d, 3, MIB(1) - 4096, 4096, 1), -ENOSPC, "full");
	assert_ok(zns_dev_flush(d, &err));
	zns_dev_close(d);
	d = open_dev();
	check(d, 2, log - MIB(1), MIB(1), 2);
	check(d, 3, 0, MIB(1), 3);
	assert_zone(d, 2, ZNS_ZONE_FULL, log);
	assert_zone(d, 3, ZNS_ZONE_FULL, MIB(1));
	zns_dev_close(d);
}

/* What is removed goes back to the file system; the log keeps its blocks, so that a removal finds
 * room on a full one. */
static void blocks_come_and_go(void **state)
{
	struct zns_dev *d = make_store(MIB(64));
	uint32_t some[] = { 0, 5, 6, 7, 9 };
	uint64_t made = blocks();

	assert_true(made >= 3 * MIB(4) && made < 3 * MIB(4) + MIB(2));
	for (uint32_t z = 5; z < 10; z++)
		assert_ok(put(d, z, 0, MIB(1), z));
	assert_ok(put(d, 0, 0, MIB(1), 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_true(blocks() >= made + MIB(5));
	assert_ok(zns_dev_reset(d, some, ZNS_ARRAY_SIZE(some), &err));
	assert_true(blocks() < made + MIB(2));
	assert_true(blocks() >= made);
	check(d, 8, 0, MIB(1), 8);
	assert_ok(zns_dev_scrub(d, 0, &err));
	assert_true(blocks() >= made);
	zns_dev_close(d);
}

/* Blocks can come before the writes, and those that were not needed go back. */
static void blocks_come_first(void **state)
{
	struct zns_dev *d = make_store(MIB(64)), *other = open_dev();
	struct zns_emu_params p = shape(MIB(64));
	uint64_t made = blocks();

	assert_ok(zns_dev_allocate(d, 5, 4));
	assert_true(blocks() >= made + MIB(4));
	assert_ok(put(other, 6, 0, MIB(1), 6));
	assert_true(blocks() < made + MIB(4) + KIB(512));
	zns_dev_give_back(d, 5, 4);
	assert_true(blocks() >= made + MIB(1) && blocks() < made + MIB(1) + KIB(512));
	check(d, 6, 0, MIB(1), 6);
	assert_int_equal(zns_dev_allocate(d, 2, 4), -EINVAL); /* of the log */
	assert_int_equal(zns_dev_allocate(d, d->geo.nr_zones - 1, 2), -EINVAL);
	assert_int_equal(zns_dev_allocate(d, UINT32_MAX, 2), -EINVAL);
	/* then it would no longer be known that the file is sparse */
	assert_int_equal(zns_dev_allocate(d, 3, d->geo.nr_zones - 3), -ENOSPC);
	zns_dev_give_back(d, d->geo.nr_zones - 1, 2);
	zns_dev_close(other);
	zns_dev_close(d);
	unlink(dev_path);
	p.prealloc = ZNS_EMU_ALLOCATED;
	d = make_dev(&p);
	assert_int_equal(zns_dev_allocate(d, 5, 4), -EOPNOTSUPP);
	zns_dev_close(d);
}

static size_t flushed; /* operations until what was written last was durable */

/* Each zone has its old content, or nothing, or what was written since; never a hole. */
static void old_or_new(void *arg, size_t cut)
{
	struct zns_dev *d = open_dev();

	for (uint32_t z = 3; z < 7; z++) {
		uint64_t wp = zone_of(d, z).wp;

		if (wp > KIB(64))
			check(d, z, 0, MIB(1), 1);
		else if (wp)
			check(d, z, 0, wp, 2);
		if (z == 3 && cut >= flushed)
			assert_int_equal(wp, KIB(64));
		if (z == 6) /* it was neither reset nor written again */
			assert_int_equal(wp, MIB(1));
	}
	zns_dev_close(d);
}

/* Blocks go back only when nobody will ever read them, not even after a power cut. */
static void power_cut_of_resets(void **state)
{
	struct zns_dev *d = make_store(MIB(64));
	uint32_t some[] = { 3, 4 }, five = 5;

	for (uint32_t z = 3; z < 7; z++)
		assert_ok(put(d, z, 0, MIB(1), 1));
	assert_ok(zns_dev_flush(d, &err));
	zns_dev_close(d);
	cuts_begin();
	d = open_dev();
	assert_ok(zns_dev_reset(d, some, 2, &err));
	assert_ok(put(d, 3, 0, KIB(64), 2));
	assert_ok(zns_dev_flush(d, &err));
	flushed = nr_ops;
	assert_ok(put(d, 4, 0, KIB(64), 2));
	assert_ok(zns_dev_reset(d, &five, 1, &err));
	assert_ok(put(d, 5, 0, KIB(64), 2));
	zns_dev_close(d);
	cuts_end(old_or_new, NULL);
}

static void wrong_name(void **state)
{
	struct zns_dev *d = make_store(MIB(64));

	zns_dev_close(d);
	snprintf(dev_spec, sizeof(dev_spec), "emu:%s", dev_path);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "name it file:");
	unlink(dev_path);
	zns_dev_close(make_small());
	snprintf(dev_spec, sizeof(dev_spec), "file:%s", dev_path);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "name it emu:");
}

static void damaged(void **state)
{
	struct zns_dev *d = make_store(MIB(64));
	uint64_t other = MIB(8);
	int fd;

	zns_dev_close(d);
	fd = open(dev_path, O_RDWR);
	assert_int_equal(pwrite(fd, &other, sizeof(other), sizeof(struct emu_header)), 8);
	close(fd);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "damaged");
}

/* /dev is in memory too: a mistyped name must not become a file there. */
static void refused(void **state)
{
	struct zns_emu_params p = shape(MIB(64)), emu = small();

	assert_fails(zns_emu_create("/dev/zns-no-such-disk", &p, false, &err), -ENOENT,
		     "no device");
	assert_fails(zns_emu_create("/dev/zns-no-such-disk", &emu, false, &err), -ENOENT,
		     "no device");
	assert_int_equal(access("/dev/zns-no-such-disk", F_OK), -1);
	snprintf(dev_path, sizeof(dev_path), "/dev/shm/zns-test-%d", getpid());
	assert_fails(
		zns_emu_create(dev_path, &p, false, &err), -EINVAL,
		"is on a tmpfs, in memory, and gone after a reboot: name a file on a disk, or say "
		"--volatile");
	assert_int_equal(access(dev_path, F_OK), -1);
	p.is_volatile = true;
	assert_ok(zns_emu_create(dev_path, &p, false, &err));
	unlink(dev_path);
}

/* A file with a foreign signature that blkid knows: `create` names it, and overwrites the file only with
 * --force. */
static void foreign(void **state)
{
	struct zns_emu_params p = shape(MIB(64));
	char cmd[300], what[128];
	int fd;

	snprintf(
		cmd, sizeof(cmd),
		"truncate -s 64M '%s' && PATH=$PATH:/sbin:/usr/sbin mkswap -L other '%s' >/dev/null 2>&1",
		dev_path, dev_path);
	assert_int_equal(system(cmd), 0);
	assert_fails(zns_emu_create(dev_path, &p, false, &err), -EEXIST, "(swap \"other\")");
	fd = open(dev_path, O_RDWR);
	assert_true(file_foreign(fd, what, sizeof(what)));
	assert_int_equal(file_wipe_foreign(fd), 0);
	assert_false(file_foreign(fd, what, sizeof(what)));
	close(fd);
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	fd = open(dev_path, O_RDONLY);
	assert_false(file_foreign(fd, what, sizeof(what)));
	close(fd);
}

/* A write is refused in one line, what is removed makes room, and the log never needs any. */
static int on_full_file_system(void)
{
	struct zns_emu_params p = shape(MIB(64));
	uint32_t z = 3, some = 3;
	struct zns_dev *d;
	int ret = 0;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", test_dir, "tmpfs", 0, "size=16M"))
		return 77;
	snprintf(dev_spec, sizeof(dev_spec), "file:%s", dev_path);
	p.is_volatile = true;
	d = make_dev(&p);
	while (!ret && z < p.nr_zones)
		ret = put(d, z++, 0, MIB(1), 1);
	assert_int_equal(ret, -EDQUOT);
	assert_says("no space left on the file system");
	assert_int_equal(zns_dev_allocate(d, z, 2), -ENOSPC);
	assert_ok(zns_dev_flush(d, &err));
	for (uint64_t off = 0; off < MIB(4); off += MIB(1))
		assert_ok(put(d, 0, off, MIB(1), 2));
	assert_ok(zns_dev_flush(d, &err));
	assert_ok(zns_dev_reset(d, &some, 1, &err));
	assert_ok(put(d, 3, 0, MIB(1), 3));
	check(d, 3, 0, MIB(1), 3);
	check(d, 4, 0, MIB(1), 1);
	zns_dev_close(d);
	return 0;
}

static void full_file_system(void **state)
{
	int code = in_child(on_full_file_system);

	if (code == 77)
		skip(); /* not root */
	assert_int_equal(code, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(shapes),
		T(written_anew),
		T(blocks_of_the_log),
		T(zones_of_two_sizes),
		T(blocks_come_and_go),
		T(blocks_come_first),
		T(power_cut_of_resets),
		T(wrong_name),
		T(damaged),
		T(refused),
		T(foreign),
		T(full_file_system),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
