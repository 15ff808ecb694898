/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared memory by name: a file in /dev/shm, and one there that is already unlinked. Parent and
 * child map both and see each other's writes after restore.
 * zonetest: {'flavour': 'h ns', 'opts': '--ghost-limit 16M'}
 */
#include <fcntl.h>
#include <sys/stat.h>
#include "zt.h"

#define LEN ZT_MB(6)
#define GONE_LEN ZT_MB(2)

static char name[64], gone_name[64];
static uint8_t *mem, *gone;
static int fd, gone_fd;
static pid_t kid;

static uint8_t *map_file(const char *path, size_t len, int *fdp, uint64_t seed)
{
	*fdp = ZT_SYS(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
	ZT_SYS(ftruncate(*fdp, len));
	uint8_t *p = zt_mmap_at(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fdp, 0);
	zt_fill(p + 8, len - 8, seed);
	return p;
}

static void check(void)
{
	struct stat st;

	zt_check(mem + 8, LEN - 8, 1, "named shared memory");
	zt_check(gone + 8, GONE_LEN - 8, 2, "unlinked shared memory");
	ZT_CHECK(!fstat(gone_fd, &st) && !st.st_nlink, "the unlinked file has a name again");
	ZT_CHECK(!stat(name, &st) && st.st_size == (off_t)LEN, "%s is gone or has another size",
		 name);
}

static void kid_check(int n)
{
	(void)n;
	zt_check(mem + 8, LEN - 8, 1, "named shared memory in the child");
	zt_check(gone + 8, GONE_LEN - 8, 2, "unlinked shared memory in the child");
	mem[0] = gone[0] = 0x77;
}

static void check_all(void)
{
	uint8_t byte = 0;

	check();
	zt_join(kid);
	ZT_CHECK(mem[0] == 0x77, "the child's write to named memory does not show");
	ZT_CHECK(gone[0] == 0x77, "the child's write to unlinked memory does not show");
	ZT_CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 0x77,
		 "the file does not have the child's write");
	unlink(name);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	snprintf(name, sizeof(name), "/dev/shm/zonetest-%d-named", getpid());
	snprintf(gone_name, sizeof(gone_name), "/dev/shm/zonetest-%d-gone", getpid());
	mem = map_file(name, LEN, &fd, 1);
	gone = map_file(gone_name, GONE_LEN, &gone_fd, 2);
	ZT_SYS(unlink(gone_name));
	kid = zt_fork(NULL, kid_check, 0);
	zt_ready(check);
	zt_flip(mem + LEN - 100);
	zt_serve(check_all);
}
