/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets from criu to its helper: what is malformed is refused, and no descriptor stays behind. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "../../zns/helper/wire.c"
#include "pair.h"
#include "zns-smaps.h"
#include "zns-window.h"

static struct packet p;

static int begin(void **state)
{
	int on = 1;

	alarm(600);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return -1;
	memset(&p, 0x5a, sizeof(p));
	return setsockopt(sk[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
}

/* As criu does, but with whatever is given. */
static void send_raw(const void *head, size_t head_len, const void *body, size_t body_len,
		     const int *fd, uint32_t nr_fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 32)];
		struct cmsghdr align;
	} u = { .buf = { 0 } };
	struct iovec iov[2] = { { (void *)head, head_len }, { (void *)body, body_len } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	if (nr_fd) {
		struct cmsghdr *c;

		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nr_fd);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nr_fd);
		memcpy(CMSG_DATA(c), fd, sizeof(int) * nr_fd);
	}
	assert_int_equal(sendmsg(sk[0], &m, 0), head_len + body_len);
}

static struct zw_hdr hdr(uint32_t op)
{
	return (struct zw_hdr){ .version = ZW_VERSION, .op = op };
}

static void send_body(struct zw_hdr h, const void *body, size_t len)
{
	send_raw(&h, sizeof(h), body, len, NULL, 0);
}

static void good_packets(void **state)
{
	static struct zw_iov v[ZW_MAX_IOV];
	struct zw_hdr h = hdr(ZW_READ);
	int before = count_fds(), fd[ZW_MAX_FDS];

	for (uint32_t n = 0; n <= ZW_MAX_FDS; n++) {
		for (uint32_t i = 0; i < n; i++)
			fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		h.image = n;
		h.off = 1ull << 40;
		h.pid = -5;
		send_raw(&h, sizeof(h), "abc", 4, fd, n);
		for (uint32_t i = 0; i < n; i++)
			close(fd[i]);
		assert_int_equal(packet_recv(sk[1], &p), 1);
		assert_memory_equal(&p.h, &h, sizeof(h));
		assert_int_equal(p.len, 4);
		assert_string_equal((char *)p.payload, "abc");
		assert_int_equal(p.nr_fd, n);
		assert_int_equal(p.sender, getpid());
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(fcntl(p.fd[i], F_GETFD), FD_CLOEXEC);
		packet_close_fds(&p);
		assert_int_equal(p.nr_fd, 0);
	}
	/* the longest there is */
	for (uint32_t i = 0; i < ZW_MAX_IOV; i++)
		v[i] = (struct zw_iov){ i, i + 1 };
	h.nr = ZW_MAX_IOV;
	send_body(h, v, sizeof(v));
	assert_int_equal(packet_recv(sk[1], &p), 1);
	assert_non_null(packet_iov(&p));
	assert_memory_equal(packet_iov(&p), v, sizeof(v));
	/* no payload at all */
	send_raw(&h, sizeof(h), NULL, 0, NULL, 0);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	assert_int_equal(p.len, 0);
	assert_int_equal(count_fds(), before);
}

static void the_sender_is_known(void **state)
{
	struct zw_hdr h = hdr(ZW_READ);
	pid_t pid = fork();

	if (!pid) {
		struct iovec v = { &h, sizeof(h) };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

		_exit(sendmsg(sk[0], &m, 0) != sizeof(h));
	}
	assert_int_equal(packet_recv(sk[1], &p), 1);
	assert_int_equal(p.sender, pid);
	waitpid(pid, NULL, 0);
}

static void short_packets(void **state)
{
	struct zw_hdr h = hdr(ZW_OPEN);
	int before = count_fds(), fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	for (size_t len = 1; len < sizeof(h); len++) {
		send_raw(&h, len, NULL, 0, &fd, len % 2);
		assert_int_equal(packet_recv(sk[1], &p), -EPROTO);
		assert_int_equal(p.nr_fd, 0);
	}
	close(fd);
	assert_int_equal(count_fds(), before);
}

static void too_long_packets(void **state)
{
	static char body[ZW_MAX_MSG + 100];
	struct zw_hdr h = hdr(ZW_OPEN);
	int before = count_fds(), fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	for (size_t len = ZW_MAX_MSG - 1; len < sizeof(body); len++) {
		send_raw(&h, sizeof(h), body, len, &fd, 1);
		assert_int_equal(packet_recv(sk[1], &p), len < ZW_MAX_MSG ? 1 : -EPROTO);
		packet_close_fds(&p);
	}
	close(fd);
	assert_int_equal(count_fds(), before);
}

