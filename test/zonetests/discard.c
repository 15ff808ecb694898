/* SPDX-License-Identifier: GPL-2.0-only */
/* On SIGUSR2 it discards huge pages, and leaves the hole as it is. */
#include <signal.h>
#include "zt.h"

#define MEM ((char *)0x100000000ul) /* first of all that is copied */
#define LEN ZT_MB(4)

static volatile sig_atomic_t discarded;

static void discard(__attribute__((unused)) int sig)
{
	if (madvise(MEM, LEN, MADV_DONTNEED))
		_exit(2);
	discarded = 1;
}

static void check(void)
{
	if (discarded)
		zt_check_zero(MEM, LEN, "what was discarded");
	else
		zt_check(MEM, LEN, 1, "huge pages");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	zt_mmap_at(MEM, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0);
	madvise(MEM, LEN, MADV_HUGEPAGE);
	zt_fill(MEM, LEN, 1);
	zt_fill(zt_mmap(zt_size), zt_size, 2);
	signal(SIGUSR2, discard);
	zt_ready(NULL);
	zt_serve(check);
}
