/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A tmpfs of the mount namespace: 400 files of many sizes in 20 directories, links, a fifo, a file
 * of 20 MB and one of 64 MB that is nearly all hole. Nothing of it is in memory of the program.
 * zonetest: {'flavour': 'ns'}
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include "zt.h"

#define FILES 400
#define DIRS 20
#define BIG (ZT_MB(20) + 321)
#define HOLEY ZT_MB(64)
#define TMPFS_MAGIC_ 0x01021994

static uint8_t *buf;

static size_t size_of(int i)
{
	return (size_t)i * i * 7 % 40000;
}

static const char *name_of(int i)
{
	static char name[64];

	snprintf(name, sizeof(name), "/tmp/dir%d/file%d", i % DIRS, i);
	return name;
}

static void put(const char *path, size_t len, uint64_t seed, off_t off, mode_t mode)
{
	int fd = ZT_SYS(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600));

	zt_fill(buf, len, seed);
	ZT_SYS(lseek(fd, off, SEEK_SET));
	zt_write_all(fd, buf, len);
	ZT_SYS(fchmod(fd, mode));
	close(fd);
}

static void check_file(const char *path, size_t len, uint64_t seed, off_t off, mode_t mode)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	ZT_CHECK(fd >= 0, "%s: %m", path);
	ZT_CHECK(!fstat(fd, &st) && st.st_size == (off_t)(off + len), "%s has %ld bytes", path,
		 (long)st.st_size);
	ZT_CHECK((st.st_mode & 07777) == mode, "%s has mode %o", path, st.st_mode);
	ZT_CHECK(pread(fd, buf, len, off) == (ssize_t)len, "%s: short read", path);
	zt_check(buf, len, seed, path);
	close(fd);
}

static void check(void)
{
	struct statfs fs;
	struct stat st;
	char target[64] = "";

	ZT_CHECK(!statfs("/tmp", &fs) && fs.f_type == TMPFS_MAGIC_, "/tmp is no tmpfs");
	for (int i = 0; i < FILES; i++)
		check_file(name_of(i), size_of(i), 100 + i, 0, 0600 + i % 8);
	check_file("/tmp/big", BIG, 1, 0, 0644);
	check_file("/tmp/holey", 4097, 2, HOLEY, 0644);
	ZT_CHECK(readlink("/tmp/symlink", target, 63) == 3 && !strcmp(target, "big"),
		 "symlink points to %s", target);
	ZT_CHECK(!stat("/tmp/hardlink", &st) && st.st_nlink == 2, "hard link is gone or a copy");
	ZT_CHECK(!stat("/tmp/fifo", &st) && S_ISFIFO(st.st_mode), "fifo is gone");
}

static void setup(void)
{
	char dir[64];

	for (int i = 0; i < DIRS; i++) {
		snprintf(dir, sizeof(dir), "/tmp/dir%d", i);
		ZT_SYS(mkdir(dir, 0700 + i % 8));
	}
	for (int i = 0; i < FILES; i++)
		put(name_of(i), size_of(i), 100 + i, 0, 0600 + i % 8);
	put("/tmp/big", BIG, 1, 0, 0644);
	put("/tmp/holey", 4097, 2, HOLEY, 0644);
	ZT_SYS(symlink("big", "/tmp/symlink"));
	ZT_SYS(link("/tmp/big", "/tmp/hardlink"));
	ZT_SYS(mkfifo("/tmp/fifo", 0600));
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	buf = zt_mmap(ZT_MB(24));
	setup();
	zt_ready(check);
	/* the files' contents are nowhere but in the tmpfs */
	ZT_SYS(madvise(buf, ZT_MB(24), MADV_DONTNEED));
	int fd = ZT_SYS(open("/tmp/big", O_RDWR | O_CLOEXEC));
	zt_flip_file(fd, BIG - 1);
	close(fd);
	zt_serve(check);
}
