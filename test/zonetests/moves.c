/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Blocks of memory. When it is asked first, a thread touches the first page of each; the second time
 * all other pages move to where 4 GiB of other memory have been, and are checked there. Nothing else
 * of it is restored on demand, so it goes on while no page comes.
 */
#include <pthread.h>
#include "zt.h"

#define BLOCKS 8ul
#define BLOCK (64 * ZT_PAGE)
#define REST (BLOCK - ZT_PAGE)
#define OTHER (4ul << 30)

static uint8_t *block, *other; /* BLOCKS are in use of each */
static pthread_t thread[BLOCKS];
static unsigned int asked;

static void *touch(void *first_page)
{
	zt_check(first_page, ZT_PAGE, 7, "first page");
	return NULL;
}

static void check(void)
{
	asked++;
	if (asked == 2) {
		ZT_SYS(munmap(other, OTHER));
		zt_mmap_at(other, OTHER, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
			   0);
	}
	for (size_t i = 0; i < BLOCKS; i++) {
		uint8_t *b = block + i * BLOCK, *to = other + i * BLOCK;

		if (asked == 1 && pthread_create(&thread[i], NULL, touch, b))
			zt_fail("no thread");
		if (asked == 2)
			ZT_SYS(mremap(b + ZT_PAGE, REST, REST, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	}
	for (size_t i = 0; asked == 2 && i < BLOCKS; i++) {
		pthread_join(thread[i], NULL);
		zt_check_at(other + i * BLOCK, REST, 7, ZT_PAGE, "memory that was moved");
	}
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	ZT_SYS(mlockall(MCL_CURRENT)); /* what is locked is there from the beginning */
	block = zt_mmap(BLOCKS * BLOCK);
	other = zt_mmap_at(NULL, OTHER, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (size_t i = 0; i < BLOCKS; i++) {
		zt_fill(block + i * BLOCK, BLOCK, 7);
		zt_fill(other + i * BLOCK, BLOCK, 9);
	}
	zt_ready(NULL);
	zt_serve(check);
}
