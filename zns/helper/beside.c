/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that others than criu wrote into the image directory when the checkpoint was made (image.beside): plugins look
 * for them there, so a restore puts back what is missing or was changed, and takes it away again when it ends.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "helper.h"
#include "zns/handle.h"
#include "zns/reader.h"

#define CHUNK KIB(256)

struct put {
	char name[ZW_NAME];
	struct put *next;
};

static struct put *put;	/* was not there: goes at the end */

/* 1: the directory has it, byte by byte; 0: it has not. */
static int there(int dir, struct zns_rimage *i, uint8_t *buf, struct zns_err *err)
{
	cleanup_close int fd = openat(dir, zns_rimage_name(i), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	uint64_t size = zns_rimage_size(i);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != size)
		return 0;
	for (uint64_t off = 0; off < size; off += CHUNK) {
		size_t len = zns_min(CHUNK, size - off);
		int ret = zns_rimage_read(i, off, buf, len, err);

		if (ret)
			return ret;
		if (zns_pread_all(fd, buf + CHUNK, len, (off_t)off) || memcmp(buf, buf + CHUNK, len))
			return 0;
	}
	return 1;
}

static int write_one(int dir, struct zns_rimage *i, struct zns_err *err)
{
	const char *name = zns_rimage_name(i);
	cleanup_close int fd = -1;
	char part[ZW_NAME + 16];
	int ret;

	snprintf(part, sizeof(part), "%s.zns-part", name);
	unlinkat(dir, part, 0);
	fd = openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "%s is part of the checkpoint, and cannot be written into the image directory", name);
	ret = zns_rimage_size(i) ? zns_rimage_to_fd(i, 0, zns_rimage_size(i), fd, err) : 0;
	if (!ret && renameat(dir, part, dir, name))
		ret = zns_fail_sys(err, -errno, "cannot write %s into the image directory", name);
	if (ret)
		unlinkat(dir, part, 0);
	return ret;
}

static int one(int dir, struct zns_rimage *i, uint8_t *buf, struct zns_err *err)
{
	const char *name = zns_rimage_name(i);
	bool new = faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
	struct put *p;
	int ret;

	if (strlen(name) >= ZW_NAME || strchr(name, '/') || !strcmp(name, ZNS_HANDLE_NAME))
		return zns_fail(err, -EBADMSG, "the manifest has a file with an impossible name");
	ret = new ? 0 : there(dir, i, buf, err);
	if (ret)
		return ret < 0 ? ret : 0;
	ret = write_one(dir, i, err);
	if (ret || !new)
		return ret;
	p = calloc(1, sizeof(*p));
	if (!p)
		return zns_fail(err, -ENOMEM, "no memory for file %s", name);
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->next = put;
	put = p;
	return 0;
}

int beside_put_back(int dir, const ZnsPb__Manifest *m, struct zns_reader *r, struct zns_err *err)
{
	cleanup_free uint8_t *buf = NULL;
	int ret = 0;

	for (size_t n = 0; n < m->n_images && !ret; n++) {
		if (!m->images[n]->beside)
			continue;
		if (!buf) {
			/* Two restores of one directory: who ends first must not take the files from the other. */
			flock(dir, LOCK_SH);
			buf = malloc(2 * CHUNK);
			if (!buf)
				return zns_fail(err, -ENOMEM, "no memory for files beside the images");
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

	while (put) {
		struct put *p = put;

		put = p->next;
		if (alone)
			unlinkat(dir, p->name, 0);
		free(p);
	}
}
