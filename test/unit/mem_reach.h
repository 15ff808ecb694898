/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MEM_REACH_H
#define MEM_REACH_H
/*
 * For test_mem_reach*.c: programs that do one step at a time when told, while all of their memory
 * is in the store. They are told through shared memory, which an executed program finds by its
 * descriptor's number.
 */
#include <errno.h>
#include <sched.h>
#include <sys/ptrace.h>
#include "mem_fixture.h"

#define WAIT_S 60
#define TALK_FD 190 /* number of the descriptor of that shared memory, also in executed programs */

struct talk {
	_Atomic uint32_t step, done; /* the step that was ordered, and the last step that is done */
	_Atomic uint64_t wrong, other;
	_Atomic int pid;
	_Atomic uint32_t ask; /* the executed program that is asked; 0: it has answered */
};

struct play {
	struct shelves shelves;
	struct zns_mem_store store;
	struct talk *t;
	pid_t pid;
	struct zns_mem *m;
	struct zns_err err;
};

/* Called in the program: reports a step as done, and waits for the next order. */
static inline void reach(struct talk *t, uint32_t step)
{
	t->done = step;
	while (t->step < step + 1)
		usleep(1000);
}

static inline void fill_pages(uint8_t *mem, size_t pages, uint32_t seq)
{
	for (size_t i = 0; i < pages; i++)
		page_write((uint64_t *)(mem + i * PAGE), (uint32_t)i, seq);
}

static inline void check_pages(struct talk *t, const uint8_t *mem, size_t pages, uint32_t seq)
{
	for (size_t i = 0; i < pages; i++)
		if (!page_is((const uint64_t *)(mem + i * PAGE), (uint32_t)i, seq))
			t->wrong++;
}

static inline uint8_t *fresh(size_t pages)
{
	void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		_exit(8);
	return p;
}

/* ---- in the test ---- */

static inline void tell(struct play *s, uint32_t step)
{
	s->t->step = step;
}

static inline bool program_ended(const struct play *s)
{
	siginfo_t info = { 0 };

	waitid(P_PID, (id_t)s->pid, &info, WEXITED | WNOHANG | WNOWAIT);
	return info.si_pid != 0;
}

static inline void await_step(struct play *s, uint32_t step)
{
	for (int i = 0; i < WAIT_S * 200 && s->t->done < step; i++) {
		if (program_ended(s))
			fail_msg("the program has ended before step %u", step);
		usleep(5000);
	}
	if (s->t->done < step)
		fail_msg("step %u is not reached", step);
}

static inline void do_step(struct play *s, uint32_t step)
{
	tell(s, step);
	await_step(s, step);
}

static inline void play_begin(struct play *s, void (*program)(struct talk *t))
{
	int fd = memfd_create("talk", 0);

	*s = (struct play){ .pid = 0 };
	assert_int_equal(ftruncate(fd, sizeof(struct talk)), 0);
	assert_int_equal(dup2(fd, TALK_FD), TALK_FD);
	close(fd);
	s->t = mmap(NULL, sizeof(*s->t), PROT_READ | PROT_WRITE, MAP_SHARED, TALK_FD, 0);
	assert_ptr_not_equal(s->t, MAP_FAILED);
	shelf_open(&s->shelves, &s->store);
	s->pid = fork();
	if (!s->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		program(s->t);
		_exit(0);
	}
	await_step(s, 1);
}

static inline void play_attach(struct play *s)
{
	assert_int_equal(zns_mem_new("test", MIB(1), &s->store, &s->m, &s->err), 0);
	if (zns_mem_attach(s->m, s->pid, &s->err))
		fail_msg("%s", s->err.msg);
	assert_int_equal(zns_mem_start(s->m, &s->err), 0);
}

/* Waits until this many more units were evicted. */
static inline void await_out(struct play *s, uint64_t units)
{
	uint64_t want = evicted_units(s->m) + units;

	for (int i = 0; i < WAIT_S * 100 && evicted_units(s->m) < want; i++) {
		if (program_ended(s))
			fail_msg("the program has ended");
		usleep(10000);
	}
	assert_true(evicted_units(s->m) >= want);
}

/* Bytes of process @pid (0: of all) that are in the store. */
static inline uint64_t bytes_out(struct play *s, pid_t pid)
{
	ZnsPb__MemoryStatus st;
	uint64_t n = 0;

	status(s->m, &st);
	for (size_t i = 0; i < st.n_processes; i++)
		if (!pid || st.processes[i]->pid == (uint32_t)pid)
			n += st.processes[i]->evicted;
	zns_mem_status_free(&st);
	return n;
}

static inline void await_bytes_out(struct play *s, pid_t pid, uint64_t bytes)
{
	uint64_t last = 0, now;

	for (int i = 0; i < WAIT_S * 100 && (now = bytes_out(s, pid)) < bytes; i++) {
		if (now > last) /* it is slow, but makes progress */
			i = 0;
		last = zns_max(last, now);
		usleep(10000);
	}
	if (bytes_out(s, pid) < bytes)
		fail_msg("process %d: %lu bytes are out, not %lu", pid,
			 (unsigned long)bytes_out(s, pid), (unsigned long)bytes);
}

static inline uint64_t lost_units(struct play *s)
{
	ZnsPb__MemoryStatus st;
	uint64_t n;

	status(s->m, &st);
	n = st.lost_units;
	zns_mem_status_free(&st);
	return n;
}

static inline void play_detach(struct play *s)
{
	if (zns_mem_detach(s->m, &s->err))
		fail_msg("%s", s->err.msg);
	assert_int_equal(s->shelves.s->held, 0);
	zns_mem_leave(s->m);
	s->m = NULL;
}

static inline void play_end(struct play *s)
{
	if (s->m)
		play_detach(s);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	assert_int_equal(s->t->wrong, 0);
	munmap(s->t, sizeof(*s->t));
	close(TALK_FD);
	shelf_close(&s->shelves);
}

#endif
