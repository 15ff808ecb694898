// SPDX-License-Identifier: LGPL-2.1-or-later
/* Framing of messages between clients and znsd: a little-endian u32 length, then the body. */
#include <endian.h>
#include <string.h>
#include <sys/socket.h>
#include "zns/broker.h"

static int send_all(int fd, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == ENOTSOCK)
			n = write(fd, p, len);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return errno == ECONNRESET ? -EPIPE : -errno;
		}
		p += n;
		len -= n;
	}
	return 0;
}

static int recv_all(int fd, void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return errno == ECONNRESET ? -EPIPE : -errno;
		}
		if (!n)
			return -EPIPE;
		p += n;
		len -= n;
	}
	return 0;
}

int zns_msg_send(int fd, const uint8_t *body, uint32_t len)
{
	uint32_t head = htole32(len);
	int ret;

	if (len > ZNS_BROKER_MSG_MAX)
		return -EMSGSIZE;
	ret = send_all(fd, &head, sizeof(head));
	return ret ? ret : send_all(fd, body, len);
}

int zns_msg_recv(int fd, uint8_t **body, uint32_t *len)
{
	cleanup_free uint8_t *buf = NULL;
	uint32_t n;
	int ret;

	ret = recv_all(fd, &n, sizeof(n));
	if (ret)
		return ret;
	n = le32toh(n);
	if (n > ZNS_BROKER_MSG_MAX)
		return -EBADMSG;
	buf = malloc(n ? n : 1);
	if (!buf)
		return -ENOMEM;
	ret = recv_all(fd, buf, n);
	if (ret)
		return ret;
	*body = buf;
	*len = n;
	buf = NULL;
	return 0;
}
