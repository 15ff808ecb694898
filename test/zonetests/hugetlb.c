/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Huge pages of hugetlbfs: private, shared with a child, and through a memfd.
 * zonetest: {'flavour': 'h ns', 'feature': 'hugetlb'}
 */
#include <sys/syscall.h>
#include "zt.h"

#define HUGE ZT_MB(2)
#define RW (PROT_READ | PROT_WRITE)

static uint8_t *private, *shared, *file;
static int fd;
static pid_t kid;

static void check(void)
{
	zt_check(private, 2 * HUGE, 1, "private huge pages");
	zt_check(shared + 8, HUGE - 8, 2, "shared huge page");
	zt_check(file, HUGE, 3, "huge page of a memfd");
}

static void kid_check(int n)
{
	(void)n;
	zt_check(shared + 8, HUGE - 8, 2, "shared huge page in the child");
	shared[0] = 0x77;
}

static void check_all(void)
{
	check();
	zt_join(kid);
	ZT_CHECK(shared[0] == 0x77, "the child's write to the shared huge page does not show");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	private = mmap(NULL, 2 * HUGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	shared = mmap(NULL, HUGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	fd = memfd_create("huge", MFD_HUGETLB);
	if (private == MAP_FAILED || shared == MAP_FAILED || fd < 0)
		zt_skip("no huge pages: %m");
	ZT_SYS(ftruncate(fd, HUGE));
	file = zt_mmap_at(NULL, HUGE, RW, MAP_SHARED, fd, 0);
	zt_fill(private, 2 * HUGE, 1);
	zt_fill(shared + 8, HUGE - 8, 2);
	zt_fill(file, HUGE, 3);
	kid = zt_fork(NULL, kid_check, 0);
	zt_ready(check);
	zt_flip(private + HUGE + 4097);
	zt_serve(check_all);
}
