// SPDX-License-Identifier: GPL-2.0-only
/* export: a plain CRIU image directory, or a tar archive of one, from a checkpoint on zones */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "ctl.h"
#include "zns/crypt.h"
#include "tar.h"
#include "zns/flat.h"

#define CHUNK MIB(16)		/* between two looks at the progress; a tar's buffer */
#define PARENTS "parents"	/* directory of an exported chain, one in it for each parent */

enum { OPT_FLATTEN = OPT_OWN, OPT_METADATA_ONLY };

struct export {
	struct ctl_hold h;
	ZnsPb__Response *answer;	/* the chain's records */
	struct zns_chain *chain;
	struct zns_flat *flat;	/* not NULL: one checkpoint made of all */
	struct ctl_progress prog;
	const char *target;
	bool tar, to_stdout, flatten, metadata_only;
	bool made_dir;		/* by us, to be taken back on failure */
	uint32_t done;		/* images written so far */
	uint64_t bytes;		/* of them */
};

/* How many directories are written. */
static uint32_t levels(const struct export *x)
{
	return x->flat || x->metadata_only ? 1 : zns_chain_levels(x->chain);
}

static uint64_t image_size(const struct export *x, uint32_t level, uint32_t n)
{
	return x->flat ? zns_flat_size(x->flat, n) : zns_chain_manifest(x->chain, level)->images[n]->size;
}

static int image_read(struct export *x, uint32_t level, uint32_t n, uint64_t off, uint8_t *buf, size_t len,
		      struct zns_err *err)
{
	if (x->flat)
		return zns_flat_read(x->flat, n, off, buf, len, err);
	return zns_rimage_read(zns_chain_find(x->chain, level, zns_chain_manifest(x->chain, level)->images[n]->name), off,
			       buf, len, err);
}

/* Where a level's images go: "" or "parents/ID/". */
static void prefix(const struct export *x, uint32_t level, char *out, size_t len)
{
	char id[ZNS_UUID_STR];

	*out = 0;
	if (level)
		snprintf(out, len, PARENTS "/%s/",
			 zns_uuid_format(zns_chain_manifest(x->chain, level)->checkpoint->id.data, id));
}

/* What the link `parent` in it says; false: there is none. */
static bool link_of(const struct export *x, uint32_t level, char *out, size_t len)
{
	char id[ZNS_UUID_STR];

	if (level + 1 >= levels(x))
		return false;
	zns_uuid_format(zns_chain_manifest(x->chain, level + 1)->checkpoint->id.data, id);
	snprintf(out, len, "%s/%s", level ? ".." : PARENTS, id);
	return true;
}

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
static bool left_out(const struct export *x, uint32_t level, uint32_t n)
{
	return x->metadata_only && !strncmp(zns_chain_manifest(x->chain, level)->images[n]->name, "pages-", 6);
}

static int image_to_dir(struct export *x, int dir, uint32_t level, uint32_t n, uint8_t *buf, struct zns_err *err)
{
	const char *name = zns_chain_manifest(x->chain, level)->images[n]->name;
	cleanup_close int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	uint64_t size = image_size(x, level, n);
	int ret = 0;

	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make %s/%s", x->target, name);
	x->done++;
	x->bytes += size;
	for (uint64_t off = 0; off < size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);

		if (!x->flat) {
			ret = zns_rimage_to_fd(zns_chain_find(x->chain, level, name), off, len, fd, err);
		} else {
			ret = image_read(x, level, n, off, buf, len, err);
			if (!ret) {
				ret = zns_pwrite_all(fd, buf, len, (off_t)off);
				if (ret)
					zns_fail_sys(err, ret, "%s/%s", x->target, name);
			}
		}
		if (!ret)
			ret = ctl_caught(err);
		ctl_progress_add(&x->prog, len);
	}
	if (!ret && fsync(fd))
		ret = zns_fail_sys(err, -errno, "%s/%s", x->target, name);
	return ret;
}

