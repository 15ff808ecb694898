/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The two directories of an import: the source, with plain images, and the directory of the new
 * handle.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "import.h"
#include "zns/handle.h"
#include "zns/safeopen.h"

#define NAME_MAX_BYTES 255

bool import_is_image(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && n <= NAME_MAX_BYTES && !strcmp(name + n - 4, ".img");
}

int import_add(struct import *x, const char *name, uint64_t size, const struct stat *st,
	       struct zns_err *err)
{
	struct import_file *v;

	if (!(x->nr_files & (x->nr_files - 1))) {
		v = realloc(x->files, (x->nr_files ? 2 * x->nr_files : 1) * sizeof(*v));
		if (!v)
			return zns_fail(err, -ENOMEM, "no memory for a list of images");
		x->files = v;
	}
	v = &x->files[x->nr_files];
	*v = (struct import_file){ .name = strdup(name), .size = size };
	if (!v->name)
		return zns_fail(err, -ENOMEM, "no memory for a list of images");
	if (st)
		v->st = *st;
	x->nr_files++;
	if (size > INT64_MAX - x->prog.total)
		return zns_fail(err, -EFBIG, "%s: the images have more bytes than any device",
				x->path);
	x->prog.total += size;
	return 0;
}

static int open_listed(const struct import *x, const char *name, struct stat *st,
		       struct zns_err *err)
{
	int fd = zns_open_file(x->dir, name, st);

	if (fd < 0)
		return zns_fail(err, fd, "%s/%s cannot be taken: %s", x->path, name,
				zns_open_why(fd));
	if (zns_planted(x->dir, st)) {
		close(fd);
		return zns_fail(
			err, -EPERM,
			"%s/%s is a hard link to a file of another user (%u) than the directory's: copy it, or "
			"remove it",
			x->path, name, (unsigned)st->st_uid);
	}
	return fd;
}

static int add_file(struct import *x, const char *name, struct zns_err *err)
{
	struct stat st;
	cleanup_close int fd = -1;

	for (const char *p = name; *p; p++)
		if (*p < ' ' || *p > '~')
			return zns_fail(
				err, -EINVAL,
				"%s holds an image whose name is not plain ASCII: rename or remove it",
				x->path);
	fd = open_listed(x, name, &st, err);
	return fd < 0 ? fd : import_add(x, name, (uint64_t)st.st_size, &st, err);
}

static int check_inventory(struct import *x, struct zns_err *err)
{
	cleanup_close int fd = -1;
	struct stat st;
	uint8_t b[4];

	if (faccessat(x->dir, "inventory.img", F_OK, AT_SYMLINK_NOFOLLOW))
		return zns_fail(err, -EINVAL, "%s has no inventory.img: not a CRIU image directory",
				x->path);
	fd = open_listed(x, "inventory.img", &st, err);
	if (fd < 0)
		return fd;
	if (zns_pread_all(fd, b, sizeof(b), 0) ||
	    (b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24) != IMPORT_INVENTORY_MAGIC)
		return zns_fail(err, -EINVAL, "%s/inventory.img is no CRIU image", x->path);
	return 0;
}

/* Finds the parent, which must already be on the device. */
int import_parent(struct import *x, bool linked, struct zns_err *err)
{
	cleanup_close int dir = linked && x->dir >= 0 ? openat(x->dir, "parent",
							       O_RDONLY | O_DIRECTORY | O_CLOEXEC) :
							-1;
	ZnsPb__Handle *h = NULL;

	if (!x->parent_id && dir >= 0 && !zns_handle_read(dir, &h, NULL)) {
		memcpy(x->parent, h->checkpoint.data, ZNS_UUID_LEN);
		x->parent_handle = h;
	} else if (linked && !x->parent_id) {
		return zns_fail(
			err, -EOPNOTSUPP,
			"%s is an incremental dump: import its parent first, then give --parent with that "
			"checkpoint's id",
			x->path);
	}
	x->has_parent = linked || x->parent_id;
	return 0;
}

static int cmp_file(const void *a, const void *b)
{
	return strcmp(((const struct import_file *)a)->name, ((const struct import_file *)b)->name);
}

