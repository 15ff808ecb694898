/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens a mounted zonefs. */
#include <fcntl.h>
#include <libzbd/zbd.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "backends.h"
#include "block_priv.h"
#include "zonefs_priv.h"

#define PREFIX "zonefs:"
#define MAGIC 0x5a4f4653 /* "ZOFS", from linux/magic.h */

static void zonefs_close(struct zns_dev *d)
{
	struct zonefs *f = (struct zonefs *)d;

	if (f->dir >= 0)
		close(f->dir);
	if (f->manage >= 0)
		close(f->manage);
	if (f->below >= 0)
		zbd_close(f->below);
	free(f->zone);
	free(f->capacity);
	hw_fini(&f->hw);
	free(f);
}

static const struct zns_dev_ops zonefs_ops = {
	.name = "zonefs",
	HW_OPS,
	.close = zonefs_close,
};

static int open_dir(struct zonefs *f, const char *path, struct zns_err *err)
{
	cleanup_close int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (top < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	if (fstatfs(top, &fs))
		return zns_fail_sys(err, -errno, "cannot find the file system of %s", path);
	if (fs.f_type != MAGIC)
		return zns_fail(err, -EMEDIUMTYPE,
				"%s is no zonefs: mount one there, or give the drive itself", path);
	f->dir = openat(top, "seq", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (f->dir < 0)
		return zns_fail(err, -EMEDIUMTYPE,
				"%s has no directory seq: give the directory where the zonefs is "
				"mounted",
				path);
	return 0;
}

/* Reads the directory of zone files. The inode number of a file is the number of its zone on the
 * drive. */
static int read_files(struct zonefs *f, const char *path, struct zns_err *err)
{
	struct zns_geometry *g = &f->hw.dev.geo;
	struct stat st;

	if (fstat(f->dir, &st))
		return zns_fail_sys(err, -errno, "cannot read the attributes of %s", path);
	/* st_size of a zonefs directory is its number of files */
	if (st.st_size < 1 || st.st_size > UINT32_MAX)
		return zns_fail(err, -EMEDIUMTYPE, "%s has no sequential zones", path);
	g->nr_zones = (uint32_t)st.st_size;
	f->zone = calloc(g->nr_zones, sizeof(*f->zone));
	f->capacity = calloc(g->nr_zones, sizeof(*f->capacity));
	if (!f->zone || !f->capacity)
		return zns_fail(err, -ENOMEM, "no memory for %u zones", g->nr_zones);
	for (uint32_t i = 0; i < g->nr_zones; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		if (fstatat(f->dir, name, &st, AT_SYMLINK_NOFOLLOW))
			return zns_fail_sys(err, -errno, "cannot read the attributes of %s/seq/%s",
					    path, name);
		f->zone[i] = (uint32_t)st.st_ino;
		f->capacity[i] = (uint64_t)st.st_blocks * 512;
	}
	return 0;
}

/* Is the superblock's zone active? It counts against the drive's limit for as long as the file
 * system exists. */
static bool super_is_active(const struct zonefs *f)
{
	struct zbd_zone z;
	unsigned int nr = 1;

	if (zbd_report_zones(f->below, 0, (off_t)f->hw.dev.geo.zone_size, ZBD_RO_ALL, &z, &nr) ||
	    nr != 1)
		return false;
	return z.type != ZBD_ZONE_TYPE_CNV &&
	       (z.cond == ZBD_ZONE_COND_IMP_OPEN || z.cond == ZBD_ZONE_COND_EXP_OPEN ||
		z.cond == ZBD_ZONE_COND_CLOSED);
}

static int open_below(struct zonefs *f, const char *spec, unsigned flags, struct zns_err *err)
{
	struct zns_geometry *g = &f->hw.dev.geo;
	char name[64], class[32], node[80];
	struct zbd_info info;
	struct stat st;
	int ret;

	if (fstat(f->dir, &st))
		return zns_fail_sys(err, -errno, "cannot read the attributes of %s", spec);
	ret = hw_kernel_name(st.st_dev, true, name, sizeof(name), class, sizeof(class));
	if (ret)
		return zns_fail(err, -ENODEV, "%s: the drive below is not known (is /sys mounted?)",
				spec);
	snprintf(node, sizeof(node), "/dev/%s", name);
	for (char *p = node + 5; *p; p++)
		if (*p == '!')
			*p = '/';
	ret = block_check_descriptors(spec, err);
	if (ret)
		return ret;
	f->below = zbd_open(node, O_RDONLY | O_CLOEXEC, &info);
	if (f->below < 0) {
		f->below = -1;
		return zns_fail_sys(err, errno ? -errno : -EIO,
				    "%s: %s, the drive below, whose zones must be reported", spec,
				    node);
	}
	if (!(flags & ZNS_DEV_RDONLY))
		f->manage = open(node, O_RDWR | O_CLOEXEC);
	g->block_size = info.lblock_size;
	g->zone_size = info.zone_size;
	g->max_open = info.max_nr_open_zones == UINT32_MAX ? 0 : info.max_nr_open_zones;
	g->max_active = info.max_nr_active_zones == UINT32_MAX ? 0 : info.max_nr_active_zones;
	if (g->max_active > 1 && super_is_active(f))
		g->max_active--;
	block_queue_limits(name, g);
	/* writes must also be multiples of the file system's block */
	g->block_size = zns_max(g->block_size, (uint32_t)st.st_blksize);
	g->mem_align = zns_max(g->mem_align, g->block_size);
	for (uint32_t i = 0; i < g->nr_zones; i++)
		if (f->zone[i] >= info.nr_zones || f->capacity[i] > g->zone_size)
			return zns_fail(err, -EIO, "%s: file %u is in no zone of %s", spec, i,
					node);
	return 0;
}

int zonefs_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err)
{
	struct zonefs *f = calloc(1, sizeof(*f));
	const char *path = spec + strlen(PREFIX);
	int ret;

	if (!f)
		return zns_fail(err, -ENOMEM, "out of memory");
	f->hw.dev.ops = &zonefs_ops;
	f->dir = f->below = f->manage = -1;
	memcpy(f->hw.dev.path, spec, strlen(spec) + 1);
	ret = open_dir(f, path, err);
	if (!ret)
		ret = read_files(f, path, err);
	if (!ret)
		ret = open_below(f, spec, flags, err);
	if (!ret)
		ret = hw_init(&f->hw, &zonefs_raw, flags, err);
	if (!ret)
		ret = hw_typical_capacity(&f->hw, err);
	if (ret) {
		zonefs_close(&f->hw.dev);
		return ret;
	}
	*out = &f->hw.dev;
	return 0;
}
