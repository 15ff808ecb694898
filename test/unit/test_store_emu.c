/* SPDX-License-Identifier: GPL-2.0-only */
/* The store on the emulated device: its strictness, its faults, its power cuts, its limits. */
#include <unistd.h>
#include "store_fixture.h"
#include "../controls/controls.h"

#define NZ 8
#define STEPS 40

static char path[64], spec[80];

static struct zns_dev *dev_open(void)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_dev *dev = NULL;

	if (zns_dev_open(spec, 0, &dev, &err))
		fail_msg("%s", err.msg);
	return dev;
}

static struct zns_dev *fresh(uint32_t max_open, uint32_t max_active)
{
	ZnsPb__Profile *p = make_profile(NZ, 2);
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_emu_params e;
	struct zns_dev *dev;

	zns_emu_default_params(&e);
	e.nr_zones = NZ;
	e.block_size = 4096;
	e.zone_size = e.zone_capacity = KIB(64);
	e.max_open = max_open;
	e.max_active = max_active;
	e.channels = 2;
	e.ways = 1;
	e.timing = false;
	if (zns_emu_create(path, &e, true, &err))
		fail_msg("%s", err.msg);
	dev = dev_open();
	if (zns_store_format(dev, NULL, p, false, NULL, &err))
		fail_msg("%s", err.msg);
	profile_free(p);
	return dev;
}

static struct zns_store *store_open(struct zns_dev *dev, unsigned flags)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_store *s = NULL;

	if (zns_store_open(dev, flags, &s, &err))
		fail_msg("%s", err.msg);
	return s;
}

static int step(struct zns_store *s, unsigned n, struct zns_err *err)
{
	struct ck k;

	if (zns_store_nr_checkpoints(s) > 3)
		return zns_store_remove(s, zns_store_checkpoint(s, 1)->id.data, "script", err);
	return zns_store_commit(s,
				ck_init(&k, n, n % 2 ? "a" : "b", 3 + n % 5, n % 15 * 4096, 4096),
				err);
}

static void expect_text(struct zns_dev *dev, unsigned flags, const char *text)
{
	struct zns_store *s = store_open(dev, flags);
	char *now = store_text(s, NZ, false);

	assert_string_equal(now, text);
	free(now);
	zns_store_close(s);
}

static void reopen_after_each(void **state)
{
	struct zns_dev *dev = fresh(0, 0);
	struct zns_err err = ZNS_ERR_INIT;

	for (unsigned n = 0; n < STEPS; n++) {
		struct zns_store *s = store_open(dev, 0);
		char *text;

		if (step(s, n, &err))
			fail_msg("%s", err.msg);
		text = store_text(s, NZ, false);
		zns_store_close(s);
		if (n % 4 == 0) {
			zns_dev_close(dev);
			dev = dev_open();
		}
		expect_text(dev, ZNS_STORE_RDONLY, text);
		free(text);
	}
	zns_dev_close(dev);
}

static void power_cut_after_each(void **state)
{
	struct zns_dev *dev = fresh(0, 0);
	struct zns_err err = ZNS_ERR_INIT;

	for (unsigned n = 0; n < STEPS; n++) {
		struct zns_store *s = store_open(dev, 0);
		char *text;

		if (step(s, n, &err))
			fail_msg("%s", err.msg);
		text = store_text(s, NZ, false);
		zns_store_close(s);
		if (zns_emu_power_cut(dev, &err))
			fail_msg("%s", err.msg);
		zns_dev_close(dev);
		dev = dev_open();
		expect_text(dev, ZNS_STORE_RDONLY, text);
		free(text);
	}
	zns_dev_close(dev);
}

/* The n-th write fails, for every n of a script with rolls; with and without a power cut behind it.
 */
