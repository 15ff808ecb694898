/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TEST_DRIVE_H
#define TEST_DRIVE_H
/*
 * A modelled drive behind an NBD export: the bytes go to a file, the model says when a request is
 * done. QEMU makes an NVMe namespace of it, so a guest's kernel meets a drive whose dies and
 * channels take their time.
 *
 * Times are the model's: nanoseconds since the drive was opened. With slow=N one of them takes N of
 * the wall clock's, so that rates and latencies are a real drive's, all divided by one number, and
 * an emulated processor keeps up. A model is called under one lock, by requests in the order in
 * which they came. It books them in the calendars of the emulator's timing model
 * (zns/dev/emu/emu_cal.c) and sleeps for nobody.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "zns/emu.h"
#include "zns/err.h"

#define DRIVE_PAGE 4096u /* bytes; granularity of the FTL's map */

struct drive_params {
	const char *file; /* file with the data; created if it does not exist */
	/* statistics as JSON, written twice a second and at the end; NULL: none */
	const char *stats;
	uint64_t size; /* bytes that the host sees */
	struct zns_emu_params emu; /* geometry, rates; zone_size for a zoned drive */
	bool flush_free; /* the buffer survives a power cut, so a flush has nothing to wait for */
	/* for the conventional drive only */
	uint32_t spare_pct; /* over-provisioning: physical pages beyond those of @size */
	uint32_t block_pages; /* pages that are erased at once */
	uint32_t buffer_pages; /* writes that a die's share of the buffer holds */
	uint32_t erase_us;
	uint32_t idle_blocks; /* free blocks that a die makes while it is idle; 0: it waits */
	enum drive_filled {
		DRIVE_EMPTY, /* as after a format: no garbage until all has been written once */
		DRIVE_SEQUENTIAL, /* the whole drive was written once, in order */
		DRIVE_RANDOM, /* and then again at random, until garbage collection is steady */
	} filled;
};

struct drive;

struct drive_ops {
	/* Each returns when the request is done, model time. @now: when it came. */
	uint64_t (*write)(struct drive *d, uint64_t off, uint32_t len, uint64_t now);
	uint64_t (*read)(struct drive *d, uint64_t off, uint32_t len, uint64_t now);
	uint64_t (*flush)(struct drive *d, uint64_t now);
	/* a trim, or zeroes that may become holes, as QEMU sends for a zone's reset */
	uint64_t (*discard)(struct drive *d, uint64_t off, uint64_t len, uint64_t now);
	void (*stats)(struct drive *d, FILE *f); /* members of a JSON object, each with a comma */
	void (*close)(struct drive *d);
};

struct drive {
	const struct drive_ops *ops;
	struct drive_params p;
	uint64_t host_written, host_read; /* in bytes; counted by the plugin */
	uint64_t flushes, flush_ns; /* number of flushes, and their time in the model */
	uint64_t answer_ns; /* time that all reads and writes took in the model */
};

/* 0 or -errno. The drive is the caller's; ops->close() frees it. */
int drive_zoned_open(const struct drive_params *p, struct drive **out, struct zns_err *err);
int drive_ftl_open(const struct drive_params *p, struct drive **out, struct zns_err *err);
#endif