/* Programs of different releases refuse each other with a message that says so. */
static void other_versions(void **state)
{
	const uint32_t versions[] = { 0, ZW_VERSION + 1, UINT32_MAX };
	int before = count_fds();

	for (size_t n = 0; n < ZNS_ARRAY_SIZE(versions); n++) {
		struct zw_hdr h = hdr(ZW_DUMP_BEGIN);
		struct zw_reply r;
		int a[2];

		h.version = versions[n];
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, a), 0);
		send_raw(&h, sizeof(h), NULL, 0, &a[1], 1);
		close(a[1]);
		assert_int_equal(packet_recv(sk[1], &p), -EPROTO);
		assert_int_equal(read(a[0], &r, sizeof(r)), sizeof(r));
		assert_int_equal(r.code, -EPROTO);
		assert_non_null(strstr(r.msg, "different builds"));
		assert_int_equal(read(a[0], &r, sizeof(r)), 0);
		close(a[0]);
		send_raw(&h, sizeof(h), NULL, 0, NULL, 0);
		assert_int_equal(packet_recv(sk[1], &p), -EPROTO);
	}
	assert_int_equal(count_fds(), before);
}

static void too_many_fds(void **state)
{
	struct zw_hdr h = hdr(ZW_OPEN);
	int before = count_fds(), fd[32];

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		fd[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (uint32_t n = ZW_MAX_FDS + 1; n <= ZNS_ARRAY_SIZE(fd); n++) {
		send_raw(&h, sizeof(h), "x", 2, fd, n);
		assert_int_equal(packet_recv(sk[1], &p), -EPROTO);
		assert_int_equal(p.nr_fd, 0);
	}
	/* and the next packet is a good one again */
	send_raw(&h, sizeof(h), "x", 2, fd, 1);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	packet_close_fds(&p);
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(fd); i++)
		close(fd[i]);
	assert_int_equal(count_fds(), before);
}

static void end_of_stream(void **state)
{
	struct zw_hdr h = hdr(ZW_OPEN);

	send_body(h, "x", 2);
	shutdown(sk[0], SHUT_WR);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	assert_int_equal(packet_recv(sk[1], &p), 0);
	assert_int_equal(packet_recv(-1, &p), -EBADF);
}

static const char *text_of(const void *body, size_t len)
{
	struct zw_hdr h = hdr(ZW_OPEN);

	send_raw(&h, sizeof(h), body, len, NULL, 0);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	return packet_text(&p);
}

static void texts(void **state)
{
	char buf[ZW_STR + 10];

	assert_string_equal(text_of("pages-1.img", 12), "pages-1.img");
	assert_string_equal(text_of("", 1), "");
	assert_null(text_of("", 0));
	assert_null(text_of("pages-1.img", 11)); /* not terminated */
	assert_null(text_of("pages\0.img", 11)); /* ends before its end */
	assert_null(text_of("pages-1.img\0", 13));
	memset(buf, 'a', sizeof(buf));
	buf[ZW_STR - 1] = 0;
	assert_int_equal(strlen(text_of(buf, ZW_STR)), ZW_STR - 1);
	buf[ZW_STR - 1] = 'a';
	assert_null(text_of(buf, ZW_STR));
	buf[ZW_STR] = 0;
	assert_null(text_of(buf, ZW_STR + 1));
}

static const struct zw_iov *iov_of(uint32_t nr, size_t len)
{
	static char body[ZW_MAX_MSG - 1];
	struct zw_hdr h = hdr(ZW_PAGES_MEM);

	h.nr = nr;
	send_raw(&h, sizeof(h), body, len, NULL, 0);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	return packet_iov(&p);
}

static void iovs(void **state)
{
	const size_t one = sizeof(struct zw_iov);

	assert_non_null(iov_of(1, one));
	assert_non_null(iov_of(ZW_MAX_IOV, ZW_MAX_IOV * one));
	assert_null(iov_of(0, 0));
	assert_null(iov_of(0, one));
	assert_null(iov_of(1, 0));
	assert_null(iov_of(1, one - 1));
	assert_null(iov_of(1, one + 1));
	assert_null(iov_of(2, one));
	assert_null(iov_of(1, 2 * one));
	assert_null(iov_of(ZW_MAX_IOV + 1, ZW_MAX_IOV * one));
	assert_null(iov_of(UINT32_MAX, one));
	/* lengths that only match in 32 bits */
	assert_null(iov_of((1u << 28) + 1, one));
	assert_null(iov_of(1u << 28, 0));
	assert_int_equal((uintptr_t)p.payload % _Alignof(struct zw_iov), 0);
	assert_int_equal((uintptr_t)p.payload % _Alignof(struct zw_begin), 0);
}

