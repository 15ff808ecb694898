/* SPDX-License-Identifier: GPL-2.0-only */
/* The record of what activations touched: what of it is read ahead, and when nothing is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../../zns/memory/policy/hiber.h"

#define UNITS 1600U

struct scene {
	struct zns_mem *m;
	struct proc p;
};

static void begin(struct scene *s)
{
	*s = (struct scene){ .m = calloc(1, sizeof(*s->m)) };
	assert_non_null(s->m);
	s->m->sh = calloc(1, sizeof(*s->m->sh));
	assert_non_null(s->m->sh);
	s->p.m = s->m;
	s->p.sh = &s->m->sh->proc[PROCS_MAX - 1];
	pthread_mutex_init(&s->m->hiber.record, NULL);
	assert_int_equal(record_make(s->m), 0);
}

static void end(struct scene *s)
{
	record_free(s->m);
	pthread_mutex_destroy(&s->m->hiber.record);
	free(s->m->sh);
	free(s->m);
}

/* A unit that is used twice in an activation is recorded once. */
static void touch(struct scene *s, uint32_t from, uint32_t to)
{
	for (int k = 0; k < 3; k++)
		for (uint32_t i = from; i < to; i++)
			record_touch(&s->p, i * UNIT);
}

/* All of it is looked at, as when it is read ahead. */
static uint32_t left_out(struct scene *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < record_nr(s->m); i++)
		n += record_leave_out(s->m, i);
	return n;
}

static uint32_t watched(struct scene *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < UNITS; i++)
		n += !record_allows(&s->p, i * UNIT);
	return n;
}

static bool some(uint32_t n, uint32_t of)
{
	return n > of / 32 && n < of / 8;
}

/* A sixteenth is left out, other units each time; units that were not missed leave the record. */
static void sample(void **state)
{
	const struct shared_hiber *h;
	unsigned int slot, both = 0;
	uint64_t base;
	bool first[UNITS];
	struct scene s;
	uint32_t n;

	begin(&s);
	h = &s.m->sh->hiber;
	touch(&s, 0, UNITS);
	record_turn(s.m);
	assert_int_equal(record_nr(s.m), UNITS);
	n = left_out(&s);
	assert_true(some(n, UNITS));
	assert_int_equal(left_out(&s), n);
	assert_int_equal(h->left_out, n);
	for (uint32_t i = 0; i < UNITS; i++) {
		first[i] = !record_allows(&s.p, i * UNIT);
		n -= first[i];
		assert_true(record_at(s.m, i, &slot, &base));
		assert_true(slot == PROCS_MAX - 1 && base == i * UNIT);
	}
	assert_int_equal(n, 0);
	assert_true(record_allows(&s.p, UNITS * UNIT));
	touch(&s, 0, UNITS);
	assert_int_equal(h->missed, h->left_out);
	record_turn(s.m);
	n = left_out(&s);
	for (uint32_t i = 0; i < UNITS; i++)
		both += first[i] && !record_allows(&s.p, i * UNIT);
	assert_true(some(n, UNITS) && !both);
	record_turn(s.m);
	assert_int_equal(record_nr(s.m), UNITS - n);
	end(&s);
}

/* Runs one activation that touches @touched of the units. Returns how many units were left out
 * before. */
static uint32_t activation(struct scene *s, uint32_t touched)
{
	uint32_t n = left_out(s);

	touch(s, 0, touched);
	record_turn(s->m);
	return n;
}

/* A part of the record that was wrong is not read until it is right again. */
static void gates(void **state)
{
	struct scene s;
	uint64_t sampled;
	uint32_t n;

	begin(&s);
	activation(&s, UNITS);
	assert_true(some(activation(&s, 0), UNITS)); /* trusted at first, and wrong */
	n = record_nr(s.m);
	sampled = s.m->sh->hiber.left_out;
	assert_int_equal(activation(&s, UNITS / 2), n); /* nothing is read */
	/* so it is no sample of what is read */
	assert_int_equal(s.m->sh->hiber.left_out, sampled);
	n = record_nr(s.m);
	assert_int_equal(n, UNITS / 2); /* what nobody missed is gone */
	/* units seen in several activations have a gate of their own, which stays open while half
	 * of them are right */
	assert_true(activation(&s, 0) < n / 4);
	assert_true(some(activation(&s, 0), record_nr(s.m)));
	n = record_nr(s.m);
	assert_int_equal(activation(&s, UNITS / 2), n); /* it is closed */
	assert_true(left_out(&s) < n / 2); /* and open again */
	end(&s);
}

/* What a prediction reads meanwhile stays. */
static void chains(void **state)
{
	struct scene s;
	uint32_t n, sample;

	begin(&s);
	activation(&s, UNITS);
	activation(&s, 0);
	n = record_nr(s.m);
	assert_int_equal(left_out(&s), n); /* the gate is closed */
	sample = watched(&s);
	assert_true(some(sample, n));
	record_turn(s.m);
	assert_int_equal(record_nr(s.m), n - sample);
	end(&s);
}

/* What a dead pager left out is no sample of its successor's, and is not lost. */
static void successor(void **state)
{
	struct scene s;
	uint32_t n;

	begin(&s);
	activation(&s, UNITS);
	assert_true(some(activation(&s, 0), UNITS)); /* the gate is closed */
	n = record_nr(s.m);
	assert_int_equal(left_out(&s), n);
	record_free(s.m);
	s.m->hiber.turns = 0;
	assert_int_equal(record_make(s.m), 0);
	assert_int_equal(watched(&s), 0);
	touch(&s, 0, n / 2);
	assert_int_equal(s.m->hiber.gate[0].missed, 0);
	record_turn(s.m);
	assert_true(record_nr(s.m) >= n);
	end(&s);
}

/* Units that a stream passes are in the record. Units that were left out are not confirmed by it,
 * so they leave the record. A full record takes no more. */
static void streams(void **state)
{
	const uint32_t old = UNITS / 2;
	struct scene s;
	uint32_t n;

	begin(&s);
	activation(&s, old);
	n = left_out(&s);
	assert_true(some(n, old));
	record_passed(&s.p, 0, UNITS);
	record_passed(&s.p, 0, 0);
	assert_int_equal(record_nr(s.m), UNITS);
	assert_int_equal(s.m->sh->hiber.missed, 0);
	record_turn(s.m);
	assert_int_equal(record_nr(s.m), UNITS - n);
	record_passed(&s.p, 0, 2 * RECORD_MAX);
	assert_int_equal(record_nr(s.m), RECORD_MAX);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sample),    cmocka_unit_test(gates),   cmocka_unit_test(chains),
		cmocka_unit_test(successor), cmocka_unit_test(streams),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
