/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads and writes whole buffers and files. Replaces a file so that after a crash either the old or
 * the new one exists. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "zns/safeopen.h"
#include "zns/util.h"

#define REPLACED_MAX MIB(16) /* a larger old file is not restored after an error */

int zns_pread_all(int fd, void *buf, size_t len, off_t off)
{
	while (len) {
		ssize_t n = pread(fd, buf, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -ENODATA;
		buf = (char *)buf + n;
		len -= n;
		off += n;
	}
	return 0;
}

int zns_pwrite_all(int fd, const void *buf, size_t len, off_t off)
{
	while (len) {
		ssize_t n = pwrite(fd, buf, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EIO;
		buf = (const char *)buf + n;
		len -= n;
		off += n;
	}
	return 0;
}

int zns_write_all(int fd, const void *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EIO;
		buf = (const char *)buf + n;
		len -= n;
	}
	return 0;
}

int zns_std_fds(void)
{
	int fd;

	do {
		/* gets the lowest free number; without O_CLOEXEC, like the standard descriptors */
		fd = open("/dev/null", O_RDONLY);
		if (fd < 0)
			return -errno;
	} while (fd <= STDERR_FILENO);
	close(fd);
	return 0;
}

int zns_read_fd(int fd, size_t max, uint8_t **out, size_t *out_len)
{
	cleanup_free uint8_t *buf = NULL;
	size_t have = 0, room = 0;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (st.st_size > 0 && (uint64_t)st.st_size > max)
		return -EFBIG;
	room = st.st_size > 0 ? (size_t)st.st_size : 4096; /* files in /proc have size 0 */
	room = zns_min(room, max);
	for (;;) {
		/* two extra bytes: one detects a file larger than max, one holds the NUL */
		uint8_t *bigger = realloc(buf, room + 2);
		ssize_t n;

		if (!bigger)
			return -ENOMEM;
		buf = bigger;
		n = read(fd, buf + have, room + 1 - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		have += n;
		if (have > max)
			return -EFBIG;
		if (have > room)
			room = room > max / 2 ? max : room * 2;
	}
	buf[have] = '\0';
	*out = buf;
	buf = NULL;
	*out_len = have;
	return 0;
}

int zns_read_file(int dirfd, const char *path, size_t max, uint8_t **out, size_t *out_len)
{
	/* O_NONBLOCK, so that a FIFO in place of the file does not block us */
	cleanup_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	return fd < 0 ? -errno : zns_read_fd(fd, max, out, out_len);
}

int zns_read_plain(int dirfd, const char *name, size_t max, uint8_t **out, size_t *out_len)
{
	struct stat st;
	cleanup_close int fd = zns_open_file(dirfd, name, &st);

	return fd < 0 ? fd : zns_read_fd(fd, max, out, out_len);
}

int zns_sync_dir(int fd)
{
	if (!fsync(fd) || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS)
		return 0;
	return -errno;
}

int zns_sync_parent(const char *path)
{
	cleanup_close int fd = -1;
	char dir[PATH_MAX];
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/') /* a directory's path may end in slashes */
		len--;
	while (len && path[len - 1] != '/')
		len--;
	if (len >= sizeof(dir))
		return -ENAMETOOLONG;
	memcpy(dir, path, len);
	dir[len] = '\0';
	fd = open(len ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : zns_sync_dir(fd);
}

/* Writes a temporary file; its name is returned in @tmp, for the caller who renames it. After an
 * error no file of that name is left. */
static int write_temp(int at, const char *base, const void *data, size_t len, unsigned mode,
		      char tmp[ZNS_BASE_MAX])
{
	cleanup_close int fd = zns_make_temp(at, base, tmp);
	int ret = fd < 0 ? fd : zns_write_all(fd, data, len);

	/* fchmod, since the umask changes the mode that open() is given */
	if (!ret && fchmod(fd, mode))
		ret = -errno;
	if (!ret && fsync(fd))
		ret = -errno;
	if (ret && fd >= 0)
		unlinkat(at, tmp, 0);
	return ret;
}

/* The new file may not be durable. Writes the old contents, from the descriptor @old of the old
 * file, to the name again. If there was no old file, removes the name. */
static void put_back(int at, const char *base, int old, unsigned mode)
{
	cleanup_free uint8_t *data = NULL;
	char tmp[ZNS_BASE_MAX];
	size_t len = 0;

	if (old == -ENOENT)
		unlinkat(at, base, 0);
	else if (old >= 0 && !zns_read_fd(old, REPLACED_MAX, &data, &len) &&
		 !write_temp(at, base, data, len, mode, tmp) && renameat(at, tmp, at, base))
		unlinkat(at, tmp, 0);
}

int zns_replace_file(int dirfd, const char *path, const void *data, size_t len, unsigned mode)
{
	char dir[PATH_MAX], tmp[ZNS_BASE_MAX];
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;
	cleanup_close int at = -1, old = -1;
	struct stat st = { 0 };
	int n, ret;

	if (!*base || !strcmp(base, ".") || !strcmp(base, ".."))
		return -EINVAL;
	n = snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path + 1) : 1,
		     slash ? path : ".");
	if (n < 0 || (size_t)n >= sizeof(dir))
		return -ENAMETOOLONG;
	/* open the directory once: all later steps use this descriptor */
	at = openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return -errno;
	old = zns_open_file(at, base, &st);
	ret = write_temp(at, base, data, len, mode, tmp);
	if (ret)
		return ret;
	if (renameat(at, tmp, at, base)) {
		ret = -errno;
		unlinkat(at, tmp, 0);
		return ret;
	}
	ret = zns_sync_dir(at);
	if (ret)
		put_back(at, base, old, st.st_mode & 0777);
	return ret;
}
