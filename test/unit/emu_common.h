/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_EMU_COMMON_H
#define TEST_EMU_COMMON_H
/* Shared by the tests of the emulated device: a directory, small devices, patterns. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "../../zns/dev/emu/emu_priv.h"
#include "../controls/controls.h"

static char test_dir[128], dev_path[160], dev_spec[176];
static struct zns_err err;

/* Makes a new directory for each test, and the path of a device in it that does not exist yet. */
static inline int emu_begin(void **state)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(test_dir, sizeof(test_dir), "%s/zns-emu-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(test_dir))
		return -1;
	snprintf(dev_path, sizeof(dev_path), "%s/dev.img", test_dir);
	snprintf(dev_spec, sizeof(dev_spec), "emu:%s", dev_path);
	unsetenv("ZNS_EMU_FAULT");
	unsetenv("ZNS_EMU_CLOCK");
	err = (struct zns_err)ZNS_ERR_INIT;
	return 0;
}

static inline int emu_end(void **state)
{
	char cmd[200];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", test_dir);
	return system(cmd);
}

/* 16 zones of 1 MiB with 960 KiB to write, limits of 4 open and 6 active, 4 dies on 2 channels. */
static inline struct zns_emu_params small(void)
{
	struct zns_emu_params p;

	zns_emu_default_params(&p);
	p.nr_zones = 16;
	p.zone_size = MIB(1);
	p.zone_capacity = KIB(960);
	p.max_open = 4;
	p.max_active = 6;
	p.channels = 2;
	p.ways = 2;
	return p;
}

#define assert_ok(call)                                             \
	do {                                                        \
		int rc_ = (call);                                   \
		if (rc_)                                            \
			fail_msg("%s: %d %s", #call, rc_, err.msg); \
	} while (0)

#define assert_says(text)                                               \
	do {                                                            \
		if (!strstr(err.msg, text))                             \
			fail_msg("\"%s\" lacks \"%s\"", err.msg, text); \
	} while (0)

/* The call must fail with this code, and its message must contain this text. */
#define assert_fails(call, want, text)                                                     \
	do {                                                                               \
		err.msg[0] = '\0';                                                         \
		int rc_ = (call);                                                          \
		if (rc_ != (want))                                                         \
			fail_msg("%s: %d, not %d (%s)", #call, rc_, (int)(want), err.msg); \
		assert_int_equal(err.code, (want));                                        \
		assert_says(text);                                                         \
	} while (0)

/* Compares field by field, since the struct has padding. */
static inline void assert_same_params(const struct zns_emu_params *a,
				      const struct zns_emu_params *b)
{
	assert_int_equal(a->nr_zones, b->nr_zones);
	assert_int_equal(a->block_size, b->block_size);
	assert_int_equal(a->zone_size, b->zone_size);
	assert_int_equal(a->zone_capacity, b->zone_capacity);
	assert_int_equal(a->max_open, b->max_open);
	assert_int_equal(a->max_active, b->max_active);
	assert_int_equal(a->channels, b->channels);
	assert_int_equal(a->ways, b->ways);
	assert_int_equal(a->map, b->map);
	assert_int_equal(a->map_seed, b->map_seed);
	assert_int_equal(a->timing, b->timing);
	assert_int_equal(a->die_write_mibps, b->die_write_mibps);
	assert_int_equal(a->die_read_mibps, b->die_read_mibps);
	assert_int_equal(a->channel_mibps, b->channel_mibps);
	assert_int_equal(a->program_unit, b->program_unit);
	assert_int_equal(a->buffer_units, b->buffer_units);
	assert_int_equal(a->command_us, b->command_us);
	assert_int_equal(a->reset_us, b->reset_us);
	assert_int_equal(a->controller_mibps, b->controller_mibps);
	assert_int_equal(a->gc_every_mib, b->gc_every_mib);
	assert_int_equal(a->gc_stall_ms, b->gc_stall_ms);
	assert_int_equal(a->cache_mib, b->cache_mib);
	assert_int_equal(a->cache_mibps, b->cache_mibps);
	assert_int_equal(a->cache_backed, b->cache_backed);
	assert_int_equal(a->odd_dies, b->odd_dies);
	assert_int_equal(a->odd_pct, b->odd_pct);
	assert_int_equal(a->planes, b->planes);
	assert_int_equal(a->small_dies, b->small_dies);
	assert_int_equal(a->small_zones, b->small_zones);
	assert_int_equal(a->row, b->row);
	assert_int_equal(a->zone_dies, b->zone_dies);
	assert_int_equal(a->zone_step, b->zone_step);
	assert_int_equal(a->heat_mib, b->heat_mib);
	assert_int_equal(a->cool_mibps, b->cool_mibps);
	assert_int_equal(a->throttle_pct, b->throttle_pct);
}

static inline struct zns_dev *open_dev(void)
{
	struct zns_dev *d = NULL;

	assert_ok(zns_dev_open(dev_spec, 0, &d, &err));
	return d;
}

static inline struct zns_dev *make_dev(const struct zns_emu_params *p)
{
	assert_ok(zns_emu_create(dev_path, p, false, &err));
	return open_dev();
}

static inline struct zns_dev *make_small(void)
{
	struct zns_emu_params p = small();

	return make_dev(&p);
}

static inline struct zns_zone zone_of(struct zns_dev *d, uint32_t zone)
{
	struct zns_zone z;

	assert_ok(zns_dev_report(d, zone, 1, &z, &err));
	assert_int_equal(z.index, zone);
	return z;
}

#define assert_zone(d, zone, want_state, want_wp)       \
	do {                                            \
		struct zns_zone z_ = zone_of(d, zone);  \
		assert_int_equal(z_.state, want_state); \
		assert_int_equal(z_.wp, want_wp);       \
	} while (0)

/* Every 8 bytes encode zone, offset and tag, so that misplaced data show. */
static inline void pattern(void *buf, size_t len, uint32_t zone, uint64_t off, uint32_t tag)
{
	uint64_t *w = buf;

	for (size_t i = 0; i < len / 8; i++)
		w[i] = (uint64_t)tag << 48 ^ (uint64_t)zone << 40 ^ (off + i * 8);
}

static inline void *aligned(size_t len)
{
	void *p = NULL;

	assert_int_equal(posix_memalign(&p, 4096, len), 0);
	memset(p, 0, len);
	return p;
}

static inline int put(struct zns_dev *d, uint32_t zone, uint64_t off, size_t len, uint32_t tag)
{
	cleanup_free void *buf = aligned(len ? len : 1);

	pattern(buf, len, zone, off, tag);
	return zns_dev_write(d, zone, off, buf, len, &err);
}

static inline void check(struct zns_dev *d, uint32_t zone, uint64_t off, size_t len, uint32_t tag)
{
	cleanup_free void *want = aligned(len), *got = aligned(len);

	pattern(want, len, zone, off, tag);
	assert_ok(zns_dev_read(d, zone, off, got, len, &err));
	assert_memory_equal(got, want, len);
}

/* Runs @fn in a child, which must open the device anew. Returns its exit code, or 128 + signal. */
static inline int in_child(int (*fn)(void))
{
	pid_t pid = fork();
	int st;

	if (!pid)
		_exit(fn());
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}

#define T(f) cmocka_unit_test_setup_teardown(f, emu_begin, emu_end)

#endif
