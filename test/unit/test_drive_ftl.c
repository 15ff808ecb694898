/* SPDX-License-Identifier: GPL-2.0-only */
/* The map of the modelled conventional drive (test/drive): whatever comes, each page is where the
 * map says, and counts of valid pages are right. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include "../drive/ftl_map.c"

#define PAGES 4096u
#define DIES 4u

static void check_map(const struct ftl *f, const bool *mapped)
{
	uint32_t mapped_nr = 0, valid = 0, used = 0;

	for (uint32_t i = 0; i < f->nr_pages; i++) {
		assert_int_equal(f->place[i] != FTL_NONE, mapped[i]);
		if (!mapped[i])
			continue;
		mapped_nr++;
		assert_int_equal(f->owner[f->place[i]], i);
	}
	for (uint32_t i = 0; i < f->blocks * f->nr_dies; i++) {
		uint32_t n = 0;

		for (uint32_t k = 0; k < f->block_pages; k++)
			n += f->owner[i * f->block_pages + k] != FTL_NONE;
		assert_int_equal(f->block[i].valid, n);
		assert_true(f->block[i].used >= n);
		valid += n;
		used += f->block[i].used || f->block[i].open;
	}
	assert_int_equal(valid, mapped_nr);
	for (uint32_t d = 0; d < f->nr_dies; d++)
		used += f->die[d].nr_free;
	assert_int_equal(used, f->blocks * f->nr_dies);
}

/* Random writes and discards on a full drive, with collection whenever a die wants it. */
static void map_survives_anything(void **state)
{
	bool *mapped = calloc(PAGES, sizeof(*mapped));
	struct ftl f;

	(void)state;
	srandom(3);
	assert_int_equal(ftl_map_new(&f, PAGES, DIES, 32, 12, NULL), 0);
	for (uint32_t i = 0; i < 20 * PAGES; i++) {
		uint32_t page = (uint32_t)random() % PAGES, die = ftl_turn(&f), moved;

		if (random() % 16 == 0) {
			ftl_unmap(&f, page);
			mapped[page] = false;
			continue;
		}
		while (ftl_wants_gc(&f, die) && ftl_collect(&f, die, &moved))
			;
		assert_true(ftl_program(&f, die, page));
		assert_int_equal(ftl_die_of(&f, page), die);
		mapped[page] = true;
		if (i % PAGES == 0)
			check_map(&f, mapped);
	}
	check_map(&f, mapped);
	for (uint32_t d = 0; d < DIES; d++)
		assert_true(f.die[d].erased > 0);
	ftl_map_free(&f);
	free(mapped);
}

/* What the fragmentation papers need: pages that came one after the other are on one die after the
 * other, and those a multiple of the dies apart share one. */
static void pages_are_dealt_in_order(void **state)
{
	struct ftl f;

	(void)state;
	assert_int_equal(ftl_map_new(&f, PAGES, DIES, 32, 12, NULL), 0);
	for (uint32_t i = 0; i < 64; i++)
		assert_true(ftl_program(&f, ftl_turn(&f), i));
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(ftl_die_of(&f, i), i % DIES);
	assert_int_equal(ftl_die_of(&f, 64), FTL_NONE);
	ftl_map_free(&f);
}

static void nonsense_is_refused(void **state)
{
	struct ftl f;

	(void)state;
	assert_int_equal(ftl_map_new(&f, 0, DIES, 32, 12, NULL), -EINVAL);
	assert_int_equal(ftl_map_new(&f, PAGES, 0, 32, 12, NULL), -EINVAL);
	assert_int_equal(ftl_map_new(&f, UINT32_MAX, 1, 32, 400, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_survives_anything),
		cmocka_unit_test(pages_are_dealt_in_order),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
