/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * More children than a context has places: each has all of its memory, and none hangs; also when
 * the pager is killed while they are forked.
 */
#include <poll.h>
#include "../../zns/memory/engine/mem.h"
#include "mem_fixture.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#define KIDS_MAX 512U
#define OWN 256U /* pages of the program: 1 MiB */
#define PATIENCE_S 40
#define DRAM_NONE MIB(1) /* of all of them together */

struct village {
	_Atomic uint32_t come, looked, go, wrong, ended; /* children */
	_Atomic uint32_t forks; /* that went wrong */
	_Atomic uint32_t killed; /* children that were lost with a pager */
	_Atomic uint32_t ready;
};

/* What a pager tells the test, which plays its keeper. */
struct desk {
	_Atomic uint32_t gen, kept, refused, started, detach, detached, failed;
	_Atomic uint64_t left, evicted, lost;
	struct zns_mem_fds f; /* descriptor numbers in the pager */
};

struct scene {
	struct shelves shelves;
	struct zns_mem_store store;
	struct village *v;
	struct desk *desk;
	struct zns_mem_fds have;
	uint32_t gen, kids, deep;
	uint32_t get_us; /* how long it takes to read a unit back */
	bool quiet; /* no child touches memory before all are forked */
	pid_t program, pager;
};

static void look(struct village *v, uint8_t *mem)
{
	for (uint32_t i = 0; i < OWN; i++)
		if (!page_is((uint64_t *)(mem + i * PAGE), i, i + 1)) {
			v->wrong++;
			return;
		}
}

static void rest(struct village *v)
{
	int status;

	usleep(20000);
	while (waitpid(-1, &status, WNOHANG) > 0)
		v->killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static __attribute__((noreturn)) void kid(struct scene *s, uint8_t *mem, uint32_t deep)
{
	struct village *v = s->v;
	pid_t pid = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	v->come++;
	if (deep) { /* number of forks before a child checks its memory */
		pid = fork();
		if (!pid)
			kid(s, mem, deep - 1);
		v->forks += pid < 0;
	}
	while (s->quiet && v->ready < 3)
		rest(v);
	look(v, mem);
	v->looked++;
	while (!v->go)
		rest(v);
	look(v, mem);
	page_write((uint64_t *)mem, 7, 9);
	v->wrong += !page_is((uint64_t *)mem, 7, 9);
	v->ended++;
	for (;;)
		rest(v);
}

/* Sleeps first, so that its memory is evicted. */
static __attribute__((noreturn)) void program(struct scene *s)
{
	uint8_t *mem = mmap(NULL, OWN * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = 0; i < OWN; i++)
		page_write((uint64_t *)(mem + i * PAGE), i, i + 1);
	s->v->ready = 1;
	while (s->v->ready == 1)
		usleep(1000);
	for (uint32_t i = 0; i < s->kids; i++) {
		pid_t pid = fork();

		if (!pid)
			kid(s, mem, s->deep);
		s->v->forks += pid < 0;
	}
	s->v->ready = 3;
	for (;;)
		rest(s->v);
}

static void publish(struct zns_mem *m, struct desk *d, bool at_once)
{
	struct pollfd p = { .fd = zns_mem_changes(m), .events = POLLIN };
	uint64_t n;

	d->left = m->sh->left;
	d->evicted = m->sh->evicted_units;
	d->lost = m->sh->lost_units;
	if ((!poll(&p, 1, 1) || read(p.fd, &n, sizeof(n)) != sizeof(n)) && !at_once)
		return;
	zns_mem_fds(m, &d->f);
	d->refused = 0;
	d->gen++;
	while (d->kept != d->gen)
		usleep(200);
	if (!d->refused)
		zns_mem_kept(m, &d->f);
}

static __attribute__((noreturn)) void pager(struct scene *s, bool take, const char *kill_at)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_mem *m = NULL;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (kill_at)
		mem_control("ZNS_MEM_KILL", kill_at);
	if (take) {
		ret = zns_mem_take(&s->have, &s->store, &m, &err);
		if (!ret)
			ret = zns_mem_go_on(m, &err);
	} else {
		ret = zns_mem_new("test", DRAM_NONE, &s->store, &m, &err);
		if (!ret)
			ret = zns_mem_attach(m, s->program, &err);
		if (!ret) {
			publish(m, s->desk, true);
			ret = zns_mem_start(m, &err);
		}
	}
	if (ret)
		fprintf(stderr, "pager: %s\n", err.msg);
	s->desk->failed = ret != 0;
	s->desk->started++;
	if (take && !ret) /* the keeper still has children that have left */
		publish(m, s->desk, true);
	while (!ret) {
		publish(m, s->desk, false);
		if (!s->desk->detach)
			continue;
		s->desk->failed = zns_mem_detach(m, &err) != 0;
		if (s->desk->failed)
			fprintf(stderr, "pager: %s\n", err.msg);
		zns_mem_leave(m);
		s->desk->detached = 1;
		for (;;)
			pause();
	}
	_exit(1);
}

