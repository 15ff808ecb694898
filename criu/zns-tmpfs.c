/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The archive of a tmpfs that has nothing in it, or only directories, devices, links and empty
 * files: what a container's /dev and the masks over parts of /proc and /sys are. tar, a shell and
 * gzip take 5 to 10 ms for each. See include/zns-freeze.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "log.h"
#include "zns-freeze.h"
#include "zns-img.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define BLOCK_BYTES 512
#define MAX_ENTRIES 124
#define MAX_DEPTH 8
/* Two empty blocks are the end. All of it fits into one stored block of a gzip file. */
#define MAX_BYTES ((MAX_ENTRIES + 2) * BLOCK_BYTES)

/* POSIX.1-1988 (ustar). */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type;
	char link[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8];
	char prefix[155], unused[12];
};

struct archive {
	uint8_t *bytes;
	size_t len;
	dev_t dev; /* the tmpfs */
};

/* False: it does not fit. */
static bool octal(char *field, size_t len, long long value)
{
	return value >= 0 && snprintf(field, len, "%0*llo", (int)len - 1, value) < (int)len;
}

static char type_of(const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFDIR:
		return '5';
	case S_IFCHR:
		return '3';
	case S_IFBLK:
		return '4';
	case S_IFIFO:
		return '6';
	case S_IFLNK:
		return '2';
	case S_IFREG:
		return st->st_size ? '\0' : '0';
	}
	return '\0';
}

/* @at and @name: where it is; @path: its name in the archive. False: tar's. */
static bool add(struct archive *a, int at, const char *name, const char *path)
{
	struct header *h = (void *)(a->bytes + a->len);
	unsigned int sum = 0;
	struct stat st;
	ssize_t len;
	bool device, dir;

	_Static_assert(sizeof(*h) == BLOCK_BYTES, "a header is a block");
	if (a->len == MAX_ENTRIES * BLOCK_BYTES || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	dir = S_ISDIR(st.st_mode);
	device = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode);
	h->type = type_of(&st);
	if (!h->type || st.st_dev != a->dev || (!dir && st.st_nlink != 1) ||
	    snprintf(h->name, sizeof(h->name), "%s%s", path, dir ? "/" : "") >=
		    (int)sizeof(h->name))
		return false;
	if (S_ISLNK(st.st_mode)) {
		len = readlinkat(at, name, h->link, sizeof(h->link));
		if (len <= 0 || len == sizeof(h->link))
			return false;
	}
	if (!octal(h->mode, sizeof(h->mode), st.st_mode & 07777) ||
	    !octal(h->uid, sizeof(h->uid), st.st_uid) ||
	    !octal(h->gid, sizeof(h->gid), st.st_gid) || !octal(h->size, sizeof(h->size), 0) ||
	    !octal(h->mtime, sizeof(h->mtime), st.st_mtime) ||
	    !octal(h->major, sizeof(h->major), device ? major(st.st_rdev) : 0) ||
	    !octal(h->minor, sizeof(h->minor), device ? minor(st.st_rdev) : 0))
		return false;
	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	memset(h->checksum, ' ', sizeof(h->checksum));
	for (size_t i = 0; i < BLOCK_BYTES; i++)
		sum += a->bytes[a->len + i];
	snprintf(h->checksum, sizeof(h->checksum), "%06o", sum);
	a->len += BLOCK_BYTES;
	return true;
}

/* A directory's entries, and theirs; takes @fd. False: tar's, or an error that tar will meet. */
static bool add_entries(struct archive *a, int fd, const char *path, int depth)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool good = dir && depth < MAX_DEPTH;
	char sub[PATH_MAX];
	struct dirent *e;

	if (!dir && fd >= 0)
		close(fd);
	for (errno = 0; good && (e = readdir(dir)); errno = 0) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		good = snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name) < (int)sizeof(sub) &&
		       add(a, dirfd(dir), e->d_name, sub);
		if (good && e->d_type == DT_DIR)
			good = add_entries(a,
					   openat(dirfd(dir), e->d_name,
						  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
					   sub, depth + 1);
	}
	good = good && !errno;
	if (dir)
		closedir(dir);
	return good;
}

static uint32_t crc32(const uint8_t *bytes, size_t len)
{
	uint32_t table[16], crc = ~0u;

	for (int i = 0; i < 16; i++) {
		table[i] = i;
		for (int bit = 0; bit < 4; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
	}
	for (size_t i = 0; i < len; i++) {
		crc = crc >> 4 ^ table[(crc ^ bytes[i]) & 15];
		crc = crc >> 4 ^ table[(crc ^ bytes[i] >> 4) & 15];
	}
	return ~crc;
}

/* At the offset of the descriptor, as tar's output would be. */
static int write_whole(int fd, const uint8_t *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(fd, bytes, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			pr_perror("Can't write the archive of a tmpfs");
			return -1;
		}
		bytes += n;
		len -= n;
	}
	return 0;
}

/* RFC 1952 and 1951, little-endian: one block, stored. */
static int write_gzip(int fd, const uint8_t *bytes, uint16_t len)
{
	uint8_t head[] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, len, len >> 8, ~len, ~len >> 8 };
	uint32_t crc = crc32(bytes, len);
	uint8_t tail[] = { crc, crc >> 8, crc >> 16, crc >> 24, len, len >> 8, 0, 0 };

	_Static_assert(MAX_BYTES <= UINT16_MAX, "one stored block");
	if (write_whole(fd, head, sizeof(head)) || write_whole(fd, bytes, len))
		return -1;
	return write_whole(fd, tail, sizeof(tail));
}

int zns_tmpfs_archive(int dir, int out, pid_t userns_pid)
{
	struct archive a = { 0 };
	struct stat st;
	int ret = 1;

	/* In a user namespace the owners' numbers are those inside. */
	if (!zns_active() || userns_pid > 0 || fstat(dir, &st))
		return 1;
	a.dev = st.st_dev;
	a.bytes = calloc(1, MAX_BYTES);
	if (a.bytes && add(&a, dir, ".", ".") &&
	    add_entries(&a, openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ".", 0))
		ret = write_gzip(out, a.bytes, a.len + 2 * BLOCK_BYTES);
	free(a.bytes);
	return ret;
}