/* The directory was empty: what has our names is ours. */
static void take_back(const struct export *x, int dir)
{
	char at[128], path[512];

	for (uint32_t l = levels(x); l-- > 0;) {
		const ZnsPb__Manifest *m = zns_chain_manifest(x->chain, l);

		prefix(x, l, at, sizeof(at));
		for (uint32_t n = 0; n < m->n_images; n++)
			if (snprintf(path, sizeof(path), "%s%s", at, m->images[n]->name) < (int)sizeof(path))
				unlinkat(dir, path, 0);
		snprintf(path, sizeof(path), "%sparent", at);
		unlinkat(dir, path, 0);
		if (l)
			unlinkat(dir, at, AT_REMOVEDIR);
	}
	unlinkat(dir, PARENTS, AT_REMOVEDIR);
	if (x->made_dir)
		rmdir(x->target);
}

static int level_to_dir(struct export *x, int top, uint32_t level, uint8_t *buf, struct zns_err *err)
{
	char at[128], to[128];
	cleanup_close int dir = -1;
	int ret = 0;

	prefix(x, level, at, sizeof(at));
	if ((level == 1 && mkdirat(top, PARENTS, 0700)) || (level && mkdirat(top, at, 0700)))
		return zns_fail_sys(err, -errno, "cannot make %s/%s", x->target, at);
	dir = openat(top, level ? at : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return zns_fail_sys(err, -errno, "%s/%s", x->target, at);
	for (uint32_t n = 0; n < zns_chain_manifest(x->chain, level)->n_images && !ret; n++)
		ret = left_out(x, level, n) ? 0 : image_to_dir(x, dir, level, n, buf, err);
	if (!ret && link_of(x, level, to, sizeof(to)) && symlinkat(to, dir, "parent"))
		ret = zns_fail_sys(err, -errno, "cannot make the link %s/%sparent", x->target, at);
	if (!ret && fsync(dir))
		ret = zns_fail_sys(err, -errno, "%s/%s", x->target, at);
	return ret;
}

static int to_dir(struct export *x, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(CHUNK);
	cleanup_close int dir = -1;
	int ret = buf ? open_dir(x, &dir, err) : zns_fail_sys(err, -ENOMEM, "buffer");

	if (ret) {
		if (x->made_dir)
			rmdir(x->target);
		return ret;
	}
	for (uint32_t l = 0; l < levels(x) && !ret; l++)
		ret = level_to_dir(x, dir, l, buf, err);
	if (!ret && x->made_dir) {
		ret = zns_sync_parent(x->target);
		if (ret)
			zns_fail_sys(err, ret, "%s", x->target);
	}
	if (ret)
		take_back(x, dir);
	return ret;
}

/* ---- an archive ---- */

static int image_to_tar(struct export *x, int fd, uint32_t level, uint32_t n, uint8_t *buf, struct zns_err *err)
{
	const char *image = zns_chain_manifest(x->chain, level)->images[n]->name;
	uint64_t size = image_size(x, level, n);
	char name[512];
	int ret;

	prefix(x, level, name, sizeof(name));
	snprintf(name + strlen(name), sizeof(name) - strlen(name), "%s", image);
	ret = tar_begin_file(fd, name, size, x->h.c->created_ns / 1000000000);
	for (uint64_t off = 0; off < size && !ret; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);

		ret = image_read(x, level, n, off, buf, len, err);
		if (!ret)
			ret = ctl_caught(err);
		if (ret)
			return ret;
		ret = zns_write_all(fd, buf, len);
		ctl_progress_add(&x->prog, len);
	}
	if (!ret)
		ret = tar_end_file(fd, size);
	return ret ? zns_fail_sys(err, ret, "cannot write %s", x->to_stdout ? "the archive" : x->target) : 0;
}

static int level_to_tar(struct export *x, int fd, uint32_t level, uint8_t *buf, struct zns_err *err)
{
	char name[160], to[128];
	int ret = 0;

	for (uint32_t n = 0; n < zns_chain_manifest(x->chain, level)->n_images && !ret; n++) {
		if (left_out(x, level, n))
			continue;
		ret = image_to_tar(x, fd, level, n, buf, err);
		x->done++;
		x->bytes += image_size(x, level, n);
	}
	if (ret || !link_of(x, level, to, sizeof(to)))
		return ret;
	prefix(x, level, name, sizeof(name));
	strcat(name, "parent");
	ret = tar_symlink(fd, name, to, x->h.c->created_ns / 1000000000);
	return ret ? zns_fail_sys(err, ret, "cannot write the archive") : 0;
}

