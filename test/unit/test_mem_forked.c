/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a child is believed to have of its parent's memory on zones. Without sanitizers: with them
 * the pager evicts their shadow memory in place of the test's.
 */
#include "../../zns/memory/engine/mem.h"
#include "mem_reach.h"

#define MANY 512U /* pages */

/* The child does nothing, and exits with step 2. */
static void has_a_child(struct talk *t)
{
	pid_t child = fork();

	if (!child)
		for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
			pause();
	t->pid = child;
	reach(t, 2);
	kill(child, SIGKILL);
}

/* The child does not have that memory. */
static void forks_without(struct talk *t)
{
	uint8_t *mem = fresh(MANY), *other = fresh(MANY);

	fill_pages(mem, MANY, 1);
	fill_pages(other, MANY, 1);
	madvise(mem, MANY * PAGE, MADV_DONTFORK);
	t->other = (uintptr_t)mem;
	reach(t, 1);
	has_a_child(t);
	check_pages(t, mem, MANY, 1);
	check_pages(t, other, MANY, 1);
	reach(t, 3);
}

/* Process @pid, when it has a name. */
static struct proc *proc_of(struct zns_mem *m, pid_t pid)
{
	for (int i = 0; i < WAIT_S * 100; i++) {
		for (unsigned int k = 0; k < PROCS_MAX; k++)
			if (m->proc[k] && m->proc[k]->pid == pid)
				return m->proc[k];
		usleep(10000);
	}
	fail_msg("process %d is none of the context", pid);
	return NULL;
}

static bool knows(struct play *s, pid_t pid)
{
	return known_within(proc_of(s->m, pid), s->t->other, s->t->other + MANY * PAGE);
}

/* What is believed to be registered there would have its moves taken in a wrong order. */
static void not_forked(void **state)
{
	static struct play s;

	play_begin(&s, forks_without);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE * 3 / 2);
	do_step(&s, 2);
	assert_true(knows(&s, s.pid));
	assert_false(knows(&s, s.t->pid));
	do_step(&s, 3);
	play_end(&s);
}

#define PART 128U /* pages */

/* The child lacks the first part of an area, and a part in its middle. */
static void forks_without_parts(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	reach(t, 1);
	madvise(mem, PART * PAGE, MADV_DONTFORK);
	madvise(mem + 2 * PART * PAGE, PART * PAGE, MADV_DONTFORK);
	has_a_child(t);
	check_pages(t, mem, MANY, 1);
	reach(t, 3);
}

static bool knows_part(struct play *s, unsigned int nr)
{
	uint64_t at = s->t->other + nr * PART * PAGE;

	return known_within(proc_of(s->m, s->t->pid), at, at + PART * PAGE);
}

/* Of an area that was copied in parts, the child knows these. */
static void forked_in_parts(void **state)
{
	static struct play s;

	play_begin(&s, forks_without_parts);
	play_attach(&s);
	await_bytes_out(&s, 0, MANY * PAGE * 3 / 4);
	zns_mem_limit(s.m, GIB(1)); /* so the child is not evicted from */
	do_step(&s, 2);
	for (unsigned int i = 0; i < MANY / PART; i++)
		assert_int_equal(knows_part(&s, i), i % 2);
	do_step(&s, 3);
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_forked),
		cmocka_unit_test(forked_in_parts),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
