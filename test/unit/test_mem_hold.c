/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs that something else holds: they are frozen, stopped, traced, or without memory. */
#include <sys/stat.h>
#include "mem_reach.h"

#define MANY 2048U /* pages: 8 MiB */
#define MOST (MANY * PAGE / 2)
#define ONE "/sys/fs/cgroup/freezer"
#define LIMITS "/sys/fs/cgroup/memory"
#define TWO "/sys/fs/cgroup/unified"

/* Two processes with the same memory at first; the second is frozen with the first, or runs. */
static void couple(struct talk *t)
{
	uint8_t *mem = fresh(MANY);
	pid_t child;

	fill_pages(mem, MANY, 1);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (uint32_t k = 2;; k++) { /* busy for ever */
			fill_pages(mem, MANY, k);
			check_pages(t, mem, MANY, k);
			t->other++;
		}
	}
	t->pid = child;
	reach(t, 1);
	for (uint32_t k = 2; t->step < 3; k++) {
		for (uint32_t i = 0; i < MANY; i += 32)
			page_write((uint64_t *)(mem + i * PAGE), i, k);
		for (uint32_t i = 0; i < MANY; i++)
			t->wrong += !page_is((uint64_t *)(mem + i * PAGE), i, i % 32 ? 1 : k);
		usleep(1000);
	}
	reach(t, 3);
}

static bool put_text(const char *dir, const char *file, const char *text)
{
	char path[256];
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return ok;
}

static bool group(const char *root, char *dir, size_t len, pid_t pid)
{
	char text[16];

	snprintf(dir, len, "%s/zns-mem-%d", root, getpid());
	snprintf(text, sizeof(text), "%d", pid);
	rmdir(dir);
	return !mkdir(dir, 0755) && put_text(dir, "cgroup.procs", text);
}

static void ungroup(struct play *s, const char *dir)
{
	kill(s->pid, SIGKILL);
	kill(s->t->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	for (int i = 0; i < 100 && rmdir(dir); i++)
		usleep(10000);
}

/* Eviction of the other program continues. */
static void other_goes_on(struct play *s)
{
	uint64_t rounds = s->t->other;

	await_out(s, 100);
	for (int i = 0; i < WAIT_S * 100 && s->t->other < rounds + 2; i++)
		usleep(10000);
	assert_true(s->t->other >= rounds + 2);
}

static bool is_held(struct play *s)
{
	ZnsPb__MemoryStatus st;
	bool held = false;

	status(s->m, &st);
	for (size_t i = 0; i < st.n_processes; i++)
		held |= st.processes[i]->why && strstr(st.processes[i]->why, "drops nothing");
	zns_mem_status_free(&st);
	return held;
}

static void freeze_one(struct play *s, const char *dir, bool on)
{
	(void)s;
	assert_true(put_text(dir, "freezer.state", on ? "FROZEN" : "THAWED"));
}

static void freeze_two(struct play *s, const char *dir, bool on)
{
	(void)s;
	assert_true(put_text(dir, "cgroup.freeze", on ? "1" : "0"));
}

static void stop(struct play *s, const char *dir, bool on)
{
	(void)dir;
	kill(s->pid, on ? SIGSTOP : SIGCONT);
}

static void holding(const char *root, void (*hold)(struct play *s, const char *dir, bool on))
{
	char dir[200] = "";
	static struct play s;
	struct zns_mem *late = NULL;
	bool seen = false;

	play_begin(&s, couple);
	if (root && !group(root, dir, sizeof(dir), s.pid)) {
		play_end(&s);
		skip();
	}
	/* an attach to a program that cannot be stopped is refused with an error, and does not hang */
	if (root) {
		hold(&s, dir, true);
		assert_int_equal(zns_mem_new("late", MIB(1), &s.store, &late, &s.err), 0);
		assert_true(zns_mem_attach(late, s.pid, &s.err) < 0);
		print_message("%s\n", s.err.msg);
		zns_mem_leave(late);
		hold(&s, dir, false);
	}
	play_attach(&s);
	for (int i = 0; i < 3 || (i < 6 && !seen); i++) {
		uint64_t rounds;

		await_out(&s, 50);
		hold(&s, dir, true);
		other_goes_on(&s);
		for (int k = 0; k < 150 && !is_held(&s); k++)
			usleep(10000);
		seen |= is_held(&s);
		if (is_held(&s)) { /* it had not dropped the units that were being evicted */
			assert_true(zns_mem_detach(s.m, &s.err) < 0);
			assert_non_null(strstr(s.err.msg, "frozen"));
		}
		hold(&s, dir, false);
		for (int k = 0; k < WAIT_S * 100 && is_held(&s); k++)
			usleep(10000);
		assert_false(is_held(&s));
		rounds = s.t->other;
		await_out(&s, 50);
		assert_true(s.t->other >= rounds);
	}
	print_message("a drop was on its way: %s\n", seen ? "yes" : "no");
	do_step(&s, 3);
	play_detach(&s);
	assert_int_equal(s.t->wrong, 0);
	if (root)
		ungroup(&s, dir);
	kill(s.t->pid, SIGKILL);
	play_end(&s);
}

static void frozen_one(void **state)
{
	holding(ONE, freeze_one);
}

static void frozen_two(void **state)
{
	holding(TWO, freeze_two);
}

static void stopped(void **state)
{
	holding(NULL, stop);
}

/* ---- a tracer ---- */

static void idle(struct talk *t)
{
	uint8_t *mem = fresh(MANY);

	fill_pages(mem, MANY, 1);
	reach(t, 1);
	check_pages(t, mem, MANY, 1);
	reach(t, 2);
	check_pages(t, mem, MANY, 1);
	reach(t, 3);
}

static pid_t trace(pid_t pid)
{
	pid_t tracer = fork();
	siginfo_t info;

	if (!tracer) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; ptrace(PTRACE_SEIZE, pid, NULL, NULL); i++) {
			if (i > 1000)
				_exit(1);
			usleep(1000); /* a pager has it for a moment */
		}
		raise(SIGSTOP);
		for (;;)
			pause();
	}
	waitid(P_PID, (id_t)tracer, &info, WEXITED | WSTOPPED | WNOWAIT);
	assert_int_equal(info.si_code, CLD_STOPPED);
	return tracer;
}

