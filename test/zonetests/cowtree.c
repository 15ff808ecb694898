/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A parent and three children on inherited memory: each child rewrites its own third, a grandchild
 * its own sixth of that; the rest stays shared with the parent, who changes the last MB after the
 * fork. zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define KIDS 3
#define LEN ZT_MB(24)
#define PART (LEN / 4)
#define TAIL ZT_MB(1)

static uint8_t *mem;
static pid_t kids[KIDS], grandchild;

static void check_kid_memory(int n)
{
	for (int i = 0; i < KIDS; i++)
		zt_check_at(mem + i * PART, PART, i == n ? 10 + n : 1, i * PART,
			    i == n ? "own part" : "shared part");
	zt_check_at(mem + KIDS * PART, PART, 1, KIDS * PART, "shared last part");
}

static void grandchild_setup(int n)
{
	zt_fill_at(mem + n * PART, PART / 2, 50 + n, n * PART);
}

static void grandchild_check(int n)
{
	zt_check_at(mem + n * PART, PART / 2, 50 + n, n * PART, "grandchild's part");
	zt_check_at(mem + n * PART + PART / 2, PART / 2, 10 + n, n * PART + PART / 2,
		    "inherited from the child");
	zt_check_at(mem + KIDS * PART, PART, 1, KIDS * PART, "inherited from the parent");
}

static void kid_setup(int n)
{
	zt_fill_at(mem + n * PART, PART, 10 + n, n * PART);
	grandchild = zt_fork(grandchild_setup, grandchild_check, n);
	if (n == 1)
		zt_flip(mem + 2 * PART + 12345);
}

static void kid_check(int n)
{
	check_kid_memory(n);
	zt_join(grandchild);
}

static void check(void)
{
	zt_check(mem, LEN - TAIL, 1, "parent's memory");
	zt_check_at(mem + LEN - TAIL, TAIL, 2, LEN - TAIL, "parent's new tail");
}

static void check_all(void)
{
	check();
	for (int i = 0; i < KIDS; i++)
		zt_join(kids[i]);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap(LEN);
	zt_fill(mem, LEN, 1);
	for (int i = 0; i < KIDS; i++)
		kids[i] = zt_fork(kid_setup, kid_check, i);
	zt_fill_at(mem + LEN - TAIL, TAIL, 2, LEN - TAIL);
	zt_ready(check);
	zt_serve(check_all);
}