int import_scan(struct import *x, struct zns_err *err)
{
	int ret;

	x->dir = zns_open_dir(x->path, err);
	if (x->dir < 0)
		return x->dir;
	if (!faccessat(x->dir, ZNS_HANDLE_NAME, F_OK, AT_SYMLINK_NOFOLLOW))
		return zns_fail(err, -EINVAL, "%s has a %s: its checkpoint is on a device already",
				x->path, ZNS_HANDLE_NAME);
	ret = import_parent(x, !faccessat(x->dir, "parent", F_OK, AT_SYMLINK_NOFOLLOW), err);
	x->pre_dump = faccessat(x->dir, "pstree.img", F_OK, AT_SYMLINK_NOFOLLOW);
	if (!ret)
		ret = check_inventory(x, err);
	return ret ? ret : import_list(x, NULL, err);
}

static bool among(const ZnsPb__Manifest *m, const char *name)
{
	for (size_t i = 0; m && i < m->n_images; i++)
		if (!strcmp(m->images[i]->name, name))
			return true;
	return m && (!strcmp(name, ZNS_HANDLE_NAME) || !strncmp(name, "pages-", 6));
}

int import_list(struct import *x, const ZnsPb__Manifest *without, struct zns_err *err)
{
	DIR *d = fdopendir(openat(x->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;
	int ret = 0;

	if (!d)
		return zns_fail_sys(err, -errno, "cannot open %s", x->path);
	while (!ret && (e = readdir(d))) {
		if (among(without, e->d_name))
			continue;
		if (import_is_image(e->d_name))
			ret = add_file(x, e->d_name, err);
		else
			x->nr_skipped += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	}
	closedir(d);
	if (!ret)
		qsort(x->files, x->nr_files, sizeof(*x->files), cmp_file);
	return ret;
}

struct source {
	int fd;
	const char *dir, *name;
};

static int from_dir(void *arg, uint8_t *buf, size_t len, uint64_t off, struct zns_err *err)
{
	const struct source *s = arg;
	int ret = zns_pread_all(s->fd, buf, len, (off_t)off);

	if (ret == -ENODATA)
		return zns_fail(err, -EBUSY, "%s/%s became shorter while it was read", s->dir,
				s->name);
	return ret ? zns_fail_sys(err, ret, "cannot read %s/%s", s->dir, s->name) : 0;
}

static int read_one(struct import *x, struct import_file *f, struct zns_err *err)
{
	struct stat st;
	cleanup_close int fd = open_listed(x, f->name, &st, err);
	int ret;

	if (fd < 0)
		return fd;
	if (!zns_same_file(&st, &f->st))
		return zns_fail(err, -EBUSY,
				"%s/%s was changed since it was listed: nothing may write there",
				x->path, f->name);
	ret = import_image(x, f, from_dir, &(struct source){ fd, x->path, f->name }, err);
	if (!ret && (fstat(fd, &st) || !zns_same_file(&st, &f->st)))
		ret = zns_fail(err, -EBUSY, "%s/%s was changed while it was read", x->path,
			       f->name);
	return ret;
}

int import_read_dir(struct import *x, struct zns_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < x->nr_files && !ret; i++)
		ret = read_one(x, &x->files[i], err);
	return ret;
}

int import_write_copies(struct import *x, struct zns_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < x->nr_files && !ret; i++) {
		const struct import_file *f = &x->files[i];

		if (!f->copy)
			continue;
		ret = zns_save_copy(&x->v, f->name, f->size, zns_hash(f->copy, f->size), err);
		if (ret)
			break;
		/* not synced, as in a dump: the hash in the handle reveals a torn copy */
		ret = zns_put_file(x->handle.dir, f->name, f->copy, f->size);
		if (ret)
			zns_fail_sys(err, ret, "cannot write %s/%s", x->handle.path, f->name);
	}
	return ret;
}

void import_undo_copies(const struct import *x)
{
	for (size_t i = 0; i < x->v.nr_copies; i++)
		unlinkat(x->handle.dir, x->v.copies[i].name, 0);
}

void import_fini(struct import *x)
{
	for (size_t i = 0; i < x->nr_files; i++) {
		free(x->files[i].name);
		free(x->files[i].copy);
	}
	free(x->files);
	if (x->parent_handle)
		zns_pb__handle__free_unpacked(x->parent_handle, NULL);
	free(x->buf);
	if (x->dir >= 0)
		close(x->dir);
	if (x->archive >= 0)
		close(x->archive);
	ctl_outdir_close(&x->handle);
}
