/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * See dm.h. libdevmapper needs a daemon that makes device nodes. Three requests to the kernel
 * suffice here.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "dm.h"
#include "zns/util.h"

#define CONTROL "/dev/mapper/control"
#define TARGET_ROOM (sizeof(struct dm_target_spec) + 64) /* one with its parameters */

int dm_open(struct zns_err *err)
{
	int fd = open(CONTROL, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == EACCES || errno == EPERM)
		return zns_fail_sys(err, -errno, "the device mapper is root's");
	return zns_fail(err, -EOPNOTSUPP,
			"there is no device mapper here (" CONTROL
			"): load the module dm-mod, on a kernel that has it");
}

static void fill(struct dm_ioctl *d, size_t size, const char *name, const char *uuid)
{
	memset(d, 0, size);
	d->version[0] = DM_VERSION_MAJOR;
	d->data_size = (uint32_t)size;
	d->data_start = sizeof(*d);
	snprintf(d->name, sizeof(d->name), "%s", name ? name : "");
	snprintf(d->uuid, sizeof(d->uuid), "%s", uuid ? uuid : "");
}

bool dm_find(int fd, const char *uuid, dev_t *dev)
{
	struct dm_ioctl d;

	fill(&d, sizeof(d), NULL, uuid);
	if (ioctl(fd, DM_DEV_STATUS, &d) || !(d.flags & DM_ACTIVE_PRESENT_FLAG))
		return false;
	*dev = makedev(major(d.dev), minor(d.dev));
	return true;
}

static int load(int fd, const char *uuid, dev_t below, const struct dm_range *range, size_t nr)
{
	size_t size = sizeof(struct dm_ioctl) + nr * TARGET_ROOM;
	struct dm_ioctl *d = malloc(size);
	uint64_t at = 0;
	int ret = 0;

	if (!d)
		return -ENOMEM;
	fill(d, size, NULL, uuid);
	d->target_count = (uint32_t)nr;
	for (size_t i = 0; i < nr; i++) {
		char *room = (char *)d + sizeof(*d) + i * TARGET_ROOM;
		struct dm_target_spec *t = (struct dm_target_spec *)room;

		t->sector_start = at;
		t->length = range[i].len;
		t->next = TARGET_ROOM;
		snprintf(t->target_type, sizeof(t->target_type), "linear");
		snprintf(room + sizeof(*t), TARGET_ROOM - sizeof(*t), "%u:%u %llu", major(below),
			 minor(below), (unsigned long long)range[i].start);
		at += range[i].len;
	}
	if (ioctl(fd, DM_TABLE_LOAD, d))
		ret = -errno;
	free(d);
	return ret;
}

int dm_make(int fd, const char *name, const char *uuid, dev_t below, const struct dm_range *range,
	    size_t nr, dev_t *dev, struct zns_err *err)
{
	struct dm_ioctl d;
	int ret;

	/* a device without a table: an earlier call was interrupted after it had made it */
	dm_remove(fd, uuid);
	fill(&d, sizeof(d), name, uuid);
	if (ioctl(fd, DM_DEV_CREATE, &d)) {
		ret = -errno;
		return ret == -EBUSY ?
			       zns_fail(err, ret, "there is another device %s of the device mapper",
					name) :
			       zns_fail_sys(err, ret, "device %s of the device mapper", name);
	}
	ret = load(fd, uuid, below, range, nr);
	if (!ret) {
		fill(&d, sizeof(d), NULL, uuid);
		ret = ioctl(fd, DM_DEV_SUSPEND, &d) ? -errno : 0; /* without the flag it resumes */
	}
	if (!ret && dm_find(fd, uuid, dev))
		return 0;
	dm_remove(fd, uuid);
	return zns_fail_sys(err, ret ? ret : -EIO, "the device mapper does not take these zones");
}

int dm_remove(int fd, const char *uuid)
{
	struct dm_ioctl d;

	fill(&d, sizeof(d), NULL, uuid);
	return ioctl(fd, DM_DEV_REMOVE, &d) ? -errno : 0;
}
