/* SPDX-License-Identifier: GPL-2.0-only */
/* The emulated device under several handles, threads and processes, some of which die. */
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>

#include "emu_kill.h"

static void two_handles(void **state)
{
	struct zns_dev *a = make_small(), *b = open_dev();
	uint32_t z = 0;

	assert_ok(put(a, 0, 0, 4096, 1));
	check(b, 0, 0, 4096, 1);
	assert_ok(put(b, 0, 4096, 8192, 1));
	assert_fails(put(a, 0, 4096, 4096, 1), -EIO, "write pointer 12288");
	check(a, 0, 0, 12288, 1);
	for (uint32_t i = 1; i < 4; i++)
		assert_ok(put(i & 1 ? a : b, i, 0, 4096, 1));
	assert_fails(put(b, 4, 0, 4096, 1), -ETOOMANYREFS, "limit is 4");
	assert_ok(zns_dev_reset(b, &z, 1, &err));
	assert_zone(a, 0, ZNS_ZONE_EMPTY, 0);
	assert_ok(put(a, 4, 0, 4096, 1));
	zns_dev_close(a);
	assert_zone(b, 4, ZNS_ZONE_IMP_OPEN, 4096); /* a handle is not an owner */
	zns_dev_close(b);
	a = open_dev(); /* nor is the last one */
	assert_zone(a, 4, ZNS_ZONE_IMP_OPEN, 4096);
	zns_dev_close(a);
}

static int child_opens_two(void)
{
	struct zns_dev *d;

	if (zns_dev_open(dev_spec, 0, &d, &err))
		return 1;
	if (put(d, 1, 0, 4096, 1) || zns_dev_open_zone(d, 2, &err))
		return 2;
	/* no close: the kernel cleans up */
	return 0;
}

static void limits_over_processes(void **state)
{
	struct zns_dev *d = make_small();

	assert_ok(put(d, 0, 0, 4096, 1));
	assert_int_equal(in_child(child_opens_two), 0);
	assert_zone(d, 1, ZNS_ZONE_IMP_OPEN, 4096);
	assert_zone(d, 2, ZNS_ZONE_EXP_OPEN, 0);
	assert_ok(put(d, 3, 0, 4096, 1));
	assert_fails(put(d, 4, 0, 4096, 1), -ETOOMANYREFS, "4 zones are open");
	assert_ok(zns_dev_close_zone(d, 2, &err));
	assert_ok(put(d, 4, 0, 4096, 1));
	zns_dev_close(d);
}

/* Many processes race for few open zones: the limit is never exceeded, and is reached. */
static int child_races(void)
{
	struct zns_dev *d;
	int won = 0;

	if (zns_dev_open(dev_spec, 0, &d, &err))
		return 99;
	for (uint32_t z = getpid() % 16, i = 0; i < 16; i++, z = (z + 1) % 16) {
		int rc = zns_dev_open_zone(d, z, &err);

		if (rc && rc != -ETOOMANYREFS)
			return 98;
		won += !rc;
	}
	return won;
}

static void race_for_open_zones(void **state)
{
	struct zns_dev *d = make_small();
	pid_t pid[6];
	int st, open = 0;

	for (int i = 0; i < 6; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(child_races());
	}
	for (int i = 0; i < 6; i++) {
		assert_int_equal(waitpid(pid[i], &st, 0), pid[i]);
		assert_true(WIFEXITED(st) && WEXITSTATUS(st) < 90);
	}
	for (uint32_t z = 0; z < 16; z++)
		open += zone_of(d, z).state == ZNS_ZONE_EXP_OPEN;
	assert_int_equal(open, 4);
	zns_dev_close(d);
}

/* Several processes append to one zone: every block is complete, and each place is given once. */
static int child_appends(void)
{
	cleanup_free uint64_t *buf = aligned(4096);
	struct zns_dev *d;
	uint64_t off;

	if (zns_dev_open(dev_spec, 0, &d, &err))
		return 1;
	for (uint64_t i = 0; i < 40; i++) {
		for (size_t w = 0; w < 512; w++)
			buf[w] = (uint64_t)getpid() << 32 | i;
		if (zns_dev_append(d, 7, buf, 4096, &off, &err))
			return 2;
	}
	return 0;
}

