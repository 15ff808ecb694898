/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A memfd of 48 MB that nobody has mapped: most of what the process has, and no part of its RSS.
 * zonetest: {'flavour': 'h'}
 */
#include "zt.h"

#define LEN ZT_MB(48)
#define PART ZT_MB(1)

static int fd;

static void check(void)
{
	static uint8_t buf[PART];

	for (uint64_t n = 0; n < LEN / PART; n++) {
		ZT_CHECK(pread(fd, buf, PART, (off_t)(n * PART)) == PART, "short read of a memfd");
		zt_check(buf, PART, n, "unmapped memfd");
	}
}

int main(int argc, char **argv)
{
	static uint8_t buf[PART];

	zt_init(argc, argv);
	fd = ZT_SYS(memfd_create("unmapped", 0));
	for (uint64_t n = 0; n < LEN / PART; n++) {
		zt_fill(buf, PART, n);
		zt_write_all(fd, buf, PART);
	}
	zt_ready(check);
	zt_flip_file(fd, 4444);
	zt_serve(check);
}
