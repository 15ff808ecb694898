/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DEV_HW_PRIV_H
#define ZNS_DEV_HW_PRIV_H
/*
 * Shared by kernel block devices and NVMe passthrough. The device has the last word on its zones.
 * This layer refuses what the rules forbid before it asks the device. It cuts transfers into
 * commands. If the device refuses, it looks at the zone and gives the reason. So both backends give
 * the same errors, those of zns/dev.h.
 *
 * It caches the device's last answer about each zone. The cache may be old if another process works
 * on the zone. A write is then checked by the device. Before a refusal from the cache becomes
 * final, the zone is looked up again.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "zns/dev.h"
#include "zns/util.h"

#define HW_MAX_IO MIB(1)
#define HW_PAGE 4096u /* the smallest page: one segment of a buffer */

enum hw_action { HW_RESET, HW_OPEN, HW_CLOSE, HW_FINISH };

struct hw;

/*
 * The operations of a backend. Arguments are checked and at most geo.max_io_bytes long. Returns 0,
 * or a negative errno with a few words in @why. -ETOOMANYREFS, -EOVERFLOW, -ENOSPC, -EROFS, -ENXIO
 * and -EBADE only if the device itself gave that reason; -ESTALE if data landed elsewhere; -ENOMEM;
 * else -EIO.
 */
struct hw_raw {
	/* Reports whole zones of zone_size. wp is 0 in conventional and offline zones, and the
	 * capacity in full and read-only ones. */
	int (*report)(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
		      struct zns_err *why);
	int (*write)(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
		     struct zns_err *why);
	/* The same, and on the medium on return. NULL: a write, then a flush. */
	int (*write_durable)(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
			     struct zns_err *why);
	/* NULL: use report and write. */
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
	pthread_mutex_t lock; /* protects the list below */
	pthread_cond_t turn;
	struct hw_turn *writing; /* zones that this process is writing */
	int claim_fd; /* O_EXCL, or -1 */
};

static inline struct hw *hw_of(struct zns_dev *d)
{
	return (struct hw *)d;
}

/* hw.c */
/* @h->dev must be filled in. Call hw_fini even after a failure. */
int hw_init(struct hw *h, const struct hw_raw *raw, unsigned flags, struct zns_err *err);
void hw_fini(struct hw *h);
/* fills in geo.zone_capacity and nr_conventional */
int hw_typical_capacity(struct hw *h, struct zns_err *err);
uint32_t hw_transfer_limit(uint64_t bytes); /* largest power of two in it, at most HW_MAX_IO */
int hw_check_writable(struct hw *h, struct zns_err *err);
int hw_check_zone(struct hw *h, uint32_t zone, struct zns_err *err);
bool hw_cached(struct hw *h, uint32_t zone, struct zns_zone *out);
/* asks the device, not the cache */
int hw_look(struct hw *h, uint32_t zone, struct zns_zone *out, struct zns_err *err);
void hw_forget(struct hw *h, uint32_t zone);
/* What kind and state of the zone forbid to a writer: 0, -EINVAL (conventional), -ENOSPC, -EROFS
 * or -ENXIO */
int hw_refuses(const struct zns_zone *z, struct zns_err *err);
/* Explains failures that need no look at the zone: a limit, another host's drive, no memory, no
 * answer. 0: look at the zone. */
int hw_plain_failure(struct hw *h, uint32_t zone, const struct zns_err *why, struct zns_err *err);
void hw_turn_begin(struct hw *h, struct hw_turn *t, uint32_t zone);
void hw_turn_end(struct hw *h, struct hw_turn *t);
int hw_report(struct zns_dev *d, uint32_t first, uint32_t nr, struct zns_zone *out,
	      struct zns_err *err);
int hw_flush(struct zns_dev *d, struct zns_err *err);
/* -EBADE, with words for people */
int hw_reserved(struct hw *h, const char *what, struct zns_err *err);

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

/* The members of a backend's vtable that this layer provides. */
#define HW_OPS                                                                        \
	.report = hw_report, .write = hw_write, .append = hw_append, .read = hw_read, \
	.reset = hw_reset, .open_zone = hw_open_zone, .close_zone = hw_close_zone,    \
	.finish = hw_finish, .flush = hw_flush, .write_durable = hw_write_durable

/* hw_sysfs.c */
/* The device's name in the kernel (nvme0n1, ng0n1) and its class ("block", "nvme-generic", …).
 * -errno */
int hw_kernel_name(dev_t dev, bool block, char *name, size_t len, char *class, size_t class_len);
/* Reads /sys/block/NAME/queue/ATTR: text without its newline, or a number. 0 or -errno */
int hw_queue_text(const char *name, const char *attr, char *out, size_t len);
int hw_queue_number(const char *name, const char *attr, uint64_t *out);
/*
 * -EBUSY if another program has the block device for itself: it is mounted, part of another one, or
 * served by a broker. With ZNS_DEV_CLAIM this handle has it from then on, until hw_unclaim. @node
 * may not exist. To be called before all else, and for every handle.
 */
int hw_claim(struct hw *h, const char *node, const char *shown, unsigned flags,
	     struct zns_err *err);
void hw_unclaim(struct hw *h);

/* The bytes of one command. A buffer that starts inside a page needs one more segment. */
static inline size_t hw_piece(const struct hw *h, const void *buf, size_t len)
{
	size_t max = h->dev.geo.max_io_bytes, block = h->dev.geo.block_size;

	if ((uintptr_t)buf % HW_PAGE && max >= 2 * zns_max((size_t)HW_PAGE, block))
		max -= zns_max((size_t)HW_PAGE, block);
	return zns_min(len, max);
}

#endif
