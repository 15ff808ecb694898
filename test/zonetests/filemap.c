/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mappings of a file: private with some pages changed, private from an odd page on and beyond the
 * file's end, private read-only, and shared. zonetest: {'flavour': 'h ns'}
 */
#include <fcntl.h>
#include "zt.h"

#define LEN ZT_MB(4)
#define RW (PROT_READ | PROT_WRITE)
#define FROM (3 * ZT_PAGE)

static uint8_t *cow, *part, *ro, *shared;

static int make(const char *name, uint64_t seed, size_t len)
{
	uint8_t *buf = zt_mmap(len);
	char path[256];

	zt_path(path, name);
	int fd = ZT_SYS(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	zt_fill(buf, len, seed);
	zt_write_all(fd, buf, len);
	munmap(buf, len);
	return fd;
}

static void check(void)
{
	for (size_t o = 0; o < LEN; o += ZT_PAGE) {
		bool changed = o / ZT_PAGE % 5 == 2;

		zt_check_at(cow + o, ZT_PAGE, changed ? 50 : 1, o,
			    changed ? "changed private page" : "unchanged private page");
	}
	zt_check_at(part, 2 * ZT_PAGE, 1, FROM, "private mapping from an odd page");
	zt_check(part + 2 * ZT_PAGE, ZT_PAGE, 51, "changed page of it");
	ZT_CHECK(!strcmp(zt_perms(ro), "r--p"), "read-only mapping is %s", zt_perms(ro));
	zt_check(ro, LEN, 1, "read-only mapping");
	ZT_CHECK(!strcmp(zt_perms(shared), "rw-s"), "shared mapping is %s", zt_perms(shared));
	zt_check(shared, 16 * ZT_PAGE - 100, 3, "shared mapping");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	int fd = make("private", 1, LEN), shared_fd = make("shared", 2, 16 * ZT_PAGE - 100);

	cow = zt_mmap_at(NULL, LEN, RW, MAP_PRIVATE, fd, 0);
	for (size_t o = 2 * ZT_PAGE; o < LEN; o += 5 * ZT_PAGE)
		zt_fill_at(cow + o, ZT_PAGE, 50, o);
	part = zt_mmap_at(NULL, 3 * ZT_PAGE, RW, MAP_PRIVATE, fd, FROM);
	zt_fill(part + 2 * ZT_PAGE, ZT_PAGE, 51);
	ro = zt_mmap_at(NULL, LEN, PROT_READ, MAP_PRIVATE, fd, 0);
	shared = zt_mmap_at(NULL, 16 * ZT_PAGE, RW, MAP_SHARED, shared_fd, 0);
	zt_fill(shared, 16 * ZT_PAGE - 100, 3);
	close(fd);
	close(shared_fd);
	zt_ready(check);
	zt_flip(cow + 7 * ZT_PAGE + 1);
	zt_serve(check);
}
