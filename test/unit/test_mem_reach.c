/* SPDX-License-Identifier: GPL-2.0-only */
/* What programs do with their memory while most of it is on zones: each page is right afterwards.
 */
#include <spawn.h>
#include <sys/rseq.h>
#include "mem_reach.h"

#define MANY 2048U /* pages: 8 MiB */
#define MOST (MANY * PAGE / 2)

/* ---- programs that execute others ---- */

/* The executed program: it has memory of its own, and reports when all of it is right. */
static void executed(void)
{
	struct talk *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED, TALK_FD, 0);
	uint8_t *mem;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (t == MAP_FAILED)
		_exit(9);
	mem = fresh(MANY);
	fill_pages(mem, MANY, 3);
	t->pid = getpid();
	while (t->ask != (uint32_t)getpid())
		usleep(1000);
	check_pages(t, mem, MANY, 3);
	t->other++;
	t->ask = 0;
	for (;;)
		pause();
}

static char *const again[] = { (char *)"/proc/self/exe", (char *)"executed", NULL };

static void executes(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	pid_t pid;

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	if (!fork()) /* a child with its parent's memory */
		execv(again[0], again);
	reach(t, 2);
	pid = vfork();
	if (!pid) {
		execv(again[0], again);
		_exit(9);
	}
	reach(t, 3);
	if (posix_spawn(&pid, again[0], NULL, NULL, again, NULL))
		t->wrong++;
	reach(t, 4);
	check_pages(t, mem, MANY, 1);
	reach(t, 5);
	execv(again[0], again);
}

static void executing(void **state)
{
	static struct play s;

	play_begin(&s, executes);
	play_attach(&s);
	for (uint32_t step = 2; step <= 6; step++) {
		if (step == 5) {
			do_step(&s, 5);
			continue;
		}
		await_bytes_out(&s, s.pid, MOST); /* of the one that is about to do it */
		s.t->pid = 0;
		tell(&s, step);
		for (int i = 0; i < WAIT_S * 100 && !s.t->pid; i++)
			usleep(10000);
		assert_int_not_equal(s.t->pid, 0);
		/* the new program is extended, too */
		await_bytes_out(&s, s.t->pid, MOST);
		s.t->ask = (uint32_t)s.t->pid;
		for (int i = 0; i < WAIT_S * 100 && s.t->ask; i++)
			usleep(10000);
		assert_int_equal(s.t->ask, 0);
	}
	assert_int_equal(s.t->other, 4);
	play_end(&s);
}

/* ---- locks ---- */

static void locks(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	uint8_t there[MANY];

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	if (mlock(mem, MANY * PAGE / 4))
		t->wrong++;
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
	if (mincore(mem, MANY * PAGE / 4, there))
		t->wrong++;
	for (uint32_t i = 0; i < MANY / 4; i++)
		t->wrong += !(there[i] & 1);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		t->wrong++;
	reach(t, 3);
	if (mincore(mem, MANY * PAGE, there))
		t->wrong++;
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !(there[i] & 1);
	check_pages(t, mem, MANY, 1);
	fill_pages(mem, MANY, 2);
	munlockall();
	/* in memory only when it is touched, and then for good */
	if (mlock2(mem, PAGE * MANY / 2, MLOCK_ONFAULT))
		t->wrong++;
	reach(t, 4);
	check_pages(t, mem, MANY, 2);
	reach(t, 5);
}

static __attribute__((unused)) void locking(void **state)
{
	static struct play s;
	ZnsPb__MemoryStatus st;
	uint64_t locked;
	int tries = 0;

	play_begin(&s, locks);
	play_attach(&s);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 2);
	await_bytes_out(&s, 0, MOST);
	do { /* a look at all areas is under way, perhaps */
		status(s.m, &st);
		locked = st.skipped->locked;
		zns_mem_status_free(&st);
		usleep(1000);
	} while (locked < MANY * PAGE / 4 && tries++ < 10000);
	assert_true(locked >= MANY * PAGE / 4);
	do_step(&s, 3);
	usleep(300000); /* the evictor looks some times */
	assert_int_equal(bytes_out(&s, 0), 0);
	do_step(&s, 4);
	await_bytes_out(&s, 0, MOST / 2);
	do_step(&s, 5);
	play_end(&s);
}

/* ---- areas of all kinds ---- */

