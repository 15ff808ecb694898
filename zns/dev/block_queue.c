/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads from a block device's queue its transfer limits, its alignment, and whether it keeps the
 * order of writes. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "block_priv.h"

#define SCHEDULER "mq-deadline"

void block_queue_limits(const char *name, struct zns_geometry *g)
{
	uint64_t v, max = HW_MAX_IO;

	/* Some disks have 512-byte blocks but only accept writes that are multiples of 4 KiB. */
	if (!hw_queue_number(name, "zone_write_granularity", &v) && v > g->block_size &&
	    v <= HW_MAX_IO && !(v & (v - 1)))
		g->block_size = v;
	/* A larger request would be split by the kernel into pieces of irregular size, so limit
	 * requests to what is not split. */
	if (!hw_queue_number(name, "max_sectors_kb", &v) && v)
		max = zns_min(max, KIB(v));
	if (!hw_queue_number(name, "max_segments", &v) && v)
		max = zns_min(max, v * HW_PAGE);
	g->max_io_bytes = zns_max(hw_transfer_limit(max), g->block_size);
	/*
	 * Kernels since 6.0 accept buffers that are aligned to less than a block, but not all
	 * drivers handle them: null_blk writes beyond its pages if a block straddles two pages of
	 * the buffer. So align to blocks.
	 */
	if (hw_queue_number(name, "dma_alignment", &v) || v >= KIB(64))
		v = 0;
	g->mem_align = zns_max((uint32_t)v + 1, g->block_size);
}

static bool kernel_orders_writes(void)
{
	unsigned major, minor;
	struct utsname u;

	return !uname(&u) && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 10));
}

/* Is the scheduler selected that keeps the order of writes? The file's text is like "none
 * [mq-deadline] bfq". */
static bool has_scheduler(const char *name)
{
	char text[256];

	return !hw_queue_text(name, "scheduler", text, sizeof(text)) &&
	       strstr(text, "[" SCHEDULER "]");
}

static int set_scheduler(const char *name)
{
	cleanup_close int fd = -1;
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "/sys/block/%s/queue/scheduler", name) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, SCHEDULER, strlen(SCHEDULER)) < 0)
		return -errno;
	return has_scheduler(name) ? 0 : -EINVAL;
}

int block_queue_ordered(const char *name, struct zns_err *err)
{
	char path[PATH_MAX];
	struct stat st;
	int ret;

	if (kernel_orders_writes() || has_scheduler(name))
		return 0;
	/* Device mapper and NVMe multipath have no queue of their own: the devices below them
	 * decide. */
	if (snprintf(path, sizeof(path), "/sys/block/%s/mq", name) < (int)sizeof(path) &&
	    stat(path, &st))
		return 0;
	ret = set_scheduler(name);
	if (ret)
		return zns_fail(
			err, -EPERM,
			"%s: this kernel keeps writes to a zone in order with %s only, which cannot be set (%s): "
			"echo %s > /sys/block/%s/queue/scheduler",
			name, SCHEDULER, strerror(-ret), SCHEDULER, name);
	return 0;
}
