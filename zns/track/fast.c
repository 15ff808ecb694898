/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lists which pages of an area were written. For this query PAGEMAP_SCAN has a fast path. It still
 * looks at each page table entry, so several threads share a large area: the process is frozen
 * meanwhile.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "track_int.h"
#include "zns/util.h"

/* bytes; a scan of this many takes 50 us, about as long as starting a thread */
#define CHUNK_MIN MIB(128)
#define CHUNKS_MAX 64
#define THREADS_MAX 4

/* Threads take chunks in any order. The results are joined in the order of addresses. */
struct fast {
	int pagemap;
	uint64_t start, end, chunk;
	_Atomic uint32_t next;
	struct zns_spans found[CHUNKS_MAX];
	int ret[CHUNKS_MAX];
};

static int add_found(void *arg, uint64_t start, uint64_t end, uint64_t categories)
{
	return zns_spans_add(arg, start, end);
}

static int scan(int pagemap, uint64_t start, uint64_t end, struct zns_spans *found)
{
	static const struct scan_query q = { .mask = IS_WRITTEN, .returned = IS_WRITTEN };

	return scan_range(pagemap, &q, start, end, add_found, found);
}

static void *take_chunks(void *arg)
{
	struct fast *f = arg;
	uint32_t n;

	while ((n = atomic_fetch_add(&f->next, 1)) < CHUNKS_MAX) {
		uint64_t start = f->start + n * f->chunk;

		if (start >= f->end)
			break;
		f->ret[n] = scan(f->pagemap, start, zns_min(start + f->chunk, f->end),
				 &f->found[n]);
	}
	return NULL;
}

static uint32_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

int fast_written(int pagemap, uint64_t start, uint64_t end, struct zns_spans *found)
{
	struct fast f = { .pagemap = pagemap, .start = start, .end = end };
	uint32_t others = zns_min(processors(), (uint32_t)THREADS_MAX) - 1, nr = 0;
	pthread_t thread[THREADS_MAX];
	int ret = 0;

	if (end - start < 2 * CHUNK_MIN || !others)
		return scan(pagemap, start, end, found);
	f.chunk = zns_align_up(zns_max((end - start) / CHUNKS_MAX, CHUNK_MIN), CHUNK_MIN);
	while (nr < others && !pthread_create(&thread[nr], NULL, take_chunks, &f))
		nr++; /* if no thread can be started, the scan is only slower */
	take_chunks(&f);
	for (uint32_t n = 0; n < nr; n++)
		pthread_join(thread[n], NULL);
	for (uint32_t n = 0; n < CHUNKS_MAX; n++) {
		if (!ret)
			ret = f.ret[n] ? f.ret[n] : zns_spans_join(found, &f.found[n]);
		zns_spans_free(&f.found[n]);
	}
	return ret;
}