/* A traced program is refused in one line; a tracer that attaches later is not disturbed. */
static void traced(void **state)
{
	struct zns_mem *m = NULL;
	static struct play s;
	pid_t tracer;

	play_begin(&s, idle);
	tracer = trace(s.pid);
	assert_int_equal(zns_mem_new("test", MIB(1), &s.store, &m, &s.err), 0);
	assert_int_equal(zns_mem_attach(m, s.pid, &s.err), -EBUSY);
	assert_non_null(strstr(s.err.msg, "traced by another one"));
	assert_null(strchr(s.err.msg, '\n'));
	zns_mem_leave(m);
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	play_attach(&s);
	await_bytes_out(&s, 0, MOST);
	tracer = trace(s.pid);
	do_step(&s, 2);
	kill(tracer, SIGKILL);
	waitpid(tracer, NULL, 0);
	await_bytes_out(&s, 0, MOST);
	do_step(&s, 3);
	play_end(&s);
}

/* ---- a cgroup that is full ---- */

static void greedy(struct talk *t)
{
	uint8_t *mem = fresh(4 * MANY);

	fill_pages(mem, 4 * MANY, 1);
	reach(t, 1);
	for (uint32_t k = 1; k < 5; k++) {
		check_pages(t, mem, 4 * MANY, k);
		fill_pages(mem, 4 * MANY, k + 1);
	}
	check_pages(t, mem, 4 * MANY, 5);
	reach(t, 2);
}

/* Memory that comes back is charged to the cgroup: it waits for room, which eviction makes. */
static void full_group(void **state)
{
	char dir[200];
	static struct play s;

	play_begin(&s, greedy);
	if (!group(LIMITS, dir, sizeof(dir), s.pid)) {
		play_end(&s);
		skip();
	}
	play_attach(&s);
	await_bytes_out(&s, 0, 4 * MOST);
	/* memory that is present stays charged to the old cgroup; 12 MiB for 32 MiB in use */
	assert_true(put_text(dir, "memory.limit_in_bytes", "12582912"));
	assert_int_equal(zns_mem_group_limit(s.m), 12582912);
	do_step(&s, 2);
	assert_int_equal(zns_mem_detach(s.m, &s.err), -ENOMEM);
	print_message("%s\n", s.err.msg);
	assert_true(put_text(dir, "memory.limit_in_bytes", "100000000"));
	play_detach(&s);
	assert_int_equal(s.t->wrong, 0);
	s.t->pid = s.pid;
	ungroup(&s, dir);
	play_end(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frozen_one), cmocka_unit_test(frozen_two),
		cmocka_unit_test(stopped),    cmocka_unit_test(traced),
		cmocka_unit_test(full_group),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
