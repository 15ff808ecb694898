/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists of pages that a restored process lacks (zns/origin.h). The input makes lists that are sound
 * for the most part. What is taken must name each page once, at its place in the image; what is
 * refused must leave the table as it was.
 */
#include <stdlib.h>
#include <string.h>
#include "../../zns/memory/pages/origin_int.h"
#include "input.h"

#define PAGE 4096ULL
#define PARTS 40u
#define IMAGE (1u << 20) /* pages */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Page of the image in which this page of a unit lies; UINT64_MAX: the unit does not have it. */
static uint64_t page_of(const struct origin_table *t, uint64_t place, unsigned int page,
			uint32_t image)
{
	const struct origin_record *r = NULL;
	uint32_t nr = origin_table_find(t, place, &r);
	uint64_t found = UINT64_MAX;

	for (uint32_t i = 0; i < nr; i++) {
		if (!(r[i].pages >> page & 1))
			continue;
		if (found != UINT64_MAX || r[i].image != image)
			abort();
		found = r[i].first + (uint64_t)__builtin_popcount(r[i].pages & ((1u << page) - 1));
	}
	return found;
}

static void check(const struct origin_table *t, uint32_t image, const struct zns_origin_part *v,
		  size_t nr, const struct zns_mem_given *u, size_t nr_u)
{
	uint64_t pages = 0, named = 0;
	size_t n = 0;

	for (size_t i = 0; i < nr_u; i++) {
		if (u[i].addr % ZNS_PAGES_UNIT || (i && u[i].addr <= u[i - 1].addr))
			abort();
		named += (uint64_t)__builtin_popcount(u[i].pages);
	}
	for (size_t i = 0; i < nr; i++) {
		for (uint64_t at = 0; at < v[i].len; at += PAGE, pages++) {
			uint64_t addr = v[i].base + at;
			unsigned int page = addr / PAGE % 16;

			while (n < nr_u && u[n].addr + ZNS_PAGES_UNIT <= addr)
				n++;
			if (n == nr_u || u[n].addr > addr || !(u[n].pages >> page & 1) ||
			    page_of(t, u[n].place, page, image) != (v[i].off + at) / PAGE)
				abort();
		}
	}
	if (pages != named)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t odd[] = { 1, 1ULL << 47, UINT64_MAX - 4095, 1ULL << 63 };
	struct input in = { data, size };
	struct zns_origin_part v[PARTS];
	struct origin_table t;

	if (origin_table_new(&t))
		abort();
	while (in.left) {
		size_t nr = take(&in, PARTS), nr_u = 0;
		uint32_t image = take(&in, 4), had = t.head->nr;
		uint64_t base = take(&in, 64) * PAGE, off = take(&in, 64) * PAGE;
		struct zns_mem_given *u = NULL;

		for (size_t i = 0; i < nr; i++) {
			base += take(&in, 20) * PAGE;
			off += take(&in, 4) == 1 ? take(&in, 64) * PAGE : 0;
			v[i] = (struct zns_origin_part){ off, base, (1 + take(&in, 40)) * PAGE };
			base += v[i].len;
			off += v[i].len;
			if (take(&in, 128) == 1)
				(&v[i].off)[take(&in, 3)] = odd[take(&in, 4)];
		}
		if (origin_table_add(&t, image, IMAGE * PAGE, v, nr, &u, &nr_u, NULL)) {
			if (t.head->nr != had)
				abort();
			continue;
		}
		check(&t, image, v, nr, u, nr_u);
		free(u);
	}
	origin_table_free(&t);
	return 0;
}
