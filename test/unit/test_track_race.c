/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * zns/track against a process that writes, maps and unmaps between any two steps of a round: in
 * each final scan all pages are compared with what the copies of the rounds say. The steps are the
 * tracker's calls of ioctl(), and the places between its functions. Threads that do so without a
 * pause: soak_track.c.
 */
#include <sys/ioctl.h>

#include "track_mess.h"

/* ---- a process that does something when it is told ---- */

static void messy(const struct ends *e, void *arg)
{
	struct mess m;

	mess_begin(&m, (unsigned int)(uintptr_t)arg * 7919 + 1, 0);
	tell(e, 'r');
	for (;;) {
		for (char n = await(e); n; n--)
			once(&m);
		tell(e, 'd');
	}
}

static const struct target *beside; /* NULL: it does nothing at the tracker's calls */
static char does; /* number of steps at each of these calls */
/* calls: calls so far; each: number of calls from one step to the next */
static unsigned int calls, each;

/* Replaces libc's function. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (beside && ++calls % each == 0)
		ask(beside, does);
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/* Disturbances before, in and behind each step, and while pages are copied. */
static void round_in_a_mess(struct tracked *t)
{
	struct zns_spans half = { 0 };
	int ret;

	beside = &t->c;
	ret = zns_track_arm(t->k, &t->copy, &t->err);
	beside = NULL;
	must(ret);
	ask(&t->c, does);
	PATIENT(ret, zns_track_barrier(t->k, &t->err));
	must(ret);
	for (size_t i = 0; i < t->copy.nr; i++) {
		if (i % 16 == 0)
			ask(&t->c, does);
		half = (struct zns_spans){ .s = &t->copy.s[i], .nr = 1 };
		image_take(&t->im, &half);
	}
	ask(&t->c, does);
}

/* @rounds before each dump; how many clean pages there were. */
static size_t dumps(int rounds, int nr, unsigned int seed)
{
	struct target c = start(messy, (void *)(uintptr_t)seed);
	struct tracked tracked, *t = &tracked;
	size_t clean = 0;

	heard(&c);
	track(t, c);
	does = (char)(1 + seed % 3);
	each = 1 + seed * 3 % 16;
	for (int dump = 0; dump < nr; dump++) {
		for (int i = 0; i < rounds; i++)
			round_in_a_mess(t);
		freeze(&t->c);
		verify(t, dump < nr - 1);
		clean += t->clean;
		thaw(&t->c);
		ask(&t->c, does);
	}
	zns_track_free(t->k);
	t->k = NULL;
	freeze(&t->c);
	assert_false(smaps_say(t->c.pid, " uw"));
	untrack(t);
	return clean;
}

/* Otherwise there was nothing that could be wrong. */
static void enough(size_t clean)
{
	print_message("%zu clean pages\n", clean);
	assert_true(clean > (kernel.tracker == ZNS_TRACKER_UFFD ? 1000 : 0));
}

static void rounds_of_a_mess(void **state)
{
	size_t clean = 0;

	for (unsigned int seed = 1; seed <= TIMES(4); seed++)
		clean += dumps(3, 4, seed);
	enough(clean);
}

/* Incremental dumps: a tracker stays between them, without a round. */
static void no_rounds(void **state)
{
	enough(dumps(0, TIMES(20) + 1, 1));
}

static void slow_scan(void **state)
{
	bool holes = kernel.holes;

	kernel.holes = false;
	rounds_of_a_mess(state);
	kernel.holes = holes;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_of_a_mess),
		cmocka_unit_test(no_rounds),
		cmocka_unit_test(slow_scan),
	};

	return look_at_kernel() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
