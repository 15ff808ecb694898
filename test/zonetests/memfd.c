/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * memfds: one mapped shared by parent and child, one sealed, one mapped privately with changed
 * pages, one with a hole and a file offset and no mapping. zonetest: {'flavour': 'h ns'}
 */
#include <fcntl.h>
#include <sys/stat.h>
#include "zt.h"

#define LEN ZT_MB(4)
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static int shared_fd, sealed_fd, private_fd, holey_fd;
static uint8_t *shared, *sealed, *private, *buf;
static pid_t kid;

static int make(const char *name, unsigned flags, uint64_t seed)
{
	int fd = ZT_SYS(memfd_create(name, flags));

	zt_fill(buf, LEN, seed);
	zt_write_all(fd, buf, LEN);
	return fd;
}

static void check_sealed(void)
{
	ZT_CHECK(fcntl(sealed_fd, F_GET_SEALS) == SEALS, "seals are %#x",
		 fcntl(sealed_fd, F_GET_SEALS));
	ZT_CHECK(pwrite(sealed_fd, "x", 1, 0) < 0, "the sealed memfd can be written");
	zt_check(sealed, LEN, 2, "sealed memfd");
}

static void check_holey(void)
{
	struct stat st;

	ZT_CHECK(lseek(holey_fd, 0, SEEK_CUR) == 12345, "file offset is %ld",
		 (long)lseek(holey_fd, 0, SEEK_CUR));
	ZT_CHECK(!fstat(holey_fd, &st) && st.st_size == (off_t)(3 * LEN + 5),
		 "the holey memfd has another size");
	ZT_CHECK(pread(holey_fd, buf, LEN, 0) == (ssize_t)LEN, "short read of a memfd");
	zt_check(buf, LEN, 4, "memfd with a hole");
	ZT_CHECK(pread(holey_fd, buf, LEN, LEN) == (ssize_t)LEN, "short read of a hole");
	zt_check_zero(buf, LEN, "hole of a memfd");
	ZT_CHECK(pread(holey_fd, buf, 10, 3 * LEN) == 5 && !memcmp(buf, "tail!", 5),
		 "the memfd's tail is wrong");
}

static void check(void)
{
	zt_check(shared + 8, LEN - 8, 1, "shared memfd");
	check_sealed();
	zt_check(private, LEN / 2, 30, "changed half of a private memfd mapping");
	zt_check_at(private + LEN / 2, LEN / 2, 3, LEN / 2,
		    "unchanged half of a private memfd mapping");
	ZT_CHECK(pread(private_fd, buf, LEN, 0) == (ssize_t)LEN, "short read of a memfd");
	zt_check(buf, LEN, 3, "memfd under a private mapping");
	check_holey();
}

static void kid_check(int n)
{
	(void)n;
	zt_check(shared + 8, LEN - 8, 1, "shared memfd in the child");
	shared[0] = 0x77;
}

static void check_all(void)
{
	uint8_t byte = 0;

	check();
	zt_join(kid);
	ZT_CHECK(shared[0] == 0x77, "the child's write does not show in the parent's mapping");
	ZT_CHECK(pread(shared_fd, &byte, 1, 0) == 1 && byte == 0x77,
		 "the child's write does not show in the file");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	buf = zt_mmap(LEN);
	shared_fd = make("shared", 0, 9);
	shared = zt_mmap_at(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	zt_fill(shared + 8, LEN - 8, 1);
	shared[0] = 0;
	sealed_fd = make("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC, 2);
	ZT_SYS(fcntl(sealed_fd, F_ADD_SEALS, SEALS));
	sealed = zt_mmap_at(NULL, LEN, PROT_READ, MAP_PRIVATE, sealed_fd, 0);
	private_fd = make("private", 0, 3);
	private = zt_mmap_at(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE, private_fd, 0);
	zt_fill(private, LEN / 2, 30);
	holey_fd = make("holey", 0, 4);
	ZT_SYS(pwrite(holey_fd, "tail!", 5, 3 * LEN));
	ZT_SYS(lseek(holey_fd, 12345, SEEK_SET));
	kid = zt_fork(NULL, kid_check, 0);
	zt_ready(check);
	zt_flip_file(holey_fd, 4444);
	zt_serve(check_all);
}