/* Takes copies of the pager's descriptors, unless it or one of its processes has ended. */
static void keep(struct scene *s)
{
	static struct zns_mem_fds next;
	int pidfd = (int)syscall(SYS_pidfd_open, s->pager, 0);
	uint32_t nr = 0;

	if (s->gen == s->desk->gen) {
		close(pidfd);
		return;
	}
	next = s->desk->f;
	for (; nr < next.nr; nr++) {
		next.fd[nr] = (int)syscall(SYS_pidfd_getfd, pidfd, s->desk->f.fd[nr], 0);
		if (next.fd[nr] < 0)
			break;
	}
	close(pidfd);
	if (nr < next.nr) {
		while (nr)
			close(next.fd[--nr]);
		s->desk->refused = 1;
	} else {
		for (uint32_t i = 0; i < s->have.nr; i++)
			close(s->have.fd[i]);
		s->have = next;
	}
	s->gen = s->desk->gen;
	s->desk->kept = s->gen;
}

static void recount(struct scene *s)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		s->shelves.s->count[i] = 0;
	s->shelves.s->held = 0;
}

/* One turn as keeper: starts the next pager if one has died. */
static void turn(struct scene *s)
{
	keep(s);
	if (waitpid(s->pager, NULL, WNOHANG) == s->pager) {
		recount(s);
		s->desk->gen = s->desk->kept = s->gen = 0;
		s->pager = fork();
		if (!s->pager)
			pager(s, true, NULL);
	}
	usleep(500);
}

/* Waits until all programs have reached this point, or were killed. */
static bool reach(struct scene *s, const _Atomic uint32_t *what, uint32_t want)
{
	uint64_t until = zns_mono_ns() + PATIENCE_S * 1000000000ULL;

	while (*what + s->v->killed < want && zns_mono_ns() < until)
		turn(s);
	return *what + s->v->killed >= want;
}

static void begin(struct scene *s, const char *kill_at)
{
	s->v = common(sizeof(struct village));
	s->desk = common(sizeof(struct desk));
	shelf_open(&s->shelves, &s->store);
	s->program = fork();
	if (!s->program)
		program(s);
	while (!s->v->ready)
		usleep(1000);
	s->pager = fork();
	if (!s->pager)
		pager(s, false, kill_at);
	assert_true(reach(s, &s->desk->started, 1));
	assert_false(s->desk->failed);
	for (int i = 0; i < PATIENCE_S * 1000 && s->desk->evicted < 8; i++)
		turn(s);
	assert_true(s->desk->evicted >= 8);
	s->shelves.s->get_us = s->get_us;
	s->v->ready = 2;
}

static void end(struct scene *s)
{
	kill(s->program, SIGKILL);
	waitpid(s->program, NULL, 0);
	kill(s->pager, SIGKILL);
	waitpid(s->pager, NULL, 0);
	for (uint32_t i = 0; i < s->have.nr; i++)
		close(s->have.fd[i]);
	munmap(s->v, sizeof(*s->v));
	munmap(s->desk, sizeof(*s->desk));
	shelf_close(&s->shelves);
}

