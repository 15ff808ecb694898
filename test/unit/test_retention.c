/* SPDX-License-Identifier: GPL-2.0-only */
/* Rules of zns/retention.h: which checkpoints are due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "zns/retention.h"

/*
 * @spec: a letter for each checkpoint, oldest first: '.', 'p' pinned, 'c' built on the one before
 * it, 'C' that and pinned, 'm' a pre-dump, 'n' one built on the one before it, 'e' something else
 * is built on it; @want: 'x' due. Ages count down to 0 s.
 */
static void rule(const char *spec, uint32_t keep, uint64_t ttl_s, const char *want)
{
	struct zns_retained v[32] = { 0 };
	size_t n = strlen(spec), due = 0;
	char got[33] = "";

	for (size_t i = 0; i < n; i++) {
		v[i].created_ns = 1000000000000ll - (int64_t)(n - 1 - i) * 1000000000;
		v[i].pinned = spec[i] == 'p' || spec[i] == 'C';
		v[i].parent = strchr("cCn", spec[i]) ? i : 0;
		v[i].pre_dump = spec[i] == 'm' || spec[i] == 'n';
		v[i].needed = spec[i] == 'e';
	}
	due = zns_retention(v, n, keep, ttl_s, 1000000000000ll);
	for (size_t i = 0; i < n; i++) {
		got[i] = v[i].due ? 'x' : '.';
		due -= v[i].due;
	}
	assert_string_equal(got, want);
	assert_int_equal(due, 0);
}

/* ---- retention ---- */

static void retention(void **state)
{
	(void)state;
	rule("", 1, 1, "");
	rule(".....", 0, 0, ".....");
	rule(".....", 2, 0, "xxx..");
	rule(".....", 5, 0, ".....");
	rule("p....", 2, 0, ".xx..");
	rule("...pp", 2, 0, "x....");
	rule("ppppp", 1, 1, ".....");
	rule(".....", 0, 3, "xx..."); /* ages 4 3 2 1 0 */
	rule(".....", 4, 3, "xx...");
	rule(".....", 1, 3, "xxxx.");
	/* The newest stays, however old. */
	rule("..ppp", 0, 1, "x....");
	rule(".ppp", 1, 1, "....");
	/* A checkpoint that stays keeps all of its parents; a chain is removed as a whole. */
	rule(".cccc", 1, 0, ".....");
	rule(".ccc.", 1, 0, "xxxx.");
	rule(".cc.c.", 2, 0, "xxx...");
	rule("..Cc..", 1, 0, "x..xx.");
	rule(".c..", 1, 2, "xxx.");
	rule("e...", 1, 0, ".xx.");
	/* No pre-dump is worth the last checkpoint that can be restored. */
	rule("mnc", 1, 0, "...");
	rule("mncmn", 1, 0, ".....");
	rule("mncmnc", 1, 0, "xxx...");
	rule(".m", 1, 1, "..");
	rule("m", 1, 0, ".");
	/* Made in the future, by a clock that was wrong: not older than anything. */
	struct zns_retained v[2] = { { .created_ns = 5 }, { .created_ns = 9 } };

	assert_int_equal(zns_retention(v, 2, 0, 1, 3), 0);
	assert_int_equal(zns_retention(v, 2, 0, 1, INT64_MAX), 1);
}

/* The rule counts only the container's own checkpoints, without those that have pages only. A
 * checkpoint that another one is built on stays. */
static void rule_of_a_device(void **state)
{
	static const struct {
		const char *container;
		int parent;
		bool pages_only, in_use;
	} spec[] = { { "a", -1, 0, 0 }, { "b", 0, 0, 0 },  { "a", -1, 0, 0 },
		     { "a", -1, 0, 1 }, { "a", -1, 0, 0 }, { "a", 4, 1, 0 },
		     { "a", -1, 1, 0 }, { "b", -1, 0, 0 }, { "a", 2, 0, 0 } };
	enum { NR = sizeof(spec) / sizeof(*spec) };
	ZnsPb__Retention rule_a = ZNS_PB__RETENTION__INIT;
	uint8_t ids[NR][16] = { 0 };
	ZnsPb__Checkpoint c[NR];
	struct zns_ruled v[NR];
	char got[NR + 1] = "";

	(void)state;
	for (int i = 0; i < NR; i++) {
		ids[i][0] = (uint8_t)(i + 1);
		zns_pb__checkpoint__init(&c[i]);
		c[i].id = (ProtobufCBinaryData){ 16, ids[i] };
		c[i].container = (char *)spec[i].container;
		c[i].created_ns = i;
		c[i].pages_only = spec[i].pages_only;
		c[i].has_parent = spec[i].parent >= 0;
		if (c[i].has_parent)
			c[i].parent = (ProtobufCBinaryData){ 16, ids[spec[i].parent] };
		v[i] = (struct zns_ruled){ .c = &c[i], .in_use = spec[i].in_use };
	}
	rule_a.container = (char *)"a";
	rule_a.keep = 1;
	assert_int_equal(zns_retention_rule(&rule_a, v, NR, 100), 0);
	for (int i = 0; i < NR; i++)
		got[i] = v[i].due ? 'x' : v[i].held ? 'h' : '.';
	assert_string_equal(got, "h.hhh....");
	c[8].has_parent = c[5].has_parent = false;
	v[3].in_use = false;
	assert_int_equal(zns_retention_rule(&rule_a, v, NR, 100), 3);
	for (int i = 0; i < NR; i++)
		got[i] = v[i].due ? 'x' : v[i].held ? 'h' : '.';
	assert_string_equal(got, "h.xxx....");
}

/* An import that was not named on this machine removes no other checkpoint, and no rule applies to
 * it. */
static void a_claimed_name(void **state)
{
	ZnsPb__Retention rule_a = ZNS_PB__RETENTION__INIT;
	ZnsPb__Origin stranger = ZNS_PB__ORIGIN__INIT;
	uint8_t ids[4][16] = { 0 };
	ZnsPb__Checkpoint c[4];
	struct zns_ruled v[4];

	(void)state;
	stranger.has_claimed = stranger.claimed = 1;
	for (int i = 0; i < 4; i++) {
		ids[i][0] = (uint8_t)(i + 1);
		zns_pb__checkpoint__init(&c[i]);
		c[i].id = (ProtobufCBinaryData){ 16, ids[i] };
		c[i].container = (char *)"a";
		c[i].origin = i % 2 ? &stranger : NULL;
		v[i] = (struct zns_ruled){ .c = &c[i] };
	}
	rule_a.container = (char *)"a";
	rule_a.keep = 2;
	assert_int_equal(zns_retention_rule(&rule_a, v, 4, 100), 0);
	rule_a.keep = 1;
	assert_int_equal(zns_retention_rule(&rule_a, v, 4, 100), 1);
	assert_true(v[0].due);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(retention),
		cmocka_unit_test(rule_of_a_device),
		cmocka_unit_test(a_claimed_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
