/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One large block, 256 MB or --size MB: every byte checked.
 * zonetest: {'flavour': 'h'}
 */
#include "zt.h"

static uint8_t *mem;

static void check(void)
{
	zt_check(mem, zt_size, 7, "memory");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	if (!zt_size)
		zt_size = ZT_MB(256);
	mem = zt_mmap(zt_size);
	zt_fill(mem, zt_size, 7);
	zt_ready(check);
	zt_flip(mem + zt_size - 5000);
	zt_serve(check);
}
