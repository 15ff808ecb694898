/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a program does with its memory while the kernel drops pages of it, or is about to: each case
 * without the rule that it is about, too, where wrong pages must show.
 */
#include <sys/rseq.h>

#include "mem_life.h"

/* A piece goes and comes back, and is written at once: free() and malloc(). */
static void replace_some(struct life *l)
{
	uint32_t nr = roll(&l->seed) % (PAGES - 128), n = 1 + roll(&l->seed) % 128;

	if (munmap(page_of(l, nr), n * PAGE) ||
	    mmap(page_of(l, nr), n * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		_exit(9);
	l->seq = l->seq % 0xffffff + 1;
	for (uint32_t i = nr; i < nr + n; i++) {
		page_write(page_of(l, i), i, l->seq);
		l->r->seq[l->self][i] = l->seq;
	}
}

/* A few pages are read-only at a time: each of them splits the area. */
static bool fence(struct life *l)
{
	static uint32_t at[4], turn;
	uint32_t *nr = &at[turn++ % 4];
	int ret = 0;

	if (*nr)
		ret |= mprotect(page_of(l, *nr), PAGE, PROT_READ | PROT_WRITE);
	*nr = 1 + roll(&l->seed) % (PAGES - 1);
	ret |= mprotect(page_of(l, *nr), PAGE, PROT_READ);
	return !ret;
}

/*
 * The kernel drops pages for us in a thread of the program's process, which gets its processor late
 * here, as on a busy machine. Meanwhile the program maps other memory in the place of what is to
 * go; or it splits the area: of what is behind the split the kernel tells once more.
 */
static void split(struct report *r, bool maps)
{
	struct life l = { .r = r, .seed = 5 };
	struct sched_param none = { 0 };
	cpu_set_t one;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	sched_setscheduler(0, SCHED_IDLE, &none); /* the kernel's thread inherits it */
	begin_life(&l);
	r->ready = 1;
	while (!r->go)
		usleep(1000);
	sched_setscheduler(0, SCHED_OTHER, &none);
	while (!r->stop) {
		uint32_t dice = roll(&l.seed) % 100;

		if (maps && dice < 2)
			replace_some(&l);
		else if (!maps && r->rounds % 4096 == 0) {
			usleep(1000); /* now that thread gets it */
			if (!fence(&l))
				_exit(9);
		}
		check(&l, roll(&l.seed) % PAGES);
		r->rounds++;
	}
	check_all(&l);
	r->done++;
	while (r->stop < 2)
		usleep(1000);
	check_all(&l);
	_exit(0);
}

static void starve(struct scene *s, bool maps, const char *without, uint64_t units)
{
	*s = (struct scene){ .r = common(sizeof(struct report)) };

	setenv("ZNS_MEM_WITHOUT", without, 1);
	shelf_open(&s->shelves, &s->store);
	s->pid = fork();
	if (!s->pid)
		split(s->r, maps);
	while (!s->r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(1), &s->store, &s->m, &s->err), 0);
	if (zns_mem_attach(s->m, s->pid, &s->err))
		fail_msg("%s", s->err.msg);
	s->r->go = 1;
	assert_int_equal(zns_mem_start(s->m, &s->err), 0);
	for (int i = 0; i < WAIT_S * 100 && evicted_units(s->m) < units && !s->r->wrong; i++)
		usleep(10000);
	unsetenv("ZNS_MEM_WITHOUT");
}

/* Without the rule there are wrong pages, as a rule at once. */
static void must_show(bool maps, const char *rule)
{
	for (int i = 0; i < 5; i++) {
		struct scene s;
		uint64_t wrong, units;

		starve(&s, maps, rule, 4000);
		wrong = s.r->wrong;
		units = evicted_units(s.m);
		kill(s.pid, SIGKILL);
		waitpid(s.pid, NULL, 0);
		zns_mem_leave(s.m);
		munmap(s.r, sizeof(*s.r));
		shelf_close(&s.shelves);
		print_message("without rule %s: %lu wrong after %lu units\n", rule,
			      (unsigned long)wrong, (unsigned long)units);
		if (wrong)
			return;
	}
	fail_msg("nothing is wrong without rule %s", rule);
}

/* From Linux 6.17 on the kernel tells again. */
static bool tells_again(void)
{
	struct utsname u;
	unsigned int major = 0, minor = 0;

	return !uname(&u) && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 17));
}

