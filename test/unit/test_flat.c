/* SPDX-License-Identifier: GPL-2.0-only */
/* A flat view of a chain of two: its bytes are those of both, and nobody reads beyond its ends. */
#include "../../zns/stripe/pagemap.h"
#include "stripe_fixture.h"
#include "zns/chain.h"
#include "zns/flat.h"
#include "zns/image_map.h"
#include "zns/pagemap.h"

#define UNIT KIB(64)
#define PAGE ZNS_MAP_PAGE
#define PARENT_PAGES 40
#define CHILD_PAGES 8
/* The child's own pages lie in the middle of those that only its parent has. */
#define BEFORE 20

static struct zns_dev *dev;
static struct rig parent, child;
static struct zns_chain *chain;
static struct zns_flat *flat;
static struct image whole, own, core;
static uint32_t nr_pages, nr_pagemap, nr_core; /* numbers in the manifest */

static void feed_pagemap(struct rig *r, const struct zns_pagemap_run *run, size_t nr)
{
	ZnsPb__PagemapHead h = ZNS_PB__PAGEMAP_HEAD__INIT;
	cleanup_free uint8_t *entries = NULL;
	uint8_t head[64] = { 1, 2, 3, 4 };
	struct zns_wimage *i;
	size_t len;

	h.pages_id = 1;
	head[4] = (uint8_t)zns_pb__pagemap_head__pack(&h, head + 8);
	assert_ok(zns_pagemap_entries(run, nr, &entries, &len, &err));
	assert_ok(zns_writer_image(r->w, "pagemap-7.img", false, &i, &err));
	assert_ok(zns_wimage_data(i, head, 8 + head[4], &err));
	assert_ok(zns_wimage_data(i, entries, len, &err));
	assert_ok(zns_wimage_seal(i, &err));
}

static void dump(struct rig *r, const struct image *pages, const struct zns_pagemap_run *run,
		 size_t nr)
{
	rig_start(r);
	assert_ok(feed(r->w, pages, UNIT, &err));
	feed_pagemap(r, run, nr);
	assert_ok(feed(r->w, &core, 100, &err));
	rig_finish(r);
}

static uint32_t number(const char *name)
{
	uint32_t n = 0;

	while (strcmp(zns_flat_name(flat, n), name))
		n++;
	return n;
}

static int make(void **state)
{
	const uint64_t at = 0x10000, mid = at + BEFORE * PAGE, end = at + PARENT_PAGES * PAGE;
	const struct zns_pagemap_run all = { at, PARENT_PAGES * PAGE, false, false }, three[] = {
		{ at, BEFORE * PAGE, true, false },
		{ mid, CHILD_PAGES * PAGE, false, false },
		{ mid + CHILD_PAGES * PAGE, end - mid - CHILD_PAGES * PAGE, true, false },
	};
	struct zns_emu_params p = roomy(64, KIB(960));
	struct zns_reader_params rp = { .workers = 1, .cache_units = 1 };
	struct zns_registered reg = { .uuid = { 1, 2, 3 } };

	if (emu_begin(state))
		return -1;
	dev = rp.dev = make_dev(&p);
	image_set(&whole, PARENT_PAGES * PAGE, "pages-%u.img", 1);
	image_set(&own, CHILD_PAGES * PAGE, "pages-%u.img", 1);
	own.seed = 99;
	image_set(&core, 777, "core-%u.img", 7);
	rig_init(&parent, dev, UNIT, 2);
	dump(&parent, &whole, &all, 1);
	rig_init(&child, dev, UNIT, 2);
	child.next = parent.next;
	child.parent = parent.c->id.data;
	dump(&child, &own, three, 3);
	assert_ok(zns_chain_open(&rp, &reg, false, (ZnsPb__Checkpoint *[]){ child.c, parent.c }, 2,
				 &chain, &err));
	assert_ok(zns_flat_new(chain, &flat, &err));
	nr_pages = number("pages-1.img");
	nr_pagemap = number("pagemap-7.img");
	nr_core = number("core-7.img");
	return 0;
}

