/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens a kernel zoned block device. */
#include <fcntl.h>
#include <libzbd/zbd.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends.h"
#include "block_priv.h"

#define ZBD_TABLE 1024 /* number of descriptors in libzbd's table */
/* how many descriptors other threads may open between our check and libzbd's open */
#define ZBD_MARGIN 64

static void block_close(struct zns_dev *d)
{
	struct block *b = (struct block *)d;

	if (b->fd >= 0)
		zbd_close(b->fd);
	hw_unclaim(&b->hw);
	hw_fini(&b->hw);
	free(b);
}

static int block_nvme_fd(struct zns_dev *d)
{
	const struct block *b = (struct block *)d;

	return b->nvme ? b->fd : -1;
}

static const struct zns_dev_ops block_ops = {
	.name = "block",
	HW_OPS,
	.close = block_close,
	.nvme_fd = block_nvme_fd,
};

static int check_zoned(const char *spec, const char *name, struct zns_err *err)
{
	char path[PATH_MAX], zoned[32] = "none";
	struct stat st;

	if (snprintf(path, sizeof(path), "/sys/class/block/%s/partition", name) <
		    (int)sizeof(path) &&
	    !stat(path, &st))
		return zns_fail(err, -EMEDIUMTYPE,
				"%s is a partition: zones belong to the whole device, give that",
				spec);
	hw_queue_text(name, "zoned", zoned, sizeof(zoned));
	if (!strcmp(zoned, "host-managed"))
		return 0;
	if (!strcmp(zoned, "host-aware"))
		return zns_fail(
			err, -EMEDIUMTYPE,
			"%s is host-aware: only host-managed zones are supported; use emu:%s to emulate them on it",
			spec, spec);
	return zns_fail(err, -EMEDIUMTYPE,
			"%s is not a zoned device: use emu:%s to emulate zones on it", spec, spec);
}

int block_check_descriptors(const char *spec, struct zns_err *err)
{
	int fd = open("/", O_PATH | O_CLOEXEC);

	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", spec);
	close(fd);
	if (fd >= ZBD_TABLE - ZBD_MARGIN)
		return zns_fail(
			err, -EMFILE,
			"%s: libzbd needs a descriptor below %d, and the lowest free one is %d: start this process with fewer inherited descriptors",
			spec, ZBD_TABLE - ZBD_MARGIN, fd);
	return 0;
}

static int open_zbd(struct block *b, const char *spec, struct zbd_info *info, struct zns_err *err)
{
	int flags = (b->hw.rdonly ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC;
	int ret = block_check_descriptors(spec, err);

	if (ret)
		return ret;
	errno = 0;
	b->fd = zbd_open(spec, flags, info);
	if (b->fd < 0) {
		ret = errno ? -errno : -EIO;
		b->fd = -1;
		return zns_fail_sys(err, ret == -ENXIO ? -EIO : ret, "cannot open %s", spec);
	}
	if (b->fd < ZBD_TABLE)
		return 0;
	/* libzbd has already written beyond its table, so this can only be reported */
	ret = zns_fail(err, -EMFILE, "%s: opened as descriptor %d, which libzbd has no room for",
		       spec, b->fd);
	close(b->fd);
	b->fd = -1;
	return ret;
}

/* Finds the node's name. libzbd needs the kernel's name of the device; that one is used if it leads
 * to the same device as @spec. */
static const char *kernel_node(const char *spec, const char *name, dev_t dev, char *buf, size_t len)
{
	struct stat st;
	int n = snprintf(buf, len, "/dev/%s", name);

	for (char *p = buf + 5; n < (int)len && *p; p++)
		if (*p == '!')
			*p = '/';
	return n < (int)len && !stat(buf, &st) && S_ISBLK(st.st_mode) && st.st_rdev == dev ? buf :
											     spec;
}

static int setup(struct block *b, const char *spec, const char *name, dev_t dev, unsigned flags,
		 struct zns_err *err)
{
	struct zns_geometry *g = &b->hw.dev.geo;
	struct zbd_info info;
	char node[80];
	int ret = check_zoned(spec, name, err);

	b->hw.rdonly = flags & ZNS_DEV_RDONLY;
	b->nvme = !strncmp(name, "nvme", 4);
	if (!ret)
		ret = hw_claim(&b->hw, kernel_node(spec, name, dev, node, sizeof(node)), spec,
			       flags, err);
	if (!ret && !b->hw.rdonly)
		ret = block_queue_ordered(name, err);
	if (!ret)
		ret = open_zbd(b, kernel_node(spec, name, dev, node, sizeof(node)), &info, err);
	/* libzbd computes with bit masks, so the size must be a power of two */
	if (!ret && info.zone_size & (info.zone_size - 1))
		ret = zns_fail(
			err, -EMEDIUMTYPE,
			"%s: zones of %llu bytes are not supported: their size must be a power of two",
			spec, info.zone_size);
	if (ret)
		return ret;
	*g = (struct zns_geometry){
		.nr_zones = info.nr_zones,
		.block_size = info.lblock_size,
		.zone_size = info.zone_size,
		.max_open = info.max_nr_open_zones == UINT32_MAX ? 0 : info.max_nr_open_zones,
		.max_active = info.max_nr_active_zones == UINT32_MAX ? 0 : info.max_nr_active_zones,
	};
	block_queue_limits(name, g);
	ret = hw_init(&b->hw, &block_raw, flags, err);
	return ret ? ret : hw_typical_capacity(&b->hw, err);
}

int block_open(const char *spec, dev_t dev, unsigned flags, struct zns_dev **out,
	       struct zns_err *err)
{
	char name[64], class[32];
	struct block *b;
	int ret = hw_kernel_name(dev, true, name, sizeof(name), class, sizeof(class));

	if (ret)
		return zns_fail(err, -ENODEV, "%s: its kind is not known (is /sys mounted?)", spec);
	b = calloc(1, sizeof(*b));
	if (!b)
		return zns_fail(err, -ENOMEM, "out of memory");
	b->hw.dev.ops = &block_ops;
	b->fd = b->hw.claim_fd = -1;
	memcpy(b->hw.dev.path, spec, strlen(spec) + 1);
	ret = setup(b, spec, name, dev, flags, err);
	if (ret) {
		block_close(&b->hw.dev);
		return ret;
	}
	*out = &b->hw.dev;
	return 0;
}