static __attribute__((unused)) void splitting(void **state)
{
	struct scene s;

	starve(&s, false, "99", 2000);
	finish(&s, 1, false);
	if (tells_again())
		must_show(false, "24");
}

static __attribute__((unused)) void replacing(void **state)
{
	struct scene s;

	starve(&s, true, "99", 3000);
	finish(&s, 1, false);
	must_show(true, "23");
}

/* Its pages are announced as going, and stay. */
static void free_all(struct report *r)
{
	struct life l = { .r = r, .seed = 5 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin_life(&l);
	r->ready = 1;
	while (!r->go)
		usleep(1000);
	if (madvise(l.mem, PAGES * PAGE, MADV_FREE))
		_exit(9);
	r->done = 1;
	for (;;)
		pause();
}

/* Bytes that are evicted when there is no room for any, half a second after they were announced. */
static uint64_t out_while_going(const char *without)
{
	struct scene s = { .r = common(sizeof(struct report)) };
	uint64_t before;

	setenv("ZNS_MEM_WITHOUT", without, 1);
	shelf_open(&s.shelves, &s.store);
	s.pid = fork();
	if (!s.pid)
		free_all(s.r);
	while (!s.r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(6), &s.store, &s.m, &s.err), 0);
	assert_int_equal(zns_mem_attach(s.m, s.pid, &s.err), 0);
	assert_int_equal(zns_mem_start(s.m, &s.err), 0);
	await_units(&s, 16); /* so the area is registered */
	s.r->go = 1;
	while (!s.r->done)
		usleep(1000);
	usleep(300000); /* no unit of it is on its way */
	before = evicted_units(s.m);
	zns_mem_limit(s.m, MIB(1));
	usleep(1500000);
	before = evicted_units(s.m) - before;
	unsetenv("ZNS_MEM_WITHOUT");
	kill(s.pid, SIGKILL);
	waitpid(s.pid, NULL, 0);
	zns_mem_leave(s.m);
	munmap(s.r, sizeof(*s.r));
	shelf_close(&s.shelves);
	return before;
}

static __attribute__((unused)) void going(void **state)
{
	uint64_t with = out_while_going("99"), without = out_while_going("22");

	print_message("%lu units are evicted of memory that is being freed, without the rule %lu\n",
		      (unsigned long)with, (unsigned long)without);
	assert_int_equal(with, 0);
	assert_true(without > 16);
}

/*
 * A program whose main thread has its rseq area where its memory is evicted, as in a static one:
 * the kernel writes there whenever the thread comes from a stop.
 */
static void move_rseq(void *to)
{
	char *old = (char *)__builtin_thread_pointer() + __rseq_offset;

	if (!__rseq_size) /* a kernel without it */
		return;
	if (syscall(SYS_rseq, old, 32, 1, RSEQ_SIG)) /* 1: unregister */
		_exit(10);
	memset(to, 0, 32);
	if (syscall(SYS_rseq, to, 32, 0, RSEQ_SIG))
		_exit(11);
}

static void restart(struct report *r)
{
	struct life l = { .r = r, .seed = 5 };
	uint8_t *own;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin_life(&l);
	own = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(own, 1, MIB(1));
	move_rseq(own + MIB(1) / 2);
	r->ready = 1;
	while (!r->stop) {
		replace_some(&l);
		check(&l, roll(&l.seed) % PAGES);
		usleep(2000);
		r->rounds++;
	}
	check_all(&l);
	r->done++;
	while (r->stop < 2)
		usleep(1000);
	_exit(0);
}

static void restarting(void **state)
{
	struct scene s = { .r = common(sizeof(struct report)) };

	shelf_open(&s.shelves, &s.store);
	s.pid = fork();
	if (!s.pid)
		restart(s.r);
	while (!s.r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(1), &s.store, &s.m, &s.err), 0);
	if (zns_mem_attach(s.m, s.pid, &s.err))
		fail_msg("%s", s.err.msg);
	assert_int_equal(zns_mem_start(s.m, &s.err), 0);
	await_units(&s, 1000);
	finish(&s, 1, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifndef __SANITIZE_ADDRESS__ /* minutes; and it has memory of its own */
		cmocka_unit_test(splitting), cmocka_unit_test(replacing), cmocka_unit_test(going),
#endif
		cmocka_unit_test(restarting),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
