/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a program does to its memory while the kernel drops pages of it, or is about to. Each case
 * is also run without the rule that it tests, and wrong pages must show then.
 */
#include <sys/rseq.h>

#include "mem_life.h"

/* Unmaps a piece, maps it again and writes it at once, like free() and malloc(). */
static void renew(struct life *l, uint32_t nr, uint32_t n, uint32_t gone_us)
{
	if (munmap(page_of(l, nr), n * PAGE) || (gone_us && usleep(gone_us)) ||
	    mmap(page_of(l, nr), n * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		_exit(9);
	l->seq = l->seq % 0xffffff + 1;
	for (uint32_t i = nr; i < nr + n; i++) {
		page_write(page_of(l, i), i, l->seq);
		l->r->seq[l->self][i] = l->seq;
	}
}

/* One thread unmaps a piece, the other one has new memory there before the first call returns. */
struct two {
	struct life l;
	_Atomic uint32_t at, len; /* pages; len 0: none */
};

static void *taker(void *arg)
{
	struct two *w = arg;
	struct life *l = &w->l;

	for (;; w->len = 0) {
		uint32_t nr, n;

		while (!w->len && !l->r->stop)
			;
		if (!w->len)
			return NULL;
		nr = w->at;
		n = w->len;
		while (mmap(page_of(l, nr), n * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
			;
		l->seq = l->seq % 0xffffff + 1;
		for (uint32_t i = nr; i < nr + n; i++) {
			page_write(page_of(l, i), i, l->seq);
			l->r->seq[0][i] = l->seq;
		}
	}
}

static void *giver(void *arg)
{
	struct two *w = arg;
	struct life *l = &w->l;

	while (!l->r->stop) {
		uint32_t n = 1 + roll(&l->seed) % 128;

		w->at = roll(&l->seed) % (PAGES - 128);
		w->len = n;
		if (munmap(page_of(l, w->at), n * PAGE))
			_exit(9);
		while (w->len)
			;
		for (int i = 0; i < 20; i++)
			check(l, roll(&l->seed) % PAGES);
		l->r->rounds++;
	}
	check_all(l);
	return NULL;
}

static void two_threads(struct report *r)
{
	struct two w = { .l = { .r = r, .seed = 5 } };
	pthread_t t[2];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin_life(&w.l);
	r->ready = 1;
	while (!r->go)
		usleep(1000);
	pthread_create(&t[0], NULL, taker, &w);
	pthread_create(&t[1], NULL, giver, &w);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	r->done++;
	while (r->stop < 2)
		usleep(1000);
	check_all(&w.l);
	_exit(0);
}

/* A part of new memory is removed before the memory is registered, and then replaced. Its borders
 * are not those of units. */
static void holed(struct report *r)
{
	struct life l = { .r = r, .seed = 5 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin_life(&l);
	r->ready = 1;
	while (!r->go)
		usleep(1000);
	while (!r->stop) {
		uint32_t nr = roll(&l.seed) % (PAGES - 512);

		renew(&l, nr, 512, 0);
		for (int i = 0; i < 4; i++) {
			usleep(roll(&l.seed) % 2000);
			renew(&l, nr + roll(&l.seed) % 384, 1 + roll(&l.seed) % 128,
			      roll(&l.seed) % 4000);
		}
		for (int i = 0; i < 200; i++)
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

/* Pieces at the end of a unit are given back and written again, as by free() and malloc(). */
static void trim(struct report *r)
{
	struct life l = { .r = r, .seed = 5 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin_life(&l);
	r->ready = 1;
	while (!r->stop) {
		/* behind two units: the one that it is in may begin before the memory does */
		uint8_t *at = l.mem + (32 + roll(&l.seed) % (PAGES - 48)) * PAGE;
		uint32_t n = 1 + roll(&l.seed) % 15;
		uint32_t nr = (uint32_t)((at - l.mem) - (uintptr_t)at % ZNS_PAGES_UNIT) / PAGE - n;

		if (madvise(page_of(&l, nr), n * PAGE, MADV_DONTNEED))
			_exit(9);
		l.seq = l.seq % 0xffffff + 1;
		for (uint32_t i = nr; i < nr + n; i++) {
			r->seq[0][i] = 0;
			check(&l, i);
			page_write(page_of(&l, i), i, l.seq);
			r->seq[0][i] = l.seq;
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

enum program { TWO_THREADS, HOLED, TRIMS };

/* delays in microseconds: when an area was looked at, and when units were dropped */
static const char *const late[] = { [HOLED] = "30@2000", [TRIMS] = "31@3000" };

static void starve(struct scene *s, enum program which, const char *without, uint64_t units)
{
	*s = (struct scene){ .r = common(sizeof(struct report)) };

	mem_control("ZNS_MEM_WITHOUT", without);
	if (which < ZNS_ARRAY_SIZE(late) && late[which])
		mem_control("ZNS_MEM_LATE", late[which]);
	shelf_open(&s->shelves, &s->store);
	s->pid = fork();
	if (!s->pid && which == TWO_THREADS)
		two_threads(s->r);
	if (!s->pid && which == HOLED)
		holed(s->r);
	if (!s->pid)
		trim(s->r);
	while (!s->r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(1), &s->store, &s->m, &s->err), 0);
	if (zns_mem_attach(s->m, s->pid, &s->err))
		fail_msg("%s", s->err.msg);
	s->r->go = 1;
	assert_int_equal(zns_mem_start(s->m, &s->err), 0);
	for (int i = 0; i < WAIT_S * 100 && evicted_units(s->m) < units && !s->r->wrong; i++)
		usleep(10000);
	mem_control("ZNS_MEM_WITHOUT", NULL);
	mem_control("ZNS_MEM_LATE", NULL);
}

static __attribute__((unused)) void taking(void **state)
{
	struct scene s;

	starve(&s, TWO_THREADS, "99", 3000);
	finish(&s, 1, false);
}

/* Removes memory while all its threads stand still, and one of them waits until the pager reads
 * an event. */
static void killed(void **state)
{
	for (int i = 0; i < 12; i++) {
		struct scene s;

		starve(&s, TWO_THREADS, "99", 30);
		mem_control("ZNS_MEM_LATE", "29@20000"); /* the pager gets the events late */
		usleep(60000 + (useconds_t)i * 5000);
		scene_kill(&s);
		mem_control("ZNS_MEM_LATE", NULL);
	}
}

static __attribute__((unused)) void holes(void **state)
{
	struct scene s;

	starve(&s, HOLED, "99", 600);
	finish(&s, 1, false);
	mem_control("ZNS_MEM_REFUSED", "4"); /* by the list of areas, as before Linux 6.11 */
	starve(&s, HOLED, "99", 600);
	finish(&s, 1, false);
	mem_control("ZNS_MEM_REFUSED", NULL);
}

static __attribute__((unused)) void trimming(void **state)
{
	struct scene s;

	starve(&s, TRIMS, "99", 200);
	finish(&s, 1, false);
}

/*
 * A program whose main thread has its rseq area in memory that is evicted, as a static program
 * does: the kernel writes there whenever the thread runs on after a stop.
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

static void replace_some(struct life *l)
{
	uint32_t nr = roll(&l->seed) % (PAGES - 128);

	renew(l, nr, 1 + roll(&l->seed) % 128, 0);
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
	await_units(&s, at_least(1000));
	finish(&s, 1, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifndef __SANITIZE_ADDRESS__ /* takes minutes, and has memory of its own */
		cmocka_unit_test(taking),     cmocka_unit_test(holes),  cmocka_unit_test(trimming),
#endif
		cmocka_unit_test(restarting), cmocka_unit_test(killed),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
