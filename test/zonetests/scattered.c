/* SPDX-License-Identifier: GPL-2.0-only */
/* Every second page: more ranges than one scan of the kernel's reports. */
#include "zt.h"

#define MEM ((char *)0x100000000ul)
#define LEN ZT_MB(16)

static void check(void)
{
	for (size_t at = 0; at < LEN; at += 2 * ZT_PAGE)
		zt_check_at(MEM + at, ZT_PAGE, 1, at, "scattered pages");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	zt_mmap_at(MEM, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0);
	madvise(MEM, LEN, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < LEN; at += 2 * ZT_PAGE)
		zt_fill_at(MEM + at, ZT_PAGE, 1, at);
	zt_ready(check);
	zt_serve(check);
}
