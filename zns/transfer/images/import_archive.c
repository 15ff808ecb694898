/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Imports an archive. The first pass lists and checks it, before the broker is asked for admission.
 * The second pass reads the images, which must be as they were listed. Nothing is unpacked to a
 * disk.
 */
#include <fcntl.h>
#include <string.h>
#include "archive.h"
#include "import.h"
#include "zns/safeopen.h"

static int open_archive(struct import *x, struct zns_err *err)
{
	char base[ZNS_BASE_MAX];
	cleanup_close int dir = zns_open_parent(x->path, base, err);

	if (dir < 0)
		return dir;
	x->archive = zns_open_file(dir, base, &x->archive_st);
	if (x->archive < 0)
		return zns_fail(err, x->archive, "%s: %s", x->path, zns_open_why(x->archive));
	if (zns_planted(dir, &x->archive_st))
		return zns_fail(
			err, -EPERM,
			"%s is a hard link to a file of another user (%u) than the directory's: copy it",
			x->path, (unsigned)x->archive_st.st_uid);
	return 0;
}

struct found {
	bool inventory, pstree, parent;
};

static int is_inventory(const struct import *x, const uint8_t *b, struct zns_err *err)
{
	if ((b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24) == IMPORT_INVENTORY_MAGIC)
		return 0;
	return zns_fail(err, -EINVAL, "%s: its inventory.img is no CRIU image", x->path);
}

static int check_inventory(struct import *x, struct ctl_unpack *u, const struct ctl_entry *e,
			   struct zns_err *err)
{
	uint8_t b[4] = { 0 };
	int ret = e->size < sizeof(b) ? 0 : ctl_unpack_data(u, b, sizeof(b), err);

	return ret ? ret : is_inventory(x, b, err);
}

/* Returns 1 if the entry is an image, which was added to the list; 0 if the entry is skipped. */
static int list_one(struct import *x, const struct ctl_entry *e, struct found *f,
		    struct zns_err *err)
{
	int ret;

	if (!strcmp(e->name, ZNS_HANDLE_NAME))
		return zns_fail(err, -EINVAL, "%s has a %s: its checkpoint is on a device already",
				x->path, ZNS_HANDLE_NAME);
	f->parent |= !strcmp(e->name, "parent");
	if (!import_is_image(e->name)) {
		x->nr_skipped++;
		return 0;
	}
	if (e->link)
		return zns_fail(err, -EINVAL,
				"%s: %s is a link: an archive of images has files only", x->path,
				e->name);
	f->pstree |= !strcmp(e->name, "pstree.img");
	f->inventory |= !strcmp(e->name, "inventory.img");
	ret = import_add(x, e->name, e->size, NULL, err);
	return ret ? ret : 1;
}

static int cmp_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/*
 * Refuses two files with one name, since programs differ in which of the two they unpack. Keeps the
 * order of the files.
 */
static int check_twice(const struct import *x, struct zns_err *err)
{
	cleanup_free char **name = calloc(x->nr_files + 1, sizeof(*name));

	if (!name)
		return zns_fail(err, -ENOMEM, "no memory for a list of images");
	for (size_t i = 0; i < x->nr_files; i++)
		name[i] = x->files[i].name;
	qsort(name, x->nr_files, sizeof(*name), cmp_name);
	for (size_t i = 1; i < x->nr_files; i++)
		if (!strcmp(name[i - 1], name[i]))
			return zns_fail(err, -EBADMSG, "%s holds %s twice", x->path, name[i]);
	return 0;
}

/* Checks the list when the archive's end is reached: is it a whole checkpoint? */
static int is_whole(struct import *x, const struct found *f, struct zns_err *err)
{
	int ret = 0;

	x->empty = !f->inventory;
	if (!f->inventory)
		ret = zns_fail(
			err, -EINVAL,
			"%s has no inventory.img at its top: pack the image directory by tar -C DIR -cf FILE.tar .",
			x->path);
	if (!ret)
		ret = check_twice(x, err);
	x->pre_dump = !f->pstree;
	return ret ? ret : import_parent(x, f->parent, err);
}

