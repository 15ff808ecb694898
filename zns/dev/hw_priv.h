/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_HW_PRIV_H
#define ZNS_DEV_HW_PRIV_H
/*
 * Code shared by kernel block devices and NVMe passthrough. The state that the device reports is
 * authoritative. This layer refuses what the rules forbid before it asks the device, and splits
 * transfers into commands. If the device refuses a command, it looks at the zone to find the
 * reason. So both backends return the same errors, those of zns/dev.h.
 *
 * It caches the last report about each zone. The cache may be outdated if another process works on
 * the zone. A write is still checked by the device then. Before a command is refused because of the
 * cache, the zone is looked up again.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "zns/dev.h"
#include "zns/util.h"

#define HW_MAX_IO MIB(1)
#define HW_PAGE 4096u /* smallest page size: a buffer has one segment for each page */

enum hw_action { HW_RESET, HW_OPEN, HW_CLOSE, HW_FINISH };

struct hw;

/*
 * The operations of a backend. Arguments have been checked, and transfers are at most
 * geo.max_io_bytes long. Returns 0, or a negative errno with a few words in @why. -ETOOMANYREFS,
 * -EOVERFLOW, -ENOSPC, -EROFS, -ENXIO and -EBADE are returned only if the device itself gave that
 * reason; -ESTALE if data were written to another place; -ENOMEM; else -EIO.
 */
struct hw_raw {
	/* Reports whole zones. Sets wp to 0 in conventional and offline zones, and to the capacity
	 * in full and read-only ones. */
	int (*report)(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		      struct zns_err *why);
	int (*write)(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *why);
	/* Like write, and the data are on the medium when it returns. NULL: a write, then a
	 * flush. */
	int (*write_durable)(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
			     struct zns_err *why);
	/* NULL: done with report and write instead. */
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
	_Atomic uint32_t what; /* the flags HW_KNOWN and HW_CONVENTIONAL, and the state */
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
	pthread_mutex_t lock; /* protects the list `writing` */
	pthread_cond_t turn;
	struct hw_turn *writing; /* list of the writes that run in this process */
	int claim_fd; /* opened with O_EXCL; -1: not claimed */
};

static inline struct hw *hw_of(struct zns_dev *d)
{
	return (struct hw *)d;
}

/* ---- hw.c ---- */
/* @h->dev must have been filled in. hw_fini must be called even after a failure. */
int hw_init(struct hw *h, const struct hw_raw *raw, unsigned flags, struct zns_err *err);
void hw_fini(struct hw *h);
/* fills in geo.zone_capacity and nr_conventional */
int hw_typical_capacity(struct hw *h, struct zns_err *err);
/* the largest power of two that is at most @bytes and HW_MAX_IO */
uint32_t hw_transfer_limit(uint64_t bytes);
int hw_check_writable(struct hw *h, struct zns_err *err);
int hw_check_zone(struct hw *h, uint32_t zone, struct zns_err *err);
bool hw_cached(struct hw *h, uint32_t zone, struct zns_zone *out);
/* reports a zone from the device, not from the cache */
int hw_look(struct hw *h, uint32_t zone, struct zns_zone *out, struct zns_err *err);
void hw_forget(struct hw *h, uint32_t zone);
/* Do kind and state of the zone allow writing? 0: yes; -EINVAL (conventional), -ENOSPC, -EROFS or
 * -ENXIO: no. */
int hw_refuses(const struct zns_zone *z, struct zns_err *err);
/* Explains failures that do not depend on the zone's state: a limit, a drive that another host has
 * reserved, no memory, no answer. 0: the zone's state must be looked at. */
int hw_plain_failure(struct hw *h, uint32_t zone, const struct zns_err *why, struct zns_err *err);
void hw_turn_begin(struct hw *h, struct hw_turn *t, uint32_t zone);
void hw_turn_end(struct hw *h, struct hw_turn *t);
int hw_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
	      struct zns_err *err);
int hw_flush(struct zns_dev *d, struct zns_err *err);
/* returns -EBADE with a message for people */
int hw_reserved(struct hw *h, const char *what, struct zns_err *err);

/* ---- hw_io.c ---- */
int hw_write(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
	     struct zns_err *err);
int hw_write_durable(struct zns_dev *d, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *err);
int hw_append(struct zns_dev *d, uint32_t zone, const void *buf, size_t len, uint64_t *off,
	      struct zns_err *err);
int hw_read(struct zns_dev *d, uint32_t zone, uint64_t off, void *buf, size_t len,
	    struct zns_err *err);

/* ---- hw_zone.c ---- */
int hw_reset(struct zns_dev *d, const uint32_t *zones, uint32_t nr, struct zns_err *err);
int hw_open_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int hw_close_zone(struct zns_dev *d, uint32_t zone, struct zns_err *err);
int hw_finish(struct zns_dev *d, uint32_t zone, struct zns_err *err);

/* The members of a backend's vtable that this layer provides. */
#define HW_OPS                                                                        \
	.report = hw_report, .write = hw_write, .append = hw_append, .read = hw_read, \
	.reset = hw_reset, .open_zone = hw_open_zone, .close_zone = hw_close_zone,    \
	.finish = hw_finish, .flush = hw_flush, .write_durable = hw_write_durable

/* ---- hw_sysfs.c ---- */
/* Returns the device's name in the kernel (nvme0n1, ng0n1) and its class ("block", "nvme-generic",
 * …). 0 or -errno. */
int hw_kernel_name(dev_t dev, bool block, char *name, size_t len, char *class, size_t class_len);
/* Reads /sys/block/NAME/queue/ATTR: text without its newline, or a number. 0 or -errno */
int hw_queue_text(const char *name, const char *attr, char *out, size_t len);
int hw_queue_number(const char *name, const char *attr, uint64_t *out);
/*
 * Checks that no other program has claimed the block device. -EBUSY: it is mounted, part of another
 * device, or served by a broker. With ZNS_DEV_CLAIM this handle claims it until hw_unclaim. @node
 * need not exist. To be called before anything else, for every handle.
 */
int hw_claim(struct hw *h, const char *node, const char *shown, unsigned flags,
	     struct zns_err *err);
void hw_unclaim(struct hw *h);

/* How many of @len bytes fit into one command. A buffer that starts inside a page needs one more
 * segment. */
static inline size_t hw_piece(const struct hw *h, const void *buf, size_t len)
{
	size_t max = h->dev.geo.max_io_bytes, block = h->dev.geo.block_size;

	if ((uintptr_t)buf % HW_PAGE && max >= 2 * zns_max((size_t)HW_PAGE, block))
		max -= zns_max((size_t)HW_PAGE, block);
	return zns_min(len, max);
}

#endif
