/* SPDX-License-Identifier: GPL-2.0-only */
/* The keeper of trackers and its packets: malformed packets and other users' packets are refused,
 * and no descriptor stays open. */
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "../../zns/helper/keeper/keep_take.c"
#include "../../zns/helper/keeper/keep_wire.c"
#include "../../zns/helper/keeper/keeper.c"
#include "pair.h"

/* of the dump, whose keepers are not looked for here */
uint32_t task_tree(pid_t root, pid_t **out)
{
	return 0;
}

static char dir[] = "/tmp/test-keep-XXXXXX";

static int begin_pair(void **state)
{
	alarm(600);
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk);
}

static struct keep_packet task_packet(void)
{
	struct keep_packet p = { .op = KEEP_TASK, .nr_fd = KEEP_FDS };

	for (int i = 0; i < KEEP_FDS; i++)
		p.fd[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	return p;
}

static void packets(void **state)
{
	struct keep_packet p = task_packet(), q;
	int before = count_fds();

	p.limit_s = 77;
	assert_int_equal(keep_send(sk[0], &p), 0);
	assert_int_equal(keep_recv(sk[1], &q), 1);
	assert_true(q.op == KEEP_TASK && q.limit_s == 77 && q.nr_fd == KEEP_FDS);
	keep_close(&q);
	/* descriptors are missing, or were not expected */
	for (p.nr_fd = 0; p.nr_fd < KEEP_FDS; p.nr_fd++) {
		assert_int_equal(keep_send(sk[0], &p), 0);
		assert_int_equal(keep_recv(sk[1], &q), -EPROTO);
	}
	p.op = KEEP_DROP;
	assert_int_equal(keep_send(sk[0], &p), 0);
	assert_int_equal(keep_recv(sk[1], &q), -EPROTO);
	p.nr_fd = KEEP_FDS;
	keep_close(&p);
	assert_int_equal(count_fds(), before - KEEP_FDS);
	close(sk[0]);
	assert_int_equal(keep_recv(sk[1], &q), 0);
}

static void lengths_and_versions(void **state)
{
	char big[2 * sizeof(struct keep_packet)] = { 0 };
	struct keep_packet p = { .version = KEEP_VERSION, .op = KEEP_READY }, q;

	memcpy(big, &p, SENT);
	for (size_t len = 1; len <= sizeof(big); len += len < SENT - 2 || len > SENT + 2 ? 7 : 1) {
		assert_int_equal(send(sk[0], big, len, 0), (ssize_t)len);
		if (len == SENT)
			assert_int_equal(keep_recv(sk[1], &q), 1);
		else
			assert_true(keep_recv(sk[1], &q) < 0);
	}
	p.version++;
	assert_int_equal(send(sk[0], &p, SENT, 0), SENT);
	assert_int_equal(keep_recv(sk[1], &q), -EPROTO);
}

static int pages(uint64_t nr, uint64_t nr_areas, const struct zns_span *v, size_t have)
{
	struct keep_pages h = { nr, nr_areas, "pagemap-1.img" };
	struct zns_spans a = { 0 }, b = { 0 };
	int fd = memfd_create("pages", MFD_CLOEXEC), ret;
	char name[64];

	assert_int_equal(write(fd, &h, sizeof(h)), sizeof(h));
	assert_int_equal(write(fd, v, have * sizeof(*v)), (ssize_t)(have * sizeof(*v)));
	ret = keep_read_pages(fd, name, &a, &b);
	if (!ret)
		assert_true(a.nr == nr && b.nr == nr_areas && !strcmp(name, "pagemap-1.img"));
	else
		assert_true(!a.s && !b.s);
	zns_spans_free(&a);
	zns_spans_free(&b);
	close(fd);
	return ret;
}

static void lists_of_pages(void **state)
{
	static const struct zns_span v[] = { { 4096, 8192 }, { 12288, 20480 }, { 0, 4096 } };

	assert_int_equal(pages(2, 1, v, 3), 0);
	assert_int_equal(pages(1, 2, v, 3), -EPROTO); /* out of order */
	assert_int_equal(pages(3, 0, v, 3), -EPROTO);
	assert_int_equal(pages(2, 0, v, 3), -EPROTO); /* more than is said */
	assert_int_equal(pages(2, 2, v, 3), -EPROTO);
	assert_int_equal(pages(UINT64_MAX, 4, v, 3), -EPROTO);
	assert_int_equal(pages(1ull << 60, 1ull << 60, v, 0), -EPROTO);
	assert_int_equal(pages(1, 0, &(struct zns_span){ 8192, 8192 }, 1), -EPROTO);
}

/* ---- the program ---- */

struct kept {
	pid_t keeper, task;
};

static const uint8_t id[ZNS_UUID_LEN] = { 1, 2, 3 };

static int run_keeper(int to)
{
	setsid();
	dup2(to, KEEP_FD); /* without close-on-exec */
	for (int i = KEEP_FD + 1; i < 64; i++)
		close(i);
	return keeper();
}

/* Starts a keeper and gives it one task; with @nr, announces that many tasks and gives none. */
static struct kept start(uint64_t limit_s, uint32_t nr)
{
	struct keep_packet set = { .op = KEEP_SET, .nr = nr, .limit_s = limit_s },
			   task = task_packet(), ready;
	struct kept c;

