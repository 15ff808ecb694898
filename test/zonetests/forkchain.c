/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A chain of 20 processes, each the child of the one before. Level n rewrites its own slice of
 * inherited memory before it forks, so each page has one of several ancestors.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define DEPTH 20
#define SLICE (32 * ZT_PAGE)
#define LEN (DEPTH * SLICE)

static uint8_t *mem;
static pid_t next;

static void check_level(int level);

static void grow(int level)
{
	zt_fill_at(mem + level * SLICE, SLICE, 100 + level, level * SLICE);
	if (level + 1 < DEPTH)
		next = zt_fork(grow, check_level, level + 1);
	if (level == DEPTH - 1)
		zt_flip(mem + 3 * SLICE + 9);
}

static void check_level(int level)
{
	for (int i = 0; i < DEPTH; i++)
		zt_check_at(mem + i * SLICE, SLICE, i <= level ? 100 + i : 1, i * SLICE,
			    i <= level ? "an ancestor's slice" : "untouched slice");
	if (next)
		zt_join(next);
}

static void check_root(void)
{
	check_level(0);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap(LEN);
	zt_fill(mem, LEN, 1);
	grow(0);
	zt_ready(NULL);
	zt_serve(check_root);
}
