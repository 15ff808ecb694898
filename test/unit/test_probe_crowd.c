/* SPDX-License-Identifier: GPL-2.0-only */
/* The probe's largest set of zones that are written at once: no element behind it is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../zns/tools/probe/crowd.c"

#define ZONES (PROBE_WRITE_BATCH + 1)

static uint32_t asked[PROBE_WRITE_BATCH];

int __wrap_probe_write_units(struct probe *p, const uint32_t *zones, const uint32_t *units,
			     uint32_t nr, double *ns, struct zns_err *err);
int __wrap_probe_write_units(struct probe *p, const uint32_t *zones, const uint32_t *units,
			     uint32_t nr, double *ns, struct zns_err *err)
{
	assert_int_equal(nr, PROBE_WRITE_BATCH);
	memcpy(asked, units, sizeof(asked));
	*ns = 1e9;
	return 0;
}

/* Zone 0 has a quick group of its own, and is not in the set. */
static void largest_set(void **state)
{
	uint32_t group[ZONES] = { 0 }, mibps[2] = { 1000, 100 };
	struct zns_probe_map map = { .zone_group = group, .group_write_mibps = mibps };
	struct probe p = { .map = &map, .usual_mibps = 1000, .unit = (uint32_t)MIB(1) };
	struct zns_err err = ZNS_ERR_INIT;
	struct probe_crowd c = { .nr = PROBE_WRITE_BATCH };
	double times = 0;

	for (uint32_t i = 0; i < c.nr; i++)
		group[c.zone[i] = i + 1] = 1;
	assert_int_equal(quickest(&p, &c), 100);
	assert_int_equal(write_promised(&p, &c, 50, &times, &err), 0);
	for (uint32_t i = 0; i < c.nr; i++)
		assert_int_equal(asked[i], 50);
	assert_true(times > 1.99 && times < 2.01); /* 50 MiB in 1 s, at a promise of 100 MiB/s */
	c.nr = 1;
	c.zone[1] = 0;
	assert_int_equal(quickest(&p, &c), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(largest_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
