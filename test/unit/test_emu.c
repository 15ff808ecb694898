/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated device in one process: making, opening, geometry, zone rules. */
#include "emu_common.h"

#define CAP KIB(960)

static void state_names(void **state)
{
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_EMPTY), "empty");
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_IMP_OPEN), "open");
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_EXP_OPEN), "open");
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_CLOSED), "closed");
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_FULL), "full");
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_READ_ONLY), "read-only");
	assert_string_equal(zns_zone_state_name(ZNS_ZONE_OFFLINE), "offline");
	assert_string_equal(zns_zone_state_name((enum zns_zone_state)99), "unknown");
	zns_dev_close(NULL);
}

static void open_refuses(void **state)
{
	struct zns_dev *d = (void *)1;
	char longer[400];
	int fd;

	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -ENOENT, "znsctl create emu:");
	assert_null(d);
	assert_fails(zns_dev_open("/dev/zns-test-none", 0, &d, &err), -ENOENT,
		     "/dev/zns-test-none");
	assert_fails(zns_dev_open("/dev/ngX", 0, &d, &err), -ENOENT, "/dev/ngX");
	assert_fails(zns_dev_open("emu:", 0, &d, &err), -EINVAL, "emu:PATH");
	assert_fails(zns_dev_open("", 0, &d, &err), -ENOENT, "emu:PATH");
	assert_fails(zns_dev_open("/dev/null", 0, &d, &err), -EMEDIUMTYPE, "not a zoned device");
	assert_fails(zns_dev_open(test_dir, 0, &d, &err), -EMEDIUMTYPE, "not a zoned device");
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_fails(zns_dev_open(longer, 0, &d, &err), -ENAMETOOLONG, "too long");
	snprintf(longer, sizeof(longer), "emu:%s", test_dir);
	assert_fails(zns_dev_open(longer, 0, &d, &err), -EMEDIUMTYPE, "znsctl create");
	snprintf(longer, sizeof(longer), "emu:%s/fifo", test_dir);
	assert_int_equal(mkfifo(longer + 4, 0600), 0);
	assert_fails(zns_dev_open(longer, 0, &d, &err), -EMEDIUMTYPE, "znsctl create");
	/* empty, short and foreign files */
	fd = open(dev_path, O_RDWR | O_CREAT, 0600);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE,
		     "is empty, not an emulated device: create one with `znsctl create emu:");
	assert_int_equal(write(fd, "hello", 5), 5);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "znsctl create");
	assert_int_equal(ftruncate(fd, 100000), 0);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "znsctl create");
	assert_fails(zns_dev_open(dev_path, 0, &d, &err), -EMEDIUMTYPE, "is named file:");
	close(fd);
	assert_null(d);
	assert_int_equal(zns_dev_open(dev_spec, 0, &d, NULL), -EMEDIUMTYPE);
}

