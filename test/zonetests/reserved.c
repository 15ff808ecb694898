/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Eight terabytes that are only reserved (PROT_NONE), with a little of it in use, as databases do
 * with their buffer pools; and pages that were written before they lost their protection.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define RESERVED (8ul << 40)
#define USED ZT_MB(3)
#define HIDDEN (USED + ZT_MB(64))
#define HIDDEN_LEN (16 * ZT_PAGE)

static uint8_t *mem;

static void check(void)
{
	zt_check(mem, USED, 1, "the part in use");
	ZT_CHECK(!strcmp(zt_perms(mem + USED), "---p"), "the reserved part is %s",
		 zt_perms(mem + USED));
	ZT_CHECK(!strcmp(zt_perms(mem + RESERVED - ZT_PAGE), "---p"), "its end is %s",
		 zt_perms(mem + RESERVED - ZT_PAGE));
	ZT_CHECK(!strcmp(zt_perms(mem + HIDDEN), "---p"), "the hidden part is %s",
		 zt_perms(mem + HIDDEN));
	ZT_SYS(mprotect(mem + HIDDEN, HIDDEN_LEN, PROT_READ));
	zt_check(mem + HIDDEN, HIDDEN_LEN, 2, "the hidden part");
	ZT_SYS(mprotect(mem + HIDDEN, HIDDEN_LEN, PROT_NONE));
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap_at(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ZT_SYS(mprotect(mem, USED, PROT_READ | PROT_WRITE));
	zt_fill(mem, USED, 1);
	/* A mapping of its own: within the reserved one it would make that one count as filled. */
	ZT_SYS(munmap(mem + HIDDEN, HIDDEN_LEN));
	zt_mmap_at(mem + HIDDEN, HIDDEN_LEN, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	zt_fill(mem + HIDDEN, HIDDEN_LEN, 2);
	ZT_SYS(mprotect(mem + HIDDEN, HIDDEN_LEN, PROT_NONE));
	zt_ready(check);
	zt_flip(mem + 4711);
	zt_serve(check);
}
