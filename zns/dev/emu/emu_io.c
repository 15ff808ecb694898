/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads and writes the host's file: with O_DIRECT if position, length and buffer are aligned; with
 * O_DIRECT through a bounce buffer if only the buffer is not; else through the page cache. Linux
 * keeps both coherent.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "emu_priv.h"

#define BOUNCE KIB(256)

/* Finds the alignment that the file system requires for O_DIRECT, if the kernel reports it.
 * Otherwise it is 4 KiB, which every disk accepts. */
static void query_alignment(struct emu *e)
{
	e->dio_mem = e->dio_off = 4096;
#ifdef STATX_DIOALIGN
	struct statx stx;

	if (!statx(e->dfd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) &&
	    (stx.stx_mask & STATX_DIOALIGN)) {
		if (!stx.stx_dio_mem_align || !stx.stx_dio_offset_align) {
			atomic_store(&e->direct, false);
			return;
		}
		e->dio_mem = stx.stx_dio_mem_align;
		e->dio_off = stx.stx_dio_offset_align;
		return;
	}
#endif
	int sector;

	if (!ioctl(e->dfd, BLKSSZGET, &sector) && sector >= 512 && sector <= 65536)
		e->dio_mem = e->dio_off = sector;
}

void emu_io_open(struct emu *e, const char *path)
{
	struct stat a, b;

	e->dio_mem = e->dio_off = 512;
	e->dfd = open(path, (e->fd_rdonly ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
	if (e->dfd < 0)
		return; /* tmpfs and others have no O_DIRECT; the page cache is enough there */
	if (fstat(e->fd, &a) || fstat(e->dfd, &b) || a.st_dev != b.st_dev || a.st_ino != b.st_ino) {
		close(e->dfd); /* the path now leads to another file */
		e->dfd = -1;
		return;
	}
	atomic_store(&e->direct, true);
	query_alignment(e);
}

/* Transfers one piece at @pos. Returns the number of bytes if positive. */
static ssize_t transfer(int fd, uint64_t pos, void *buf, size_t len, bool write)
{
	ssize_t n;

	do
		n = write ? pwrite(fd, buf, len, pos) : pread(fd, buf, len, pos);
	while (n < 0 && errno == EINTR);
	if (!n)
		return write ? -EIO : -ENODATA;
	return n < 0 ? -errno : n;
}

static ssize_t transfer_bounced(struct emu *e, uint64_t pos, void *buf, size_t len, bool write)
{
	cleanup_free void *bounce = NULL;
	ssize_t n;

	len = zns_min(len, BOUNCE);
	if (posix_memalign(&bounce, zns_max(e->dio_mem, 512u), len)) {
		bounce = NULL;
		return -ENOMEM;
	}
	if (write)
		memcpy(bounce, buf, len);
	n = transfer(e->dfd, pos, bounce, len, write);
	if (n > 0 && !write)
		memcpy(buf, bounce, n);
	return n;
}

static int io(struct emu *e, uint64_t pos, void *buf, size_t len, bool write)
{
	while (len) {
		ssize_t n;

		if (atomic_load(&e->direct) && !(pos % e->dio_off) && len >= e->dio_off) {
			size_t whole = zns_align_down(len, e->dio_off);

			if ((uintptr_t)buf % e->dio_mem)
				n = transfer_bounced(e, pos, buf, whole, write);
			else
				n = transfer(e->dfd, pos, buf, whole, write);
			/* the file system accepts O_DIRECT in open() but not in reads and writes */
			if (n == -EINVAL) {
				atomic_store(&e->direct, false);
				continue;
			}
		} else {
			n = transfer(e->fd, pos, buf, len, write);
		}
		if (n < 0)
			return n;
		buf = (char *)buf + n;
		pos += n;
		len -= n;
	}
	return 0;
}

int emu_io_write(struct emu *e, uint64_t pos, const void *buf, size_t len)
{
	return pos >= e->lay.data_off && emu_stores_nothing(e) ? 0 :
								 io(e, pos, (void *)buf, len, true);
}

int emu_io_read(struct emu *e, uint64_t pos, void *buf, size_t len)
{
	if (!emu_stores_nothing(e) || pos < e->lay.data_off)
		return io(e, pos, buf, len, false);
	memset(buf, 0, len);
	return 0;
}

int emu_io_read_cached(struct emu *e, uint64_t pos, void *buf, size_t len)
{
	while (len) {
		ssize_t n = transfer(e->fd, pos, buf, len, false);

		if (n < 0)
			return n;
		buf = (char *)buf + n;
		pos += n;
		len -= n;
	}
	return 0;
}

static int write_zeroes(struct emu *e, uint64_t pos, uint64_t len)
{
	cleanup_free void *zero = NULL;
	int ret = 0;

	if (posix_memalign(&zero, 4096, BOUNCE)) {
		zero = NULL;
		return -ENOMEM;
	}
	memset(zero, 0, BOUNCE);
	for (uint64_t n; len && !ret; pos += n, len -= n) {
		n = zns_min(len, BOUNCE);
		ret = io(e, pos, zero, n, true);
	}
	return ret;
}

int emu_io_punch(struct emu *e, uint64_t pos, uint64_t len)
{
	return fallocate(e->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)pos,
			 (off_t)len) ?
		       -errno :
		       0;
}

int emu_io_zero(struct emu *e, uint64_t pos, uint64_t len, bool keep)
{
	int ret;

	if (emu_stores_nothing(e) && pos >= e->lay.data_off)
		return 0;
	ret = keep ? -EOPNOTSUPP : emu_io_punch(e, pos, len);
	if (ret == -EOPNOTSUPP || ret == -ENOSYS || ret == -EINVAL)
		ret = write_zeroes(e, pos, len);
	return ret;
}
