/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_EMU_H
#define ZNS_EMU_H
/*
 * The emulated zoned device (design.md §7): a file or plain block device with strict zone
 * semantics, shared by every process that opens it and surviving the death of any.
 *
 * Durability: a flush makes data, then zone state durable; a reset is durable when the call
 * returns; after a host crash the state is one a zoned device could have left (per zone any
 * suffix written since the last flush is lost).
 */
#include <stdbool.h>
#include <stdint.h>
#include "zns/dev.h"
#include "zns/util.h"

enum zns_emu_map {
	ZNS_EMU_MAP_INTERLEAVED,	/* zone i on die i mod dies, channel first */
	ZNS_EMU_MAP_PERMUTED,		/* a permutation drawn from map_seed, balanced over dies */
	ZNS_EMU_MAP_SHARED,		/* every zone on all dies (a large-zone drive): one domain */
};

struct zns_emu_params {
	uint32_t nr_zones;
	uint32_t block_size;		/* bytes, 512 or 4096 */
	uint64_t zone_size;		/* bytes */
	uint64_t zone_capacity;		/* bytes, <= zone_size */
	uint32_t max_open, max_active;	/* 0 = no limit */
	uint32_t channels, ways;	/* dies = channels * ways */
	enum zns_emu_map map;
	uint64_t map_seed;		/* for ZNS_EMU_MAP_PERMUTED */
	bool timing;			/* NAND timing model on */
	uint32_t die_write_mibps, die_read_mibps, channel_mibps;
};

/* 4 GiB: 64 zones of 64 MiB, 4 KiB blocks, 8 channels x 4 ways, 100/400/800 MiB/s, no limits on open zones but 32 active. */
void zns_emu_default_params(struct zns_emu_params *p);

/* Named presets ("default", …). -ENOENT for an unknown name, with the known ones in @err. */
int zns_emu_profile(const char *name, struct zns_emu_params *p, struct zns_err *err);

/*
 * Make the device at @path (without "emu:"). Refuses an existing emulator device (-EEXIST)
 * unless @force. Space is allocated at once where the file system can, so that a full host disk
 * shows here and not in the middle of a dump. Draws a device UUID.
 */
int zns_emu_create(const char *path, const struct zns_emu_params *p, bool force, struct zns_err *err);

/* The parameters and the UUID of an open emulated device; -EMEDIUMTYPE if @dev is not one. */
int zns_emu_info(const struct zns_dev *dev, struct zns_emu_params *p, uint8_t uuid[ZNS_UUID_LEN]);

/*
 * The vendor's map of an open emulated device: @die_of_zone has nr_zones entries; die d sits on
 * channel d % channels. With ZNS_EMU_MAP_SHARED all entries are 0. Only `format` and tests call
 * this: probing must not.
 */
int zns_emu_zone_map(const struct zns_dev *dev, uint32_t *die_of_zone, struct zns_err *err);

/* Test hooks, by environment or call; see dev/emu_fault.c. */
struct zns_emu_fault {
	int64_t fail_write_after;	/* the n-th write from now fails with -EIO (0 = the next); -1 = never */
	int64_t fail_read_after;
};
int zns_emu_set_fault(struct zns_dev *dev, const struct zns_emu_fault *f);
/* Put one zone into READ_ONLY or OFFLINE (or back to what its write pointer says, with EMPTY). */
int zns_emu_set_zone_state(struct zns_dev *dev, uint32_t zone, enum zns_zone_state s, struct zns_err *err);
/* Forget everything since the last flush, as a power cut would; no process may have the device open but this one. */
int zns_emu_power_cut(struct zns_dev *dev, struct zns_err *err);

#endif
