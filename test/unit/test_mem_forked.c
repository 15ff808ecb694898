/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the pager believes a child to have of its parent's memory on zones. Without sanitizers,
 * since the pager would evict their shadow memory instead of the test's.
 */
#include "../../zns/memory/engine/mem.h"
#include "mem_reach.h"
#include "until.h"

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

/* Process @pid, once its PID is known to the pager. */
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

static unsigned int units_out(struct play *s)
{
	struct proc *p = proc_of(s->m, s->pid);
	unsigned int out = 0;

	for (uint64_t at = s->t->other; at < s->t->other + MANY * PAGE; at += UNIT)
		out += ON_ZONE(unit_at(p, at)->word);
	return out;
}

/* Waits until at least half of the memory at t->other is on zones. That many bytes may be out
 * before: the program has other memory, too. */
static void await_half_out(struct play *s)
{
	until(units_out(s) >= MANY * PAGE / UNIT / 2);
}

/* Moves of memory that is wrongly believed to be registered would be taken in the wrong order. */
static void not_forked(void **state)
{
	static struct play s;

	play_begin(&s, forks_without);
	play_attach(&s);
	await_half_out(&s);
	do_step(&s, 2);
	assert_true(knows(&s, s.pid));
	assert_false(knows(&s, s.t->pid));
	do_step(&s, 3);
	play_end(&s);
}

#define PART 128U /* pages */

/* The child does not have the first part of an area, nor a part in its middle. */
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

/* The parts of the area that were copied are known. */
static void forked_in_parts(void **state)
{
	static struct play s;

	play_begin(&s, forks_without_parts);
	play_attach(&s);
	await_half_out(&s);
	zns_mem_limit(s.m, GIB(1)); /* so the child is not evicted from */
	do_step(&s, 2);
	for (unsigned int i = 0; i < MANY / PART; i++)
		assert_int_equal(knows_part(&s, i), i % 2);
	do_step(&s, 3);
	play_end(&s);
}

/* ---- a move whose event comes after that of a later fork ---- */

/* Messages that were read and not delivered yet; the program goes on meanwhile. */
static struct {
	int fd;
	bool forked;
	_Atomic unsigned int nr;
	struct uffd_msg msg[2];
} late = { .fd = -1 };

ssize_t __real_read(int fd, void *buf, size_t len);
ssize_t __wrap_read(int fd, void *buf, size_t len);
int __real_ioctl(int fd, unsigned long what, void *arg);
int __wrap_ioctl(int fd, unsigned long what, void *arg);

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	struct uffd_msg *msg = buf;
	ssize_t n;

	if (fd < 0 || fd != late.fd)
		return __real_read(fd, buf, len);
	if (late.forked && late.nr) {
		*msg = late.msg[0];
		late.msg[0] = late.msg[1];
		late.nr--;
		return sizeof(*msg);
	}
	n = __real_read(fd, buf, sizeof(*msg));
	if (n != sizeof(*msg))
		return n;
	late.forked |= msg->event == UFFD_EVENT_FORK;
	if (late.forked || (msg->event != UFFD_EVENT_REMAP && msg->event != UFFD_EVENT_UNMAP))
		return n;
	assert_true(late.nr < 2);
	late.msg[late.nr++] = *msg;
	errno = EAGAIN;
	return -1;
}

int __wrap_ioctl(int fd, unsigned long what, void *arg)
{
	bool asks = what == UFFDIO_COPY &&
		    !((struct uffdio_copy *)arg)->len; /* mem_uffd_changes() */

	if (fd < 0 || fd != late.fd || !asks || !late.nr)
		return __real_ioctl(fd, what, arg);
	errno = EAGAIN;
	return -1;
}

static void moves_and_forks(struct talk *t)
{
	uint8_t *all = mmap(NULL, 4 * MANY * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		*mem = all + MANY * PAGE, *to = mem + 2 * MANY * PAGE;
	int status = 1;
	pid_t child;

	mprotect(mem, MANY * PAGE, PROT_READ | PROT_WRITE);
	fill_pages(mem, MANY, 1);
	t->other = (uintptr_t)mem;
	reach(t, 1);
	mremap(mem, MANY * PAGE, MANY * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	child = fork();
	if (!child) {
		check_pages(t, to, MANY, 1);
		_exit(0);
	}
	waitpid(child, &status, 0);
	t->wrong += status != 0;
	check_pages(t, to, MANY, 1);
	reach(t, 2);
}

/* The child has its memory where it was moved to before. */
static void forked_after_a_move(void **state)
{
	static struct play s;

	play_begin(&s, moves_and_forks);
	play_attach(&s);
	await_half_out(&s);
	late.fd = proc_of(s.m, s.pid)->uffd;
	do_step(&s, 2);
	assert_true(late.forked);
	assert_int_equal(late.nr, 0);
	late.fd = -1;
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(not_forked),
		cmocka_unit_test(forked_in_parts),
		cmocka_unit_test(forked_after_a_move),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
