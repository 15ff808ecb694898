/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The gate between a lazy-pages daemon and its helper. Closing it waits for whoever is inside.
 * Nobody enters while it is closed, or with a read that is stale. Neither side waits for the other
 * after that has ended.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "zns-gate.h"

static struct zw_gate gate;
static int sk[2];
static atomic_int done; /* 1: true was returned, 2: false */

static void *shut(void *arg)
{
	done = zw_gate_shut(&gate, sk[0]) ? 1 : 2;
	return NULL;
}

static void *enter(void *arg)
{
	done = zw_gate_enter(&gate, 3, sk[0]) ? 1 : 2;
	return NULL;
}

static int setup(void **state)
{
	gate = (struct zw_gate){ 0 };
	done = 0;
	return socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sk);
}

static void waits_for_those_inside(void **state)
{
	pthread_t t;

	assert_true(zw_gate_enter(&gate, 3, sk[0]));
	assert_int_equal(pthread_create(&t, NULL, shut, NULL), 0);
	while (!__atomic_load_n(&gate.shut, __ATOMIC_SEQ_CST))
		sched_yield();
	assert_int_equal(done, 0);
	zw_gate_leave(&gate);
	pthread_join(t, NULL);
	assert_int_equal(done, 1);
	close(sk[0]);
	close(sk[1]);
}

static void nobody_enters(void **state)
{
	pthread_t t;

	assert_true(zw_gate_shut(&gate, sk[0]));
	assert_int_equal(pthread_create(&t, NULL, enter, NULL), 0);
	for (int n = 0; n < 1000; n++)
		sched_yield();
	assert_int_equal(done, 0);
	gate.stale[3] = 1;
	zw_gate_open(&gate);
	pthread_join(t, NULL);
	assert_int_equal(done, 2); /* it was marked before the gate was opened */
	assert_int_equal(gate.inside, 0);
	assert_true(zw_gate_enter(&gate, 4, sk[0]));
	zw_gate_leave(&gate);
	close(sk[0]);
	close(sk[1]);
}

/* The other end of the socket is closed. */
static void the_other_has_ended(void **state)
{
	gate.inside = 1; /* a thread was inside */
	close(sk[1]);
	assert_false(zw_gate_shut(&gate, sk[0]));
	assert_false(zw_gate_enter(&gate, 4, sk[0]));
	close(sk[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(waits_for_those_inside, setup),
		cmocka_unit_test_setup(nobody_enters, setup),
		cmocka_unit_test_setup(the_other_has_ended, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
