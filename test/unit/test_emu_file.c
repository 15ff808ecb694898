/* SPDX-License-Identifier: GPL-2.0-only */
/* The host's file below an emulated device: deleted, replaced, cut short; and blocks that a reset
 * gives back. */
#include <unistd.h>
#include "emu_common.h"

static uint64_t blocks(void)
{
	struct stat st;

	assert_int_equal(stat(dev_path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void deleted(void **state)
{
	struct zns_dev *d = make_small();

	assert_ok(put(d, 3, 0, 8192, 1));
	assert_int_equal(unlink(dev_path), 0);
	assert_fails(zns_dev_flush(d, &err), -ESTALE, "deleted");
	assert_fails(put(d, 3, 8192, 4096, 1), -ESTALE, "deleted");
	zns_dev_close(d);
}

static void replaced(void **state)
{
	uint32_t zone = 3;
	struct zns_dev *d = make_small();
	char away[200];

	snprintf(away, sizeof(away), "%s.away", dev_path);
	assert_ok(put(d, zone, 0, 8192, 1));
	assert_int_equal(rename(dev_path, away), 0);
	assert_fails(zns_dev_flush_zones(d, &zone, 1, &err), -ESTALE, "moved away");
	close(open(dev_path, O_CREAT | O_WRONLY, 0600));
	assert_fails(zns_dev_flush(d, &err), -ESTALE, "replaced");
	assert_int_equal(rename(away, dev_path), 0);
	assert_ok(zns_dev_flush(d, &err)); /* no data were lost */
	check(d, zone, 0, 8192, 1);
	zns_dev_close(d);
}

/* A write behind the cut would make the file as long as before. */
static void cut_short(void **state)
{
	struct zns_dev *d = make_small();
	struct stat st;

	assert_ok(put(d, 2, 0, 8192, 1));
	assert_int_equal(stat(dev_path, &st), 0);
	assert_int_equal(truncate(dev_path, st.st_size - 4096), 0);
	assert_fails(put(d, 15, 0, KIB(960), 1), -ESTALE, "cut short");
	assert_fails(zns_dev_write_durable(d, 2, 8192, "", 0, &err), -ESTALE, "cut short");
	assert_int_equal(zone_of(d, 15).wp, 0);
	zns_dev_close(d);
}

static void resets_of(enum zns_emu_prealloc prealloc, bool given_back)
{
	struct zns_emu_params p = small();
	uint32_t some[] = { 5, 2, 9 };
	uint64_t before, full;
	struct zns_dev *d;

	p.prealloc = prealloc;
	d = make_dev(&p);
	before = blocks();
	for (uint32_t z = 2; z < 6; z++) {
		assert_ok(put(d, z, 0, KIB(960), 1));
		assert_ok(zns_dev_finish(d, z, &err));
	}
	assert_ok(zns_dev_flush(d, &err));
	full = blocks();
	assert_ok(zns_dev_reset(d, some, 3, &err));
	if (given_back) {
		assert_true(full >= before + 4 * KIB(960));
		assert_true(blocks() <= full - 2 * KIB(960));
	} else {
		assert_true(blocks() >= full);
	}
	check(d, 3, 0, KIB(960), 1); /* neighbouring zones are unchanged */
	check(d, 4, 0, KIB(960), 1);
	assert_ok(put(d, 5, 0, KIB(960), 2));
	check(d, 5, 0, KIB(960), 2);
	zns_dev_close(d);
	d = open_dev();
	check(d, 3, 0, KIB(960), 1);
	check(d, 5, 0, KIB(960), 2);
	assert_zone(d, 2, ZNS_ZONE_EMPTY, 0);
	zns_dev_close(d);
}

static void sparse_gives_back(void **state)
{
	resets_of(ZNS_EMU_SPARSE, true);
}

static void allocated_stays(void **state)
{
	resets_of(ZNS_EMU_ALLOCATED, false);
}

/* A file system may open a file with O_DIRECT and refuse to read and write it so. Here it refuses since the
 * emulator's idea of the alignment is wrong. */
static void direct_refused(void **state)
{
	struct zns_dev *d = make_small();
	uint8_t in[1000], out[1000];
	struct emu *e = emu_of(d);
	uint64_t pos = e->lay.data_off + 1;
	bool direct = e->direct;

	pattern(in, sizeof(in), 2, 0, 1);
	e->dio_mem = e->dio_off = 1;
	assert_int_equal(emu_io_write(e, pos, in, sizeof(in)), 0);
	assert_false(e->direct);
	e->direct = direct;
	assert_int_equal(emu_io_read(e, pos, out, sizeof(out)), 0);
	assert_false(e->direct);
	assert_memory_equal(in, out, sizeof(in));
	zns_dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(deleted),           T(replaced),        T(cut_short),
		T(sparse_gives_back), T(allocated_stays), T(direct_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