static void processes_append_to_one_zone(void **state)
{
	struct zns_dev *d = make_small();
	cleanup_free uint64_t *buf = aligned(160 * 4096);
	pid_t pid[4];
	uint64_t next[4] = { 0 };
	int st;

	for (int i = 0; i < 4; i++) {
		pid[i] = fork();
		if (!pid[i])
			_exit(child_appends());
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(waitpid(pid[i], &st, 0), pid[i]);
		assert_int_equal(st, 0);
	}
	assert_zone(d, 7, ZNS_ZONE_IMP_OPEN, 160 * 4096);
	assert_ok(zns_dev_read(d, 7, 0, buf, 160 * 4096, &err));
	for (size_t b = 0; b < 160; b++) {
		int who = -1;

		for (int i = 0; i < 4; i++)
			if ((pid_t)(buf[b * 512] >> 32) == pid[i])
				who = i;
		assert_true(who >= 0);
		/* in the order it wrote them */
		assert_int_equal(buf[b * 512] & UINT32_MAX, next[who]++);
		for (size_t w = 1; w < 512; w++)
			assert_int_equal(buf[b * 512 + w], buf[b * 512]);
	}
	zns_dev_close(d);
}

struct writer {
	struct zns_dev *d;
	uint32_t zone;
	int rc;
};

static void *writer_thread(void *arg)
{
	struct writer *w = arg;
	cleanup_free void *buf = aligned(16384);
	struct zns_err e = ZNS_ERR_INIT;

	for (uint64_t off = 0; off < CAP && !w->rc; off += 16384) {
		pattern(buf, 16384, w->zone, off, 3);
		w->rc = zns_dev_write(w->d, w->zone, off, buf, 16384, &e);
		if (!w->rc && off % 65536 == 0)
			w->rc = zns_dev_flush(w->d, &e);
	}
	return NULL;
}

