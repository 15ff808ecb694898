/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Framing of messages between clients and znsd: a little-endian u32 length, then the body. */
#include <endian.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "zns/broker.h"

/*
 * After an incomplete message the start of the next one is unknown, so the connection must be
 * closed.
 */
static int broken(void)
{
	return errno == EAGAIN ? -EAGAIN : -EPIPE; /* EAGAIN: the socket's time limit has passed */
}

static int send_all(int fd, const void *buf, size_t len, zns_msg_wait wait, void *arg)
{
	const uint8_t *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | (wait ? MSG_DONTWAIT : 0));
		int ret;

		if (n < 0 && errno == ENOTSOCK)
			n = write(fd, p, len);
		if (n < 0 && errno == EAGAIN && wait) {
			ret = wait(arg, POLLOUT);
			if (ret)
				return ret;
			continue;
		}
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return broken();
		}
		p += n;
		len -= n;
	}
	return 0;
}

/* Like read(), but also receives a descriptor that comes with the bytes. */
static ssize_t read_with_fd(int fd, void *buf, size_t len, int *came)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { buf, len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.room,
			    .msg_controllen = sizeof(control.room) };
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *h = n < 0 ? NULL : CMSG_FIRSTHDR(&m);

	if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS ||
	    h->cmsg_len != CMSG_LEN(sizeof(int)))
		return n;
	if (*came >= 0)
		close(*came);
	memcpy(came, CMSG_DATA(h), sizeof(int));
	return n;
}

static int recv_all(int fd, void *buf, size_t len, int *came, zns_msg_wait wait, void *arg)
{
	uint8_t *p = buf;

	while (len) {
		int ret = wait ? wait(arg, POLLIN) : 0;
		ssize_t n = ret ? 0 : came ? read_with_fd(fd, p, len, came) : read(fd, p, len);

		if (ret)
			return ret;
		if (n < 0) {
			if (errno == EINTR || (errno == EAGAIN && wait))
				continue;
			return broken();
		}
		if (!n)
			return -EPIPE;
		p += n;
		len -= n;
	}
	return 0;
}

int zns_msg_send(int fd, const uint8_t *body, uint32_t len, zns_msg_wait wait, void *arg)
{
	uint32_t head = htole32(len);
	int ret;

	if (len > ZNS_BROKER_MSG_MAX)
		return -EMSGSIZE;
	ret = send_all(fd, &head, sizeof(head), wait, arg);
	return ret ? ret : send_all(fd, body, len, wait, arg);
}

int zns_msg_recv_fd(int fd, uint8_t **body, uint32_t *len, int *came, zns_msg_wait wait, void *arg)
{
	cleanup_free uint8_t *buf = NULL;
	uint32_t n;
	int ret;

	ret = recv_all(fd, &n, sizeof(n), came, wait, arg);
	if (ret)
		return ret;
	n = le32toh(n);
	if (n > ZNS_BROKER_MSG_MAX)
		return -EBADMSG;
	buf = malloc(n ? n : 1);
	if (!buf)
		return -ENOMEM;
	ret = recv_all(fd, buf, n, NULL, wait, arg);
	if (ret)
		return ret;
	*body = buf;
	*len = n;
	buf = NULL;
	return 0;
}

int zns_msg_recv(int fd, uint8_t **body, uint32_t *len, zns_msg_wait wait, void *arg)
{
	return zns_msg_recv_fd(fd, body, len, NULL, wait, arg);
}
