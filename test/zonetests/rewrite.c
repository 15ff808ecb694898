/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Some memory that stays as it is (--size), and 24 MiB that are written all the time, page after
 * page. At any moment those carry at most two neighbouring numbers, the higher ones first.
 */
#include "zt.h"

#define PAGES (ZT_MB(24) / ZT_PAGE)

struct page {
	volatile uint64_t nr;
	char rest[ZT_PAGE - 8];
};
static struct page *page;
static void *still;

static void check(void)
{
	zt_check(still, zt_size, 1, "memory that nobody writes");
	for (size_t i = 1; i < PAGES; i++)
		ZT_CHECK(page[i].nr == page[i - 1].nr || page[i].nr == page[0].nr - 1,
			 "page %zu has %lu, the one before it %lu", i, page[i].nr, page[i - 1].nr);
}

int main(int argc, char **argv)
{
	size_t at = 0;

	zt_init(argc, argv);
	still = zt_mmap(zt_size);
	zt_fill(still, zt_size, 1);
	page = zt_mmap(ZT_MB(24));
	memset(page, 0, ZT_MB(24));
	zt_ready(check);
	for (uint64_t n = 1; !zt_asked(); at = (at + 1) % PAGES, n += !at)
		page[at].nr = n;
	zt_finish(check);
}
