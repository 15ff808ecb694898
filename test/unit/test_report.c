/* SPDX-License-Identifier: GPL-2.0-only */
/* Pictures of `znsctl report`: what is drawn lies within them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "../../zns/report/report_groups.c"

static double widest;

void svg_rect(FILE *f, const char *class, double x, double y, double w, double h)
{
	if (!strcmp(class, "k1"))
		widest = zns_max(widest, w);
}

void svg_begin(FILE *f, const char *id, double height, const char *title, const char *text)
{
}

void svg_end(FILE *f)
{
}

void report_legend(FILE *f, const char *colour, const char *mark, const char *text)
{
}

void report_time(FILE *f, int64_t ns)
{
}

void html_table(FILE *f, const char *caption, const char *columns)
{
}

void html_table_end(FILE *f)
{
}

void html_number_cell(FILE *f, uint64_t n)
{
}

void html_size_cell(FILE *f, uint64_t n)
{
}

static void bars_of_resets(void **state)
{
	struct ctl_group g[] = { { .resets = 3 }, { .resets = 5000 }, { .resets = 40 } };
	struct ctl_view v = { .groups = g, .nr_groups = ZNS_ARRAY_SIZE(g) };
	const double room = WIDE - MIDDLE - 40 - RIGHT;
	FILE *f = fopen("/dev/null", "w");

	assert_non_null(f);
	picture(f, &v);
	assert_true(widest > room - 0.1 && widest < room + 0.1);
	widest = 0;
	v.nr_groups = 1;
	picture(f, &v);
	assert_true(widest < room / 2); /* few resets are a short bar */
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bars_of_resets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
