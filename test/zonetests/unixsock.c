/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * UNIX sockets with data in their queues: stream, datagram and seqpacket pairs in both directions,
 * a named datagram socket, a listening stream socket, and a descriptor that is on its way.
 * zonetest: {'flavour': 'h ns'}
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "zt.h"

#define MSGS 6
#define STREAM 50001

static int stream[2], dgram[2], seq[2], named, sender, listener, carrier[2];
static struct sockaddr_un named_addr, listen_addr;
static uint8_t *buf;

static size_t msg_len(int i)
{
	return i * 1111 + 1;
}

static void put_msgs(int fd, uint64_t seed)
{
	for (int i = 0; i < MSGS; i++) {
		zt_fill(buf, msg_len(i), seed + i);
		if (ZT_SYS(send(fd, buf, msg_len(i), 0)) != (ssize_t)msg_len(i))
			zt_die("short send");
	}
}

static void get_msgs(int fd, uint64_t seed, const char *what)
{
	for (int i = 0; i < MSGS; i++) {
		ssize_t n = recv(fd, buf, ZT_MB(1), MSG_DONTWAIT);

		ZT_CHECK(n == (ssize_t)msg_len(i), "%s: message %d has %zd bytes", what, i, n);
		zt_check(buf, n, seed + i, what);
	}
	ZT_CHECK(recv(fd, buf, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN, "%s: a message too many",
		 what);
}

static void address(struct sockaddr_un *a, const char *name)
{
	char path[256];

	zt_path(path, name);
	if (strlen(path) >= sizeof(a->sun_path))
		zt_die("path too long: %s", path);
	a->sun_family = AF_UNIX;
	strcpy(a->sun_path, path);
}

static void send_fd(int over, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, c = 'f';
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(int));
	ZT_SYS(sendmsg(over, &m, 0));
}

static int receive_fd(int over)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, c = 0;
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	int fd;

	ZT_CHECK(recvmsg(over, &m, MSG_DONTWAIT) == 1 && c == 'f',
		 "the descriptor's message is gone");
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	ZT_CHECK(h && h->cmsg_type == SCM_RIGHTS, "the message came without its descriptor");
	memcpy(&fd, CMSG_DATA(h), sizeof(int));
	return fd;
}

static void check_listener(void)
{
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	char c = 0;

	ZT_CHECK(!connect(client, (struct sockaddr *)&listen_addr, sizeof(listen_addr)),
		 "connect: %m");
	int conn = accept(listener, NULL, NULL);
	ZT_CHECK(conn >= 0, "accept: %m");
	ZT_CHECK(write(client, "!", 1) == 1 && read(conn, &c, 1) == 1 && c == '!',
		 "the new connection is dead");
}

static void check(void)
{
	int fd;

	zt_read_all(stream[1], buf, STREAM, "stream");
	zt_check(buf, STREAM, 1, "stream");
	zt_read_all(stream[0], buf, 77, "stream, other way");
	zt_check(buf, 77, 2, "stream, other way");
	get_msgs(dgram[1], 10, "datagram pair");
	get_msgs(seq[1], 20, "seqpacket pair");
	get_msgs(seq[0], 30, "seqpacket pair, other way");
	get_msgs(named, 40, "named datagram socket");
	fd = receive_fd(carrier[1]);
	zt_read_all(fd, buf, 4321, "pipe that was on its way");
	zt_check(buf, 4321, 3, "pipe that was on its way");
	put_msgs(sender, 50);
	get_msgs(named, 50, "named datagram socket, after restore");
	check_listener();
}

static void setup(void)
{
	int p[2];

	ZT_SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
	zt_fill(buf, STREAM, 1);
	zt_write_all(stream[0], buf, STREAM);
	zt_fill(buf, 77, 2);
	zt_write_all(stream[1], buf, 77);
	ZT_SYS(socketpair(AF_UNIX, SOCK_DGRAM, 0, dgram));
	put_msgs(dgram[0], 10);
	ZT_SYS(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, seq));
	put_msgs(seq[0], 20);
	put_msgs(seq[1], 30);
	address(&named_addr, "named");
	named = ZT_SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
	ZT_SYS(bind(named, (struct sockaddr *)&named_addr, sizeof(named_addr)));
	sender = ZT_SYS(socket(AF_UNIX, SOCK_DGRAM, 0));
	ZT_SYS(connect(sender, (struct sockaddr *)&named_addr, sizeof(named_addr)));
	put_msgs(sender, 40);
	address(&listen_addr, "listen");
	listener = ZT_SYS(socket(AF_UNIX, SOCK_STREAM, 0));
	ZT_SYS(bind(listener, (struct sockaddr *)&listen_addr, sizeof(listen_addr)));
	ZT_SYS(listen(listener, 5));
	ZT_SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, carrier));
	ZT_SYS(pipe(p));
	zt_fill(buf, 4321, 3);
	zt_write_all(p[1], buf, 4321);
	send_fd(carrier[0], p[0]);
	close(p[0]);
}

int main(int argc, char **argv)
{
	zt_init(argc, argv);
	buf = zt_mmap(ZT_MB(1));
	setup();
	munmap(buf, ZT_MB(1)); /* the data is in the queues only */
	buf = zt_mmap(ZT_MB(1));
	zt_ready(NULL);
	if (zt_selftest) { /* a byte of the stream moves to its end */
		ZT_SYS(read(stream[1], buf, 1));
		ZT_SYS(write(stream[0], buf, 1));
	}
	zt_serve(check);
}
