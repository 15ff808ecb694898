/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_HW_PRIV_H
#define ZNS_DEV_HW_PRIV_H
/*
 * What a kernel block device and NVMe passthrough have in common. The device is the authority on
 * its zones; this layer refuses what the rules refuse before the device is asked, cuts transfers
 * into what one command may move, and when the device refuses, looks at the zone and says why. So
 * both give the errors of zns/dev.h, and the same ones.
 *
 * Of each zone it keeps what the device last said. That may be old when another process works on
 * the zone: then a write meets the device's own check, and what the cache refuses is looked up
 * again before it is refused for good.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "zns/dev.h"
#include "zns/util.h"

#define HW_MAX_IO MIB(1)
#define HW_PAGE 4096u /* the smallest there is: one segment of a buffer */

enum hw_action { HW_RESET, HW_OPEN, HW_CLOSE, HW_FINISH };

struct hw;

/*
 * What a backend does itself; everything is checked, and at most geo.max_io_bytes long. 0, or a
 * negative errno with a few words in @why: -ETOOMANYREFS, -EOVERFLOW, -ENOSPC, -EROFS, -ENXIO,
 * -EBADE only when the device said so in those terms, -ESTALE when data landed elsewhere, -ENOMEM;
 * else -EIO.
 */
struct hw_raw {
	/* Whole zone_size zones; wp 0 in conventional and offline zones, capacity in full and
	 * read-only ones. */
	int (*report)(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		      struct zns_err *why);
	int (*write)(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *why);
	/* The same, on the medium when it returns. NULL: a write, then a flush. */
	int (*write_durable)(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
			     struct zns_err *why);
	/* NULL: done with report and write. */
	int (*append)(struct hw *h, uint32_t zone, const void *buf, size_t len, uint64_t *off,
		      struct zns_err *why);
	int (*read)(struct hw *h, uint32_t zone, uint64_t off, void *buf, size_t len,
		    struct zns_err *why);
	int (*manage)(struct hw *h, enum hw_action what, uint32_t first, uint32_t nr,
		      struct zns_err *why);
	int (*flush)(struct hw *h, struct zns_err *why);
};

struct hw_zone {
	_Atomic uint64_t wp, capacity;
	_Atomic uint32_t what; /* HW_KNOWN, HW_CONVENTIONAL, and the state */
};

struct hw_turn {
	uint32_t zone;
	struct hw_turn *next;
};

struct hw {
	struct zns_dev dev;
	const struct hw_raw *raw;
	bool rdonly;
	struct hw_zone *zones;
	pthread_mutex_t lock; /* of the list below */
	pthread_cond_t turn;
	struct hw_turn *writing; /* zones with a write of this process in flight */
};

static inline struct hw *hw_of(struct zns_dev *d)
{
	return (struct hw *)d;
}

/* hw.c */
/* @h->dev is filled in. After a failure, too, hw_fini is due. */
int hw_init(struct hw *h, const struct hw_raw *raw, unsigned flags, struct zns_err *err);
void hw_fini(struct hw *h);
/* fills in geo.zone_capacity and nr_conventional */
int hw_typical_capacity(struct hw *h, struct zns_err *err);
uint32_t hw_transfer_limit(uint64_t bytes); /* largest power of two in it, at most HW_MAX_IO */
int hw_check_writable(struct hw *h, struct zns_err *err);
int hw_check_zone(struct hw *h, uint32_t zone, struct zns_err *err);
bool hw_cached(struct hw *h, uint32_t zone, struct zns_zone *out);
/* ask the device */
int hw_look(struct hw *h, uint32_t zone, struct zns_zone *out, struct zns_err *err);
void hw_forget(struct hw *h, uint32_t zone);
/* 0, -EINVAL (conventional), -ENOSPC, -EROFS or -ENXIO: what the zone's kind and state forbid to a
 * writer */
int hw_refuses(const struct zns_zone *z, struct zns_err *err);
/* A limit, another host's drive, no memory, or no answer: what needs no look at the zone to be
 * explained. 0: look at it. */
int hw_plain_failure(struct hw *h, uint32_t zone, const struct zns_err *why, struct zns_err *err);
void hw_turn_begin(struct hw *h, struct hw_turn *t, uint32_t zone);
void hw_turn_end(struct hw *h, struct hw_turn *t);
int hw_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
	      struct zns_err *err);
int hw_flush(struct zns_dev *d, struct zns_err *err);
int hw_reserved(struct hw *h, const char *what, struct zns_err *err); /* -EBADE, for people */

/* hw_io.c */
int hw_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
	     struct zns_err *err);
int hw_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *err);
int hw_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
	      struct zns_err *err);
int hw_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
	    struct zns_err *err);

/* hw_zone.c */
int hw_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int hw_open_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int hw_close_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int hw_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err);

/* The part of a backend's vtable that this layer has. */
#define HW_OPS                                                                        \
	.report = hw_report, .write = hw_write, .append = hw_append, .read = hw_read, \
	.reset = hw_reset, .open_zone = hw_open_zone, .close_zone = hw_close_zone,    \
	.finish = hw_finish, .flush = hw_flush, .write_durable = hw_write_durable

/* hw_sysfs.c */
/* The device's name in the kernel (nvme0n1, ng0n1) and its class ("block", "nvme-generic", …);
 * -errno */
int hw_kernel_name(dev_t dev, bool block, char *name, size_t len, char *class, size_t class_len);
/* /sys/block/NAME/queue/ATTR. 0 or -errno; the text without its newline, the number as is */
int hw_queue_text(const char *name, const char *attr, char *out, size_t len);
int hw_queue_number(const char *name, const char *attr, uint64_t *out);
/* -EBUSY if the kernel has the block device in use: mounted, part of another one. @node may not
 * exist. */
int hw_check_unused(const char *node, const char *shown, struct zns_err *err);

/* One command's worth: segments count, too, when the buffer starts inside a page. */
static inline size_t hw_piece(const struct hw *h, const void *buf, size_t len)
{
	size_t max = h->dev.geo.max_io_bytes, block = h->dev.geo.block_size;

	if ((uintptr_t)buf % HW_PAGE && max >= 2 * zns_max((size_t)HW_PAGE, block))
		max -= zns_max((size_t)HW_PAGE, block);
	return zns_min(len, max);
}

#endif
