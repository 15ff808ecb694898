// SPDX-License-Identifier: GPL-2.0-only
/* The directories of an import: the plain images that come, and the handle that goes out. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "import.h"
#include "zns/crypt.h"
#include "zns/handle.h"

#define CRIU_INVENTORY_MAGIC 0x58313116u
#define NAME_MAX_BYTES 255

static bool is_image(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && n <= NAME_MAX_BYTES && !strcmp(name + n - 4, ".img");
}

static int add_file(struct import *x, const char *name, struct zns_err *err)
{
	struct import_file *v;
	struct stat st;

	if (fstatat(x->dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return zns_fail_sys(err, -errno, "%s/%s", x->path, name);
	if (!S_ISREG(st.st_mode))
		return zns_fail(err, -EINVAL, "%s/%s is no regular file", x->path, name);
	if (!(x->nr_files & (x->nr_files - 1))) {
		v = realloc(x->files, (x->nr_files ? 2 * x->nr_files : 1) * sizeof(*v));
		if (!v)
			return zns_fail_sys(err, -ENOMEM, "list of images");
		x->files = v;
	}
	v = &x->files[x->nr_files];
	*v = (struct import_file){ .name = strdup(name), .size = (uint64_t)st.st_size, .mtime = st.st_mtim };
	if (!v->name)
		return zns_fail_sys(err, -ENOMEM, "list of images");
	x->nr_files++;
	x->prog.total += v->size;
	return 0;
}

static int check_inventory(struct import *x, struct zns_err *err)
{
	cleanup_close int fd = openat(x->dir, "inventory.img", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint8_t b[4];

	if (fd < 0)
		return zns_fail(err, -EINVAL, "%s has no inventory.img: not a CRIU image directory", x->path);
	if (zns_pread_all(fd, b, sizeof(b), 0) ||
	    (b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24) != CRIU_INVENTORY_MAGIC)
		return zns_fail(err, -EINVAL, "%s/inventory.img is no CRIU image", x->path);
	return 0;
}

/* An incremental dump: its parent must be on the device already. */
static int find_parent(struct import *x, struct zns_err *err)
{
	bool linked = !faccessat(x->dir, "parent", F_OK, AT_SYMLINK_NOFOLLOW);
	cleanup_close int dir = linked ? openat(x->dir, "parent", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	ZnsPb__Handle *h = NULL;

	if (!x->parent_id && dir >= 0 && !zns_handle_read(dir, &h, NULL)) {
		memcpy(x->parent, h->checkpoint.data, ZNS_UUID_LEN);
		x->parent_handle = h;
	} else if (linked && !x->parent_id) {
		return zns_fail(err, -EOPNOTSUPP, "%s is an incremental dump: import its parent first, then give --parent with that "
				"checkpoint's id", x->path);
	}
	x->has_parent = linked || x->parent_id;
	x->pre_dump = faccessat(x->dir, "pstree.img", F_OK, AT_SYMLINK_NOFOLLOW);
	return 0;
}

static int cmp_file(const void *a, const void *b)
{
	return strcmp(((const struct import_file *)a)->name, ((const struct import_file *)b)->name);
}

int import_scan(struct import *x, struct zns_err *err)
{
	int ret;

	x->dir = open(x->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->dir < 0)
		return zns_fail_sys(err, -errno, "%s", x->path);
	if (!faccessat(x->dir, ZNS_HANDLE_NAME, F_OK, AT_SYMLINK_NOFOLLOW))
		return zns_fail(err, -EINVAL, "%s has a %s: its checkpoint is on a device already", x->path, ZNS_HANDLE_NAME);
	ret = find_parent(x, err);
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
		return zns_fail_sys(err, -errno, "%s", x->path);
	while (!ret && (e = readdir(d))) {
		if (among(without, e->d_name))
			continue;
		if (is_image(e->d_name))
			ret = add_file(x, e->d_name, err);
		else
			x->nr_skipped += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	}
	closedir(d);
	if (!ret)
		qsort(x->files, x->nr_files, sizeof(*x->files), cmp_file);
	return ret;
}

int import_handle_dir(struct import *x, const char *path, struct zns_err *err)
{
	struct dirent *e;
	DIR *d;

	x->handle_path = path;
	if (!mkdir(path, 0700))
		x->made_handle_dir = true;
	else if (errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	x->handle_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = x->handle_dir < 0 ? NULL : fdopendir(dup(x->handle_dir));
	if (!d)
		return zns_fail_sys(err, -errno, "%s", path);
	while ((e = readdir(d)) && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")))
		;
	closedir(d);
	return e ? zns_fail(err, -ENOTEMPTY, "%s is not empty: name a new directory", path) : 0;
}

/* Not synced, as those of a dump: the handle's hash tells a torn copy. */
static int copy_image(struct import *x, const struct import_file *f, ZnsPb__HandleCopy *copy, struct zns_err *err)
{
	cleanup_free uint8_t *data = NULL;
	cleanup_close int fd = -1;
	size_t len;
	int ret = zns_read_file(x->dir, f->name, ZNS_HANDLE_COPY_MAX, &data, &len);

	if (ret)
		return zns_fail_sys(err, ret, "%s/%s", x->path, f->name);
	fd = openat(x->handle_dir, f->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	ret = fd < 0 ? -errno : zns_write_all(fd, data, len);
	if (ret)
		return zns_fail_sys(err, ret, "%s/%s", x->handle_path, f->name);
	copy->name = f->name;
	copy->size = len;
	copy->hash = zns_hash(data, len);
	return 0;
}

static bool may_copy(const struct import *x, const struct import_file *f, uint64_t sum)
{
	if (x->crypt)	/* as of a dump */
		return !strcmp(f->name, "inventory.img") && f->size <= ZNS_HANDLE_COPY_MAX;
	return f->size <= ZNS_HANDLE_COPY_MAX && sum + f->size <= ZNS_HANDLE_COPIES_MAX && strncmp(f->name, "pages-", 6);
}

int import_write_handle(struct import *x, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	cleanup_free ZnsPb__HandleCopy *copy = calloc(x->nr_files + 1, sizeof(*copy));
	cleanup_free ZnsPb__HandleCopy **list = calloc(x->nr_files + 1, sizeof(*list));
	ZnsPb__Handle h = ZNS_PB__HANDLE__INIT;
	struct zns_handle_seal seal;
	uint64_t sum = 0;
	size_t nr = 0;
	int ret = 0;

	if (!copy || !list)
		return zns_fail_sys(err, -ENOMEM, "handle");
	for (size_t i = 0; i < x->nr_files && nr < 2000 && !ret; i++) {
		if (!may_copy(x, &x->files[i], sum))
			continue;
		zns_pb__handle_copy__init(&copy[nr]);
		ret = copy_image(x, &x->files[i], &copy[nr], err);
		list[nr] = &copy[nr];
		sum += x->files[i].size;
		nr++;
	}
	h.device = (ProtobufCBinaryData){ ZNS_UUID_LEN, x->reg.uuid };
	h.checkpoint = (ProtobufCBinaryData){ ZNS_UUID_LEN, x->id };
	zns_handle_describe(&h, c);
	h.copies = list;
	h.n_copies = nr;
	if (!ret)
		ret = zns_crypt_seal_handle(x->crypt, c, x->seal, &h, &seal, err);
	if (!ret)
		ret = zns_handle_write(x->handle_dir, &h, err);
	for (size_t i = 0; ret && i < nr; i++)
		if (copy[i].name)
			unlinkat(x->handle_dir, copy[i].name, 0);
	return ret;
}

void import_drop(struct import *x, struct zns_err *err)
{
	ProtobufCBinaryData id = { ZNS_UUID_LEN, x->id };
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	char text[ZNS_UUID_STR];

	rm.n_checkpoints = 1;
	rm.checkpoints = &id;
	rm.by = (char *)"an import whose handle could not be written";
	req.rm = &rm;
	if (!zns_broker_call(&x->broker, &req, &resp, NULL))
		zns_pb__response__free_unpacked(resp, NULL);
	else
		zns_wrap(err, "checkpoint %s stays without a handle, `znsctl rm` removes it", zns_uuid_format(x->id, text));
}

void import_fini(struct import *x)
{
	for (size_t i = 0; i < x->nr_files; i++)
		free(x->files[i].name);
	free(x->files);
	if (x->parent_handle)
		zns_pb__handle__free_unpacked(x->parent_handle, NULL);
	zns_crypt_free(x->crypt);
	zns_master_free(x->master);
	if (x->dir >= 0)
		close(x->dir);
	if (x->handle_dir >= 0)
		close(x->handle_dir);
	if (x->lock >= 0)
		close(x->lock);
}