static int drop(void **state)
{
	zns_flat_free(flat);
	zns_chain_close(chain);
	rig_drop(&child);
	rig_drop(&parent);
	zns_dev_close(dev);
	return emu_end(state);
}

static void pages_of_both(void **state)
{
	cleanup_free uint8_t *got = malloc(whole.len), *want = malloc(whole.len);

	assert_int_equal(zns_flat_size(flat, nr_pages), whole.len);
	fill(want, 0, whole.len, whole.seed);
	fill(want + BEFORE * PAGE, 0, own.len, own.seed);
	assert_ok(zns_flat_read(flat, nr_pages, 0, got, whole.len, &err));
	assert_memory_equal(got, want, whole.len);
	for (uint64_t off = 0; off + 2 * PAGE <= whole.len; off += PAGE) {
		assert_ok(zns_flat_read(flat, nr_pages, off + 1, got, 2 * PAGE - 1, &err));
		assert_memory_equal(got, want + off + 1, 2 * PAGE - 1);
	}
}

static void pagemap_without_parent(void **state)
{
	size_t len = zns_flat_size(flat, nr_pagemap), nr;
	cleanup_free struct zns_pagemap_run *run = NULL;
	cleanup_free uint8_t *got = malloc(len);
	uint32_t id;

	assert_ok(zns_flat_read(flat, nr_pagemap, 0, got, len, &err));
	assert_ok(zns_pagemap_runs(got, len, "pagemap-7.img", &run, &nr, &id, &err));
	assert_int_equal(id, 1);
	assert_int_equal(nr, 1); /* the runs touch */
	assert_int_equal(run[0].vaddr, 0x10000);
	assert_int_equal(run[0].len, whole.len);
	assert_false(run[0].parent);
}

static int count_piece(void *arg, uint32_t level, uint32_t place, uint64_t off, uint64_t len)
{
	uint64_t *bytes = arg;

	bytes[level] += len;
	return 0;
}

static void where_it_is(void **state)
{
	uint64_t bytes[2] = { 0 };

	assert_int_equal(zns_flat_images(flat), 3);
	assert_true(zns_flat_is(flat, nr_pages) && zns_flat_is(flat, nr_pagemap));
	assert_false(zns_flat_is(flat, nr_core));
	assert_int_equal(zns_flat_bytes(flat),
			 whole.len + zns_flat_size(flat, nr_pagemap) + core.len);
	assert_ok(zns_flat_walk(flat, nr_pages, count_piece, bytes));
	assert_int_equal(bytes[0], own.len);
	assert_int_equal(bytes[1], whole.len - own.len);
}

/* All three kinds: assembled from runs, from memory, and as it is stored. */
static void beyond_the_end(void **state)
{
	const uint32_t image[] = { nr_pages, nr_pagemap, nr_core };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(image); i++) {
		uint64_t size = zns_flat_size(flat, image[i]);
		cleanup_free uint8_t *got = malloc(size + 1);

		assert_ok(zns_flat_read(flat, image[i], size, got, 0, &err));
		assert_ok(zns_flat_read(flat, image[i], size - 1, got, 1, &err));
		got[size] = 0x5a;
		assert_fails(zns_flat_read(flat, image[i], size - 1, got, 2, &err), -ENODATA,
			     "ends at");
		assert_fails(zns_flat_read(flat, image[i], 0, got, size + 1, &err), -ENODATA,
			     "ends at");
		assert_fails(zns_flat_read(flat, image[i], size + 1, got, 0, &err), -ENODATA,
			     "ends at");
		assert_fails(zns_flat_read(flat, image[i], UINT64_MAX, got, 2, &err), -ENODATA,
			     "ends at");
		assert_int_equal(got[size], 0x5a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_of_both),
		cmocka_unit_test(pagemap_without_parent),
		cmocka_unit_test(where_it_is),
		cmocka_unit_test(beyond_the_end),
	};

	return cmocka_run_group_tests(tests, make, drop);
}