static void create_refuses_and_forces(void **state)
{
	struct zns_emu_params p = small(), q;
	uint8_t a[ZNS_UUID_LEN], b[ZNS_UUID_LEN];
	struct zns_dev *d;
	struct stat st;
	int fd;

	fd = open(dev_path, O_RDWR | O_CREAT, 0644);
	assert_int_equal(write(fd, "precious", 8), 8);
	assert_fails(zns_emu_create(dev_path, &p, false, &err), -EEXIST, "not empty");
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 8);
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	close(fd);
	unlink(dev_path);

	d = make_dev(&p);
	assert_int_equal(stat(dev_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true((uint64_t)st.st_blocks * 512 >= 16 * CAP); /* allocated */
	/* and no hole for capacity < size */
	assert_true((uint64_t)st.st_size < MIB(1) + 16 * CAP + 1);
	assert_ok(zns_emu_info(d, &q, a));
	assert_same_params(&p, &q);
	assert_ok(put(d, 0, 0, 8192, 1));
	assert_fails(zns_emu_create(dev_path, &p, false, &err), -EBUSY, "in use");
	assert_fails(zns_emu_create(dev_path, &p, true, &err), -EBUSY, "in use");
	check(d, 0, 0, 8192, 1);
	zns_dev_close(d);
	assert_fails(zns_emu_create(dev_path, &p, false, &err), -EEXIST, "--force");
	p.nr_zones = 8;
	assert_ok(zns_emu_create(dev_path, &p, true, &err));
	d = open_dev();
	assert_ok(zns_emu_info(d, &q, b));
	assert_int_equal(q.nr_zones, 8);
	assert_memory_not_equal(a, b, sizeof(a));
	assert_zone(d, 0, ZNS_ZONE_EMPTY, 0);
	zns_dev_close(d);
	/* an empty file is taken */
	assert_int_equal(truncate(dev_path, 0), 0);
	assert_int_equal(chmod(dev_path, 0644), 0);
	assert_ok(zns_emu_create(dev_path, &p, false, &err));
	/* and no other user may read it from then on */
	assert_int_equal(stat(dev_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_fails(zns_emu_create("/dev/null", &p, true, &err), -EINVAL, "neither");
	assert_fails(zns_emu_create("/proc/none/x", &p, true, &err), -ENOENT, "cannot create");
}

static void header_is_checked(void **state)
{
	struct zns_emu_params p = small();
	struct emu_header h, bad;
	struct zns_dev *d;
	int fd;

	assert_ok(zns_emu_create(dev_path, &p, false, &err));
	fd = open(dev_path, O_RDWR);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	/* any flipped byte */
	for (size_t i = 0; i < sizeof(h); i++) {
		bad = h;
		((uint8_t *)&bad)[i] ^= 0x40;
		assert_int_equal(pwrite(fd, &bad, sizeof(bad), 0), sizeof(bad));
		assert_int_equal(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE);
	}
	/* wrong values with a right hash */
	for (int i = 0; i < 6; i++) {
		bad = h;
		switch (i) {
		case 0:
			bad.nr_zones = 1 << 30;
			break;
		case 1:
			bad.channels = 0;
			break;
		case 2:
			bad.timing = 2;
			break;
		case 3:
			bad.data_off = 0;
			break;
		case 4:
			bad.map = 77;
			break;
		case 5:
			bad.zone_capacity = UINT64_MAX & ~4095ull;
			break;
		}
		bad.hash = zns_hash(&bad, offsetof(struct emu_header, hash));
		assert_int_equal(pwrite(fd, &bad, sizeof(bad), 0), sizeof(bad));
		assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "bad header");
	}
	bad = h;
	bad.version = 5;
	assert_int_equal(pwrite(fd, &bad, sizeof(bad), 0), sizeof(bad));
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "format 5");
	bad.version = 1;
	bad.header_bytes = 128;
	assert_int_equal(pwrite(fd, &bad, sizeof(bad), 0), sizeof(bad));
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE,
		     "format 1 of an older version");
	assert_says("znsctl create --force emu:");
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	assert_fails(zns_dev_open(dev_spec, 0, &d, &err), -EMEDIUMTYPE, "cut short");
	close(fd);
}

static void geometry(void **state)
{
	struct zns_dev *d = make_small();
	struct zns_zone z[16];

	assert_string_equal(d->ops->name, "emu");
	assert_string_equal(d->path, dev_spec);
	assert_int_equal(d->geo.nr_zones, 16);
	assert_int_equal(d->geo.block_size, 4096);
	assert_int_equal(d->geo.zone_size, MIB(1));
	assert_int_equal(d->geo.zone_capacity, CAP);
	assert_int_equal(d->geo.max_open, 4);
	assert_int_equal(d->geo.max_active, 6);
	assert_true(d->geo.max_io_bytes >= KIB(508));
	assert_true(d->geo.mem_align && d->geo.mem_align <= 4096);
	assert_ok(zns_dev_report(d, 0, 16, z, &err));
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(z[i].index, i);
		assert_int_equal(z[i].state, ZNS_ZONE_EMPTY);
		assert_int_equal(z[i].capacity, CAP);
		assert_int_equal(z[i].wp, 0);
		assert_false(z[i].conventional);
	}
	assert_ok(zns_dev_report(d, 16, 0, z, &err));
	assert_fails(zns_dev_report(d, 10, 7, z, &err), -EINVAL, "16 zones");
	assert_fails(zns_dev_report(d, 17, 0, z, &err), -EINVAL, "16 zones");
	assert_fails(zns_dev_report(d, 1, UINT32_MAX, z, &err), -EINVAL, "16 zones");
	zns_dev_close(d);
}

