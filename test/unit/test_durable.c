/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a backend calls durable must be on the medium when the call returns. The programs' calls on
 * a host's file are seen here (-Wl,--wrap): a cache that a power cut empties stands behind the
 * kernel's block devices and zonefs, and the emulator's file is compared with what its last sync
 * has left.
 */
#include <sys/uio.h>
#include "../../zns/dev/block_priv.h"
#include "../../zns/dev/nvme_priv.h"
#include "../../zns/dev/zonefs_priv.h"
#include "emu_common.h"

#define BLOCK 4096u
#define ZONE KIB(64)
#define NR 4

/* ---- the host ---- */

static uint8_t *medium; /* the file's content after a power cut; NULL: not examined */
static size_t medium_len;
static int sync_error, syncs;
/* Set by the emulator: an entry of the table was written before the data that it counts. */
static bool table_ahead;
static const struct emu *watched;

ssize_t __real_pwritev64v2(int fd, const struct iovec *v, int nr, off_t off, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *v, int nr, off_t off, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *v, int nr, off_t off, int flags)
{
	ssize_t n = __real_pwritev64v2(fd, v, nr, off, flags & ~RWF_DSYNC);

	assert_int_equal(nr, 1);
	if (n > 0 && medium && flags & RWF_DSYNC)
		memcpy(medium + off, v->iov_base, (size_t)n);
	return n;
}

/* Does the table in the file count bytes of zone 0 that the medium does not have yet? */
static bool is_ahead(int fd)
{
	struct emu_entry en;
	uint64_t data = watched->lay.data_off;
	uint8_t *now;
	bool ahead;

	assert_int_equal(pread(fd, &en, sizeof(en), (off_t)watched->lay.dur_off), sizeof(en));
	now = malloc(en.wp + 1);
	assert_int_equal(pread(fd, now, en.wp, (off_t)data), (ssize_t)en.wp);
	ahead = memcmp(now, medium + data, en.wp);
	free(now);
	return ahead;
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	syncs++;
	if (watched && medium)
		table_ahead |= is_ahead(fd);
	if (sync_error) {
		errno = sync_error;
		return -1;
	}
	return medium && pread(fd, medium, medium_len, 0) < 0 ? -1 : 0;
}

static void medium_begin(size_t len)
{
	medium = calloc(1, len);
	medium_len = len;
	sync_error = syncs = 0;
	table_ahead = false;
	watched = NULL;
}

static void medium_end(void)
{
	free(medium);
	medium = NULL;
	watched = NULL;
}

/* ---- block devices and zonefs ---- */

static struct zns_zone zones[NR];

static int report(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		  struct zns_err *why)
{
	memcpy(out, zones + first, nr * sizeof(*out));
	return 0;
}

static const struct zns_dev_ops ops = { .name = "file", HW_OPS };

static void drive_begin(struct hw *h, struct hw_raw *raw)
{
	raw->report = report;
	h->dev.ops = &ops;
	h->dev.geo = (struct zns_geometry){ .nr_zones = NR,
					    .block_size = BLOCK,
					    .zone_size = ZONE,
					    .zone_capacity = ZONE,
					    .max_io_bytes = KIB(16),
					    .mem_align = BLOCK };
	for (uint32_t i = 0; i < NR; i++)
		zones[i] = (struct zns_zone){ .index = i, .capacity = ZONE };
	assert_ok(hw_init(h, raw, 0, &err));
}

/* @at: where zone 0 begins on the medium. */
static void keeps_its_promise(struct zns_dev *d, const uint8_t *at)
{
	cleanup_free uint8_t *buf = aligned(ZONE);

	pattern(buf, ZONE, 0, 0, 1);
	assert_ok(zns_dev_write(d, 0, 0, buf, 2 * BLOCK, &err));
	assert_memory_not_equal(at, buf, 2 * BLOCK); /* the cache holds the data back */
	assert_ok(zns_dev_flush(d, &err));
	assert_memory_equal(at, buf, 2 * BLOCK);
	/* for a write of several commands: each command */
	assert_ok(zns_dev_write_durable(d, 0, 2 * BLOCK, buf + 2 * BLOCK, KIB(40), &err));
	assert_memory_equal(at, buf, 2 * BLOCK + KIB(40));
	assert_ok(zns_dev_write(d, 0, 2 * BLOCK + KIB(40), buf, BLOCK, &err));
	sync_error = EIO;
	assert_fails(zns_dev_flush(d, &err), -EIO, "");
	sync_error = ENOSPC;
	assert_fails(zns_dev_flush(d, &err), -EIO, "");
	sync_error = 0;
}

