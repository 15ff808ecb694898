/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Chooses the backend for a device spec. */
#include <string.h>
#include <sys/stat.h>

#include "backends.h"
#include "zns/util.h"

/* Backends that have a prefix. Any other backend is found by the kind of the device node. */
static const struct {
	const char *prefix;
	int (*open)(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err);
} named[] = {
	{ "emu:", emu_open },
	{ "file:", emu_open },
	{ "zonefs:", zonefs_open },
};

int zns_dev_open(const char *spec, unsigned flags, struct zns_dev **out, struct zns_err *err)
{
	struct stat st;

	*out = NULL;
	if (strlen(spec) >= sizeof((*out)->path))
		return zns_fail(err, -ENAMETOOLONG,
				"device name \"%.64s…\" is too long (at most %zu bytes)", spec,
				sizeof((*out)->path) - 1);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(named); i++)
		if (!strncmp(spec, named[i].prefix, strlen(named[i].prefix)))
			return named[i].open(spec, flags, out, err);
	if (!*spec)
		return zns_fail(
			err, -ENOENT,
			"no device named: give file:PATH, /dev/nvmeXnY, zonefs:DIR or emu:PATH");
	if (stat(spec, &st))
		return zns_fail_sys(err, -errno, "cannot find device %s", spec);
	if (S_ISBLK(st.st_mode))
		return block_open(spec, st.st_rdev, flags, out, err);
	if (S_ISCHR(st.st_mode))
		return nvme_open_ns(spec, st.st_rdev, flags, out, err);
	if (S_ISREG(st.st_mode))
		return zns_fail(err, -EMEDIUMTYPE, "%s is a file: a store in it is named file:%s",
				spec, spec);
	return zns_fail(
		err, -EMEDIUMTYPE,
		"%s is not a zoned device: give file:PATH, /dev/nvmeXnY, /dev/ngXnY, zonefs:DIR or emu:PATH",
		spec);
}

void zns_dev_close(struct zns_dev *dev)
{
	if (dev)
		dev->ops->close(dev);
}
