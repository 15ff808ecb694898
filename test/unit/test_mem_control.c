/* SPDX-License-Identifier: GPL-2.0-only */
/* The pager's answers to requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../zns/memory/pager/control.c"

int quiesce_open(struct pager *p, struct zns_err *err)
{
	return 0;
}

void quiesce_close(struct pager *p)
{
}

int __wrap_zns_mem_status(struct zns_mem *m, ZnsPb__MemoryStatus *st);
int __wrap_zns_mem_status(struct zns_mem *m, ZnsPb__MemoryStatus *st)
{
	return -ENOMEM;
}

static void no_memory_for_a_status(void **state)
{
	ZnsPb__MemoryRequest q = ZNS_PB__MEMORY_REQUEST__INIT;
	ZnsPb__MemoryAnswer a = ZNS_PB__MEMORY_ANSWER__INIT;
	ZnsPb__MemoryStatus st = ZNS_PB__MEMORY_STATUS__INIT;
	struct zns_err err = ZNS_ERR_INIT;
	struct pager p = { 0 };

	q.op = ZNS_PB__MEMORY_OP__MEMORY_STATUS;
	assert_int_equal(act(&p, &q, &a, &st, &err), -ENOMEM);
	assert_string_equal(err.msg, "no memory for an answer");
	assert_null(a.status);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_memory_for_a_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