int import_archive_scan(struct import *x, struct zns_err *err)
{
	struct ctl_unpack *u = NULL;
	struct found f = { false };
	struct ctl_entry e;
	int ret = x->archive < 0 ? open_archive(x, err) : 0, more = 0;

	if (!ret)
		ret = ctl_unpack_open(x->archive, x->path, &u, err);
	if (!ret)
		ctl_unpack_inside(u, x->inside);
	while (!ret && (more = ctl_unpack_next(u, &e, err)) > 0) {
		ret = list_one(x, &e, &f, err);
		if (ret > 0)
			ret = strcmp(e.name, "inventory.img") ? 0 : check_inventory(x, u, &e, err);
	}
	ctl_unpack_close(u);
	if (!ret && more < 0)
		ret = more;
	if (ret)
		x->empty = !f.inventory;
	return ret ? ret : is_whole(x, &f, err);
}

static int from_archive(void *arg, uint8_t *buf, size_t len, uint64_t off, struct zns_err *err)
{
	return ctl_unpack_data(arg, buf, len, err);
}

int import_read_archive(struct import *x, struct zns_err *err)
{
	struct ctl_unpack *u = NULL;
	struct ctl_entry e;
	struct stat st;
	size_t n = 0;
	int ret = ctl_unpack_open(x->archive, x->path, &u, err), more = 0;

	if (!ret)
		ctl_unpack_inside(u, x->inside);
	while (!ret && (more = ctl_unpack_next(u, &e, err)) > 0) {
		if (!import_is_image(e.name))
			continue;
		if (n == x->nr_files || strcmp(x->files[n].name, e.name) ||
		    x->files[n].size != e.size || e.link)
			ret = zns_fail(err, -EBUSY, "%s was changed since it was listed", x->path);
		else
			ret = import_image(x, &x->files[n++], from_archive, u, err);
	}
	ctl_unpack_close(u);
	if (!ret && more < 0)
		ret = more;
	if (!ret &&
	    (n != x->nr_files || fstat(x->archive, &st) || !zns_same_file(&st, &x->archive_st)))
		ret = zns_fail(err, -EBUSY, "%s was changed while it was read", x->path);
	return ret;
}

/* ---- a stream ---- */

void import_stream_begin(struct import *x)
{
	x->prog.total += x->stream->bytes;
	x->has_parent = x->parent_id;
}

struct coming {
	const struct import *x;
	struct ctl_unpack *u;
	bool inventory;
};

static int from_stream(void *arg, uint8_t *buf, size_t len, uint64_t off, struct zns_err *err)
{
	const struct coming *c = arg;
	int ret = ctl_unpack_data(c->u, buf, len, err);

	return ret || !c->inventory || off || len < 4 ? ret : is_inventory(c->x, buf, err);
}

static int take_one(struct import *x, struct ctl_unpack *u, const struct ctl_entry *e,
		    struct found *f, struct zns_err *err)
{
	struct coming c = { x, u, !strcmp(e->name, "inventory.img") };
	int ret = list_one(x, e, f, err);

	if (ret <= 0)
		return ret;
	x->prog.total -= e->size; /* the stream's bytes are counted instead, and include these */
	return import_image(x, &x->files[x->nr_files - 1], from_stream, &c, err);
}

int import_read_stream(struct import *x, struct zns_err *err)
{
	const struct import_stream *s = x->stream;
	struct ctl_unpack *u = NULL;
	struct found f = { false };
	struct ctl_entry e;
	int ret = ctl_unpack_stream(s->fd, x->path, s->seen, s->arg, s->patience, &u, err),
	    more = 0;

	if (!ret)
		ctl_unpack_inside(u, x->inside);
	while (!ret && (more = ctl_unpack_next(u, &e, err)) > 0)
		ret = take_one(x, u, &e, &f, err);
	if (!ret)
		ret = more;
	if (!ret)
		ret = ctl_unpack_rest(u, err);
	ctl_unpack_close(u);
	if (!ret)
		ret = s->right(s->arg, err);
	return ret ? ret : is_whole(x, &f, err);
}
