/* SPDX-License-Identifier: GPL-2.0-only */
/* znsd and bad peers: they send nonsense, never read, or are too many; and clients of a broker
 * that does not answer. */
#include "broker_fixture.h"
#include <sys/resource.h>

static int raw(struct fx *f)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(zns_broker_path(f->reg.uuid, "sock", sa.sun_path, sizeof(sa.sun_path)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

enum { SERVED = 200, TURNED_AWAY, NO_SETUP };

/* What another user finds at the socket: an errno of connect(), SERVED or TURNED_AWAY. */
static int as_nobody(struct fx *f)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		struct sockaddr_un sa = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ZnsPb__Response *r;
		uint8_t *body, text[64];
		uint32_t len;
		REQ(q);

		if (zns_broker_path(f->reg.uuid, "sock", sa.sun_path, sizeof(sa.sun_path)) ||
		    setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(NO_SETUP);
		if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
			_exit(errno);
		q.version = ZNS_BROKER_VERSION;
		q.has_ls = q.ls = 1;
		len = (uint32_t)zns_pb__request__pack(&q, text);
		zns_msg_send(fd, text, len, NULL, NULL); /* fails if it is closed already */
		if (zns_msg_recv(fd, &body, &len, NULL, NULL))
			_exit(TURNED_AWAY);
		r = zns_pb__response__unpack(NULL, len, body);
		_exit(r && !r->code ? SERVED : TURNED_AWAY);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The directory keeps other users out. If the directory is open, the broker does. */
static void other_user(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	char run[80], sock[108];

	assert_int_equal(as_nobody(f), EACCES);
	snprintf(run, sizeof(run), "%s/run", f->dir);
	assert_int_equal(zns_broker_path(f->reg.uuid, "sock", sock, sizeof(sock)), 0);
	assert_int_equal(chmod(f->dir, 0755), 0);
	assert_int_equal(chmod(run, 0755), 0);
	assert_int_equal(chmod(sock, 0666), 0);
	assert_int_equal(as_nobody(f), TURNED_AWAY);
	assert_int_equal(nr_checkpoints(&b), 0);
	zns_broker_close(&b);
}

/* The answer, if any, must be an error; then the connection is closed. */
static void closed_with(int fd, int code)
{
	ZnsPb__Response *r;
	uint8_t *body;
	uint32_t len;

	assert_int_equal(zns_msg_recv(fd, &body, &len, NULL, NULL), 0);
	r = zns_pb__response__unpack(NULL, len, body);
	assert_non_null(r);
	assert_int_equal(r->code, code);
	assert_non_null(r->error);
	drop(r);
	free(body);
	assert_int_equal(zns_msg_recv(fd, &body, &len, NULL, NULL), -EPIPE);
	close(fd);
}

static void malformed_frames(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	ZnsPb__Response *r;
	uint8_t *body, junk[64];
	uint32_t len, i, seed = 1;
	int fd, idle, half;
	struct stat st;
	REQ(q);

	/* Two clients that hang: one sends nothing, one stops in the middle of a length. */
	idle = raw(f);
	half = raw(f);
	assert_int_equal(send(half, "\x10\x00", 2, 0), 2);

	fd = raw(f);
	assert_int_equal(send(fd, "\xff\xff\xff\xff", 4, 0), 4);
	closed_with(fd, -EBADMSG);
	fd = raw(f);
	assert_int_equal(send(fd, "\x00\x00\x80\x00\x00", 5, 0), 5); /* 8 MiB announced: waits */
	close(fd);
	fd = raw(f);
	assert_int_equal(send(fd, "\x01\x00\x80\x00", 4, 0), 4); /* one byte more */
	closed_with(fd, -EBADMSG);
	fd = raw(f);
	assert_int_equal(send(fd, "\x00\x00\x00\x00", 4, 0), 4); /* no version */
	closed_with(fd, -EBADMSG);

	q.version = ZNS_BROKER_VERSION + 1;
	q.has_ls = q.ls = 1;
	len = zns_pb__request__get_packed_size(&q);
	assert_true(len <= sizeof(junk));
	zns_pb__request__pack(&q, junk);
	fd = raw(f);
	assert_int_equal(zns_msg_send(fd, junk, len, NULL, NULL), 0);
	closed_with(fd, -EPROTO);

	for (i = 0; i < 300; i++) {
		uint32_t n = 1 + i % sizeof(junk), k;

		for (k = 0; k < n; k++) {
			seed = seed * 1103515245 + 12345;
			junk[k] = seed >> 16;
		}
		fd = raw(f);
		assert_int_equal(zns_msg_send(fd, junk, n, NULL, NULL), 0);
		if (!zns_msg_recv(fd, &body, &len, NULL, NULL)) {
			r = zns_pb__response__unpack(NULL, len, body);
			assert_non_null(r);
			assert_int_not_equal(r->code, 0);
			drop(r);
			free(body);
		}
		close(fd);
	}
	/* A request that arrives in pieces is no error. */
	q.version = ZNS_BROKER_VERSION;
	len = zns_pb__request__get_packed_size(&q);
	zns_pb__request__pack(&q, junk);
	fd = raw(f);
	assert_int_equal(send(fd, &len, 4, 0), 4);
	for (i = 0; i < len; i++) {
		settle(&b);
		assert_int_equal(send(fd, junk + i, 1, 0), 1);
	}
	assert_int_equal(zns_msg_recv(fd, &body, &len, NULL, NULL), 0);
	r = zns_pb__response__unpack(NULL, len, body);
	assert_int_equal(r->code, 0);
	drop(r);
	free(body);
	close(fd);

	/* The broker still runs, and its state is unchanged. */
	assert_int_equal(nr_checkpoints(&b), 0);
	snprintf((char *)junk, sizeof(junk), "%s/run", f->dir);
	assert_int_equal(stat((char *)junk, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	close(idle);
	close(half);
	zns_broker_close(&b);
}

/* A process listens and never answers, like a stopped broker: the client does not wait for ever. */
static void silent_broker(void **state)
{
	struct fx *f = *state;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), i;
	struct zns_err err = ZNS_ERR_INIT;
	struct timeval tv = { .tv_sec = 1 };
	socklen_t len = sizeof(tv);
	struct zns_broker b;
	char run[300];

	snprintf(run, sizeof(run), "%s/run", f->dir);
	assert_true(!mkdir(run, 0700) || errno == EEXIST);
	assert_int_equal(zns_broker_path(f->reg.uuid, "sock", sa.sun_path, sizeof(sa.sun_path)), 0);
	unlink(sa.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(fd, 0), 0);
	setenv("ZNS_BROKER_HELLO_MS", "100", 1);
	/* The first client is accepted and gets no answer, the next ones find the queue full. */
	for (i = 0; i < 3; i++) {
		assert_int_equal(zns_broker_connect(&f->reg, &b, &err), -ETIMEDOUT);
		assert_non_null(strstr(err.msg, i ? "broker" : "does not answer"));
	}
	unsetenv("ZNS_BROKER_HELLO_MS");
	close(fd);
	b = client(f);
	/* Later answers have no such limit. */
	assert_int_equal(getsockopt(b.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len), 0);
	assert_true(!tv.tv_sec && !tv.tv_usec);
	zns_broker_close(&b);
}

static size_t put_frame(uint8_t *buf, ZnsPb__Request *q)
{
	uint32_t len;

	q->version = ZNS_BROKER_VERSION;
	len = zns_pb__request__pack(q, buf + 4);
	memcpy(buf, &len, 4);
	return 4 + len;
}

/* A second request on a connection whose first waits for admission is answered after the first. */
static void request_behind_a_wait(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f), w = client(f);
	struct grant g = begin_mode(&b, "web", DIES * 100, "wait", NULL);
	ZnsPb__DumpBegin d;
	ZnsPb__Response *r;
	ZnsPb__Request q;
	uint8_t both[512];
	size_t len;

	assert_int_equal(g.n, DIES);
	begin_request(&q, &d, "db", 100, "wait=20", "dynamic");
	len = put_frame(both, &q);
	zns_pb__request__init(&q);
	q.has_ls = q.ls = 1;
	len += put_frame(both + len, &q);
	assert_int_equal(send(w.fd, both, len, 0), len);
	settle(&b);
	assert_false(has_answer(&w));
	abort_dump(&b);
	r = answer(&w);
	assert_int_equal(r->code, 0);
	assert_non_null(r->dump);
	drop(r);
	r = answer(&w);
	assert_null(r->dump);
	drop(r);
	zns_broker_close(&w);
	zns_broker_close(&b);
}

/* More connections than descriptors: the others wait, the accepted ones are served, and the loop
 * does not spin. */
static void no_descriptors(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	struct rlimit few, old;
	int fd[40], i;

	assert_int_equal(prlimit(b.broker_pid, RLIMIT_NOFILE, NULL, &old), 0);
	few = (struct rlimit){ 24, old.rlim_max };
	assert_int_equal(prlimit(b.broker_pid, RLIMIT_NOFILE, &few, NULL), 0);
	for (i = 0; i < 40; i++)
		fd[i] = raw(f);
	assert_int_equal(nr_checkpoints(&b), 0);
	until(run_state((pid_t)b.broker_pid) == 'S'); /* a loop that spins never sleeps */
	advance(&b, 100); /* and once more */
	until(run_state((pid_t)b.broker_pid) == 'S');
	assert_int_equal(nr_checkpoints(&b), 0);
	assert_int_equal(prlimit(b.broker_pid, RLIMIT_NOFILE, &old, NULL), 0);
	advance(&b, 100);
	for (i = 0; i < 40; i++)
		close(fd[i]);
	zns_broker_close(&b);
	b = client(f);
	assert_int_equal(nr_checkpoints(&b), 0);
	zns_broker_close(&b);
}

/* A peer that sends requests and never reads must not stop the others. */
static void stuck_peer(void **state)
{
	struct fx *f = *state;
	struct zns_broker b = client(f);
	uint8_t body[64], frame[68];
	uint32_t len, i;
	REQ(q);
	int fd = raw(f);

	q.version = ZNS_BROKER_VERSION;
	q.has_zones = q.zones = 1;
	len = zns_pb__request__get_packed_size(&q);
	zns_pb__request__pack(&q, body);
	memcpy(frame, &len, 4);
	memcpy(frame + 4, body, len);
	for (i = 0; i < 100000; i++)
		if (send(fd, frame, 4 + len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
	assert_true(i < 100000);
	b.limit_ms = 60000; /* limit, in case it hangs */
	for (i = 0; i < 50; i++)
		nr_checkpoints(&b);
	close(fd);
	zns_broker_close(&b);
}

static int setup_still(void **state)
{
	int ret;

	fx_still = true;
	ret = fx_setup(state);
	fx_still = false;
	return ret;
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, fx_setup, fx_teardown)
#define S(t) cmocka_unit_test_setup_teardown(t, setup_still, fx_teardown)
	const struct CMUnitTest tests[] = {
		S(malformed_frames),      T(other_user),     T(silent_broker),
		S(request_behind_a_wait), S(no_descriptors), T(stuck_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