static const struct zw_begin *begin_of(const struct zw_begin *b, size_t len, uint32_t nr_fd)
{
	struct zw_hdr h = hdr(ZW_DUMP_BEGIN);
	int fd[4] = { sk[0], sk[0], sk[0], sk[0] };

	send_raw(&h, sizeof(h), b, len, fd, nr_fd);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	return packet_begin(&p);
}

static void begins(void **state)
{
	struct zw_begin b = { .pid = 77 };
	struct {
		char *at;
		size_t len;
	} text[] = {
		{ b.dev, sizeof(b.dev) },
		{ b.container, sizeof(b.container) },
		{ b.checkpoint, sizeof(b.checkpoint) },
		{ b.alloc, sizeof(b.alloc) },
		{ b.admission, sizeof(b.admission) },
		{ b.qos, sizeof(b.qos) },
		{ b.stripe, sizeof(b.stripe) },
		{ b.qos_max, sizeof(b.qos_max) },
		{ b.weight, sizeof(b.weight) },
	};
	int tty, json;
	int before = count_fds();

	assert_int_equal(begin_of(&b, sizeof(b), 2)->pid, 77);
	packet_close_fds(&p);
	assert_null(begin_of(&b, sizeof(b), 1));
	packet_close_fds(&p);
	assert_null(begin_of(&b, sizeof(b), 3));
	packet_close_fds(&p);
	assert_null(begin_of(&b, sizeof(b) - 1, 2));
	packet_close_fds(&p);
	assert_null(begin_of(&b, 0, 2));
	packet_close_fds(&p);
	/* a descriptor for each place that progress goes to, and no others */
	for (uint32_t flags = 0; flags <= 4; flags++) {
		for (uint32_t n = 2; n <= 4; n++) {
			bool fits = flags <= 3 && n == 2 + (flags & 1) + (flags >> 1);
			const struct zw_begin *got;

			b.progress = flags;
			got = begin_of(&b, sizeof(b), n);
			assert_int_equal(got != NULL, fits);
			if (fits) {
				packet_progress(&p, got, &tty, &json);
				assert_int_equal(tty >= 0, flags & 1);
				assert_int_equal(json >= 0, flags >> 1);
				close(tty);
				close(json);
			}
			packet_close_fds(&p);
		}
	}
	b.progress = 0;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(text); i++) {
		memset(text[i].at, 'x', text[i].len);
		assert_null(begin_of(&b, sizeof(b), 2)); /* not terminated */
		packet_close_fds(&p);
		text[i].at[text[i].len - 1] = 0;
		assert_non_null(begin_of(&b, sizeof(b), 2));
		packet_close_fds(&p);
	}
	assert_int_equal(count_fds(), before);
}

static void taking_descriptors(void **state)
{
	struct zw_hdr h = hdr(ZW_IMG_FD);
	int before = count_fds(), fd[2] = { sk[0], sk[1] }, mine;

	send_raw(&h, sizeof(h), NULL, 0, fd, 2);
	assert_int_equal(packet_recv(sk[1], &p), 1);
	mine = packet_take_fd(&p, 1);
	assert_true(mine >= 0);
	assert_int_equal(packet_take_fd(&p, 1), -1);
	assert_int_equal(packet_take_fd(&p, 2), -1);
	assert_int_equal(packet_take_fd(&p, UINT32_MAX), -1);
	packet_close_fds(&p);
	packet_close_fds(&p);
	assert_int_equal(fcntl(mine, F_GETFD), FD_CLOEXEC);
	close(mine);
	assert_int_equal(count_fds(), before);
}

