/* SPDX-License-Identifier: GPL-2.0-only */
/* zns/track: which pages of a running process were written. Real processes, the kernel of this
 * machine. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "zns/track.h"
#include "zns/util.h"

#define PAGE 4096UL

static struct zns_track_kernel kernel;

/* A child, and a pipe each way. */
struct target {
	pid_t pid;
	int say, hear;
};

static struct target start(void (*body)(int hear, int say, void *arg), void *arg)
{
	int down[2], up[2];
	struct target c;

	assert_int_equal(pipe(down), 0);
	assert_int_equal(pipe(up), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (!c.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		body(down[0], up[1], arg);
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	c.say = down[1];
	c.hear = up[0];
	return c;
}

static void stop(struct target *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->say);
	close(c->hear);
}

static void pages(int hear, int say, void *arg)
{
	char *m = arg, c;

	memset(m, 1, 16 * PAGE);
	write(say, "r", 1);
	while (read(hear, &c, 1) == 1) {
		m[(size_t)c * PAGE] = 2;
		write(say, "w", 1);
	}
}

static void basic(void **state)
{
	char *m = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), c;
	struct target t = start(pages, m);
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_spans copy = { 0 }, stale = { 0 }, present = { 0 };
	struct zns_span area = { (uintptr_t)m, (uintptr_t)m + MIB(1) };
	struct zns_track *k;

	assert_int_equal(read(t.hear, &c, 1), 1);
	if (zns_track_new(t.pid, &kernel, &k, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(zns_track_arm(k, &copy, &err), 0);
	assert_true(zns_spans_has(&copy, area.start));
	assert_true(zns_spans_has(&copy, area.start + 15 * PAGE));
	assert_false(zns_spans_has(&copy, area.start + 16 * PAGE));
	assert_int_equal(zns_track_barrier(k, &err), 0);
	c = 3;
	write(t.say, &c, 1);
	assert_int_equal(read(t.hear, &c, 1), 1);
	kill(t.pid, SIGSTOP);
	assert_int_equal(zns_track_final(k, &area, 1, false, &stale, &present, &err), 0);
	assert_int_equal(zns_spans_bytes(&stale), MIB(1) - 15 * PAGE);
	assert_int_equal(zns_spans_bytes(&present), PAGE);
	assert_true(zns_spans_has(&present, area.start + 3 * PAGE));
	zns_track_free(k);
	zns_spans_free(&copy);
	zns_spans_free(&stale);
	zns_spans_free(&present);
	stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(basic),
	};
	struct zns_err err = ZNS_ERR_INIT;

	assert_int_equal(zns_track_kernel(&kernel, &err), 0);
	print_message("tracker %s holes %d guards %d marker %lx %s\n",
		      zns_tracker_name(kernel.tracker), kernel.holes, kernel.guards,
		      (unsigned long)kernel.marker, kernel.why);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
