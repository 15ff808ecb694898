/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Transparent huge pages and zero pages: full, half-filled and untouched huge ranges, a huge zero
 * page that was only read, ranges cut by mprotect, mremap and MADV_DONTNEED.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define HUGE ZT_MB(2)
#define NR 8

static uint8_t *mem, *moved;

static void check(void)
{
	zt_check(mem, 2 * HUGE, 1, "full huge pages");
	zt_check_at(mem + 2 * HUGE, HUGE / 2 + 100, 2, 0, "half-filled huge page");
	zt_check_zero(mem + 2 * HUGE + HUGE / 2 + 100, HUGE / 2 - 100,
		      "rest of the half-filled huge page");
	zt_check_zero(mem + 3 * HUGE, HUGE, "huge page that was only read");
	zt_check(mem + 4 * HUGE, 7 * ZT_PAGE, 3, "huge page before the cut");
	ZT_CHECK(!strcmp(zt_perms(mem + 4 * HUGE + 7 * ZT_PAGE), "r--p"),
		 "the cut lost its protection");
	zt_check_at(mem + 4 * HUGE + 7 * ZT_PAGE, HUGE - 7 * ZT_PAGE, 3, 7 * ZT_PAGE,
		    "huge page after the cut");
	zt_check(moved, HUGE, 4, "moved huge page");
	zt_check(mem + 6 * HUGE, 100 * ZT_PAGE, 5, "huge page before the dropped part");
	zt_check_zero(mem + 6 * HUGE + 100 * ZT_PAGE, 50 * ZT_PAGE, "dropped part");
	zt_check_at(mem + 6 * HUGE + 150 * ZT_PAGE, HUGE - 150 * ZT_PAGE, 5, 150 * ZT_PAGE,
		    "huge page after it");
	zt_check_zero(mem + 7 * HUGE, HUGE, "untouched huge page");
}

static uint8_t *aligned(size_t len)
{
	uint8_t *p = zt_mmap(len + HUGE);

	return (uint8_t *)(((uintptr_t)p + HUGE - 1) & ~(HUGE - 1));
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = aligned(NR * HUGE);
	moved = aligned(HUGE);
	/* a kernel without THP runs the test on small pages */
	madvise(mem, NR * HUGE, MADV_HUGEPAGE);
	zt_fill(mem, 2 * HUGE, 1);
	zt_fill(mem + 2 * HUGE, HUGE / 2 + 100, 2);
	zt_check_zero(mem + 3 * HUGE, HUGE, "fresh memory");
	zt_fill(mem + 4 * HUGE, HUGE, 3);
	ZT_SYS(mprotect(mem + 4 * HUGE + 7 * ZT_PAGE, HUGE - 7 * ZT_PAGE, PROT_READ));
	zt_fill(mem + 5 * HUGE, HUGE, 4);
	if (mremap(mem + 5 * HUGE, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == MAP_FAILED)
		zt_die("mremap: %m");
	zt_fill(mem + 6 * HUGE, HUGE, 5);
	ZT_SYS(madvise(mem + 6 * HUGE + 100 * ZT_PAGE, 50 * ZT_PAGE, MADV_DONTNEED));
	zt_ready(check);
	zt_flip(mem + 3 * HUGE + 4097);
	zt_serve(check);
}