static void block_device(void **state)
{
	struct block b = { .fd = open(dev_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) };
	struct hw_raw raw = block_raw;

	assert_true(b.fd >= 0);
	assert_int_equal(ftruncate(b.fd, NR * ZONE), 0);
	medium_begin(NR * ZONE);
	drive_begin(&b.hw, &raw);
	keeps_its_promise(&b.hw.dev, medium);
	hw_fini(&b.hw);
	close(b.fd);
	medium_end();
}

static void zonefs(void **state)
{
	struct zonefs f = { .dir = open(test_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			    .manage = -1 };
	int zone = openat(f.dir, "0", O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600);
	struct hw_raw raw = zonefs_raw;

	if (zone < 0 && errno == EINVAL)
		skip(); /* a file system without O_DIRECT */
	assert_true(zone >= 0);
	assert_int_equal(ftruncate(zone, ZONE), 0);
	medium_begin(ZONE);
	drive_begin(&f.hw, &raw);
	keeps_its_promise(&f.hw.dev, medium);
	hw_fini(&f.hw);
	close(zone);
	close(f.dir);
	medium_end();
}

/* ---- NVMe passthrough ---- */

static struct nvme_command sent;
static int answer;

int __wrap_nvme_run(struct nvme_ns *n, struct nvme_command *c, struct zns_err *why);
int __wrap_nvme_run(struct nvme_ns *n, struct nvme_command *c, struct zns_err *why)
{
	sent = *c;
	return answer ? zns_fail(why, answer, "the drive says so") : 0;
}

static void nvme(void **state)
{
	struct nvme_ns n = { .lba_shift = 12, .zone_lbas = ZONE / BLOCK };
	cleanup_free uint8_t *buf = aligned(BLOCK);

	answer = 0;
	assert_ok(nvme_raw.write(&n.hw, 0, 0, buf, BLOCK, &err));
	assert_false(sent.cdw12 & 1u << 30);
	assert_ok(nvme_raw.write_durable(&n.hw, 0, 0, buf, BLOCK, &err));
	assert_true(sent.cdw12 & 1u << 30); /* Force Unit Access */
	assert_ok(nvme_raw.flush(&n.hw, &err));
	assert_int_equal(sent.opcode, 0); /* Flush */
	answer = -EIO;
	assert_fails(nvme_raw.write_durable(&n.hw, 0, 0, buf, BLOCK, &err), -EIO, "drive says");
	assert_fails(nvme_raw.flush(&n.hw, &err), -EIO, "drive says");
}

/* ---- the emulator ---- */

/* Zone 0 has @len bytes on the medium, and its entry there counts them. */
static void assert_on_medium(const struct emu *e, size_t len, uint32_t tag)
{
	cleanup_free uint8_t *want = aligned(len);
	struct emu_entry en;

	memcpy(&en, medium + e->lay.dur_off, sizeof(en));
	assert_int_equal(en.wp, len);
	pattern(want, len, 0, 0, tag);
	assert_memory_equal(medium + e->lay.data_off, want, len);
	assert_false(table_ahead);
}

static void emulator(void **state)
{
	static const uint32_t zone;
	struct zns_dev *d = make_small();
	struct emu *e = emu_of(d);
	cleanup_free uint8_t *buf = aligned(BLOCK);
	size_t len = 2 * BLOCK;

	medium_begin(e->lay.total);
	__wrap_fdatasync(e->fd); /* as it was made */
	watched = e;
	assert_ok(put(d, 0, 0, len, 1));
	assert_ok(zns_dev_flush(d, &err));
	assert_on_medium(e, len, 1);
	assert_ok(put(d, 0, len, BLOCK, 1));
	assert_ok(zns_dev_flush_zones(d, &zone, 1, &err));
	assert_on_medium(e, len += BLOCK, 1);
	pattern(buf, BLOCK, 0, len, 1);
	assert_ok(zns_dev_write_durable(d, 0, len, buf, BLOCK, &err));
	assert_on_medium(e, len += BLOCK, 1);
	assert_ok(zns_dev_reset(d, &zone, 1, &err));
	assert_on_medium(e, 0, 1);
	assert_ok(put(d, 0, 0, BLOCK, 2));
	sync_error = EIO;
	assert_fails(zns_dev_flush(d, &err), -EIO, "sync");
	sync_error = 0;
	/* the kernel reports a lost page once; a later sync that succeeds proves nothing */
	syncs = 0;
	assert_fails(zns_dev_flush(d, &err), -EIO, "open the device anew");
	assert_fails(zns_dev_flush_zones(d, &zone, 1, &err), -EIO, "open the device anew");
	assert_int_equal(syncs, 0);
	zns_dev_close(d);
	medium_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = { T(block_device), T(zonefs), T(nvme), T(emulator) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
