/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The keeper of memory contexts, as a process of its own, in a directory where this program is
 * zns-mem: with --take-over it is a successor, which says on a FIFO what it got.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>
#include "../../zns/memory/keeper/wire.h"
#include "../../zns/memory/pager/quiesce.c"
#include "zns/memkeep.h"
#include "zns/packet.h"
#include "until.h"

#define FDS 300

static char dir[64];

/* What a successor reports. */
struct report {
	uint32_t pid, deaths, nr, len, good;
	int32_t keeper;
	char name[64];
};

static int memfd_of(uint32_t what)
{
	int fd = memfd_create("kept", MFD_CLOEXEC);

	if (fd < 0 || write(fd, &what, sizeof(what)) != sizeof(what))
		return -1;
	return fd;
}

/* ---- as zns-mem ---- */

static int successor(void)
{
	struct report r = { .pid = (uint32_t)getpid() };
	struct zns_memkeep_set s;
	struct zns_memkeep *k;
	uint32_t what;
	char path[128];
	int out;

	snprintf(path, sizeof(path), "%s/../fifo", getenv("ZNS_RUN"));
	out = open(path, O_WRONLY);
	if (out < 0 || zns_memkeep_take(ZNS_MEMKEEP_FD, &k, &s, NULL))
		return 1;
	r.deaths = s.deaths;
	r.nr = s.nr;
	r.len = (uint32_t)s.len;
	r.keeper = zns_memkeep_pid(k);
	snprintf(r.name, sizeof(r.name), "%s", s.name);
	for (uint32_t i = 0; i < s.nr; i++)
		r.good += pread(s.fds[i], &what, sizeof(what), 0) == sizeof(what) && what == i;
	for (size_t i = 0; i < s.len; i++)
		r.good += ((uint8_t *)s.data)[i] == (uint8_t)(i * 7);
	if (getenv("LD_PRELOAD") || getenv("ZNS_LIBEXEC"))
		r.good = 0;
	if (strcmp(s.name, "dies")) /* what it got it hands over at once, as a pager does */
		zns_memkeep_hand(k, s.data, s.len, s.fds, s.nr, NULL);
	if (write(out, &r, sizeof(r)) != sizeof(r))
		return 1;
	close(out);
	if (!strcmp(s.name, "dies"))
		return 1;
	pause();
	return 0;
}

/* ---- the tests ---- */

static void sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void sh(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
	static char shipped[PATH_MAX];
	char buf[128];

	if (!*shipped)
		snprintf(shipped, sizeof(shipped), "%s",
			 getenv("ZNS_LIBEXEC") ? getenv("ZNS_LIBEXEC") : "build/bin");
	strcpy(dir, "/tmp/zns-memkeep.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(buf, sizeof(buf), "%s/run", dir);
	setenv("ZNS_RUN", buf, 1);
	setenv("ZNS_LIBEXEC", dir, 1);
	sh("cp %.500s/zns-memkeep %s/ && cp /proc/%d/exe %s/zns-mem", shipped, dir, (int)getpid(),
	   dir);
	snprintf(buf, sizeof(buf), "%s/fifo", dir);
	assert_int_equal(mkfifo(buf, 0600), 0);
	*state = (void *)(intptr_t)open(buf, O_RDWR | O_CLOEXEC);
	return 0;
}

static int teardown(void **state)
{
	close((int)(intptr_t)*state);
	if (getenv("ZNS_TEST_LOG"))
		sh("cat %s/run/memory/keeper.messages", dir);
	sh("rm -rf %s", dir);
	return 0;
}

static struct report reported(void **state)
{
	struct pollfd p = { .fd = (int)(intptr_t)*state, .events = POLLIN };
	struct report r;

	assert_int_equal(poll(&p, 1, UNTIL_S * 1000), 1);
	assert_int_equal(read(p.fd, &r, sizeof(r)), sizeof(r));
	return r;
}

static void hand(struct zns_memkeep *k, uint32_t nr, size_t len)
{
	uint8_t *data = malloc(len + 1);
	struct zns_err err = ZNS_ERR_INIT;
	int fds[FDS] = { 0 };

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 7);
	for (uint32_t i = 0; i < nr; i++)
		fds[i] = memfd_of(i);
	if (zns_memkeep_hand(k, data, len, fds, nr, &err))
		fail_msg("%s", err.msg);
	for (uint32_t i = 0; i < nr; i++)
		close(fds[i]);
	free(data);
}

static struct zns_memkeep *opened(const char *name)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_memkeep *k;

	if (zns_memkeep_open(name, &k, &err))
		fail_msg("%s", err.msg);
	return k;
}

