/* SPDX-License-Identifier: GPL-2.0-only */
/* A checkpoint by the first digits of its id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "zns/client.h"

static const char *const ids[] = {
	"2bd0d7b8-c027-4909-a686-fcdbf1f33d59", "2bd0d7b8-c027-4909-a686-fcdbf1f33d60",
	"2bd0ffff-0000-4000-8000-000000000001", "2bd0eeee-0000-4000-8000-000000000002",
	"2bd0dddd-0000-4000-8000-000000000003", "cafe0000-0000-4000-8000-000000000004",
};

static ZnsPb__Response ls = ZNS_PB__RESPONSE__INIT;

static int set_up(void **state)
{
	static ZnsPb__Checkpoint c[ZNS_ARRAY_SIZE(ids)], *list[ZNS_ARRAY_SIZE(ids)];
	static uint8_t raw[ZNS_ARRAY_SIZE(ids)][ZNS_UUID_LEN];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(ids); i++) {
		zns_pb__checkpoint__init(&c[i]);
		assert_int_equal(zns_uuid_parse(ids[i], raw[i]), 0);
		c[i].id = (ProtobufCBinaryData){ ZNS_UUID_LEN, raw[i] };
		list[i] = &c[i];
	}
	ls.checkpoints = list;
	ls.n_checkpoints = ZNS_ARRAY_SIZE(ids);
	return 0;
}

static void found(void **state)
{
	static const struct {
		const char *text;
		size_t which;
	} t[] = {
		{ "cafe", 5 },
		{ "CAFE", 5 },
		{ "cafe0000-", 5 },
		{ "cafe00000000", 5 },
		{ "2bd0f", 2 },
		{ "2bd0ee", 3 },
		{ "2bd0d7b8-c027-4909-a686-fcdbf1f33d6", 1 },
		{ "2bd0d7b8c0274909a686fcdbf1f33d59", 0 },
		{ "2bd0d7b8-c027-4909-a686-fcdbf1f33d59", 0 },
	};
	const ZnsPb__Checkpoint *c;

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct zns_err err = ZNS_ERR_INIT;

		assert_int_equal(zns_find_checkpoint(&ls, t[i].text, &c, &err), 0);
		assert_ptr_equal(c, ls.checkpoints[t[i].which]);
	}
}

static void not_found(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *says;
	} t[] = {
		{ "", -ENOENT, "no checkpoint" },
		{ "beef", -ENOENT, "no checkpoint beef" },
		{ "shop", -ENOENT, "no checkpoint shop" },
		{ "c", -ENOENT, "4 digits" },
		{ "caf", -ENOENT, "4 digits" },
		{ "bee", -ENOENT, "no checkpoint" },
		{ "-", -ENOENT, "no checkpoint" },
		{ "cafe0000-0000-4000-8000-0000000000040", -ENOENT, "no checkpoint" },
		{ "2bd0", -ENOTUNIQ, "5 checkpoints have an id that begins with 2bd0" },
		{ "2bd0d7b8", -ENOTUNIQ,
		  "2bd0d7b8-c027-4909-a686-fcdbf1f33d59, 2bd0d7b8-c027-4909-a686-fcdbf1f33d60" },
		{ "2bd0", -ENOTUNIQ, "and 1 more" },
	};
	const ZnsPb__Checkpoint *c = ls.checkpoints[0];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(t); i++) {
		struct zns_err err = ZNS_ERR_INIT;

		assert_int_equal(zns_find_checkpoint(&ls, t[i].text, &c, &err), t[i].code);
		assert_non_null(strstr(err.msg, t[i].says));
		assert_null(strchr(err.msg, '\n'));
		assert_null(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(found), cmocka_unit_test(not_found) };

	return cmocka_run_group_tests_name("find", tests, set_up, NULL);
}