static int write_tar(struct export *x, int fd, struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(CHUNK);
	int ret = buf ? 0 : zns_fail_sys(err, -ENOMEM, "buffer");

	for (uint32_t l = 0; l < levels(x) && !ret; l++)
		ret = level_to_tar(x, fd, l, buf, err);
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
	if (fd < 0 && errno == EEXIST)
		return zns_fail(err, -EEXIST, "%s is there: another export writes it, or one was killed: remove it then", part);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot make %s", part);
	ret = write_tar(x, fd, err);
	if (!ret && (fsync(fd) || rename(part, x->target)))
		ret = zns_fail_sys(err, -errno, "%s", x->target);
	if (!ret && (ret = zns_sync_parent(x->target)))
		zns_fail_sys(err, ret, "%s", x->target);
	if (ret)
		unlink(part);
	return ret;
}

/* ---- the command ---- */

static int run(struct export *x, struct zns_err *err)
{
	struct zns_reader_params p = { .dev = x->h.s.dev };
	int ret;

	if (x->h.c->pages_only)
		return zns_fail(err, -EOPNOTSUPP, "this checkpoint has pages only: join the other images first (znsctl import --join)");
	ret = ctl_lease_chain(&x->h.s, x->h.c->id.data, &x->answer, err);
	if (!ret)
		ret = zns_chain_open(&p, &x->h.s.reg, x->h.s.broker.encrypted, x->answer->checkpoints, x->answer->n_checkpoints,
				     &x->chain, err);
	if (!ret && x->h.handle)
		ret = zns_crypt_check_handle(zns_chain_crypt(x->chain, 0), x->h.handle, zns_chain_manifest(x->chain, 0), err);
	if (!ret && x->flatten)
		ret = zns_flat_new(x->chain, &x->flat, err);
	if (!ret) {
		x->prog.total = x->flat ? zns_flat_bytes(x->flat) : zns_chain_bytes(x->chain);
		ret = x->tar ? to_tar(x, err) : to_dir(x, err);
	}
	zns_flat_free(x->flat);
	zns_chain_close(x->chain);
	if (x->answer)
		zns_pb__response__free_unpacked(x->answer, NULL);
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
		printf("exported %s of %s to %s: %u images, %s in %.1f s\n", id, ctl_text(x->h.c->container), x->target, x->done,
		       zns_format_size(x->bytes, size, sizeof(size)), seconds);
		return CTL_OK;
	}
	j = json_object_new_object();
	json_object_object_add(j, "id", json_object_new_string(id));
	json_object_object_add(j, "container", json_object_new_string(x->h.c->container));
	json_object_object_add(j, "target", json_object_new_string(x->target));
	json_object_object_add(j, "images", json_object_new_int64(x->done));
	json_object_object_add(j, "bytes", json_object_new_int64(x->bytes));
	json_object_object_add(j, "seconds", json_object_new_double(seconds));
	return ctl_print_json(j);
}

int cmd_export(const struct ctl_cmd *cmd, int argc, char **argv)
{
	static const struct option opts[] = {
		{ "flatten", no_argument, NULL, OPT_FLATTEN },
		{ "metadata-only", no_argument, NULL, OPT_METADATA_ONLY },
		CTL_DEV_OPTION, CTL_COMMON_OPTIONS, CTL_END_OPTIONS,
	};
	struct export x = { .made_dir = false };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	double seconds;
	size_t n;
	int c, ret;

	while ((c = ctl_getopt(cmd, argc, argv, opts, &args)) >= 0) {
		x.flatten |= c == OPT_FLATTEN;
		x.metadata_only |= c == OPT_METADATA_ONLY;
	}
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
	ctl_catch_signals();
	ctl_progress_start(&x.prog, "export", x.metadata_only ? x.h.c->bytes - x.h.c->page_bytes : x.h.c->bytes);
	ret = run(&x, &err);
	seconds = ctl_progress_end(&x.prog);
	ret = ret ? ctl_fail(cmd, &err) : print(&x, args.json, seconds);
	ctl_unhold(&x.h);
	return ret;
}