static void write_rules(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free void *buf = aligned(MIB(2));

	assert_ok(put(d, 3, 0, 8192, 1));
	assert_zone(d, 3, ZNS_ZONE_IMP_OPEN, 8192);
	assert_fails(put(d, 3, 0, 4096, 1), -EIO, "write pointer 8192");
	assert_fails(put(d, 3, 12288, 4096, 1), -EIO, "zone 3 at offset 12288");
	assert_fails(put(d, 3, 8192, 1000, 1), -EINVAL, "block size");
	assert_fails(put(d, 3, 8192 + 512, 4096, 1), -EINVAL, "block size");
	assert_fails(put(d, 16, 0, 4096, 1), -EINVAL, "zones 0 to 15");
	assert_fails(zns_dev_write(d, 3, MIB(1), buf, 4096, &err), -EINVAL, "leaves the zone");
	assert_fails(zns_dev_write(d, 3, UINT64_MAX, buf, 4096, &err), -EINVAL, "block size");
	assert_fails(zns_dev_write(d, 3, UINT64_MAX - 4095, buf, 8192, &err), -EINVAL,
		     "leaves the zone");
	assert_fails(zns_dev_write(d, 3, 8192, buf, CAP, &err), -ENOSPC, "capacity");
	assert_fails(zns_dev_write(d, 4, 0, buf, MIB(1), &err), -ENOSPC, "capacity");
	assert_zone(d, 4, ZNS_ZONE_EMPTY, 0); /* a refused write opens no zone */
	assert_zone(d, 3, ZNS_ZONE_IMP_OPEN, 8192);
	assert_ok(zns_dev_write(d, 3, 8192, buf, 0, &err));
	assert_ok(put(d, 3, 8192, CAP - 8192, 1));
	assert_zone(d, 3, ZNS_ZONE_FULL, CAP);
	assert_fails(put(d, 3, CAP, 4096, 1), -ENOSPC, "full");
	assert_fails(put(d, 3, 0, 4096, 1), -ENOSPC, "full");
	check(d, 3, 0, CAP, 1);
	/* the neighbours are untouched */
	assert_ok(put(d, 2, 0, 4096, 2));
	assert_ok(put(d, 4, 0, 4096, 2));
	check(d, 3, 0, CAP, 1);
	zns_dev_close(d);
}

static void append_rules(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free void *buf = aligned(CAP);
	uint64_t off = 7;

	pattern(buf, 4096, 0, 0, 1);
	assert_ok(zns_dev_append(d, 0, buf, 4096, &off, &err));
	assert_int_equal(off, 0);
	pattern(buf, 8192, 0, 4096, 1);
	assert_ok(zns_dev_append(d, 0, buf, 8192, &off, &err));
	assert_int_equal(off, 4096);
	check(d, 0, 0, 12288, 1);
	assert_fails(zns_dev_append(d, 0, buf, CAP, &off, &err), -ENOSPC, "capacity");
	assert_fails(zns_dev_append(d, 0, buf, 100, &off, &err), -EINVAL, "append of zone 0");
	assert_fails(zns_dev_append(d, 99, buf, 4096, &off, &err), -EINVAL, "zone 99");
	assert_ok(zns_dev_append(d, 0, buf, CAP - 12288, &off, &err));
	assert_fails(zns_dev_append(d, 0, buf, 4096, &off, &err), -ENOSPC, "full");
	zns_dev_close(d);
}

