/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/track by soft-dirty bits. Whether they are set is the kernel's part (test_track on others);
 * what follows from those that are not set is ours, also where a kernel never sets one. */
#include "track_fixture.h"

#define BASE ((char *)0x200000000000UL)
#define NR 64 /* pages */

static void idle(const struct ends *e, void *arg)
{
	char *m = mmap(BASE, NR * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (m == MAP_FAILED)
		_exit(2);
	memset(m, 1, NR * PAGE);
	tell(e, 'r');
	await(e);
}

static size_t nr_in(const struct zns_spans *l)
{
	size_t nr = 0;

	for (size_t i = 0; i < NR; i++)
		nr += zns_spans_has(l, (uintptr_t)BASE + i * PAGE);
	return nr;
}

/* Before a round every page is to be copied, and after it none that was not written. */
static void copies_count(void **state)
{
	const struct zns_span area = { (uintptr_t)BASE, (uintptr_t)BASE + NR * PAGE };
	struct target c = start(idle, NULL);
	struct tracked tracked = { .c = c }, *t = &tracked;
	int ret;

	heard(&c);
	PATIENT(ret, zns_track_new(c.pid, &kernel, &t->k, &t->err));
	must(ret);
	PATIENT(ret, zns_track_arm(t->k, &t->copy, &t->err));
	must(ret);
	assert_int_equal(nr_in(&t->copy), NR);
	freeze(&c);
	must(zns_track_final(t->k, &area, 1, false, &t->stale, &t->present, &t->guards, &t->err));
	assert_int_equal(nr_in(&t->stale), 0);
	assert_int_equal(nr_in(&t->present), 0);
	zns_track_free(t->k);
	zns_spans_free(&t->copy);
	zns_spans_free(&t->stale);
	zns_spans_free(&t->present);
	zns_spans_free(&t->guards);
	end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_count),
	};

	/* no page frame is the zero page's: the pages here are not of zeroes */
	kernel = (struct zns_track_kernel){ .tracker = ZNS_TRACKER_SOFT_DIRTY,
					    .zero_pfn = UINT64_MAX };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
