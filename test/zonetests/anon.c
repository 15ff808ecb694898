/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Private anonymous memory: a 48 MB block, every third page of 16 MB, pages that only ever were
 * read or written with zeros, PROT_NONE and read-only parts, and single pages between holes.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define BLOCK ZT_MB(48)
#define SPARSE ZT_MB(16)
#define ZEROS ZT_MB(4)
#define ODD 61

static uint8_t *block, *sparse, *zeros, *none, *ro, *odd;

static void check_sparse(void)
{
	for (size_t o = 0; o < SPARSE; o += ZT_PAGE) {
		if (o / ZT_PAGE % 3 == 0)
			zt_check_at(sparse + o, ZT_PAGE, 2, o, "sparse block");
		else
			zt_check_zero(sparse + o, ZT_PAGE, "hole in the sparse block");
	}
}

static void check_protected(void)
{
	ZT_CHECK(!strcmp(zt_perms(none), "---p"), "PROT_NONE part is %s", zt_perms(none));
	ZT_CHECK(!strcmp(zt_perms(ro), "r--p"), "read-only part is %s", zt_perms(ro));
	ZT_CHECK(!mprotect(none, 16 * ZT_PAGE, PROT_READ), "mprotect: %m");
	zt_check(none, 16 * ZT_PAGE, 3, "PROT_NONE part");
	ZT_CHECK(!mprotect(none, 16 * ZT_PAGE, PROT_NONE), "mprotect: %m");
	zt_check(ro, 16 * ZT_PAGE, 4, "read-only part");
}

static void check(void)
{
	zt_check(block, BLOCK, 1, "block");
	check_sparse();
	zt_check_zero(zeros, ZEROS, "zero pages");
	check_protected();
	for (int i = 0; i < ODD; i++) {
		uint8_t *p = odd + 2 * i * ZT_PAGE;

		zt_check(p, ZT_PAGE, 100 + i, "single page");
		ZT_CHECK(!*zt_perms(p + ZT_PAGE), "a hole is mapped at %p", p + ZT_PAGE);
	}
}

static void setup(void)
{
	block = zt_mmap(BLOCK);
	zt_fill(block, BLOCK, 1);
	sparse = zt_mmap(SPARSE);
	for (size_t o = 0; o < SPARSE; o += 3 * ZT_PAGE)
		zt_fill_at(sparse + o, ZT_PAGE, 2, o);
	zeros = zt_mmap(ZEROS);
	memset(zeros, 0, ZEROS / 2);
	zt_check_zero(zeros + ZEROS / 2, ZEROS / 4, "fresh memory");
	none = zt_mmap(16 * ZT_PAGE);
	zt_fill(none, 16 * ZT_PAGE, 3);
	ZT_SYS(mprotect(none, 16 * ZT_PAGE, PROT_NONE));
	ro = zt_mmap(16 * ZT_PAGE);
	zt_fill(ro, 16 * ZT_PAGE, 4);
	ZT_SYS(mprotect(ro, 16 * ZT_PAGE, PROT_READ));
	odd = zt_mmap(2 * ODD * ZT_PAGE);
	for (int i = 0; i < ODD; i++) {
		zt_fill(odd + 2 * i * ZT_PAGE, ZT_PAGE, 100 + i);
		ZT_SYS(munmap(odd + (2 * i + 1) * ZT_PAGE, ZT_PAGE));
	}
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	setup();
	zt_ready(check);
	zt_flip(sparse + 300 * ZT_PAGE + 77);
	zt_serve(check);
}
