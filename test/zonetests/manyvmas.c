/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two thousand mappings of one to three pages with alternating protection, so that none merge.
 * zonetest: {'flavour': 'h ns'}
 */
#include "zt.h"

#define NR 2000
#define SPAN (3 * ZT_PAGE)

static uint8_t *mem;

static size_t len_of(int i)
{
	return (1 + i % 3) * ZT_PAGE;
}

static void check_maps(void)
{
	unsigned long from, to;
	char line[512], perms[5];
	FILE *f = fopen("/proc/self/maps", "re");
	int found = 0;

	ZT_CHECK(f, "/proc/self/maps: %m");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, perms) != 3)
			continue;
		if (from < (unsigned long)mem || from >= (unsigned long)(mem + NR * SPAN))
			continue;
		int i = (from - (unsigned long)mem) / SPAN;

		ZT_CHECK(to - from == len_of(i), "mapping %d has %lu bytes", i, to - from);
		ZT_CHECK(!strcmp(perms, i % 2 ? "r--p" : "rw-p"), "mapping %d is %s", i, perms);
		found++;
	}
	fclose(f);
	ZT_CHECK(found == NR, "%d of %d mappings are there", found, NR);
}

static void check(void)
{
	check_maps();
	for (int i = 0; i < NR; i++)
		zt_check(mem + i * SPAN, len_of(i), 1000 + i, "small mapping");
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap(NR * SPAN);
	for (int i = 0; i < NR; i++) {
		uint8_t *p = mem + i * SPAN;

		zt_fill(p, len_of(i), 1000 + i);
		if (len_of(i) < SPAN)
			ZT_SYS(munmap(p + len_of(i), SPAN - len_of(i)));
		if (i % 2)
			ZT_SYS(mprotect(p, len_of(i), PROT_READ));
	}
	zt_ready(check);
	zt_flip(mem + 1000 * SPAN + 3);
	zt_serve(check);
}
