/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared anonymous memory of a parent and three children: each wrote its part, one has a second
 * view of it elsewhere; after restore a write by each child must still show in the parent.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define KIDS 3
#define PART ZT_MB(3)
#define UNTOUCHED ZT_MB(4)
#define LEN ((KIDS + 1) * PART + UNTOUCHED)

static uint8_t *mem, *view;
static pid_t kids[KIDS];

static void check_mem(const uint8_t *m)
{
	for (int i = 0; i <= KIDS; i++)
		zt_check_at(m + i * PART + 8, PART - 8, 10 + i, 8, "part of shared memory");
	zt_check_zero(m + (KIDS + 1) * PART, UNTOUCHED, "untouched shared memory");
}

static void kid_setup(int n)
{
	view = n == 1 ? mremap(mem, 0, LEN, MREMAP_MAYMOVE) : mem;
	if (view == MAP_FAILED)
		zt_die("mremap: %m");
	zt_fill(view + n * PART, PART, 10 + n);
	memset(view + n * PART, 0, 8);
}

static void kid_check(int n)
{
	check_mem(view);
	view[n * PART] = 0x77;
}

static void check(void)
{
	check_mem(mem);
}

static void check_all(void)
{
	check();
	for (int i = 0; i < KIDS; i++) {
		ZT_CHECK(!mem[i * PART], "child %d's mark is there too early", i);
		zt_join(kids[i]);
		ZT_CHECK(mem[i * PART] == 0x77, "child %d's write does not show: no longer shared",
			 i);
	}
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap_at(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	zt_fill(mem + KIDS * PART, PART, 10 + KIDS);
	for (int i = 0; i < KIDS; i++)
		kids[i] = zt_fork(kid_setup, kid_check, i);
	zt_ready(check);
	zt_flip(mem + 2 * PART + 4097);
	zt_serve(check_all);
}