	c.task = fork();
	if (!c.task) {
		pause();
		_exit(0);
	}
	c.keeper = fork();
	if (!c.keeper)
		_exit(run_keeper(sk[1]));
	close(task.fd[ZNS_TRACK_PIDFD]);
	task.fd[ZNS_TRACK_PIDFD] = (int)syscall(SYS_pidfd_open, c.task, 0);
	memcpy(set.id, id, sizeof(id));
	assert_int_equal(keep_send(sk[0], &set), 0);
	assert_int_equal(keep_send(sk[0], &task), 0);
	keep_close(&task);
	if (nr == 1) {
		assert_int_equal(keep_recv(sk[0], &ready), 1);
		assert_int_equal(ready.op, KEEP_READY);
	}
	return c;
}

static int call(void)
{
	int d = keep_dir(NULL), s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), ret;
	struct sockaddr_un a;
	char name[64];

	keep_name(id, name);
	keep_address(d, name, &a);
	ret = connect(s, (struct sockaddr *)&a, sizeof(a));
	close(d);
	if (!ret)
		return s;
	close(s);
	return -1;
}

/* The keeper's greeting to a new client. */
static uint32_t greeting(int s)
{
	struct keep_packet p;
	uint32_t op;

	assert_int_equal(keep_recv(s, &p), 1);
	op = p.op;
	if (op == KEEP_SET) {
		assert_int_equal(p.nr, 1);
		assert_int_equal(keep_recv(s, &p), 1);
		assert_int_equal(p.op, KEEP_TASK);
	}
	keep_close(&p);
	return op;
}