static void write_faults(void **state)
{
	unsigned failures = 0;

	for (int cut = 0; cut < 2; cut++) {
		for (int64_t at = 0; at < 60; at += 1 + cut) {
			struct zns_emu_fault f = { .fail_write_after = at, .fail_read_after = -1 };
			struct zns_dev *dev = fresh(0, 0);
			struct zns_store *s = store_open(dev, 0);
			struct zns_err err = ZNS_ERR_INIT;
			char *text = NULL;

			assert_int_equal(zns_emu_set_fault(dev, &f), 0);
			for (unsigned n = 0; n < STEPS; n++) {
				char *before = store_text(s, NZ, false);
				int rc = step(s, n, &err);

				free(text);
				text = store_text(s, NZ, false);
				if (rc) {
					failures++;
					assert_string_equal(before, text);
					free(before);
					if (cut)
						break;
					continue;
				}
				free(before);
			}
			zns_store_close(s);
			if (cut)
				OK(zns_emu_power_cut(dev, &err));
			zns_dev_close(dev);
			dev = dev_open();
			expect_text(dev, ZNS_STORE_RDONLY, text);
			expect_text(dev, 0, text);
			expect_text(dev, 0, text);
			free(text);
			zns_dev_close(dev);
		}
	}
	assert_true(failures > 20);
}

/* A device that allows two active zones is enough for a log that rolls. */
static void active_limit(void **state)
{
	struct zns_dev *dev = fresh(2, 2);
	struct zns_store *s = store_open(dev, 0);
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_zone z[NZ];
	unsigned active = 0;

	for (unsigned n = 0; n < 200; n++)
		if (step(s, n % 160, &err))
			fail_msg("step %u: %s", n, err.msg);
	assert_true(zns_store_generation(s) > 5);
	OK(zns_dev_report(dev, 0, NZ, z, &err));
	for (int i = 0; i < NZ; i++)
		active += zns_zone_is_active(z[i].state);
	assert_int_equal(active, 1);
	zns_store_close(s);
	zns_dev_close(dev);
}

static void worn_zones(void **state)
{
	struct zns_dev *dev = fresh(0, 0);
	struct zns_store *s = store_open(dev, 0);
	struct zns_err err = ZNS_ERR_INIT;
	unsigned n;
	char *text;

	for (n = 0; n < 3; n++)
		OK(step(s, n, &err));
	text = store_text(s, NZ, false);
	zns_store_close(s);
	OK(zns_emu_set_zone_state(dev, 0, ZNS_ZONE_READ_ONLY, &err)); /* the log itself */
	expect_text(dev, ZNS_STORE_RDONLY, text);
	s = store_open(dev, 0);
	assert_int_equal(zns_store_generation(s), 2);
	for (; n < 30; n++)
		OK(step(s, n, &err));
	free(text);
	text = store_text(s, NZ, false);
	zns_store_close(s);
	expect_text(dev, 0, text);
	OK(zns_emu_set_zone_state(dev, 0, ZNS_ZONE_OFFLINE, &err));
	expect_text(dev, 0, text);
	free(text);
	zns_dev_close(dev);
}

static void read_errors(void **state)
{
	struct zns_dev *dev = fresh(0, 0);
	struct zns_store *s = store_open(dev, 0);
	struct zns_err err = ZNS_ERR_INIT;
	char *text;

	for (unsigned n = 0; n < 10; n++)
		OK(step(s, n, &err));
	text = store_text(s, NZ, false);
	zns_store_close(s);
	/* An unreadable log is an error, never an older or an empty catalogue. */
	for (int64_t at = 0; at < 4; at++) {
		struct zns_emu_fault f = { .fail_write_after = -1, .fail_read_after = at };
		int rc;

		assert_int_equal(zns_emu_set_fault(dev, &f), 0);
		rc = zns_store_open(dev, ZNS_STORE_RDONLY, &s, &err);
		f.fail_read_after = -1;
		zns_emu_set_fault(dev, &f);
		if (!rc) {
			zns_store_close(s);
			assert_true(at > 0);
		} else {
			assert_int_equal(rc, -EIO);
		}
		expect_text(dev, ZNS_STORE_RDONLY, text);
	}
	free(text);
	zns_dev_close(dev);
}

static int group_setup(void **state)
{
	int fd;

	strcpy(path, "/tmp/zns-test-store-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return -1;
	close(fd);
	snprintf(spec, sizeof(spec), "emu:%s", path);
	return 0;
}

static int group_teardown(void **state)
{
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reopen_after_each), cmocka_unit_test(power_cut_after_each),
		cmocka_unit_test(write_faults),      cmocka_unit_test(active_limit),
		cmocka_unit_test(worn_zones),        cmocka_unit_test(read_errors),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