#define WIDE GIB(64)

static void areas(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *wide = fresh(WIDE / PAGE), *none;

	fill_pages(mem, MANY, 1);
	for (size_t i = 0; i < 1000; i++) /* one page in each 64 MiB */
		page_write((uint64_t *)(wide + i * MIB(64) + (i % 16) * PAGE), (uint32_t)i, 1);
	none = mmap(NULL, GIB(1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(none + MIB(1), MIB(1), PROT_READ | PROT_WRITE);
	fill_pages(none + MIB(1), MIB(1) / PAGE, 5);
	reach(t, 1);
	/* all that is out cannot be reached now, or only be read */
	if (mprotect(mem, MANY * PAGE / 2, PROT_NONE) ||
	    mprotect(mem + MANY * PAGE / 2, MANY * PAGE / 2, PROT_READ) ||
	    mprotect(none + MIB(1), MIB(1), PROT_NONE))
		t->wrong++;
	for (size_t i = MANY / 2; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), (uint32_t)i, 1);
	reach(t, 2);
	/* some of it again, in stripes */
	for (size_t i = 0; i < MANY; i += 64)
		mprotect(mem + i * PAGE, 32 * PAGE, PROT_READ | PROT_WRITE);
	mprotect(none + MIB(1), MIB(1), PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < MANY; i += 64)
		for (size_t k = i; k < i + 32; k++) {
			t->wrong += !page_is((uint64_t *)(mem + k * PAGE), (uint32_t)k, 1);
			page_write((uint64_t *)(mem + k * PAGE), (uint32_t)k, 2);
		}
	check_pages(t, none + MIB(1), MIB(1) / PAGE, 5);
	reach(t, 3);
	if (mprotect(mem, MANY * PAGE, PROT_READ | PROT_WRITE))
		t->wrong++;
	for (size_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * PAGE), (uint32_t)i,
				     i % 64 < 32 ? 2 : 1);
	for (size_t i = 0; i < 1000; i++)
		t->wrong += !page_is((uint64_t *)(wide + i * MIB(64) + (i % 16) * PAGE),
				     (uint32_t)i, 1);
	reach(t, 4);
}

static void protecting(void **state)
{
	static struct play s;

	play_begin(&s, areas);
	play_attach(&s);
	await_bytes_out(&s, 0, MOST + 900 * PAGE);
	do_step(&s, 2);
	usleep(200000);
	do_step(&s, 3);
	await_out(&s, 20);
	do_step(&s, 4);
	play_end(&s);
}

/* ---- advice ---- */

static void advised(struct talk *t)
{
	uint8_t *mem = fresh(MANY + 512), *huge;
	uint8_t *freed = fresh(MANY);

	huge = mem + (MIB(2) - (uintptr_t)mem % MIB(2)) % MIB(2);
	madvise(huge, MANY * PAGE, MADV_HUGEPAGE);
	fill_pages(huge, MANY, 1);
	fill_pages(freed, MANY, 1);
	reach(t, 1);
	check_pages(t, huge, MANY, 1);
	madvise(huge, MANY * PAGE, 25); /* MADV_COLLAPSE: may fail */
	check_pages(t, huge, MANY, 1);
	madvise(huge, MANY * PAGE, MADV_COLD);
	reach(t, 2);
	madvise(huge, MANY * PAGE, MADV_PAGEOUT);
	/* from now on each page is as it was, or zeroes, until it is written */
	madvise(freed, MANY * PAGE / 2, MADV_FREE);
	for (uint32_t i = 0; i < MANY / 4; i++)
		page_write((uint64_t *)(freed + i * PAGE), i, 2);
	reach(t, 3);
	madvise(huge, MANY * PAGE / 2, MADV_COLD);
	madvise(huge, MANY * PAGE / 2, MADV_POPULATE_WRITE);
	check_pages(t, huge, MANY, 1);
	check_pages(t, freed, MANY / 4, 2);
	for (uint32_t i = MANY / 4; i < MANY; i++) {
		uint64_t *p = (uint64_t *)(freed + i * PAGE);

		t->wrong += !page_is(p, i, 1) && (i >= MANY / 2 || !page_is(p, i, 0));
	}
	madvise(huge, MANY * PAGE, MADV_DONTNEED);
	madvise(huge, MANY * PAGE, MADV_HUGEPAGE);
	for (uint32_t i = 0; i < MANY; i++)
		t->wrong += !page_is((uint64_t *)(huge + i * PAGE), i, 0);
	fill_pages(huge, MANY, 4);
	reach(t, 4);
	check_pages(t, huge, MANY, 4);
	reach(t, 5);
}