static void read_rules(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free void *buf = aligned(MIB(1));

	assert_fails(zns_dev_read(d, 0, 0, buf, 4096, &err), -ENODATA, "write pointer 0");
	assert_ok(zns_dev_read(d, 0, 0, buf, 0, &err));
	assert_ok(put(d, 0, 0, 12288, 1));
	check(d, 0, 4096, 8192, 1);
	assert_fails(zns_dev_read(d, 0, 8192, buf, 8192, &err), -ENODATA, "zone 0 at offset 8192");
	assert_fails(zns_dev_read(d, 0, 12288, buf, 4096, &err), -ENODATA, "write pointer");
	assert_fails(zns_dev_read(d, 0, 100, buf, 4096, &err), -EINVAL, "block size");
	assert_fails(zns_dev_read(d, 0, 0, buf, 100, &err), -EINVAL, "block size");
	assert_fails(zns_dev_read(d, 16, 0, buf, 4096, &err), -EINVAL, "zones 0 to 15");
	assert_fails(zns_dev_read(d, 0, MIB(1), buf, 4096, &err), -EINVAL, "leaves the zone");
	assert_fails(zns_dev_read(d, 0, UINT64_MAX, buf, 4096, &err), -EINVAL, "block size");
	zns_dev_close(d);
}

static void any_buffer_will_do(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free char *raw = aligned(MIB(1));
	cleanup_free char *want = aligned(KIB(600));

	/* odd addresses, and more than the bounce buffer holds */
	pattern(want, KIB(600), 0, 0, 5);
	memcpy(raw + 3, want, KIB(600));
	assert_ok(zns_dev_write(d, 0, 0, raw + 3, KIB(600), &err));
	check(d, 0, 0, KIB(600), 5);
	memset(raw, 0, MIB(1));
	assert_ok(zns_dev_read(d, 0, 0, raw + 1, KIB(600), &err));
	assert_memory_equal(raw + 1, want, KIB(600));
	zns_dev_close(d);
}

/* 512-byte blocks, which O_DIRECT does not accept on many disks, mixed with larger requests. */
static void small_blocks(void **state)
{
	struct zns_emu_params p = small();
	struct zns_dev *d;
	uint64_t off = 0;
	size_t len = 512;

	p.block_size = 512;
	p.zone_capacity = KIB(960) - 512; /* no multiple of 4 KiB */
	d = make_dev(&p);
	while (off < p.zone_capacity) {
		size_t n = zns_min(len, p.zone_capacity - off);

		assert_ok(put(d, 1, off, n, 9));
		off += n;
		len = len >= 65536 ? 512 : len * 2 + 512;
	}
	assert_zone(d, 1, ZNS_ZONE_FULL, p.zone_capacity);
	assert_ok(put(d, 0, 0, p.zone_capacity, 8));
	assert_ok(put(d, 2, 0, 512, 7));
	check(d, 1, 0, p.zone_capacity, 9);
	check(d, 1, 512, 512, 9);
	check(d, 0, 0, p.zone_capacity, 8);
	zns_dev_close(d);
	d = open_dev();
	check(d, 1, 0, p.zone_capacity, 9);
	check(d, 2, 0, 512, 7);
	zns_dev_close(d);
}

