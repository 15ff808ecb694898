/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Archives a tmpfs without tar, a shell and gzip, which take 5 to 10 ms for each tmpfs. This is for
 * a tmpfs that is empty or has only directories, devices, links and empty files, such as a
 * container's /dev, and the masks over parts of /proc and /sys. For any other tmpfs, tar makes the
 * archive, but the gzip file is made here without compression: gzip takes 7 s for 300 MB, during
 * the freeze. See include/zns-freeze.h.
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
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "zns-freeze.h"
#include "zns-img.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define BLOCK_BYTES 512
#define MAX_ENTRIES 124
#define PIPE_BYTES (1 << 20)
#define MAX_DEPTH 8
/*
 * Most bytes of an archive, which ends with two empty blocks. All of it fits into one stored block
 * of a gzip file.
 */
#define MAX_BYTES ((MAX_ENTRIES + 2) * BLOCK_BYTES)

/* The header of an entry, in the format of POSIX.1-1988 (ustar). */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type;
	char link[100], magic[6], version[2], uname[32], gname[32], major[8], minor[8];
	char prefix[155], unused[12];
};

struct archive {
	uint8_t *bytes;
	size_t len;
	dev_t dev; /* device number of the tmpfs */
};

/* Writes @value as an octal number. Returns false if the field is too short for it. */
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

/*
 * Adds an entry. @at and @name: the file; @path: its name in the archive. Returns false if tar has
 * to make the archive.
 */
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

/*
 * Adds the entries of a directory and of all below it; closes @fd. Returns false if tar has to make
 * the archive, also after an error, which tar will then report.
 */
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

/*
 * Computes the checksum eight bytes at a time. table[n]: contribution of a byte that is followed by
 * n more bytes.
 */
static uint32_t crc32(uint32_t sum, const uint8_t *bytes, size_t len)
{
	static uint32_t table[8][256];
	uint32_t crc = ~sum, low, high;

	for (int i = 0; !table[7][255] && i < 256; i++) {
		uint32_t c = i;

		for (int n = 0; n < 8; n++) {
			for (int bit = 0; bit < 8; bit++)
				c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
			table[n][i] = c;
		}
	}
	for (; len >= 8; bytes += 8, len -= 8) {
		memcpy(&low, bytes, 4);
		memcpy(&high, bytes + 4, 4);
		low ^= crc;
		crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
		      table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
		      table[1][high >> 16 & 255] ^ table[0][high >> 24];
	}
	while (len--)
		crc = crc >> 8 ^ table[0][(crc ^ *bytes++) & 255];
	return ~crc;
}

/* Writes at the offset of the descriptor, as tar does. */
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

/*
 * The gzip format (RFC 1952 and 1951), little-endian. A stored block has at most this many bytes.
 */
#define BLOCK_MAX UINT16_MAX
static const uint8_t gzip_head[] = { 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3 };

static int write_stored(int fd, const uint8_t *bytes, uint16_t len, bool last)
{
	uint8_t head[] = { last, len, len >> 8, ~len, ~len >> 8 };

	return write_whole(fd, head, sizeof(head)) || write_whole(fd, bytes, len) ? -1 : 0;
}

static int write_tail(int fd, uint32_t crc, uint32_t len)
{
	uint8_t tail[] = {
		crc, crc >> 8, crc >> 16, crc >> 24, len, len >> 8, len >> 16, len >> 24
	};

	return write_whole(fd, tail, sizeof(tail));
}

static int write_gzip(int fd, const uint8_t *bytes, uint16_t len)
{
	_Static_assert(MAX_BYTES <= BLOCK_MAX, "one stored block");
	if (write_whole(fd, gzip_head, sizeof(gzip_head)) || write_stored(fd, bytes, len, true))
		return -1;
	return write_tail(fd, crc32(0, bytes, len), len);
}

/* Copies from @in to @out until the end of @in. */
static int store(int in, int out)
{
	uint8_t *bytes = malloc(BLOCK_MAX);
	uint32_t crc = 0, total = 0; /* both modulo 2^32, as the gzip format requires */
	size_t len = 0;
	ssize_t n;

	if (!bytes || write_whole(out, gzip_head, sizeof(gzip_head)))
		return -1;
	do {
		n = read(in, bytes + len, BLOCK_MAX - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		len += n;
		if (n && len < BLOCK_MAX)
			continue;
		crc = crc32(crc, bytes, len);
		total += len;
		if (write_stored(out, bytes, len, !n))
			return -1;
		len = 0;
	} while (n);
	return write_tail(out, crc, total);
}

static struct {
	pid_t pid; /* PID of the process that makes the gzip file; 0: none, tar calls gzip */
	int pipe;
} storing;

static void store_begin(int out)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC))
		return;
	fcntl(p[1], F_SETPIPE_SZ, PIPE_BYTES);
	storing.pid = fork();
	if (storing.pid == 0) {
		close(p[1]);
		_exit(store(p[0], out) ? 1 : 0);
	}
	if (storing.pid < 0)
		storing.pid = 0;
	close(p[0]);
	if (storing.pid)
		storing.pipe = p[1];
	else
		close(p[1]);
}

int zns_tmpfs_out(int out)
{
	return storing.pid ? storing.pipe : out;
}

char *zns_tmpfs_gzip(void)
{
	return storing.pid ? "--create" : "--gzip";
}

int zns_tmpfs_end(int ret)
{
	int status;

	if (!storing.pid)
		return ret;
	close(storing.pipe);
	if (waitpid(storing.pid, &status, 0) != storing.pid || status) {
		pr_err("Can't store the archive of a tmpfs\n");
		ret = -1;
	}
	storing.pid = 0;
	return ret;
}

int zns_tmpfs_archive(int dir, int out, pid_t userns_pid)
{
	struct archive a = { 0 };
	struct stat st;
	int ret = 1;

	if (!zns_active() || fstat(dir, &st))
		return 1;
	a.dev = st.st_dev;
	/* not for a user namespace: its archive must have the user ids as seen inside of it */
	a.bytes = userns_pid > 0 ? NULL : calloc(1, MAX_BYTES);
	if (a.bytes && add(&a, dir, ".", ".") &&
	    add_entries(&a, openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ".", 0))
		ret = write_gzip(out, a.bytes, a.len + 2 * BLOCK_BYTES);
	else
		store_begin(out);
	free(a.bytes);
	return ret;
}
