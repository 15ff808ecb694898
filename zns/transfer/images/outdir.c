/* SPDX-License-Identifier: GPL-2.0-only */
/* See outdir.h. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include "outdir.h"
#include "zns/util.h"

int ctl_dir_empty(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d) {
		int ret = -errno;

		if (fd >= 0)
			close(fd);
		return ret;
	}
	while ((e = readdir(d)) && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
		;
	closedir(d);
	return !e;
}

int ctl_outdir_open(struct ctl_outdir *o, const char *path, struct zns_err *err)
{
	int ret;

	o->path = path;
	o->parent = zns_open_parent(path, o->base, err);
	if (o->parent < 0)
		return o->parent;
	if (!mkdirat(o->parent, o->base, 0700))
		o->made = true;
	else if (errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	o->dir = zns_open_subdir(o->parent, o->base);
	if (o->dir == -ENOTDIR || o->dir == -ELOOP)
		return zns_fail(err, -ENOTDIR, "%s is a link or no directory: name a new directory",
				path);
	if (o->dir < 0)
		return zns_fail_sys(err, o->dir, "cannot open %s", path);
	ret = ctl_dir_empty(o->dir);
	if (ret < 0)
		return zns_fail_sys(err, ret, "cannot read %s", path);
	return ret ? 0 : zns_fail(err, -ENOTEMPTY, "%s is not empty: name a new directory", path);
}

int ctl_outdir_sync(const struct ctl_outdir *o, struct zns_err *err)
{
	int ret = o->made ? zns_sync_dir(o->parent) : 0;

	return ret ? zns_fail_sys(err, ret, "cannot sync the directory of %s", o->path) : 0;
}

void ctl_outdir_undo(struct ctl_outdir *o)
{
	if (o->made)
		unlinkat(o->parent, o->base, AT_REMOVEDIR);
	o->made = false;
}

void ctl_outdir_close(struct ctl_outdir *o)
{
	if (o->dir >= 0)
		close(o->dir);
	if (o->parent >= 0)
		close(o->parent);
	o->dir = o->parent = -1;
}

int ctl_make_subdir(int dir, const char *name, struct zns_err *err)
{
	int fd;

	if (mkdirat(dir, name, 0700))
		return zns_fail_sys(err, -errno, "cannot make the directory %s", name);
	fd = zns_open_subdir(dir, name);
	if (fd < 0)
		return zns_fail(
			err, fd,
			"the directory %s was replaced as soon as it was made (%s): name a target that nobody else "
			"writes to",
			name, zns_open_why(fd));
	return fd;
}