static void advising(void **state)
{
	static struct play s;

	play_begin(&s, advised);
	play_attach(&s);
	await_bytes_out(&s, 0, 2 * MOST);
	do_step(&s, 2);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 3);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 4);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 5);
	play_end(&s);
}

/* ---- thousands of areas ---- */

#define AREAS 6000U
#define AREA_PAGES 17U

static void many(struct talk *t)
{
	uint8_t *mem = fresh((size_t)AREAS * (AREA_PAGES + 1));

	for (size_t i = 0; i < AREAS; i++) {
		uint8_t *at = mem + i * (AREA_PAGES + 1) * PAGE;

		page_write((uint64_t *)at, (uint32_t)i, 1);
		page_write((uint64_t *)(at + (AREA_PAGES - 1) * PAGE), (uint32_t)i, 2);
		mprotect(at + AREA_PAGES * PAGE, PAGE, PROT_READ);
	}
	reach(t, 1);
	for (size_t i = 0; i < AREAS; i++) {
		uint8_t *at = mem + i * (AREA_PAGES + 1) * PAGE;

		t->wrong += !page_is((uint64_t *)at, (uint32_t)i, 1);
		t->wrong += !page_is((uint64_t *)(at + (AREA_PAGES - 1) * PAGE), (uint32_t)i, 2);
	}
	reach(t, 2);
	/* all of them become one, and less */
	mprotect(mem, (size_t)AREAS * (AREA_PAGES + 1) * PAGE, PROT_READ | PROT_WRITE);
	munmap(mem, MIB(64));
	for (size_t i = MIB(64) / PAGE / (AREA_PAGES + 1) + 1; i < AREAS; i++)
		t->wrong += !page_is((uint64_t *)(mem + i * (AREA_PAGES + 1) * PAGE), (uint32_t)i,
				     1);
	reach(t, 3);
}

static void thousands(void **state)
{
	static struct play s;

	play_begin(&s, many);
	play_attach(&s);
	/* one stop for each area takes its time */
	await_bytes_out(&s, 0, AREAS * PAGE / 8);
	do_step(&s, 2);
	await_out(&s, 100);
	do_step(&s, 3);
	play_end(&s);
}

/* ---- processes that share memory, and processes that are not copied ---- */

static int outlives(void *arg)
{
	struct talk *t = ((void **)arg)[0];
	uint8_t *mem = ((void **)arg)[1];

	prctl(PR_SET_PDEATHSIG, 0);
	t->pid = (int)syscall(SYS_getpid);
	while (t->step < 3)
		usleep(1000);
	check_pages(t, mem, MANY, 1);
	t->done = 3;
	return pause();
}

static void shares(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *stack = fresh(64);
	void *arg[2] = { t, mem };

	fill_pages(mem, MANY, 1);
	t->done = 1;
	if (clone(outlives, stack + 64 * PAGE, CLONE_VM | CLONE_PARENT, arg) < 0)
		t->wrong++;
	while (t->step < 2)
		usleep(1000);
	_exit(0); /* the memory goes on */
}

static void sharing(void **state)
{
	static struct play s;

	play_begin(&s, shares);
	while (!s.t->pid)
		usleep(1000);
	play_attach(&s);
	await_bytes_out(&s, 0, MOST);
	tell(&s, 2);
	waitpid(s.pid, NULL, 0);
	usleep(600000); /* the family is looked at */
	s.pid = s.t->pid;
	s.t->step = 3;
	for (int i = 0; i < WAIT_S * 100 && s.t->done < 3; i++)
		usleep(10000);
	assert_int_equal(s.t->done, 3);
	assert_int_equal(s.t->wrong, 0);
	kill(s.t->pid, SIGKILL);
	for (int i = 0; i < WAIT_S * 100 && zns_mem_processes(s.m); i++)
		usleep(10000);
	assert_int_equal(zns_mem_processes(s.m), 0);
	play_end(&s);
}

