/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that another program than criu wrote into the image directory while the checkpoint was made
 * (image.beside). criu's plugins look for them in the directory. So a restore writes the files that
 * are missing or differ, and removes them when it ends.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include "helper.h"
#include "zns/handle.h"
#include "zns/reader.h"
#include "zns/safeopen.h"

#define CHUNK KIB(256)
/* ms; another restore of this directory holds the lock only while it removes its files */
#define LOCK_WAIT_MS 3000

struct put {
	char name[ZW_NAME];
	dev_t dev;
	ino_t ino;
	struct put *next;
};

static struct put *put; /* the files that were missing; removed at the end */

/* Returns 1 if the directory has a file with the same bytes, else 0. */
static int there(int dir, struct zns_rimage *i, uint8_t *buf, struct zns_err *err)
{
	uint64_t size = zns_rimage_size(i);
	struct stat st;
	cleanup_close int fd = zns_open_file(dir, zns_rimage_name(i), &st);

	if (fd < 0 || (uint64_t)st.st_size != size)
		return 0;
	for (uint64_t off = 0; off < size; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);
		int ret = zns_rimage_read(i, off, buf, len, err);

		if (ret)
			return ret;
		if (zns_pread_all(fd, buf + CHUNK, len, (off_t)off) ||
		    memcmp(buf, buf + CHUNK, len))
			return 0;
	}
	return 1;
}

static int write_one(int dir, struct zns_rimage *i, struct stat *st, struct zns_err *err)
{
	const char *name = zns_rimage_name(i);
	char part[ZNS_BASE_MAX];
	cleanup_close int fd = zns_make_temp(dir, name, part);
	int ret;

	if (fd < 0)
		return zns_fail_sys(
			err, fd,
			"%s is part of the checkpoint, and cannot be written into the image directory",
			name);
	ret = zns_rimage_size(i) ? zns_rimage_to_fd(i, 0, zns_rimage_size(i), fd, err) : 0;
	if (!ret && (fstat(fd, st) || renameat(dir, part, dir, name)))
		ret = zns_fail_sys(err, -errno, "cannot write %s into the image directory", name);
	if (ret)
		unlinkat(dir, part, 0);
	return ret;
}

static int one(int dir, struct zns_rimage *i, uint8_t *buf, struct zns_err *err)
{
	const char *name = zns_rimage_name(i);
	struct stat st = { 0 }; /* state of the file that write_one() wrote */
	struct put *p;
	bool new;
	int ret;

	if (strlen(name) >= ZW_NAME || strchr(name, '/') || !strcmp(name, ZNS_HANDLE_NAME))
		return zns_fail(err, -EBADMSG, "the manifest has a file with an impossible name");
	new = faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
	ret = new ? 0 : there(dir, i, buf, err);
	if (ret)
		return ret < 0 ? ret : 0;
	ret = write_one(dir, i, &st, err);
	if (ret || !new)
		return ret;
	p = calloc(1, sizeof(*p));
	if (!p)
		return zns_fail(err, -ENOMEM, "no memory for file %s", name);
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->dev = st.st_dev;
	p->ino = st.st_ino;
	p->next = put;
	put = p;
	return 0;
}

/*
 * Two restores may use one directory. The lock keeps the first to end from removing the files of
 * the other.
 */
static int lock(int dir, struct zns_err *err)
{
	int ret = zns_flock(dir, LOCK_SH, LOCK_WAIT_MS);

	if (ret == -ETIMEDOUT)
		return zns_fail(
			err, ret,
			"another process keeps the image directory locked (`lslocks` tells which): end it, or "
			"restore with --zns-checkpoint ID and another directory");
	return ret ? zns_fail_sys(err, ret, "cannot lock the image directory") : 0;
}

int beside_put_back(int dir, const ZnsPb__Manifest *m, struct zns_reader *r, struct zns_err *err)
{
	cleanup_free uint8_t *buf = NULL;
	int ret = 0;

	for (size_t n = 0; n < m->n_images && !ret; n++) {
		if (!m->images[n]->beside)
			continue;
		if (!buf) {
			ret = lock(dir, err);
			if (ret)
				return ret;
			buf = malloc(2 * CHUNK);
			if (!buf)
				return zns_fail(err, -ENOMEM,
						"no memory for files beside the images");
		}
		ret = one(dir, zns_reader_image(r, (uint32_t)n), buf, err);
	}
	if (ret)
		beside_take_away(dir);
	return ret;
}

void beside_take_away(int dir)
{
	bool alone = put && !flock(dir, LOCK_EX | LOCK_NB);
	struct stat st;

	while (put) {
		struct put *p = put;

		put = p->next;
		/* remove only our file: another program may have replaced it since */
		if (alone && !fstatat(dir, p->name, &st, AT_SYMLINK_NOFOLLOW) &&
		    st.st_dev == p->dev && st.st_ino == p->ino)
			unlinkat(dir, p->name, 0);
		free(p);
	}
}
