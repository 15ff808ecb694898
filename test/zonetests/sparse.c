/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * 12 GiB of addresses with hardly a page in them: at both ends, and on both sides of every 4 GiB
 * (where the window ends through which criu sees page maps, on kernels that cannot be asked for
 * pages); and memory behind it. zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define WINDOW ((size_t)4 << 30)
#define LEN (3 * WINDOW)
#define PIECE (3 * ZT_PAGE)

static uint8_t *mem, *after;

/* Where the pieces begin: each but the first and the last lies across a border. */
static const size_t at[] = { 0, WINDOW - 2 * ZT_PAGE, WINDOW + ZT_MB(700), 2 * WINDOW - ZT_PAGE,
			     LEN - PIECE };
#define PIECES (sizeof(at) / sizeof(at[0]))

static void check(void)
{
	for (size_t i = 0; i < PIECES; i++) {
		zt_check(mem + at[i], PIECE, 1 + i, "piece of sparse memory");
		if (at[i])
			zt_check_zero(mem + at[i] - 8 * ZT_PAGE, 8 * ZT_PAGE,
				      "memory before a piece");
		if (at[i] + PIECE < LEN)
			zt_check_zero(mem + at[i] + PIECE, 8 * ZT_PAGE, "memory behind a piece");
	}
	zt_check(after, ZT_MB(3), 9, "other memory");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap_at(NULL, LEN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ZT_SYS(madvise(mem, LEN, MADV_NOHUGEPAGE));
	after = zt_mmap(ZT_MB(3));
	for (size_t i = 0; i < PIECES; i++)
		zt_fill(mem + at[i], PIECE, 1 + i);
	zt_fill(after, ZT_MB(3), 9);
	zt_ready(check);
	zt_flip(mem + at[3] + 5);
	zt_serve(check);
}