/* A pager that hands over and is killed; the keeper is @keeper's. */
static void pager_dies(const char *name, uint32_t nr, size_t len)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		hand(opened(name), 3, 10);
		hand(opened("other"), 1, 1);
		hand(opened("gone"), 0, 0);
		zns_memkeep_end(opened("ended"));
		struct zns_memkeep *k = opened("again");

		zns_memkeep_end(k);
		k = opened("again");
		hand(k, nr, len);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

/* The parent that must reap it may be slow, so a zombie counts as ended. */
static bool has_ended(pid_t pid)
{
	char path[64], state = 'Z';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	fclose(f);
	return state == 'Z';
}

static bool ends(pid_t pid)
{
	until(has_ended(pid));
	return true;
}

/* Everything that was handed over last comes to a successor, which has a clean environment; and so
 * on, when that dies too. */
static void a_successor_gets_all(void **state)
{
	struct report r, seen[4] = { 0 };
	pid_t keeper = 0;
	uint32_t n = 0;

	setenv("LD_PRELOAD", "", 1);
	pager_dies("first", FDS, 60000);
	unsetenv("LD_PRELOAD");
	for (int i = 0; i < 4; i++) {
		r = reported(state);
		assert_int_equal(r.deaths, 1);
		assert_int_equal(r.good, r.nr + r.len);
		if (!strcmp(r.name, "again")) {
			assert_int_equal(r.nr, FDS);
			assert_int_equal(r.len, 60000);
		}
		if (!strcmp(r.name, "first"))
			assert_int_equal(r.nr, 3);
		keeper = r.keeper;
		seen[n++] = r;
	}
	/* Kill the pager again: its successor gets what the pager handed over last. */
	for (uint32_t i = 0; i < 4; i++)
		if (!strcmp(seen[i].name, "again"))
			kill((pid_t)seen[i].pid, SIGKILL);
	r = reported(state);
	assert_string_equal(r.name, "again");
	assert_int_equal(r.deaths, 2);
	assert_int_equal(r.good, FDS + 60000);
	/* The keeper is killed first, since it would start others. */
	kill(keeper, SIGKILL);
	assert_true(ends(keeper));
	for (uint32_t i = 0; i < 4;
	     i++) /* the one of `again` has ended: its PID may be another's */
		if (strcmp(seen[i].name, "again"))
			kill((pid_t)seen[i].pid, SIGKILL);
	kill((pid_t)r.pid, SIGKILL);
}

/* If a successor cannot take over, others are started, at growing intervals; nothing is lost. */
static void successors_die_too(void **state)
{
	struct report r;
	int status;
	pid_t pid = fork();

	if (!pid) {
		hand(opened("dies"), 5, 100);
		kill(getpid(), SIGKILL);
	}
	waitpid(pid, &status, 0);
	for (uint32_t i = 1; i <= 4; i++) {
		r = reported(state);
		assert_int_equal(r.deaths, i);
		assert_int_equal(r.good, 105);
	}
	kill(r.keeper, SIGKILL);
	assert_true(ends(r.keeper));
}

static void the_keeper_dies(void **state)
{
	struct zns_memkeep *k = opened("web"), *other;
	struct zns_err err = ZNS_ERR_INIT;
	struct pollfd p = { .fd = zns_memkeep_fd(k), .events = POLLIN };
	pid_t first = zns_memkeep_pid(k);

	hand(k, 5, 100);
	assert_int_equal(zns_memkeep_open("web", &other, &err), -EEXIST);
	assert_int_equal(poll(&p, 1, 0), 0);
	kill(first, SIGKILL);
	assert_int_equal(poll(&p, 1, UNTIL_S * 1000), 1);
	assert_int_equal(zns_memkeep_hand(k, "", 0, NULL, 0, &err), -EPIPE);
	assert_int_equal(zns_memkeep_again(k, &err), 0);
	assert_true(zns_memkeep_pid(k) != first);
	hand(k, 7, 10);
	first = zns_memkeep_pid(k);
	zns_memkeep_end(k);
	assert_true(ends(first)); /* it has nothing to keep */
}

static int dial(void)
{
	struct zns_err err = ZNS_ERR_INIT;
	int d = zns_run_subdir(MK_DIR, &err), sk = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct sockaddr_un a;

	zns_run_address(d, MK_SOCKET, &a);
	assert_int_equal(connect(sk, (struct sockaddr *)&a, sizeof(a)), 0);
	zns_packet_timeouts(sk, UNTIL_S);
	close(d);
	return sk;
}