static void transitions(void **state)
{
	struct zns_dev *d = make_small();

	assert_fails(zns_dev_close_zone(d, 0, &err), -EIO, "empty");
	assert_ok(zns_dev_open_zone(d, 0, &err));
	assert_zone(d, 0, ZNS_ZONE_EXP_OPEN, 0);
	assert_ok(zns_dev_open_zone(d, 0, &err));
	assert_ok(zns_dev_close_zone(d, 0, &err));
	assert_zone(d, 0, ZNS_ZONE_EMPTY, 0); /* never written: empty again */
	assert_ok(zns_dev_open_zone(d, 0, &err));
	assert_ok(put(d, 0, 0, 4096, 1));
	/* a write to an explicitly opened zone leaves it so */
	assert_zone(d, 0, ZNS_ZONE_EXP_OPEN, 4096);
	assert_ok(zns_dev_close_zone(d, 0, &err));
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 4096);
	assert_ok(zns_dev_close_zone(d, 0, &err));
	assert_ok(put(d, 0, 4096, 4096, 1));
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 8192);
	assert_ok(zns_dev_open_zone(d, 0, &err));
	assert_zone(d, 0, ZNS_ZONE_EXP_OPEN, 8192);
	assert_ok(zns_dev_finish(d, 0, &err));
	assert_zone(d, 0, ZNS_ZONE_FULL, CAP);
	assert_ok(zns_dev_finish(d, 0, &err));
	assert_fails(zns_dev_open_zone(d, 0, &err), -ENOSPC, "full");
	assert_fails(zns_dev_close_zone(d, 0, &err), -ENOSPC, "full");
	assert_fails(zns_dev_open_zone(d, 16, &err), -EINVAL, "zones 0 to 15");
	assert_fails(zns_dev_close_zone(d, 16, &err), -EINVAL, "zones 0 to 15");
	assert_fails(zns_dev_finish(d, 16, &err), -EINVAL, "zones 0 to 15");
	zns_dev_close(d);
}

static void finished_zone_hides_old_data(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free uint8_t *buf = aligned(CAP), *zero = aligned(CAP);
	uint32_t z = 5;

	assert_ok(put(d, z, 0, CAP, 1));
	assert_ok(zns_dev_reset(d, &z, 1, &err));
	assert_ok(put(d, z, 0, 8192, 2));
	assert_ok(zns_dev_finish(d, z, &err));
	check(d, z, 0, 8192, 2);
	assert_ok(zns_dev_read(d, z, 4096, buf, CAP - 4096, &err));
	assert_memory_equal(buf + 4096, zero, CAP - 8192);
	assert_fails(zns_dev_read(d, z, CAP - 4096, buf, 8192, &err), -ENODATA, "write pointer");
	z = 6;
	assert_ok(zns_dev_finish(d, z, &err)); /* never written at all */
	assert_zone(d, z, ZNS_ZONE_FULL, CAP);
	memset(buf, 1, CAP);
	assert_ok(zns_dev_read(d, z, 0, buf, CAP, &err));
	assert_memory_equal(buf, zero, CAP);
	zns_dev_close(d);
}

static void limits(void **state)
{
	struct zns_dev *d = make_small();
	uint32_t two[2] = { 0, 1 };
	uint64_t off;
	cleanup_free void *buf = aligned(4096);

	for (uint32_t z = 0; z < 4; z++)
		assert_ok(put(d, z, 0, 4096, 1));
	assert_fails(put(d, 4, 0, 4096, 1), -ETOOMANYREFS, "limit is 4");
	assert_fails(zns_dev_append(d, 4, buf, 4096, &off, &err), -ETOOMANYREFS, "zone 4");
	assert_fails(zns_dev_open_zone(d, 4, &err), -ETOOMANYREFS, "close, finish or reset");
	assert_fails(zns_dev_finish(d, 4, &err), -ETOOMANYREFS, "limit is 4");
	assert_zone(d, 4, ZNS_ZONE_EMPTY, 0);
	assert_ok(zns_dev_close_zone(d, 0, &err));
	assert_ok(zns_dev_close_zone(d, 1, &err));
	assert_ok(put(d, 4, 0, 4096, 1));
	assert_ok(put(d, 5, 0, 4096, 1)); /* 4 open, 2 closed: 6 active */
	assert_fails(put(d, 0, 4096, 4096, 1), -ETOOMANYREFS, "zone 0");
	assert_ok(zns_dev_close_zone(d, 5, &err));
	assert_fails(put(d, 6, 0, 4096, 1), -EOVERFLOW, "limit is 6");
	assert_fails(zns_dev_open_zone(d, 6, &err), -EOVERFLOW, "finish or reset");
	assert_ok(put(d, 5, 4096, 4096, 1)); /* active already */
	assert_ok(zns_dev_finish(d, 5, &err));
	assert_ok(put(d, 6, 0, 4096, 1));
	assert_ok(zns_dev_reset(d, two, 2, &err));
	assert_ok(zns_dev_close_zone(d, 6, &err));
	assert_ok(put(d, 0, 0, CAP, 1)); /* directly to full: counts for no limit */
	assert_ok(put(d, 1, 0, CAP, 1));
	assert_ok(put(d, 7, 0, 4096, 1));
	zns_dev_close(d);
}