/* @lost: children that may be lost. */
static void many(struct scene *s, const char *kill_at, uint32_t lost)
{
	uint32_t all = s->kids * (s->deep + 1);

	begin(s, kill_at);
	if (!reach(s, &s->v->looked, all))
		fail_msg("killed at %s: %u of %u children came, %u see their memory, %u are wrong",
			 kill_at, s->v->come, all, s->v->looked, s->v->wrong);
	s->v->go = 1;
	if (!reach(s, &s->v->ended, all))
		fail_msg("killed at %s: %u of %u children have ended, %u are wrong", kill_at,
			 s->v->ended, all, s->v->wrong);
	for (int i = 0; mem_refused(REFUSED_PLACES) && i < PATIENCE_S * 1000 && !s->desk->left; i++)
		turn(s);
	s->desk->detach = 1;
	for (int i = 0; i < PATIENCE_S * 1000 && !s->desk->detached; i++)
		turn(s);
	assert_true(s->desk->detached && !s->desk->failed);
	assert_int_equal(s->shelves.s->held, 0);
	assert_int_equal(s->v->forks, 0);
	print_message("%s: %u children, %lu left, %u killed, %u wrong\n",
		      kill_at ? kill_at : "nobody dies", all, (unsigned long)s->desk->left,
		      s->v->killed, s->v->wrong);
	assert_int_equal(s->v->wrong, 0);
	assert_true(s->v->killed <= lost);
	/* the one that was to leave may be the one that was lost */
	assert_true(!mem_refused(REFUSED_PLACES) || s->desk->left > 0 || s->v->killed);
	end(s);
}

/* As many children as a large program may have. */
static void four_hundred(void **state)
{
	struct scene s = { .kids = 400 };

	many(&s, NULL, 0);
}

static void few_places(void **state)
{
	struct scene wide = { .kids = 40 }, deep = { .kids = 15, .deep = 3 };

	mem_control("ZNS_MEM_REFUSED", "3");
	many(&wide, NULL, 0);
	many(&deep, NULL, 0);
	mem_control("ZNS_MEM_REFUSED", NULL);
}

/* When a fork was read, a child has a table, and a slot. */
static void killed_by_births(void **state)
{
	static const char *const at[] = { "21@5",  "21@13", "26@2", "26@6",
					  "26@20", "22@3",  "22@7", "22@20" };

	mem_control("ZNS_MEM_REFUSED", "3");
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++) {
		bool loses = at[i][1] == '1', wide = loses || i % 2;
		struct scene s = { .kids = wide ? 30 : 10, .deep = wide ? 0 : 2 };

		many(&s, at[i], loses ? 1 : 0);
	}
	mem_control("ZNS_MEM_REFUSED", NULL);
}

/* Killed when a unit of a leaving child is being read, and when all of it is back. */
static void killed_by_leaving(void **state)
{
	static const char *const at[] = { "7@1", "7@9", "7@20", "27@1" };

	mem_control("ZNS_MEM_REFUSED", "3");
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(at); i++) {
		/* the last one leaves: nobody is forked meanwhile, unless a sanitizer's own memory
		 * was read back, and that was the unit at which the pager was killed. That memory
		 * is many times the budget: each of its units is read back again and again */
		struct scene s = { .kids = FEW_PLACES,
				   .quiet = true,
				   .get_us = SANITIZED ? 2000 : 10000 };

		many(&s, at[i], SANITIZED);
	}
	mem_control("ZNS_MEM_REFUSED", NULL);
}

#ifndef __SANITIZE_ADDRESS__
/* The control: a child leaves before all of its memory is back. */
static void without_leave(void **state)
{
	struct scene s = { .kids = 40 };

	mem_control("ZNS_MEM_REFUSED", "3");
	mem_control("ZNS_MEM_WITHOUT", "20");
	begin(&s, NULL);
	mem_control("ZNS_MEM_WITHOUT", NULL);
	mem_control("ZNS_MEM_REFUSED", NULL);
	reach(&s, &s.v->looked, 40);
	assert_true(s.v->wrong);
	end(&s);
}
#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_places),        cmocka_unit_test(killed_by_births),
		cmocka_unit_test(killed_by_leaving),
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(without_leave),
#endif
		cmocka_unit_test(four_hundred),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