/* The keeper closes the connection of whoever says this. */
static void thrown_out(const struct mk_head *h, size_t len, int fd, bool named)
{
	struct mk_head begin = { .version = MK_VERSION, .op = MK_BEGIN, .name = "mallory" };
	struct iovec iov = { &begin, sizeof(begin) };
	struct mk_packet p;
	int sk = dial(), ret;

	if (named) {
		assert_int_equal(zns_packet_send(sk, &iov, 1, NULL, 0), 0);
		assert_int_equal(mk_recv(sk, &p), 1);
		assert_int_equal(p.h.code, 0);
	}
	iov = (struct iovec){ (void *)h, len };
	assert_int_equal(zns_packet_send(sk, &iov, 1, &fd, fd >= 0), 0);
	ret = mk_recv(sk, &p);
	if (ret == 1) {
		assert_int_equal(p.h.op, MK_ACK);
		assert_true(p.h.code < 0);
		ret = mk_recv(sk, &p);
	}
	assert_int_equal(ret, 0);
	close(sk);
}

static void nonsense(void **state)
{
	struct zns_memkeep *k = opened("web");
	const struct mk_head bad[] = {
		{ .version = MK_VERSION + 1, .op = MK_BEGIN, .name = "x" },
		{ .version = MK_VERSION, .op = 99 },
		{ .version = MK_VERSION, .op = MK_BEGIN, .name = "a/b" },
		{ .version = MK_VERSION, .op = MK_BEGIN, .name = "../x" },
		{ .version = MK_VERSION, .op = MK_BEGIN, .name = "web" },
		{ .version = MK_VERSION, .op = MK_COMMIT },
		{ .version = MK_VERSION, .op = MK_SET, .nr = ZNS_MEMKEEP_FDS_MAX + 1 },
		{ .version = MK_VERSION, .op = MK_SET, .len = ZNS_MEMKEEP_DATA_MAX + 1 },
		{ .version = MK_VERSION, .op = MK_DATA, .len = 5 },
		{ .version = MK_VERSION, .op = MK_FDS, .nr = 2 },
	};
	pid_t pid = zns_memkeep_pid(k);
	struct mk_head full;
	int fd = memfd_of(1);

	hand(k, 5, 100);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(bad); i++)
		thrown_out(&bad[i], sizeof(bad[i]), -1, i >= 5);
	thrown_out(&bad[9], sizeof(bad[9]), fd, true);
	thrown_out(&bad[5], 3, -1, false);
	thrown_out(&bad[5], sizeof(bad[5]), -1, false); /* who are you? */
	full = (struct mk_head){ .version = MK_VERSION, .op = MK_BEGIN };
	memset(full.name, 'x', sizeof(full.name));
	thrown_out(&full, sizeof(full), -1, false);
	close(fd);
	/* It serves as before. */
	hand(k, 5, 100);
	assert_int_equal(zns_memkeep_pid(k), pid);
	zns_memkeep_end(k);
	assert_true(ends(pid));
}

static void strangers(void **state)
{
	struct zns_memkeep *k = opened("web");
	pid_t pid, keeper = zns_memkeep_pid(k);
	struct mk_packet p;
	int status, sk;

	if (geteuid())
		skip();
	/* connected as root, so that the directory does not refuse: its credentials are another's
	 */
	pid = fork();
	if (!pid) {
		struct zns_err err = ZNS_ERR_INIT;
		struct sockaddr_un a;
		int d = zns_run_subdir(MK_DIR, &err);

		sk = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		zns_run_address(d, MK_SOCKET, &a);
		if (fchmod(d, 0755) || chmod(getenv("ZNS_RUN"), 0755) || chmod(dir, 0755) ||
		    fchmodat(d, MK_SOCKET, 0777, 0) || setresuid(1, 1, 1) ||
		    connect(sk, (struct sockaddr *)&a, sizeof(a)))
			_exit(1);
		_exit(mk_recv(sk, &p) ? 2 : 0);
	}
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	sh("chmod 0700 %s/run %s/run/memory", dir, dir);
	hand(k, 1, 1);
	zns_memkeep_end(k);
	assert_true(ends(keeper));
}

