/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads the model, firmware and serial number of a drive from sysfs. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "zns/dev.h"
#include "zns/util.h"

static void attribute(const char *dir, const char *name, char *out, size_t len)
{
	cleanup_free uint8_t *text = NULL;
	char path[PATH_MAX];
	size_t n;

	if (*out || snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
	    zns_read_file(AT_FDCWD, path, 4096, &text, &n))
		return;
	n = zns_min(n, len - 1);
	memcpy(out, text, n);
	out[n] = '\0';
	for (n = strlen(out); n && strchr(" \n", out[n - 1]);)
		out[--n] = '\0';
}

/* The attribute is firmware_rev for an NVMe drive, rev for a SCSI disk. */
static void attributes(const char *dir, struct zns_drive *out)
{
	attribute(dir, "model", out->model, sizeof(out->model));
	attribute(dir, "firmware_rev", out->firmware, sizeof(out->firmware));
	attribute(dir, "rev", out->firmware, sizeof(out->firmware));
	attribute(dir, "serial", out->serial, sizeof(out->serial));
}

void zns_dev_drive(const char *sys, const char *spec, struct zns_drive *out)
{
	const char *node = strncmp(spec, "zonefs:", 7) ? spec : spec + 7;
	char real[PATH_MAX], dir[PATH_MAX];
	struct stat st;
	const char *base;
	unsigned int nr;
	dev_t dev;

	*out = (struct zns_drive){ 0 };
	if (!realpath(node, real) || stat(real, &st))
		return;
	if (node != spec) /* the drive below the file system that contains @spec */
		dev = st.st_dev;
	else if (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode))
		dev = st.st_rdev;
	else
		return;
	snprintf(dir, sizeof(dir), "%s/dev/%s/%u:%u/device", sys,
		 node != spec || S_ISBLK(st.st_mode) ? "block" : "char", major(dev), minor(dev));
	attributes(dir, out);
	/* /dev/ng1n1, where sysfs has no "device" link, belongs to the controller nvme1 */
	base = strrchr(real, '/') + 1;
	if (sscanf(base, "nvme%u", &nr) != 1 && sscanf(base, "ng%u", &nr) != 1)
		return;
	snprintf(dir, sizeof(dir), "%s/class/nvme/nvme%u", sys, nr);
	attributes(dir, out);
}
