// SPDX-License-Identifier: GPL-2.0-only
/* export: a plain CRIU image directory, or a tar archive of one, from a checkpoint on zones */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "ctl.h"
#include "tar.h"
#include "zns/reader.h"

#define CHUNK MIB(16)		/* between two looks at the progress; a tar's buffer */

struct export {
	struct ctl_hold h;
	struct zns_reader *r;
	struct ctl_progress prog;
	const char *target;
	bool tar, to_stdout, metadata_only;
	bool made_dir;		/* by us, to be taken back on failure */
	uint32_t done;		/* images written so far … */
	uint32_t made;		/* … among the first so many of the manifest */
	uint64_t bytes;		/* of them */
};

/* ---- a directory ---- */

/* Ours alone: new, or empty. */
static int open_dir(struct export *x, int *out, struct zns_err *err)
{
	struct dirent *e;
	DIR *d;
	int fd;

	if (!mkdir(x->target, 0700))
		x->made_dir = true;
	else if (errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", x->target);
	fd = open(x->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "%s", x->target);
	*out = fd;
	d = fdopendir(dup(fd));
	if (!d)
		return zns_fail_sys(err, -errno, "%s", x->target);
	while ((e = readdir(d)) && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
		;
	closedir(d);
	return e ? zns_fail(err, -ENOTEMPTY, "%s is not empty: name a new directory", x->target) : 0;
}

/* With --metadata-only, no memory pages: what crit and checkpointctl read of them is in the pagemaps. */
static bool left_out(const struct export *x, uint32_t n)
{
	return x->metadata_only && !strncmp(x->h.m->images[n]->name, "pages-", 6);
}

static int image_to_dir(struct export *x, int dir, struct zns_rimage *i, struct zns_err *err)
{
	uint64_t size = zns_rimage_size(i);
	cleanup_close int fd = openat(dir, zns_rimage_name(i), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int ret = 0;

	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make %s/%s", x->target, zns_rimage_name(i));
	x->done++;
	x->made = zns_rimage_index(i) + 1;
	x->bytes += size;
	for (uint64_t off = 0; off < size && !ret; off += CHUNK) {
		ret = zns_rimage_to_fd(i, off, zns_min(CHUNK, size - off), fd, err);
		ctl_progress_add(&x->prog, zns_min(CHUNK, size - off));
	}
	if (!ret && fsync(fd))
		ret = zns_fail_sys(err, -errno, "%s/%s", x->target, zns_rimage_name(i));
	return ret;
}

static void take_back(const struct export *x, int dir)
{
	for (uint32_t n = 0; n < x->made; n++)
		if (!left_out(x, n))
			unlinkat(dir, x->h.m->images[n]->name, 0);
	if (x->made_dir)
		rmdir(x->target);
}

static int to_dir(struct export *x, struct zns_err *err)
{
	cleanup_close int dir = -1;
	int ret = open_dir(x, &dir, err);

	for (uint32_t n = 0; n < x->h.m->n_images && !ret; n++)
		if (!left_out(x, n))
			ret = image_to_dir(x, dir, zns_reader_image(x->r, n), err);
	if (!ret && fsync(dir))
		ret = zns_fail_sys(err, -errno, "%s", x->target);
	if (ret)
		take_back(x, dir);
	return ret;
}

/* ---- an archive ---- */

static int image_to_tar(struct export *x, int fd, struct zns_rimage *i, uint8_t *buf, struct zns_err *err)
{
	uint64_t size = zns_rimage_size(i);
	int ret = tar_begin_file(fd, zns_rimage_name(i), size, x->h.c->created_ns / 1000000000);

	for (uint64_t off = 0; off < size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);

		ret = zns_rimage_read(i, off, buf, len, err);
		if (ret)
			return ret;
		ret = zns_write_all(fd, buf, len);
		ctl_progress_add(&x->prog, len);
	}
	if (!ret)
		ret = tar_end_file(fd, size);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", x->to_stdout ? "the archive" : x->target) : 0;
}

static int write_tar(struct export *x, int fd, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(CHUNK);
	int ret = buf ? 0 : zns_fail_sys(err, -ENOMEM, "buffer");

	for (uint32_t n = 0; n < x->h.m->n_images && !ret; n++) {
		if (left_out(x, n))
			continue;
		ret = image_to_tar(x, fd, zns_reader_image(x->r, n), buf, err);
		x->done++;
		x->bytes += zns_rimage_size(zns_reader_image(x->r, n));
	}
	if (!ret) {
		ret = tar_end(fd);
		if (ret)
			zns_fail_sys(err, ret, "cannot write the archive");
	}
	return ret;
}

/* Under another name until it is whole. */
static int to_tar(struct export *x, struct zns_err *err)
{
	char part[4096];
	cleanup_close int fd = -1;
	int ret;

	if (x->to_stdout)
		return write_tar(x, STDOUT_FILENO, err);
	if (!access(x->target, F_OK))
		return zns_fail(err, -EEXIST, "%s exists: name another file", x->target);
	if (snprintf(part, sizeof(part), "%s.part", x->target) >= (int)sizeof(part))
		return zns_fail(err, -ENAMETOOLONG, "%.80s… is too long a name", x->target);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make %s", part);
	ret = write_tar(x, fd, err);
	if (!ret && (fsync(fd) || rename(part, x->target)))
		ret = zns_fail_sys(err, -errno, "%s", x->target);
	if (ret)
		unlink(part);
	return ret;
}

/* ---- the command ---- */

static int run(struct export *x, struct zns_err *err)
{
	struct zns_reader_params p = { .dev = x->h.s.dev };
	int ret;

	if (x->h.c->has_parent && !x->metadata_only)
		return zns_fail(err, -EOPNOTSUPP, "this checkpoint is incremental: its pages are partly in its parents, and it cannot "
				"be exported alone");
	if (x->h.c->pages_only)
		return zns_fail(err, -EOPNOTSUPP, "this checkpoint has pages only: join the other images first (znsctl import --join)");
	ret = ctl_hold_key(&x->h, err);
	if (ret)
		return ret;
	p.crypt = x->h.crypt;
	ret = zns_reader_new(&p, x->h.m, &x->r, err);
	if (ret)
		return ret;
	ret = x->tar ? to_tar(x, err) : to_dir(x, err);
	zns_reader_free(x->r);
	return ret;
}

static int print(const struct export *x, bool json, double seconds)
{
	char id[ZNS_UUID_STR], size[16];
	struct json_object *j;

	zns_uuid_format(x->h.c->id.data, id);
	if (x->to_stdout)
		return CTL_OK;
	if (!json) {
		printf("exported %s of %s to %s: %u images, %s in %.1f s\n", id, x->h.c->container, x->target, x->done,
		       zns_format_size(x->bytes, size, sizeof(size)), seconds);
		return CTL_OK;
	}
	j = json_object_new_object();
	json_object_object_add(j, "id", json_object_new_string(id));
	json_object_object_add(j, "container", json_object_new_string(x->h.c->container));
	json_object_object_add(j, "target", json_object_new_string(x->target));
	json_object_object_add(j, "images", json_object_new_int64(x->done));
	json_object_object_add(j, "bytes", json_object_new_int64((int64_t)x->bytes));
	json_object_object_add(j, "seconds", json_object_new_double(seconds));
	return ctl_print_json(j);
}

int cmd_export(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = { { "metadata-only", no_argument, NULL, OPT_OWN }, CTL_DEV_OPTION, CTL_COMMON_OPTIONS,
					      CTL_END_OPTIONS };
	struct export x = { .made_dir = false };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	double seconds;
	size_t n;
	int ret;

	while ((ret = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0)
		if (ret == OPT_OWN)
			x.metadata_only = true;
	if (!args.argv)
		return args.code;
	if (args.argc > 2)
		ctl_take_dev(&args);
	if (args.argc != 2 || !*args.argv[0] || !*args.argv[1])
		return ctl_usage(cmd, "a checkpoint and a target are wanted: ID, and DIR, FILE.tar or - for a tar on standard output");
	x.target = args.argv[1];
	n = strlen(x.target);
	x.to_stdout = !strcmp(x.target, "-");
	x.tar = x.to_stdout || (n > 4 && !strcmp(x.target + n - 4, ".tar"));
	if (x.to_stdout && (args.json || isatty(STDOUT_FILENO)))
		return ctl_usage(cmd, "- writes an archive to standard output: redirect it, and leave out --json");
	ret = ctl_hold(&x.h, args.dev, args.argv[0], &err);
	if (ret)
		return ctl_fail(cmd, &err);
	ctl_progress_start(&x.prog, "export", x.metadata_only ? x.h.c->bytes - x.h.c->page_bytes : x.h.c->bytes);
	ret = run(&x, &err);
	seconds = ctl_progress_end(&x.prog);
	ret = ret ? ctl_fail(cmd, &err) : print(&x, args.json, seconds);
	ctl_unhold(&x.h);
	return ret;
}
