/* SPDX-License-Identifier: GPL-2.0-only */
/* Where the newest copy of a page is: random rounds against a table that has a line for each page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "zns/places.h"
#include "zns/util.h"

#define PAGE 4096ull
#define PAGES 300
#define NOWHERE UINT32_MAX

struct model {
	uint32_t source[PAGES];
	uint64_t at[PAGES];
};

static void forget(struct model *m, uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n < to; n++)
		m->source[n] = NOWHERE;
}

static void check(const struct places *l, const struct model *m)
{
	uint64_t seen = 0, have = 0;

	for (size_t n = 0; n < l->nr; n++) {
		const struct place *p = &l->p[n];

		assert_true(p->len && p->len % PAGE == 0);
		assert_true(!n || l->p[n - 1].vaddr + l->p[n - 1].len <= p->vaddr);
		for (uint64_t k = 0; k < p->len / PAGE; k++, seen++) {
			uint64_t page = p->vaddr / PAGE + k;

			assert_int_equal(m->source[page], p->source);
			assert_int_equal(m->at[page], p->at + k * PAGE);
		}
	}
	for (int n = 0; n < PAGES; n++)
		have += m->source[n] != NOWHERE;
	assert_int_equal(seen, have);
}

/* Some spans in order, some of them touching. */
static size_t some_spans(struct zns_span *s, size_t max)
{
	uint64_t page = (uint64_t)(rand() % 20);
	size_t nr = 0;

	while (nr < max && page < PAGES) {
		uint64_t end = page + 1 + (uint64_t)(rand() % 30);

		end = zns_min(end, PAGES);
		s[nr++] = (struct zns_span){ page * PAGE, end * PAGE };
		page = end + (uint64_t)(rand() % 3 ? rand() % 40 : 0);
	}
	return nr;
}

static void a_round(struct places *l, struct model *m, uint32_t source)
{
	struct zns_span s[40];
	struct place p[40];
	size_t nr = some_spans(s, 40);
	uint64_t at = 0;

	for (size_t n = 0; n < nr; n++) {
		uint64_t first = s[n].start / PAGE, end = s[n].end / PAGE;

		p[n] = (struct place){ s[n].start, s[n].end - s[n].start, at, source };
		for (uint64_t k = first; k < end; k++) {
			m->source[k] = source;
			m->at[k] = at + (k - first) * PAGE;
		}
		at += p[n].len;
	}
	assert_int_equal(places_put(l, p, nr), 0);
}

static void random_rounds(void **state)
{
	(void)state;
	srand(1);
	for (int run = 0; run < 300; run++) {
		struct places l = { 0 };
		struct zns_span s[40];
		struct model m;
		size_t nr;

		forget(&m, 0, PAGES);
		for (uint32_t round = 0; round < 8; round++) {
			a_round(&l, &m, round);
			check(&l, &m);
			nr = some_spans(s, 40);
			assert_int_equal(places_drop(&l, s, nr), 0);
			for (size_t n = 0; n < nr; n++)
				forget(&m, s[n].start / PAGE, s[n].end / PAGE);
			check(&l, &m);
		}
		nr = some_spans(s, 40);
		assert_int_equal(places_keep(&l, s, nr), 0);
		for (size_t n = 0; n < nr; n++)
			forget(&m, n ? s[n - 1].end / PAGE : 0, s[n].start / PAGE);
		forget(&m, nr ? s[nr - 1].end / PAGE : 0, PAGES);
		check(&l, &m);
		places_free(&l);
	}
}

/* Copies that follow each other in memory and in the image are one. */
static void neighbours_are_one(void **state)
{
	struct places l = { 0 };
	struct place a = { 0, PAGE, 0, 1 }, b = { PAGE, PAGE, PAGE, 1 };

	(void)state;
	assert_int_equal(places_append(&l, a), 0);
	assert_int_equal(places_append(&l, b), 0);
	assert_int_equal(l.nr, 1);
	assert_int_equal(l.p[0].len, 2 * PAGE);
	b.vaddr = 2 * PAGE;
	b.source = 2;
	assert_int_equal(places_append(&l, b), 0);
	assert_int_equal(l.nr, 2);
	places_free(&l);
}

static void nothing(void **state)
{
	struct places l = { 0 };

	(void)state;
	assert_int_equal(places_put(&l, NULL, 0), 0);
	assert_int_equal(places_drop(&l, NULL, 0), 0);
	assert_int_equal(places_keep(&l, NULL, 0), 0);
	assert_int_equal(l.nr, 0);
	places_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_rounds),
		cmocka_unit_test(neighbours_are_one),
		cmocka_unit_test(nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
