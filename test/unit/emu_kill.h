/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_EMU_KILL_H
#define TEST_EMU_KILL_H
/* A process that uses an emulated device until it is killed, and the contents that the device
 * may have then. */
#include <signal.h>
#include <sys/mman.h>

#include "emu_common.h"

#define CAP KIB(960)

/*
 * What the child knows to be done, in memory shared with the parent. A zone's tag changes with each
 * reset, so data from before a reset show.
 */
struct promise {
	struct {
		uint32_t tag; /* used since the last reset that returned */
		uint32_t next_tag; /* != tag while a reset is under way */
		uint64_t written; /* writes that returned */
		uint64_t flushed; /* of those, writes before a flush that returned */
		uint64_t flushed_tag; /* the tag of those flushed writes */
	} zone[4];
	uint32_t rounds;
};
static struct promise *told;

static inline int child_until_killed(unsigned seed, void (*opened)(void))
{
	struct zns_dev *d;
	cleanup_free void *buf = aligned(65536);

	if (zns_dev_open(dev_spec, 0, &d, &err))
		return 1;
	opened();
	for (;; told->rounds++) {
		uint32_t z = rand_r(&seed) % 4;
		uint64_t wp = told->zone[z].written, len = (rand_r(&seed) % 16 + 1) * 4096;
		int what = rand_r(&seed) % 10;

		if (what == 0) {
			uint64_t seen[4];

			for (int i = 0; i < 4; i++)
				seen[i] = told->zone[i].written;
			if (zns_dev_flush(d, &err))
				return 2;
			for (int i = 0; i < 4; i++) {
				told->zone[i].flushed = seen[i];
				told->zone[i].flushed_tag = told->zone[i].tag;
			}
		} else if (what == 1 || wp + len > CAP) {
			told->zone[z].next_tag = told->zone[z].tag + 1;
			if (zns_dev_reset(d, &z, 1, &err))
				return 3;
			told->zone[z].written = 0;
			told->zone[z].flushed = 0;
			told->zone[z].tag = told->zone[z].next_tag;
			told->zone[z].flushed_tag = told->zone[z].tag;
		} else {
			pattern(buf, len, z, wp, told->zone[z].tag);
			if (zns_dev_write(d, z, wp, buf, len, &err))
				return 4;
			told->zone[z].written = wp + len;
		}
	}
}

/* Without a power cut nothing that has returned is lost. The call that was interrupted has
 * happened or not. */
static inline void check_after_kill(struct zns_dev *d)
{
	for (uint32_t z = 0; z < 4; z++) {
		uint64_t wp = zone_of(d, z).wp;

		assert_int_equal(wp % 4096, 0);
		if (told->zone[z].next_tag != told->zone[z].tag && !wp) {
			told->zone[z].tag = told->zone[z].next_tag;
			told->zone[z].flushed = 0;
			told->zone[z].flushed_tag = told->zone[z].tag;
		} else {
			assert_true(wp >= told->zone[z].written ||
				    told->zone[z].next_tag != told->zone[z].tag);
		}
		if (wp)
			check(d, z, 0, wp, told->zone[z].tag);
		told->zone[z].next_tag = told->zone[z].tag;
		told->zone[z].written = wp;
	}
}

/* After a power cut all flushed data exist. What follows is a prefix of what was written since,
 * and never data from before a reset. */
static inline void check_after_cut(struct zns_dev *d)
{
	for (uint32_t z = 0; z < 4; z++) {
		uint64_t wp = zone_of(d, z).wp;

		if (told->zone[z].flushed_tag == told->zone[z].tag)
			assert_true(wp >= told->zone[z].flushed);
		assert_true(wp <= told->zone[z].written);
		if (wp)
			check(d, z, 0, wp, told->zone[z].tag);
		told->zone[z].written = told->zone[z].flushed = wp;
		told->zone[z].flushed_tag = told->zone[z].tag;
	}
}

/* Runs that many processes, each killed by @kill_one; every third time the power fails, too. */
static inline void killed_in_the_middle(int times, void (*kill_one)(int nr))
{
	struct zns_emu_params p = small();
	struct zns_dev *d;

	p.max_open = 5; /* the child's four zones, and one more */
	d = make_dev(&p);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(told != MAP_FAILED);
	zns_dev_close(d);
	for (int i = 0; i < times; i++) {
		kill_one(i);
		d = open_dev();
		check_after_kill(d);
		if (i % 3 == 2) {
			assert_ok(zns_emu_power_cut(d, &err));
			check_after_cut(d);
		}
		/* the device still works, and its limits too */
		for (uint32_t z = 4; z < 6; z++) {
			assert_ok(put(d, z, 0, 4096, 1));
			assert_ok(zns_dev_reset(d, &z, 1, &err));
		}
		zns_dev_close(d);
	}
	print_message("%d processes killed in %u calls\n", times, told->rounds);
	munmap(told, sizeof(*told));
}

#endif
