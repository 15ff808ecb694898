/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Open files without a name: a small one, one of 3 MB and odd length, one with holes, and one whose
 * other name still exists. Contents, offsets and the missing names must come back.
 * zonetest: {'flavour': 'h ns', 'opts': '--ghost-limit 64M --link-remap'}
 */
#include <fcntl.h>
#include <sys/stat.h>
#include "zt.h"

#define SMALL 5003
#define LARGE (ZT_MB(3) + 1234)
#define HOLEY (ZT_MB(8) + 7)

static int small, large, holey, linked;
static uint8_t *buf;
static char other[256];

static int make(const char *name)
{
	char path[256];

	zt_path(path, name);
	int fd = ZT_SYS(open(path, O_RDWR | O_CREAT | O_EXCL, 0640));
	ZT_SYS(unlink(path));
	return fd;
}

static void check_file(int fd, size_t size, off_t at, const char *what)
{
	struct stat st;

	ZT_CHECK(!fstat(fd, &st), "%s: %m", what);
	ZT_CHECK(st.st_size == (off_t)size, "%s has %ld bytes", what, (long)st.st_size);
	ZT_CHECK((st.st_mode & 07777) == 0640, "%s has mode %o", what, st.st_mode);
	ZT_CHECK(lseek(fd, 0, SEEK_CUR) == at, "%s: offset is %ld", what,
		 (long)lseek(fd, 0, SEEK_CUR));
}

static void check_content(int fd, off_t off, size_t len, uint64_t seed, const char *what)
{
	ZT_CHECK(pread(fd, buf, len, off) == (ssize_t)len, "%s: short read", what);
	if (seed)
		zt_check(buf, len, seed, what);
	else
		zt_check_zero(buf, len, what);
}

static void check(void)
{
	struct stat st;

	check_file(small, SMALL, 17, "small file");
	check_content(small, 0, SMALL, 1, "small file");
	check_file(large, LARGE, 0, "large file");
	check_content(large, 0, LARGE, 2, "large file");
	check_file(holey, HOLEY, HOLEY, "file with holes");
	check_content(holey, 0, ZT_MB(2), 0, "first hole");
	check_content(holey, ZT_MB(2), 70000, 3, "data between holes");
	check_content(holey, ZT_MB(2) + 2 * 70000, ZT_MB(4), 0, "second hole");
	check_content(holey, HOLEY - 7, 7, 4, "tail of the file with holes");
	check_content(linked, 0, SMALL, 5, "file with another name");
	ZT_CHECK(!stat(other, &st) && st.st_size == SMALL, "the other name is gone");
}

static void put(int fd, off_t off, size_t len, uint64_t seed)
{
	zt_fill(buf, len, seed);
	ZT_SYS(lseek(fd, off, SEEK_SET));
	zt_write_all(fd, buf, len);
}

int main(int argc, char **argv)
{
	char path[256];

	zt_init(argc, argv);
	buf = zt_mmap(ZT_MB(4));
	small = make("small"), large = make("large"), holey = make("holey");
	put(small, 0, SMALL, 1);
	ZT_SYS(lseek(small, 17, SEEK_SET));
	put(large, 0, LARGE, 2);
	ZT_SYS(lseek(large, 0, SEEK_SET));
	put(holey, ZT_MB(2), 70000, 3);
	put(holey, HOLEY - 7, 7, 4);
	zt_path(path, "linked");
	zt_path(other, "other");
	linked = ZT_SYS(open(path, O_RDWR | O_CREAT | O_EXCL, 0640));
	ZT_SYS(link(path, other));
	ZT_SYS(unlink(path));
	put(linked, 0, SMALL, 5);
	zt_ready(check);
	zt_flip_file(large, LARGE - 1);
	zt_serve(check);
}
