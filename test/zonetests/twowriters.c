/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared memory that one process writes all the time, page after page, and the other one only has.
 * At any moment the pages carry at most two neighbouring numbers, the higher ones first.
 */
#include <signal.h>
#include <sys/wait.h>
#include "zt.h"

#define PAGES 64

struct page {
	volatile uint64_t nr;
	char rest[ZT_PAGE - 8];
};
static struct page *shared;
static pid_t kid;

static void check(void)
{
	int status;

	ZT_CHECK(!kill(kid, SIGKILL) && waitpid(kid, &status, 0) == kid, "the child is gone: %m");
	for (int i = 1; i < PAGES; i++)
		ZT_CHECK(shared[i].nr == shared[i - 1].nr || shared[i].nr == shared[0].nr - 1,
			 "page %d has %lu, the one before it %lu", i, shared[i].nr,
			 shared[i - 1].nr);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	shared = zt_mmap_at(NULL, PAGES * ZT_PAGE, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(shared, 0, PAGES * ZT_PAGE);
	kid = ZT_SYS(fork());
	for (uint64_t n = 1; !kid; n++)
		for (int i = 0; i < PAGES; i++)
			shared[i].nr = n;
	zt_ready(NULL);
	zt_wait();
	zt_finish(check);
}