static int exit_code(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void over(struct kept c)
{
	kill(c.task, SIGKILL);
	waitpid(c.task, NULL, 0);
	assert_int_equal(exit_code(c.keeper), 0);
	assert_int_equal(call(), -1);
}

static void greets_one(void **state)
{
	struct kept c = start(3600, 1);
	int a = call(), b;

	assert_int_equal(greeting(a), KEEP_SET);
	b = call();
	assert_int_equal(greeting(b), KEEP_BUSY);
	close(b);
	/* a client that sends nonsense is disconnected, and does no harm */
	assert_int_equal(send(a, "nonsense", 8, 0), 8);
	close(a);
	do { /* until it has seen that */
		b = call();
		assert_true(b >= 0);
		if (greeting(b) == KEEP_SET)
			break;
		close(b);
	} while (true);
	close(b);
	over(c); /* its task has ended */
}

static void changed_is_final(void **state)
{
	struct keep_packet p = { .op = KEEP_CHANGED };
	struct kept c = start(3600, 1);
	int s = call();

	assert_int_equal(greeting(s), KEEP_SET);
	assert_int_equal(keep_send(s, &p), 0);
	close(s);
	assert_int_equal(exit_code(c.keeper), 0);
	assert_int_equal(call(), -1);
	kill(c.task, SIGKILL);
	waitpid(c.task, NULL, 0);
}

static void time_is_up(void **state)
{
	struct kept c = start(1, 1);

	/* its task still runs, and no client has connected */
	assert_int_equal(exit_code(c.keeper), 0);
	assert_int_equal(kill(c.task, 0), 0);
	kill(c.task, SIGKILL);
	waitpid(c.task, NULL, 0);
}

static void impossible_sets(void **state)
{
	static const uint32_t nr[] = { 0, KEEP_TASKS_MAX + 1, 2 };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(nr); i++) {
		struct kept c = start(3600, nr[i]);

		close(sk[0]); /* only one of the two tasks connects */
		assert_int_equal(exit_code(c.keeper), 1);
		assert_int_equal(call(), -1);
		kill(c.task, SIGKILL);
		waitpid(c.task, NULL, 0);
		close(sk[1]);
		assert_int_equal(begin_pair(NULL), 0);
	}
}

/* Who takes a set over gets all of it, or nothing. */
static void sets_that_end_early(void **state)
{
	static const uint32_t then[] = { KEEP_TASK, KEEP_READY, 0 }; /* 0: it hangs up */

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(then); i++) {
		struct keep_packet p = { .op = KEEP_SET, .nr = 2 }, task = task_packet(), set;
		struct live_keep taken = { 0 };
		int ret;

		assert_int_equal(keep_send(sk[0], &p), 0);
		assert_int_equal(keep_send(sk[0], &task), 0);
		p.op = then[i];
		if (then[i])
			assert_int_equal(keep_send(sk[0], then[i] == KEEP_TASK ? &task : &p), 0);
		close(sk[0]);
		ret = receive_set(sk[1], &set, &taken);
		assert_int_equal(ret, then[i] == KEEP_TASK ? 0 : -EPROTO);
		assert_int_equal(taken.nr, then[i] == KEEP_TASK ? 2 : 1);
		clear(&taken);
		keep_close(&task);
		close(sk[1]);
		assert_int_equal(begin_pair(NULL), 0);
	}
}

static void others_get_nothing(void **state)
{
	struct kept c;
	char path[128];
	pid_t other;

	if (geteuid())
		skip();
	c = start(3600, 1);
	/* the directory alone keeps them out, and is not needed */
	keep_name(id, path);
	snprintf(path, sizeof(path), "chmod -R a+rwX %s", dir);
	assert_int_equal(system(path), 0);
	other = fork();
	if (!other) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		char name[64];

		keep_name(id, name);
		snprintf(a.sun_path, sizeof(a.sun_path), "%.30s/keep/%s", dir, name);
		if (setgroups(0, NULL) || setgid(65534) || setuid(65534) ||
		    connect(s, (struct sockaddr *)&a, sizeof(a)))
			_exit(99);
		_exit((int)greeting(s));
	}
	assert_int_equal(exit_code(other), KEEP_BUSY);
	assert_int_equal(chmod(dir, 0700), 0);
	kill(c.task, SIGKILL);
	waitpid(c.task, NULL, 0);
	assert_int_equal(exit_code(c.keeper), 0);
}

#define T(t) cmocka_unit_test_setup_teardown(t, begin_pair, end_pair)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(packets),         T(lengths_and_versions), T(lists_of_pages),
		T(greets_one),      T(time_is_up),           T(changed_is_final),
		T(impossible_sets), T(others_get_nothing),   T(sets_that_end_early),
	};
	char cmd[64];
	int ret;

	if (!mkdtemp(dir) || setenv("ZNS_RUN", dir, 1))
		return 1;
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) ? 1 : ret;
}