static void no_limits(void **state)
{
	struct zns_emu_params p = small();
	struct zns_dev *d;

	p.max_open = p.max_active = 0;
	d = make_dev(&p);
	for (uint32_t z = 0; z < 16; z++)
		assert_ok(put(d, z, 0, 4096, 1));
	zns_dev_close(d);
}

static void resets(void **state)
{
	struct zns_dev *d = make_small();
	struct emu *e = emu_of(d);
	uint32_t some[] = { 9, 0, 2, 0, 1, 9 }, bad[] = { 0, 16 }, worn[] = { 0, 3 };
	uint64_t gen = e->live[0].gen, gen5 = e->live[5].gen;

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(put(d, 1, 0, CAP, 1));
	assert_ok(put(d, 3, 0, 4096, 1));
	assert_ok(zns_dev_open_zone(d, 2, &err));
	assert_ok(zns_dev_finish(d, 9, &err));
	assert_fails(zns_dev_reset(d, bad, 2, &err), -EINVAL, "zones 0 to 15");
	assert_ok(zns_emu_set_zone_state(d, 3, ZNS_ZONE_READ_ONLY, &err));
	assert_fails(zns_dev_reset(d, worn, 2, &err), -EROFS, "zone 3");
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 8192); /* all of them are reset, or none */
	assert_ok(zns_dev_reset(d, some, 0, &err));
	assert_ok(zns_dev_reset(d, some, 6, &err));
	assert_zone(d, 0, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 1, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 2, ZNS_ZONE_EMPTY, 0);
	assert_zone(d, 9, ZNS_ZONE_EMPTY, 0);
	assert_int_equal(e->live[0].gen, gen + 1);
	some[0] = 5;
	assert_ok(zns_dev_reset(d, some, 1, &err)); /* an empty one: nothing to do */
	assert_int_equal(e->live[5].gen, gen5);
	assert_ok(put(d, 0, 0, 4096, 2));
	check(d, 0, 0, 4096, 2);
	zns_dev_close(d);
}

static void worn_zones(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free void *buf = aligned(4096);
	uint32_t z = 0;

	assert_ok(put(d, 0, 0, 8192, 1));
	assert_ok(zns_emu_set_zone_state(d, 0, ZNS_ZONE_READ_ONLY, &err));
	assert_zone(d, 0, ZNS_ZONE_READ_ONLY, 8192);
	check(d, 0, 0, 8192, 1);
	assert_fails(put(d, 0, 8192, 4096, 1), -EROFS, "zone 0 is read-only");
	assert_fails(zns_dev_open_zone(d, 0, &err), -EROFS, "read-only");
	assert_fails(zns_dev_close_zone(d, 0, &err), -EROFS, "read-only");
	assert_fails(zns_dev_finish(d, 0, &err), -EROFS, "read-only");
	assert_fails(zns_dev_reset(d, &z, 1, &err), -EROFS, "read-only");
	assert_ok(zns_emu_set_zone_state(d, 0, ZNS_ZONE_OFFLINE, &err));
	assert_fails(zns_dev_read(d, 0, 0, buf, 4096, &err), -ENXIO, "offline");
	assert_fails(put(d, 0, 8192, 4096, 1), -ENXIO, "offline");
	assert_fails(zns_dev_open_zone(d, 0, &err), -ENXIO, "offline");
	assert_fails(zns_dev_reset(d, &z, 1, &err), -ENXIO, "offline");
	assert_fails(zns_dev_finish(d, 0, &err), -ENXIO, "offline");
	assert_ok(zns_emu_set_zone_state(d, 0, ZNS_ZONE_EMPTY, &err));
	assert_zone(d, 0, ZNS_ZONE_CLOSED, 8192);
	check(d, 0, 0, 8192, 1);
	assert_ok(zns_emu_set_zone_state(d, 1, ZNS_ZONE_OFFLINE, &err));
	assert_ok(zns_emu_set_zone_state(d, 1, ZNS_ZONE_EMPTY, &err));
	assert_zone(d, 1, ZNS_ZONE_EMPTY, 0);
	assert_fails(zns_emu_set_zone_state(d, 1, ZNS_ZONE_FULL, &err), -EINVAL, "full");
	assert_fails(zns_emu_set_zone_state(d, 99, ZNS_ZONE_OFFLINE, &err), -EINVAL, "zone 99");
	zns_dev_close(d);
}