static void answers(void **state)
{
	struct zw_reply r = { .code = 0, .kind = ZW_KIND_FD, .size = 5 }, got;
	struct zns_err e = ZNS_ERR_INIT;
	char ctl[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &got, sizeof(got) };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)
	};
	int fd;

	reply_send(sk[1], &r, sk[1]);
	assert_int_equal(recvmsg(sk[0], &m, 0), sizeof(got));
	assert_memory_equal(&got, &r, sizeof(r));
	assert_non_null(CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	close(fd);
	m.msg_controllen = sizeof(ctl);
	reply_send(sk[1], &r, -1);
	assert_int_equal(recvmsg(sk[0], &m, 0), sizeof(got));
	assert_null(CMSG_FIRSTHDR(&m));
	/* an error always has a code and an end */
	memset(e.msg, 'y', sizeof(e.msg) - 1);
	e.msg[sizeof(e.msg) - 1] = 0;
	reply_error(sk[1], &e);
	assert_int_equal(read(sk[0], &got, sizeof(got)), sizeof(got));
	assert_int_equal(got.code, -EIO);
	assert_non_null(memchr(got.msg, 0, sizeof(got.msg)));
	zns_fail(&e, -ENOSPC, "full");
	reply_error(sk[1], &e);
	assert_int_equal(read(sk[0], &got, sizeof(got)), sizeof(got));
	assert_int_equal(got.code, -ENOSPC);
	assert_string_equal(got.msg, "full");
	/* nobody there: no signal, no wait */
	reply_error(-1, &e);
	reply_error(0x7fffffff, &e);
	shutdown(sk[0], SHUT_RDWR);
	reply_error(sk[1], &e);
}

/* What zns-smaps.h builds on: a read of one piece never reaches the end of an area's text. */
static void areas_of_smaps(void **state)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	size_t size = 0, text = 0, areas = 0, flags = 0;
	char *line = NULL;

	assert_non_null(f);
	for (ssize_t len; (len = getline(&line, &size, f)) > 0; text += (size_t)len) {
		if (!zns_smaps_wants(line))
			continue;
		if (!strncmp(line, "VmFlags:", 8)) {
			assert_true(text + (size_t)len > ZNS_SMAPS_PIECE);
			assert_int_equal(++flags, areas);
			continue;
		}
		assert_int_equal(areas++, flags);
		text = 0;
	}
	assert_true(areas > 5);
	assert_false(zns_smaps_wants("Size: 4 kB\n"));
	assert_false(zns_smaps_wants("fade"));
	free(line);
	fclose(f);
}

/* A sequential reader gets twice as much each time, up to the end of a piece; all others get one
 * page. */
static void windows_of_faults(void **state)
{
	const uint64_t page = ZW_WINDOW_PAGE, piece = ZW_WINDOW_MOST;
	struct zw_windows w = { 0 };
	uint64_t off[ZW_WINDOW_STREAMS] = { 0 };

	assert_int_equal(zw_window(&w, 0), page);
	assert_int_equal(zw_window(&w, 0), page); /* again: brought, and dropped */
	assert_int_equal(zw_window(&w, 100 * piece - page), page);
	assert_int_equal(zw_window(&w, 100 * piece), 2 * page);
	for (uint64_t n = 0; n < 1000; n++) /* no order */
		assert_int_equal(zw_window(&w, n * 7919 % 1000 * piece + 5 * page), page);
	/* in order, as many readers as are told apart */
	for (uint64_t s = 0; s < ZW_WINDOW_STREAMS; s++) {
		off[s] = (5000 + 100 * s) * piece + page;
		assert_int_equal(zw_window(&w, off[s]), page);
		off[s] += page;
	}
	for (size_t n = 1; n < 4; n++)
		for (uint64_t s = 0; s < ZW_WINDOW_STREAMS; s++) {
			assert_int_equal(zw_window(&w, off[s]), page << n);
			off[s] += page << n;
		}
	for (uint64_t s = 0; s < ZW_WINDOW_STREAMS; s++) {
		/* one page skipped; no more than the piece has */
		assert_int_equal(off[s] % piece, 0);
		assert_int_equal(zw_window(&w, off[s] + page), piece - page);
	}
}

int main(void)
{
#define W(f) cmocka_unit_test_setup_teardown(f, begin, end_pair)
	const struct CMUnitTest tests[] = {
		W(good_packets),
		W(the_sender_is_known),
		W(short_packets),
		W(too_long_packets),
		W(other_versions),
		W(too_many_fds),
		W(end_of_stream),
		W(texts),
		W(iovs),
		W(begins),
		W(taking_descriptors),
		W(answers),
		W(areas_of_smaps),
		W(windows_of_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