static void threads_write_different_zones(void **state)
{
	struct zns_emu_params p = small();
	struct writer w[8];
	pthread_t t[8];
	struct zns_dev *d;

	p.nr_zones = 80; /* zones 64 apart share a mutex */
	p.max_open = p.max_active = 8;
	d = make_dev(&p);
	for (int i = 0; i < 8; i++) {
		w[i] = (struct writer){ .d = d, .zone = i < 4 ? i : 60 + i };
		assert_int_equal(pthread_create(&t[i], NULL, writer_thread, &w[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(w[i].rc, 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_zone(d, w[i].zone, ZNS_ZONE_FULL, CAP);
		check(d, w[i].zone, 0, CAP, 3);
	}
	assert_ok(zns_emu_power_cut(d, &err));
	zns_dev_close(d);
}

static void *append_thread(void *arg)
{
	struct writer *w = arg;
	cleanup_free void *buf = aligned(4096);
	struct zns_err e = ZNS_ERR_INIT;
	uint64_t off;

	for (int i = 0; i < 40 && !w->rc; i++)
		w->rc = zns_dev_append(w->d, w->zone, buf, 4096, &off, &e);
	return NULL;
}

static void *reset_thread(void *arg)
{
	struct writer *w = arg;
	struct zns_err e = ZNS_ERR_INIT;
	uint32_t set[] = { 15, 2, 9, 4, 3 };

	for (int i = 0; i < 20 && !w->rc; i++)
		w->rc = zns_dev_reset(w->d, set, i % 6, &e);
	return NULL;
}

/* Locks of many zones at once against single ones, over two handles: neither hangs nor loses an
 * append. */
static void threads_mix_everything(void **state)
{
	struct zns_dev *d[2] = { make_small(), open_dev() };
	struct writer w[8];
	pthread_t t[8];

	for (int i = 0; i < 8; i++) {
		w[i] = (struct writer){ .d = d[i & 1], .zone = i < 4 ? 0 : 1 };
		assert_int_equal(pthread_create(&t[i], NULL,
						i % 4 == 3 ? reset_thread : append_thread, &w[i]),
				 0);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(w[i].rc, 0);
	}
	assert_zone(d[0], 0, ZNS_ZONE_IMP_OPEN, 3 * 40 * 4096);
	assert_zone(d[0], 1, ZNS_ZONE_IMP_OPEN, 3 * 40 * 4096);
	zns_dev_close(d[0]);
	zns_dev_close(d[1]);
}

static void faults_hit_once_over_threads(void **state)
{
	struct zns_dev *d = make_small();
	struct zns_emu_fault f = { .fail_write_after = 100, .fail_read_after = -1 };
	struct writer w[4];
	pthread_t t[4];
	int failed = 0, wrote = 0;

	assert_ok(zns_emu_set_fault(d, &f));
	for (int i = 0; i < 4; i++) {
		w[i] = (struct writer){ .d = d, .zone = i };
		assert_int_equal(pthread_create(&t[i], NULL, append_thread, &w[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_true(!w[i].rc || w[i].rc == -EIO);
		failed += !!w[i].rc;
		wrote += zone_of(d, i).wp / 4096;
	}
	assert_int_equal(failed, 1);
	assert_true(wrote >= 120 && wrote < 160);
	zns_dev_close(d);
}

/* ---- processes killed at any moment -------------------------------------------------------------
 */

static void stop_here(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

/* Kills a process at a system call: the 1st after the opening of the device, the 6th, and so on. */
static void kill_at_call(int nr)
{
	int st;
	pid_t pid = fork();

	if (!pid)
		_exit(child_until_killed((unsigned)nr, stop_here));
	assert_true(pid > 0);
	for (int stops = 0; stops <= 1 + nr * 5; stops++) {
		assert_int_equal(waitpid(pid, &st, 0), pid);
		if (!WIFSTOPPED(st))
			fail_msg("the child ended by itself with %d", WEXITSTATUS(st));
		if (!stops)
			ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL);
		if (stops <= nr * 5)
			ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSIGNALED(st));
}

/* Kills at random moments are in soak_emu_share.c. */
static void killed_at_calls(void **state)
{
	killed_in_the_middle(60, kill_at_call);
}

/* A killed process leaves its zones open, as on a real drive, and the counts are right. */
static int child_opens_and_dies(void)
{
	struct zns_dev *d;

	if (zns_dev_open(dev_spec, 0, &d, &err) || put(d, 0, 0, 4096, 1) || put(d, 1, 0, CAP, 1))
		return 1;
	raise(SIGKILL);
	return 2;
}

static void limits_after_a_kill(void **state)
{
	struct zns_dev *d = make_small();

	assert_int_equal(in_child(child_opens_and_dies), 128 + SIGKILL);
	assert_zone(d, 0, ZNS_ZONE_IMP_OPEN, 4096);
	for (uint32_t z = 2; z < 5; z++)
		assert_ok(put(d, z, 0, 4096, 1));
	assert_fails(put(d, 5, 0, 4096, 1), -ETOOMANYREFS, "limit is 4");
	assert_ok(put(d, 0, 4096, 4096, 1)); /* anybody may write on */
	check(d, 0, 0, 8192, 1);
	zns_dev_close(d);
}

/* A dead process holds no lock. */
static int child_dies_with_locks(void)
{
	struct zns_dev *d;
	struct emu *e;

	if (zns_dev_open(dev_spec, 0, &d, &err))
		return 1;
	e = emu_of(d);
	if (emu_zone_lock(e, 3, &err) || emu_count_lock(e, &err) || emu_durable_lock(e, &err) ||
	    emu_lock_init(e->fd, true, &err))
		return 2;
	raise(SIGKILL);
	return 3;
}

static void locks_die_with_their_holder(void **state)
{
	struct zns_dev *d = make_small(), *other;
	uint32_t z = 3;

	assert_int_equal(in_child(child_dies_with_locks), 128 + SIGKILL);
	other = open_dev();
	assert_ok(put(other, 3, 0, 4096, 1));
	assert_ok(zns_dev_flush(other, &err));
	assert_ok(zns_dev_reset(d, &z, 1, &err));
	zns_dev_close(other);
	zns_dev_close(d);
}

/* If a live process has the lock, the other one waits until that process has ended. */
static void zone_lock_excludes_processes(void **state)
{
	struct zns_dev *d = make_small();
	int pipes[2], st;
	char c;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	assert_ok(emu_zone_lock(emu_of(d), 3, &err));
	pid = fork();
	if (!pid) {
		struct zns_dev *own;

		if (zns_dev_open(dev_spec, 0, &own, &err) || put(own, 4, 0, 4096, 1) ||
		    write(pipes[1], "4", 1) != 1)
			_exit(1);
		if (put(own, 3, 0, 4096, 1) || write(pipes[1], "3", 1) != 1)
			_exit(2);
		_exit(0);
	}
	assert_int_equal(read(pipes[0], &c, 1), 1); /* another zone is free */
	assert_int_equal(c, '4');
	struct pollfd pfd = { .fd = pipes[0], .events = POLLIN };
	assert_int_equal(poll(&pfd, 1, 50), 0);
	assert_zone(d, 3, ZNS_ZONE_EMPTY, 0);
	emu_zone_unlock(emu_of(d), 3);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
	assert_zone(d, 3, ZNS_ZONE_IMP_OPEN, 4096);
	close(pipes[0]);
	close(pipes[1]);
	zns_dev_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(two_handles),
		T(limits_over_processes),
		T(race_for_open_zones),
		T(processes_append_to_one_zone),
		T(threads_write_different_zones),
		T(threads_mix_everything),
		T(faults_hit_once_over_threads),
		T(killed_at_calls),
		T(limits_after_a_kill),
		T(locks_die_with_their_holder),
		T(zone_lock_excludes_processes),
	};

	return cmocka_run_group_tests_name("emu-share", tests, NULL, NULL);
}