static void read_only_handle(void **state)
{
	struct zns_dev *d = make_small(), *r;
	cleanup_free void *buf = aligned(4096);
	uint32_t z = 0;
	uint64_t off;

	assert_ok(put(d, 0, 0, 4096, 1));
	assert_ok(zns_dev_open(dev_spec, ZNS_DEV_RDONLY, &r, &err));
	check(r, 0, 0, 4096, 1);
	assert_fails(put(r, 0, 4096, 4096, 1), -EBADF, "reading only");
	assert_fails(zns_dev_append(r, 0, buf, 4096, &off, &err), -EBADF, "reading only");
	assert_fails(zns_dev_reset(r, &z, 1, &err), -EBADF, "reading only");
	assert_fails(zns_dev_open_zone(r, 0, &err), -EBADF, "reading only");
	assert_fails(zns_dev_close_zone(r, 0, &err), -EBADF, "reading only");
	assert_fails(zns_dev_finish(r, 0, &err), -EBADF, "reading only");
	assert_fails(zns_dev_flush(r, &err), -EBADF, "reading only");
	assert_fails(zns_emu_power_cut(r, &err), -EBADF, "reading only");
	assert_fails(zns_emu_set_zone_state(r, 0, ZNS_ZONE_OFFLINE, &err), -EBADF, "reading only");
	assert_ok(put(d, 0, 4096, 4096, 1));
	check(r, 0, 4096, 4096, 1); /* live */
	zns_dev_close(r);
	zns_dev_close(d);
}

static void not_emulated(void **state)
{
	static const struct zns_dev_ops ops = { .name = "block" };
	struct zns_dev d = { .ops = &ops, .path = "/dev/x" };
	struct zns_emu_fault f = { 0 };
	struct zns_emu_params p;
	uint8_t uuid[ZNS_UUID_LEN];
	uint32_t map[4];

	assert_int_equal(zns_emu_info(&d, &p, uuid), -EMEDIUMTYPE);
	assert_int_equal(zns_emu_set_fault(&d, &f), -EMEDIUMTYPE);
	assert_fails(zns_emu_zone_map(&d, map, &err), -EMEDIUMTYPE, "/dev/x");
	assert_fails(zns_emu_power_cut(&d, &err), -EMEDIUMTYPE, "/dev/x");
	assert_fails(zns_emu_set_zone_state(&d, 0, ZNS_ZONE_OFFLINE, &err), -EMEDIUMTYPE, "/dev/x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(state_names),
		T(open_refuses),
		T(create_refuses_and_forces),
		T(header_is_checked),
		T(geometry),
		T(write_rules),
		T(append_rules),
		T(read_rules),
		T(any_buffer_will_do),
		T(small_blocks),
		T(transitions),
		T(finished_zone_hides_old_data),
		T(limits),
		T(no_limits),
		T(resets),
		T(worn_zones),
		T(read_only_handle),
		T(not_emulated),
	};

	return cmocka_run_group_tests_name("emu", tests, NULL, NULL);
}
