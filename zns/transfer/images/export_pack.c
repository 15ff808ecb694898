/* SPDX-License-Identifier: GPL-2.0-only */
/* Exports a checkpoint as a tar archive. */
#include <fcntl.h>
#include <string.h>
#include "export.h"
#include "zns/safeopen.h"

static int image_to_archive(struct export *x, struct ctl_pack *p, uint32_t level, uint32_t n,
			    uint8_t *buf, struct zns_err *err)
{
	const char *image = export_level(x, level)->images[n]->name;
	uint64_t size = export_size(x, level, n);
	char name[512];
	int ret;

	export_prefix(x, level, name, sizeof(name));
	snprintf(name + strlen(name), sizeof(name) - strlen(name), "%s", image);
	ret = ctl_pack_file(p, name, size, err);
	for (uint64_t off = 0; off < size && !ret; off += EXPORT_CHUNK) {
		size_t len = zns_min(EXPORT_CHUNK, size - off);

		ret = export_read(x, level, n, off, buf, len, err);
		if (!ret)
			ret = ctl_caught(err);
		if (!ret)
			ret = ctl_pack_data(p, buf, len, err);
		ctl_progress_add(&x->prog, len);
	}
	return ret;
}

int export_pack_level(struct export *x, struct ctl_pack *p, uint32_t level, uint8_t *buf,
		      struct zns_err *err)
{
	char name[160], to[128];
	int ret = 0;

	for (uint32_t n = 0; n < export_level(x, level)->n_images && !ret; n++) {
		if (export_leaves_out(x, level, n))
			continue;
		ret = image_to_archive(x, p, level, n, buf, err);
		x->done++;
		x->bytes += export_size(x, level, n);
	}
	if (ret || !export_link(x, level, to, sizeof(to)))
		return ret;
	export_prefix(x, level, name, sizeof(name));
	strcat(name, "parent");
	return ctl_pack_link(p, name, to, err);
}

static int write_archive(struct export *x, int fd, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(EXPORT_CHUNK);
	struct ctl_pack *p = NULL;
	int ret = buf ? 0 : zns_fail(err, -ENOMEM, "no memory for a buffer");

	if (!ret)
		ret = ctl_pack_open(fd, x->to_stdout ? "-" : x->target,
				    x->h.c->created_ns / 1000000000, &p, err);
	for (uint32_t l = 0; !ret && l < export_levels(x); l++)
		ret = export_pack_level(x, p, l, buf, err);
	return ctl_pack_close(p, ret, err);
}

/* The archive has a temporary name until it is complete. */
int export_to_archive(struct export *x, struct zns_err *err)
{
	char base[ZNS_BASE_MAX], part[ZNS_BASE_MAX];
	cleanup_close int fd = -1, dir = -1;
	int ret;

	if (x->to_stdout)
		return write_archive(x, STDOUT_FILENO, err);
	dir = zns_open_parent(x->target, base, err);
	if (dir < 0)
		return dir;
	if (!faccessat(dir, base, F_OK, AT_SYMLINK_NOFOLLOW))
		return zns_fail(err, -EEXIST, "%s exists: name another file", x->target);
	if (snprintf(part, sizeof(part), "%s.part", base) >= (int)sizeof(part))
		return zns_fail_sys(err, -ENAMETOOLONG, "cannot name %s.part", x->target);
	fd = zns_make_file(dir, part);
	if (fd == -EEXIST)
		return zns_fail(
			err, -EEXIST,
			"%s.part is there: another export writes it, or one was killed: remove it then",
			x->target);
	if (fd < 0)
		return zns_fail_sys(err, fd, "cannot make %s.part", x->target);
	ret = write_archive(x, fd, err);
	if (!ret && fsync(fd))
		ret = zns_fail_sys(err, -errno, "cannot sync %s.part", x->target);
	if (!ret && (ret = zns_rename_new(dir, part, base)))
		zns_fail_sys(err, ret, "cannot rename %s.part", x->target);
	if (ret) {
		unlinkat(dir, part, 0);
	} else if ((ret = zns_sync_dir(dir))) {
		unlinkat(dir, base, 0);
		zns_fail_sys(err, ret, "cannot sync the directory of %s, which was removed again",
			     x->target);
	}
	return ret;
}
