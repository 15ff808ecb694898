/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs under continuous eviction: every page of theirs is what they wrote last. */
#include "mem_life.h"

#define CHILDREN_MAX 25U

static void write_some(struct life *l)
{
	uint32_t nr = roll(&l->seed) % PAGES;

	check(l, nr);
	l->seq = l->seq % 0xffffff + 1;
	page_write(page_of(l, nr), nr, l->seq);
	l->r->seq[l->self][nr] = l->seq;
	l->r->writes++;
}

static void remove_some(struct life *l)
{
	uint32_t nr = roll(&l->seed) % PAGES, n = 1 + roll(&l->seed) % 24;

	n = nr + n > PAGES ? PAGES - nr : n;
	if (madvise(page_of(l, nr), n * PAGE, MADV_DONTNEED))
		l->r->wrong++;
	for (uint32_t i = nr; i < nr + n; i++)
		l->r->seq[l->self][i] = 0;
	for (uint32_t i = nr; i < nr + n; i += 3)
		check(l, i);
	l->r->removals++;
}

/* All of it, to a place that is no multiple of a unit away. */
static void move_all(struct life *l)
{
	size_t len = PAGES * PAGE, shift = (1 + roll(&l->seed) % 40) * PAGE;
	uint8_t *room = mmap(NULL, len + 64 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *to = mremap(l->mem, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, room + shift);

	if (room == MAP_FAILED || to == MAP_FAILED)
		_exit(9);
	munmap(room, shift);
	munmap(to + len, 64 * PAGE - shift);
	l->mem = to;
	l->r->moves++;
}

/* A piece is unmapped and mapped again empty. */
static void map_again(struct life *l)
{
	uint32_t nr = roll(&l->seed) % (PAGES - 32), n = 1 + roll(&l->seed) % 32;
	void *at = page_of(l, nr);

	/* another thread could use the gap */
	if ((!(l->what & THREADS) && munmap(at, n * PAGE)) ||
	    mmap(at, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) != at)
		_exit(9);
	for (uint32_t i = nr; i < nr + n; i++) {
		l->r->seq[l->self][i] = 0;
		check(l, i);
	}
}

static void fork_once(struct life *l)
{
	uint32_t *seq = mmap(NULL, PAGES * sizeof(*seq), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	for (uint32_t i = 0; i < PAGES; i++)
		seq[i] = l->r->seq[l->self][i];
	pid = fork();
	if (!pid) {
		/* a copy of the memory as it was, some of which this child writes */
		for (int round = 0; round < 3; round++) {
			for (uint32_t i = 0; i < PAGES; i++)
				if (!page_is(page_of(l, i), i, seq[i]))
					l->r->wrong++;
			for (uint32_t i = (uint32_t)round; i < PAGES; i += 7) {
				seq[i] = 0x800000 + i;
				page_write(page_of(l, i), i, seq[i]);
			}
			usleep(20000);
		}
		l->r->children++;
		_exit(0);
	}
	munmap(seq, PAGES * sizeof(*seq));
	l->r->forks++;
	/* on a slow machine there are no more children at once than a context has slots */
	for (pid = 1, l->alive++; pid > 0 && l->alive;) {
		pid = waitpid(-1, NULL, l->alive > CHILDREN_MAX ? 0 : WNOHANG);
		l->alive = pid < 0 ? 0 : l->alive - (pid > 0);
	}
}

static void *live(void *arg)
{
	struct life *l = arg;

	while (!l->r->stop) {
		uint32_t dice = roll(&l->seed) % 1000;

		if (l->what & WRITES)
			write_some(l);
		check(l, roll(&l->seed) % PAGES);
		if (l->what & REMOVALS && dice < 20)
			remove_some(l);
		if (l->what & MAPS && dice >= 20 && dice < 40)
			map_again(l);
		if (l->what & MOVES && dice == 50)
			move_all(l);
		if (l->what & FORKS && (dice == 51 || (l->what & BUSHY && dice % 40 == 1)))
			fork_once(l);
		if (dice < 60)
			usleep(1000); /* let the evictor find something that is old */
		l->r->rounds++;
	}
	check_all(l);
	l->r->done++;
	return NULL;
}

static void program(struct report *r, unsigned int what)
{
	unsigned int nr = what & THREADS ? 4 : 1;
	struct life l[4];
	pthread_t t[4];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned int i = 0; i < nr; i++) {
		l[i] = (struct life){ .r = r, .what = what, .self = i, .seed = 77 + i };
		begin_life(&l[i]);
	}
	r->ready = 1;
	for (unsigned int i = 1; i < nr; i++)
		pthread_create(&t[i], NULL, live, &l[i]);
	live(&l[0]);
	for (unsigned int i = 1; i < nr; i++)
		pthread_join(t[i], NULL);
	while (r->stop < 2) /* the second time after the detach */
		usleep(1000);
	for (unsigned int i = 0; i < nr; i++)
		check_all(&l[i]);
	while (waitpid(-1, NULL, 0) > 0)
		;
	_exit(0);
}

static void scene_begin(struct scene *s, unsigned int what)
{
	*s = (struct scene){ .r = common(sizeof(struct report)) };
	shelf_open(&s->shelves, &s->store);
	s->pid = fork();
	if (!s->pid)
		program(s->r, what);
	while (!s->r->ready)
		usleep(1000);
	assert_int_equal(zns_mem_new("test", MIB(1), &s->store, &s->m, &s->err), 0);
	if (zns_mem_attach(s->m, s->pid, &s->err))
		fail_msg("%s", s->err.msg);
	assert_int_equal(zns_mem_start(s->m, &s->err), 0);
}

static void run(unsigned int what, uint64_t units)
{
	struct scene s;

	scene_begin(&s, what);
	await_units(&s, at_least(units));
	finish(&s, what & THREADS ? 4 : 1, what & BUSHY);
}

static __attribute__((unused)) void reading(void **state)
{
	run(0, 200);
}

/* What is only read is written once; without kept places again and again. */
static __attribute__((unused)) void keeping(void **state)
{
	uint64_t put[2];

	for (int taken = 0; taken < 2; taken++) {
		struct scene s;

		mem_control("ZNS_MEM_WITHOUT", taken ? "10" : "99");
		scene_begin(&s, 0);
		await_units(&s, 600);
		put[taken] = s.shelves.s->put;
		finish(&s, 1, false);
		mem_control("ZNS_MEM_WITHOUT", NULL);
	}
	print_message("600 units out, %lu written; without kept places %lu\n",
		      (unsigned long)put[0], (unsigned long)put[1]);
	assert_true(put[0] < 300 && put[1] >= 600);
}

static __attribute__((unused)) void writing(void **state)
{
	run(WRITES, 200);
}

static __attribute__((unused)) void holes(void **state)
{
	run(WRITES | HOLES, 300);
}

static __attribute__((unused)) void removing(void **state)
{
	run(WRITES | REMOVALS | MAPS, 500);
}

static __attribute__((unused)) void moving(void **state)
{
	run(WRITES | MOVES | REMOVALS, 600);
}

static __attribute__((unused)) void forking(void **state)
{
	run(WRITES | FORKS, 400);
}

/* Children are born while all is read back. */
static void leaving(void **state)
{
	for (int i = 0; i < 3; i++)
		run(WRITES | FORKS | BUSHY, 150);
}

static void together(void **state)
{
	run(WRITES | REMOVALS | MOVES | FORKS | HOLES | THREADS, 800);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#ifndef __SANITIZE_ADDRESS__
		cmocka_unit_test(reading),  cmocka_unit_test(keeping),  cmocka_unit_test(writing),
		cmocka_unit_test(holes),    cmocka_unit_test(removing), cmocka_unit_test(moving),
		cmocka_unit_test(forking),
#endif
		cmocka_unit_test(together), cmocka_unit_test(leaving),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
