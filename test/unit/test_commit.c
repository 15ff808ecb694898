/* SPDX-License-Identifier: GPL-2.0-only */
/* The helper's commit of a dump. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "../../zns/helper/dump/commit.c"

/* Nothing is committed over a connection on which a late answer may still arrive. */
static void lost_broker(void **state)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct helper h = { .broker_lost = true };
	struct dump d = { .h = &h };

	zns_fail(&h.broker_err, -ETIMEDOUT, "the broker showed no sign of life");
	assert_int_equal(broker_commit(&d, &err), -ETIMEDOUT);
	assert_string_equal(err.msg, "the broker showed no sign of life; the dump was dropped");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_broker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