/* Memory with MADV_DONTFORK is not in the children, and what a child maps at its address is new. */
static void keeps_from(struct talk *t)
{
	uint8_t *mem = fresh(2 * MANY), *more;

	fill_pages(mem, MANY, 1);
	madvise(mem, 2 * MANY * PAGE, MADV_DONTFORK);
	reach(t, 1);
	if (!fork()) {
		more = mmap(mem, 2 * MANY * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (more != mem)
			t->wrong++;
		for (size_t i = 0; i < 2 * MANY;
		     i += i < MANY ? 2 : 1) /* every other page stays a hole */
			page_write((uint64_t *)(mem + i * PAGE), (uint32_t)i, 2);
		t->pid = getpid();
		reach(t, 2);
		for (size_t i = 0; i < 2 * MANY; i++)
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), (uint32_t)i,
					     i < MANY && i % 2 ? 0 : 2);
		reach(t, 3);
		_exit(0);
	}
	while (t->step < 4)
		usleep(1000);
	check_pages(t, mem, MANY, 1);
	reach(t, 4);
}

static void not_copied(void **state)
{
	static struct play s;

	play_begin(&s, keeps_from);
	play_attach(&s);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 2);
	await_out(&s, MANY / 16 / 2);
	do_step(&s, 3);
	do_step(&s, 4);
	play_end(&s);
}

/* ---- the end ---- */

static void plain(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
	for (uint32_t k = 2; t->step < 3; k++)
		fill_pages(mem, MANY, k);
	reach(t, 3);
}

/* Killed at any moment of an eviction: all places are given back. */
static void dying(void **state)
{
	for (unsigned int i = 0; i < 12; i++) {
		static struct play s;

		play_begin(&s, plain);
		play_attach(&s);
		if (i % 2)
			do_step(&s, 2);
		tell(&s, 2);
		usleep(i * 7000);
		kill(s.pid, SIGKILL);
		for (int k = 0; k < WAIT_S * 100 && zns_mem_processes(s.m); k++)
			usleep(10000);
		assert_int_equal(zns_mem_processes(s.m), 0);
		play_end(&s);
	}
}

/* Without any capability: the userfaultfd comes from /dev/userfaultfd. */
static void poor(struct talk *t)
{
	if (setgid(65534) || setuid(65534) || syscall(SYS_userfaultfd, O_CLOEXEC) >= 0)
		t->other = 1;
	plain(t);
}

static void without_rights(void **state)
{
	static struct play s;

	play_begin(&s, poor);
	if (s.t->other || access("/dev/userfaultfd", F_OK)) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 2);
	play_end(&s);
}

/* ---- nothing to do ---- */

/* The kernel writes into its restartable sequence each time that it goes on. */
static void asleep(struct talk *t)
{
	void *of_libc = (uint8_t *)__builtin_thread_pointer() + __rseq_offset;
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	if (syscall(SYS_rseq, of_libc, 32, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) ||
	    syscall(SYS_rseq, mem, 32, 0, RSEQ_SIG))
		_exit(9);
	t->done = 1;
	for (;;)
		pause();
}

/* In stops what the stopped thread needs stays. It is not copied again and again for that. */
static void stays(void **state)
{
	static struct play s;
	uint64_t put;

	play_begin(&s, asleep);
	play_attach(&s);
	await_bytes_out(&s, 0, MOST);
	do {
		put = s.shelves.s->next;
		usleep(1000000);
	} while (s.shelves.s->next > put + 1);
	put = s.shelves.s->next;
	for (uint64_t i = 0; i < 20; i++) {
		zns_mem_limit(s.m, MIB(1) - i * PAGE); /* a turn of eviction */
		usleep(150000);
	}
	assert_in_range(s.shelves.s->next - put, 0, 1);
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(executing),
#ifndef __SANITIZE_ADDRESS__ /* which makes mlock() do nothing */
		cmocka_unit_test(locking),
#endif
		cmocka_unit_test(protecting),     cmocka_unit_test(advising),
		cmocka_unit_test(thousands),      cmocka_unit_test(sharing),
		cmocka_unit_test(not_copied),     cmocka_unit_test(dying),
		cmocka_unit_test(without_rights), cmocka_unit_test(stays),
	};

	if (argc > 1 && !strcmp(argv[1], "executed"))
		executed();
	if (argc > 0 && !strcmp(argv[0], "/proc/self/exe"))
		executed();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
