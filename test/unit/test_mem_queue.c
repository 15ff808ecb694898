/* SPDX-License-Identifier: GPL-2.0-only */
/* The queue of a pager's threads: no fault is lost, in which order they are answered, and which thread does what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../../zns/memory/engine/mem.h"

#define MANY 3000U /* more than fit at first, so the circle grows twice */
#define LAST 64U /* so many faults are compared with a new one */

static struct queue q;
static struct proc p;

static int begin(void **state)
{
	q = (struct queue){ .led = true }; /* another thread reads events */
	p = (struct proc){ 0 };
	return pthread_mutex_init(&q.lock, NULL) || pthread_cond_init(&q.more, NULL);
}

static int end(void **state)
{
	free(q.faults.f);
	free(q.ahead.f);
	return pthread_mutex_destroy(&q.lock) || pthread_cond_destroy(&q.more);
}

static void push(unsigned int n, enum fault_kind kind)
{
	fault_push(&q, &p, (uint64_t)n * UNIT, kind);
}

static void pops(unsigned int n, enum fault_kind kind)
{
	struct fault f;

	assert_int_equal(queue_next(&q, &f), ANSWER);
	assert_ptr_equal(f.p, &p);
	assert_int_equal(f.addr, (uint64_t)n * UNIT);
	assert_int_equal(f.kind, kind);
}

/* Two come for each that goes, so the circle wraps, and grows when it has wrapped. */
static void in_order(void **state)
{
	unsigned int in = 0, out = 0;

	while (in < MANY) {
		push(in++, FAULT_MISSING);
		push(in++, FAULT_WRITE);
		pops(out, out % 2 ? FAULT_WRITE : FAULT_MISSING);
		out++;
	}
	for (; out < in; out++)
		pops(out, out % 2 ? FAULT_WRITE : FAULT_MISSING);
	assert_int_equal(q.faults.nr, 0);
	assert_int_equal(p.refs, in);
}

static void asked_again(void **state)
{
	for (unsigned int n = 0; n < LAST; n++)
		push(n, FAULT_MISSING);
	push(0, FAULT_MISSING); /* as the oldest of the last ones */
	push(LAST - 1, FAULT_MISSING);
	assert_int_equal(q.faults.nr, LAST);
	assert_int_equal(p.refs, LAST);
	push(0, FAULT_WRITE); /* of another kind */
	assert_int_equal(q.faults.nr, LAST + 1);
	push(0, FAULT_MISSING); /* too long ago */
	assert_int_equal(q.faults.nr, LAST + 2);
}

/* Units that nobody waits for come last, and two threads are kept from fetching them. */
static void fetches(void **state)
{
	struct fault f;

	for (unsigned int n = 0; n < SERVERS; n++)
		push(n, FETCH);
	push(0, FETCH); /* these are not compared */
	assert_int_equal(q.ahead.nr, SERVERS + 1);
	push(9, FAULT_MISSING);
	pops(9, FAULT_MISSING);
	for (unsigned int n = 0; n < SERVERS - 2; n++)
		pops(n, FETCH);
	assert_int_equal(q.fetching, SERVERS - 2);
	push(10, FAULT_STRAY);
	pops(10, FAULT_STRAY); /* nor does it count as a fetch */
	f = (struct fault){ .kind = FAULT_STRAY };
	queue_answered(&q, &f);
	assert_int_equal(q.fetching, SERVERS - 2);
	f.kind = FETCH;
	queue_answered(&q, &f);
	pops(SERVERS - 2, FETCH);
	queue_answered(&q, &f);
	queue_answered(&q, &f);
	assert_int_equal(q.fetching, 0);
}

static void who_reads(void **state)
{
	struct fault f;

	q.led = false;
	push(1, FAULT_MISSING);
	assert_int_equal(queue_next(&q, &f), READ_EVENTS); /* before any fault */
	assert_true(q.led);
	assert_false(reader_hand_on(&q)); /* nobody is idle */
	q.idle = 1;
	assert_false(reader_hand_on(&q)); /* the fault comes first */
	assert_true(q.led);
	pops(1, FAULT_MISSING);
	assert_true(reader_hand_on(&q));
	assert_false(q.led);
	q.led = true;
	q.end = true;
	assert_false(reader_hand_on(&q));
	assert_true(q.led);
}

/* At the end what waits is still answered, and nobody reads events any more. */
static void ends(void **state)
{
	struct fault f;

	push(1, FAULT_MISSING);
	q.led = false;
	q.end = true;
	pops(1, FAULT_MISSING);
	assert_int_equal(queue_next(&q, &f), ENDED);
	assert_false(q.led);
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, begin, end)
	const struct CMUnitTest tests[] = {
		T(in_order), T(asked_again), T(fetches), T(who_reads), T(ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
