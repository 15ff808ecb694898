/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Kernel zoned block devices: reports and zone management with libzbd, data with O_DIRECT, one
 * write at a time for each zone. */
#include <libzbd/zbd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "block_priv.h"

#define BLOCK_OF(h) ((struct block *)(h))

int block_fail(int code, struct zns_err *why)
{
	/* The two limits have errnos of their own. Other errnos do not tell in which state the zone
	 * is. */
	if (code == -ETOOMANYREFS || code == -EOVERFLOW || code == -ENOMEM)
		return zns_fail(why, code, "%s", strerror(-code));
	if (code == -EBADE)
		return zns_fail(why, code, "reservation conflict");
	if (code == -ENODATA || code == -EREMOTEIO || code == -EILSEQ)
		return zns_fail(why, -EIO, "media error (%s)", strerror(-code));
	return zns_fail(why, -EIO, "%s",
			code == -EIO ? "the device or the kernel refused it (I/O error)" :
				       strerror(-code));
}

static enum zns_zone_state state_of(const struct zbd_zone *z)
{
	switch (z->cond) {
	case ZBD_ZONE_COND_IMP_OPEN:
		return ZNS_ZONE_IMP_OPEN;
	case ZBD_ZONE_COND_EXP_OPEN:
		return ZNS_ZONE_EXP_OPEN;
	case ZBD_ZONE_COND_CLOSED:
		return ZNS_ZONE_CLOSED;
	case ZBD_ZONE_COND_FULL:
		return ZNS_ZONE_FULL;
	case ZBD_ZONE_COND_READONLY:
		return ZNS_ZONE_READ_ONLY;
	case ZBD_ZONE_COND_OFFLINE:
		return ZNS_ZONE_OFFLINE;
	default:
		return ZNS_ZONE_EMPTY;
	}
}

static void zone_of(const struct zbd_zone *z, uint32_t index, struct zns_zone *out)
{
	*out = (struct zns_zone){
		.index = index,
		.state = state_of(z),
		.conventional = z->type == ZBD_ZONE_TYPE_CNV || z->cond == ZBD_ZONE_COND_NOT_WP,
		.capacity = z->capacity,
	};
	if (out->conventional || out->state == ZNS_ZONE_OFFLINE)
		return;
	if (out->state == ZNS_ZONE_FULL || out->state == ZNS_ZONE_READ_ONLY)
		out->wp = out->capacity;
	else if (z->wp > z->start)
		out->wp = zns_min(z->wp - z->start, z->capacity);
}

int block_report_run(int fd, uint64_t size, uint32_t at, uint32_t first, uint32_t nr,
		     struct zns_zone *out, struct zns_err *why)
{
	cleanup_free struct zbd_zone *z = calloc(nr, sizeof(*z));
	unsigned int got = nr;
	int ret;

	if (!z)
		return zns_fail(why, -ENOMEM, "no memory for %u zones", nr);
	ret = zbd_report_zones(fd, size * at, size * nr, ZBD_RO_ALL, z, &got);
	if (ret)
		return block_fail(ret == -1 ? -EIO : ret, why);
	if (got != nr)
		return zns_fail(why, -EIO, "%u zones instead of %u from zone %u on", got, nr,
				first);
	for (uint32_t i = 0; i < nr; i++)
		zone_of(&z[i], first + i, &out[i]);
	return 0;
}

static int block_report(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
			struct zns_err *why)
{
	return block_report_run(BLOCK_OF(h)->fd, h->dev.geo.zone_size, first, first, nr, out, why);
}

int block_move(int fd, bool write, int flags, uint64_t pos, void *buf, size_t len)
{
	while (len) {
		struct iovec v = { buf, len };
		ssize_t n = write ? pwritev2(fd, &v, 1, pos, flags) : pread(fd, buf, len, pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 1;
		buf = (char *)buf + n;
		pos += n;
		len -= n;
	}
	return 0;
}

/* Transfers the data of one call; the kernel may split it into several commands. */
static int transfer(struct hw *h, bool write, int flags, uint32_t zone, uint64_t off, void *buf,
		    size_t len, struct zns_err *why)
{
	uint64_t pos = h->dev.geo.zone_size * zone + off;
	int ret = block_move(BLOCK_OF(h)->fd, write, flags, pos, buf, len);

	if (ret > 0)
		return zns_fail(why, -EIO, "beyond the end of the device");
	return ret ? block_fail(ret, why) : 0;
}

static int block_write(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
		       struct zns_err *why)
{
	return transfer(h, true, 0, zone, off, (void *)buf, len, why);
}

/* With RWF_DSYNC the kernel uses forced unit access, or a write and a flush, depending on the
 * drive. */
static int block_write_durable(struct hw *h, uint32_t zone, uint64_t off, const void *buf,
			       size_t len, struct zns_err *why)
{
	return transfer(h, true, RWF_DSYNC, zone, off, (void *)buf, len, why);
}

static int block_read(struct hw *h, uint32_t zone, uint64_t off, void *buf, size_t len,
		      struct zns_err *why)
{
	return transfer(h, false, 0, zone, off, buf, len, why);
}

static int block_manage(struct hw *h, enum hw_action what, uint32_t first, uint32_t nr,
			struct zns_err *why)
{
	static const enum zbd_zone_op op[] = {
		[HW_RESET] = ZBD_OP_RESET,
		[HW_OPEN] = ZBD_OP_OPEN,
		[HW_CLOSE] = ZBD_OP_CLOSE,
		[HW_FINISH] = ZBD_OP_FINISH,
	};
	uint64_t size = h->dev.geo.zone_size;
	int ret;

	do
		ret = zbd_zones_operation(BLOCK_OF(h)->fd, op[what], size * first, size * nr);
	while (ret && errno == EINTR);
	return ret ? block_fail(-errno, why) : 0;
}

static int block_flush(struct hw *h, struct zns_err *why)
{
	return fdatasync(BLOCK_OF(h)->fd) ? block_fail(-errno, why) : 0;
}

const struct hw_raw block_raw = {
	.report = block_report,
	.write = block_write,
	.write_durable = block_write_durable,
	.read = block_read,
	.manage = block_manage,
	.flush = block_flush,
};
