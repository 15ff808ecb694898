/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* zonefs: one file for each zone. A file is opened for each command, since a drive may have more
 * zones than a process may have descriptors. */
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "block_priv.h"
#include "zonefs_priv.h"

#define ZONEFS_OF(h) ((struct zonefs *)(h))

/* Converts an errno of zonefs. EFBIG: beyond the zone's capacity. EBUSY: mounted with
 * explicit-open, and no further zone may be opened. */
static int fail(int code, struct zns_err *why)
{
	if (code == -EFBIG)
		return zns_fail(why, -ENOSPC, "beyond the end of the zone's file");
	if (code == -EBUSY)
		return zns_fail(why, -ETOOMANYREFS, "no more zones may be open");
	if (code == -EROFS || code == -EPERM)
		return zns_fail(
			why, -EIO,
			"the file system has made the zone or itself read-only after an error: mount "
			"it with errors=repair");
	return block_fail(code, why);
}

static int open_zone(struct hw *h, uint32_t zone, int flags)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "%u", zone);
	do
		fd = openat(ZONEFS_OF(h)->dir, name, flags | O_CLOEXEC | O_NOFOLLOW);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

/* Reports a run of files, with one call for each run of consecutive zones on the drive. */
static int zonefs_report(struct hw *h, uint32_t first, uint32_t nr, struct zns_zone *out,
			 struct zns_err *why)
{
	struct zonefs *f = ZONEFS_OF(h);

	for (uint32_t done = 0, n; done < nr; done += n) {
		const uint32_t *at = f->zone + first + done;
		int ret;

		for (n = 1; done + n < nr && at[n] == at[n - 1] + 1; n++)
			;
		ret = block_report_run(f->below, h->dev.geo.zone_size, *at, first + done, n,
				       out + done, why);
		if (ret)
			return ret;
	}
	return 0;
}

static int transfer(struct hw *h, bool write, int flags, uint32_t zone, uint64_t off, void *buf,
		    size_t len, struct zns_err *why)
{
	cleanup_close int fd = open_zone(h, zone, (write ? O_WRONLY : O_RDONLY) | O_DIRECT);
	int ret;

	if (fd < 0)
		return fail(fd, why);
	ret = block_move(fd, write, flags, off, buf, len);
	if (ret > 0)
		return zns_fail(why, -EIO, "beyond the end of the zone's file");
	return ret ? fail(ret, why) : 0;
}

static int zonefs_write(struct hw *h, uint32_t zone, uint64_t off, const void *buf, size_t len,
			struct zns_err *why)
{
	return transfer(h, true, 0, zone, off, (void *)buf, len, why);
}

static int zonefs_write_durable(struct hw *h, uint32_t zone, uint64_t off, const void *buf,
				size_t len, struct zns_err *why)
{
	return transfer(h, true, RWF_DSYNC, zone, off, (void *)buf, len, why);
}

static int zonefs_read(struct hw *h, uint32_t zone, uint64_t off, void *buf, size_t len,
		       struct zns_err *why)
{
	return transfer(h, false, 0, zone, off, buf, len, why);
}

/* Sends a command to open, close or reset a zone directly to the drive, since the file system does
 * not support explicitly opened zones unless it is mounted with explicit-open. The write pointers
 * that the file system knows stay correct. */
static int tell_drive(struct zonefs *f, uint32_t zone, unsigned long what, struct zns_err *why)
{
	uint64_t size = f->hw.dev.geo.zone_size;
	struct blk_zone_range r = { .sector = size / 512 * f->zone[zone],
				    .nr_sectors = size / 512 };

	if (f->manage < 0)
		return zns_fail(
			why, -EIO,
			"this kernel does not let a mounted drive's zones be opened or closed");
	return ioctl(f->manage, what, &r) ? block_fail(-errno, why) : 0;
}

static int change(struct hw *h, enum hw_action what, uint32_t zone, struct zns_err *why)
{
	struct zonefs *f = ZONEFS_OF(h);
	cleanup_close int fd = -1;
	struct stat st;

	if (what == HW_OPEN || what == HW_CLOSE)
		return tell_drive(f, zone, what == HW_OPEN ? BLKOPENZONE : BLKCLOSEZONE, why);
	fd = open_zone(h, zone, O_WRONLY);
	if (fd < 0)
		return fail(fd, why);
	/* truncating an empty file has no effect, but its zone may be open */
	if (what == HW_RESET && !fstat(fd, &st) && !st.st_size && f->manage >= 0)
		return tell_drive(f, zone, BLKRESETZONE, why);
	return ftruncate(fd, what == HW_RESET ? 0 : (off_t)f->capacity[zone]) ? fail(-errno, why) :
										0;
}

static int zonefs_manage(struct hw *h, enum hw_action what, uint32_t first, uint32_t nr,
			 struct zns_err *why)
{
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++)
		ret = change(h, what, first + i, why);
	return ret;
}

/* Flushes the drive's cache, by a sync of any of the files. */
static int zonefs_flush(struct hw *h, struct zns_err *why)
{
	cleanup_close int fd = open_zone(h, 0, O_RDONLY);

	if (fd < 0)
		return fail(fd, why);
	return fdatasync(fd) ? fail(-errno, why) : 0;
}

const struct hw_raw zonefs_raw = {
	.report = zonefs_report,
	.write = zonefs_write,
	.write_durable = zonefs_write_durable,
	.read = zonefs_read,
	.manage = zonefs_manage,
	.flush = zonefs_flush,
};
