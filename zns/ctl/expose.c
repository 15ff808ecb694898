/* SPDX-License-Identifier: GPL-2.0-only */
/* See expose.h. */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "dm.h"
#include "expose.h"
#include "zns/dev.h"

#define NAME_MAX_LEN 64
#define SECTOR 512

static void ids(const struct zns_registered *reg, const char *name, char *dm_name, char *uuid,
		size_t len)
{
	char text[ZNS_UUID_STR];

	snprintf(dm_name, len, "zns-%s", name);
	snprintf(uuid, len, ZNS_EXPOSED_UUID "%s-%s", zns_uuid_format(reg->uuid, text), name);
}

/* The block device of the namespace, whichever node is given. */
static int below(const char *given, dev_t *dev, struct zns_err *err)
{
	char node[300], path[128], text[32] = "";
	cleanup_close int fd = -1;
	struct stat st = { 0 };
	ssize_t n;

	snprintf(node, sizeof(node), "%s", given);
	if (!strncmp(node, "/dev/ng", 7))
		snprintf(node, sizeof(node), "/dev/nvme%s", given + 7);
	if (*node == '/' && !stat(node, &st) && S_ISBLK(st.st_mode)) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/zoned", major(st.st_rdev),
			 minor(st.st_rdev));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[n > 0 ? n : 0] = 0;
	}
	if (strcmp(text, "host-managed\n"))
		return zns_fail(
			err, -EOPNOTSUPP,
			"--expose is for a zoned block device of the kernel, and %s is none",
			given);
	*dev = st.st_rdev;
	return 0;
}

int expose_check(const struct zns_registered *reg, const char *name, struct zns_err *err)
{
	size_t n = strlen(name);
	dev_t dev = 0;
	int fd, ret;

	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-_.", *p))
			n = 0;
	if (!n || n > NAME_MAX_LEN)
		return zns_fail(
			err, -EINVAL,
			"--expose: the name becomes a device's: 1 to %d letters, digits, '-', '_', '.'",
			NAME_MAX_LEN);
	ret = below(reg->path, &dev, err);
	if (ret)
		return ret;
	fd = dm_open(err);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int expose_none(const char *path, struct zns_err *err)
{
	struct zns_err none = ZNS_ERR_INIT;
	dev_t dev = 0;

	if (below(path, &dev, &none) || !zns_dev_exposed(dev))
		return 0;
	return zns_fail(
		err, -EBUSY,
		"%s: some of its zones are exposed as another device (see lsblk): release that first",
		path);
}

static bool is_in(const ZnsPb__Reservation *r, uint32_t group)
{
	for (size_t i = 0; i < r->n_groups; i++)
		if (r->groups[i] == group)
			return true;
	return false;
}

/* Returns the zones in order, with adjacent ones joined into ranges. */
static size_t ranges(const ZnsPb__Response *zones, const ZnsPb__Reservation *r, uint64_t size,
		     struct dm_range *out)
{
	size_t nr = 0;

	for (size_t i = 0; i < zones->n_zones; i++) {
		const ZnsPb__ZoneLine *z = zones->zones[i];

		if (!is_in(r, z->group) || z->live || z->suspect ||
		    (z->owner && strcmp(z->owner, "(normal I/O)")) ||
		    z->state == ZNS_ZONE_READ_ONLY || z->state == ZNS_ZONE_OFFLINE)
			continue;
		if (nr && out[nr - 1].start + out[nr - 1].len == z->index * size)
			out[nr - 1].len += size;
		else
			out[nr++] = (struct dm_range){ z->index * size, size };
	}
	return nr;
}

/*
 * Resets garbage first: the broker must not reset a zone later that another program owns by then.
 */
static int free_ranges(struct zns_broker *b, const ZnsPb__Reservation *r, struct dm_range **out,
		       size_t *nr, struct zns_err *err)
{
	ZnsPb__ZonesReset all = ZNS_PB__ZONES_RESET__INIT;
	ZnsPb__Request reset = ZNS_PB__REQUEST__INIT, ask = ZNS_PB__REQUEST__INIT,
		       how = ZNS_PB__REQUEST__INIT;
	cleanup_answer ZnsPb__Response *zones = NULL, *st = NULL;
	int ret;

	reset.reset = &all;
	ask.has_zones = ask.zones = 1;
	how.has_status = how.status = 1;
	ret = ctl_tell(b, &reset, err);
	if (!ret)
		ret = zns_broker_call(b, &ask, &zones, err);
	if (!ret)
		ret = zns_broker_call(b, &how, &st, err);
	if (ret)
		return ret;
	*out = calloc(zones->n_zones + 1, sizeof(**out));
	if (!*out || !st->status)
		return zns_fail(err, -ENOMEM, "no memory for a table of zones");
	*nr = ranges(zones, r, st->status->zone_size / SECTOR, *out);
	return *nr ? 0 : zns_fail(err, -ENOSPC, "no zone of these groups is free");
}

/* The broker has the drive for itself, and so does the device mapper: one after the other. */
static int unclaim(struct zns_broker *b, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	req.has_unclaim = req.unclaim = 1;
	return ctl_tell(b, &req, err);
}

int expose(const struct zns_registered *reg, const char *name, const ZnsPb__Reservation *r,
	   char *node, size_t len, struct zns_err *err)
{
	cleanup_free struct dm_range *range = NULL;
	char dm_name[128], uuid[128];
	cleanup_close int fd = dm_open(err);
	struct zns_broker b;
	dev_t dev = 0, under = 0;
	size_t nr = 0;
	int ret;

	if (fd < 0)
		return fd;
	ids(reg, name, dm_name, uuid, sizeof(uuid));
	if (!dm_find(fd, uuid, &dev)) {
		ret = below(reg->path, &under, err);
		if (!ret)
			ret = zns_broker_connect(reg, &b, err);
		if (ret)
			return ret;
		ret = free_ranges(&b, r, &range, &nr, err);
		if (!ret)
			ret = unclaim(&b, err);
		if (!ret)
			ret = dm_make(fd, dm_name, uuid, under, range, nr, &dev, err);
		zns_broker_close(&b);
		if (ret)
			return ret;
	}
	/* udev makes the node with the name, the kernel the node with the number */
	snprintf(node, len, "/dev/mapper/%s", dm_name);
	if (access(node, F_OK))
		snprintf(node, len, "/dev/dm-%u", minor(dev));
	return 0;
}

int expose_end(const struct zns_registered *reg, const char *name, struct zns_err *err)
{
	char dm_name[128], uuid[128];
	struct zns_err none = ZNS_ERR_INIT;
	cleanup_close int fd = -1;
	dev_t dev = 0;
	int ret;

	if (strlen(name) > NAME_MAX_LEN)
		return 0;
	fd = dm_open(&none);
	ids(reg, name, dm_name, uuid, sizeof(uuid));
	if (fd < 0 || !dm_find(fd, uuid, &dev))
		return 0;
	ret = dm_remove(fd, uuid);
	if (ret == -EBUSY)
		return zns_fail(err, ret, "the device %s is in use: unmount or close it first",
				dm_name);
	return ret ? zns_fail_sys(err, ret, "the device %s cannot be removed", dm_name) : 0;
}
