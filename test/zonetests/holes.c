/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One area with holes between its runs of pages. It is still one area after a restore: the kernel
 * moves and grows it as a whole. New areas and threads can be made beside it.
 * zonetest: {'flavour': 'h ns'}
 */
#include <pthread.h>
#include "zt.h"

#define RUNS 200
/* bytes written in each run; then follows one page that was never written */
#define WRITTEN (256ul << 10)
#define RUN (WRITTEN + ZT_PAGE)

static uint8_t *mem;

static void *nothing(void *arg)
{
	return arg;
}

static void check_new(void)
{
	void *more = mmap(NULL, RUN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	ZT_CHECK(more != MAP_FAILED, "no new area: %m");
	munmap(more, RUN);
	ZT_CHECK(!pthread_create(&t, NULL, nothing, NULL) && !pthread_join(t, NULL), "no thread");
}

static void check(void)
{
	void *p = mremap(mem, RUNS * RUN, 2 * RUNS * RUN, MREMAP_MAYMOVE);

	ZT_CHECK(p != MAP_FAILED, "the area cannot grow: %m");
	mem = p;
	ZT_CHECK(mremap(mem, 2 * RUNS * RUN, RUNS * RUN, 0) == mem, "the area cannot shrink: %m");
	for (int i = 0; i < RUNS; i++)
		zt_check(mem + i * RUN, WRITTEN, 1 + i, "run of pages");
	check_new();
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	mem = zt_mmap(RUNS * RUN);
	for (int i = 0; i < RUNS; i++)
		zt_fill(mem + i * RUN, WRITTEN, 1 + i);
	zt_ready(check);
	zt_flip(mem + RUN + 5);
	zt_serve(check);
}