/* Any name that a container may have: as long as that, and that of the keeper's own files. */
static void names(void **state)
{
	static const char *const of_keeper[] = { "keeper", "keeper.lock", "keeper.messages" };
	struct zns_err err = ZNS_ERR_INIT;
	char name[ZNS_NAME_MAX + 1], file[ZNS_NAME_MAX + 8];
	int d = zns_run_subdir(MK_DIR, &err);

	(void)state;
	memset(name, 'n', ZNS_NAME_MAX);
	name[ZNS_NAME_MAX] = '\0';
	for (size_t len = ZNS_NAME_MAX; len > 70; len -= len > 80 ? 20 : 1) {
		int sk = socket(AF_UNIX, SOCK_SEQPACKET, 0),
		    to = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		name[len] = '\0';
		assert_int_equal(zns_check_memory(name, &err), 0);
		snprintf(file, sizeof(file), "%s.sock", name);
		assert_int_equal(zns_run_bind(sk, d, file), 0);
		assert_int_equal(listen(sk, 1), 0);
		assert_int_equal(faccessat(d, file, F_OK, 0), 0);
		assert_int_equal(zns_run_connect(to, d, file), 0);
		assert_int_equal(unlinkat(d, file, 0), 0);
		assert_int_equal(zns_run_connect(to, d, file), -ENOENT);
		close(sk);
		close(to);
	}
	close(d);
	assert_string_equal(MK_SOCKET, of_keeper[0]);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(of_keeper); i++) {
		const char *dot = strrchr(of_keeper[i], '.');

		assert_true(!dot ||
			    (strcmp(dot, ".sock") && strcmp(dot, ".seal") && strcmp(dot, ".log")));
	}
	assert_int_equal(zns_check_memory("a/b", NULL), -EINVAL);
	assert_int_equal(zns_check_memory(".a", NULL), -EINVAL);
	assert_int_equal(zns_check_memory("keeper", NULL), 0);
}

/* One tenant cannot lock the others out, and what was let in stays when the keeper dies. */
static void places(void **state)
{
	static struct zns_memkeep *k[ZNS_MEMKEEP_CONTEXTS_MAX];
	struct rlimit files;
	struct zns_memkeep *other;
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t nr = 0;
	char name[32];
	pid_t keeper;
	int ret = 0;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_max < 3 * ZNS_MEMKEEP_CONTEXTS_MAX)
		skip();
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	while (!ret && nr < ZNS_MEMKEEP_CONTEXTS_MAX) {
		snprintf(name, sizeof(name), "shop+%u", nr);
		ret = zns_memkeep_open(name, &k[nr], &err);
		nr += !ret;
	}
	assert_int_equal(ret, -EDQUOT);
	assert_int_equal(nr, ZNS_MEMKEEP_CONTEXTS_MAX / 2);
	assert_non_null(strstr(err.msg, "namespace shop: 1024 of the 2048"));
	assert_non_null(strstr(err.msg, "znsctl memory detach"));
	other = opened("bank+web");
	keeper = zns_memkeep_pid(other);
	kill(keeper, SIGKILL);
	assert_true(ends(keeper));
	assert_int_equal(zns_memkeep_again(other, &err), 0);
	for (uint32_t i = 0; i < nr; i++)
		assert_int_equal(zns_memkeep_again(k[i], &err), 0);
	assert_int_equal(zns_memkeep_open("shop+more", &k[nr], &err), -EDQUOT);
	keeper = zns_memkeep_pid(other);
	zns_memkeep_end(other);
	while (nr)
		zns_memkeep_end(k[--nr]);
	assert_true(ends(keeper));
}

/* ---- a dump that asks a pager ---- */

bool control_is_root(int sk)
{
	return true;
}

/* Packets that are too short or too long are no requests, whatever the packet before them was. */
static void malformed_requests(void **state)
{
	static struct packet q = { .ask = { .op = ZNS_QUIESCE_BEGIN } };
	struct pager p = { 0 };
	struct zns_quiesce_answer a;
	int sk[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk), 0);
	for (size_t len = 1; len < sizeof(q); len++) {
		q.ask.nr = len < sizeof(q.ask) ? 0 : len == sizeof(q.ask) ? 1 : UINT32_MAX;
		assert_int_equal(send(sk[0], &q, len, 0), (ssize_t)len);
		assert_int_equal(answer(&p, sk[1], &a, true), 0);
		assert_int_equal(a.code, -EPROTO);
		assert_int_equal(recv(sk[0], &a, sizeof(a), 0), sizeof(a));
		assert_int_equal(a.code, -EPROTO);
	}
	close(sk[0]);
	close(sk[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(malformed_requests),
		cmocka_unit_test_setup_teardown(names, setup, teardown),
		cmocka_unit_test_setup_teardown(a_successor_gets_all, setup, teardown),
		cmocka_unit_test_setup_teardown(successors_die_too, setup, teardown),
		cmocka_unit_test_setup_teardown(the_keeper_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(nonsense, setup, teardown),
		cmocka_unit_test_setup_teardown(strangers, setup, teardown),
		cmocka_unit_test_setup_teardown(places, setup, teardown),
	};

	if (argc == 3 && !strcmp(argv[1], ZNS_MEMKEEP_TAKE))
		return successor();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
