/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets between helpers and keepers, and the places of keepers' sockets. */
#include <stddef.h>
#include "keep.h"
#include "zns/packet.h"

#define SENT offsetof(struct keep_packet, fd)

int keep_send(int sk, struct keep_packet *p)
{
	const struct iovec iov = { p, SENT };

	p->version = KEEP_VERSION;
	return zns_packet_send(sk, &iov, 1, p->fd, p->nr_fd);
}

int keep_recv(int sk, struct keep_packet *p)
{
	const struct iovec iov = { p, SENT };
	uint32_t nr;
	int n;

	*p = (struct keep_packet){ 0 };
	n = zns_packet_recv(sk, &iov, 1, p->fd, KEEP_FDS, &nr);
	if (n <= 0)
		return n;
	p->nr_fd = nr;
	if (n == SENT && p->version == KEEP_VERSION && nr == (p->op == KEEP_TASK ? KEEP_FDS : 0))
		return 1;
	keep_close(p);
	return -EPROTO;
}

void keep_close(struct keep_packet *p)
{
	for (uint32_t i = 0; i < p->nr_fd; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	p->nr_fd = 0;
}

void keep_timeouts(int sk)
{
	zns_packet_timeouts(sk, KEEP_TIMEOUT_S);
}

int keep_dir(struct zns_err *err)
{
	return zns_run_subdir("keep", err);
}

void keep_address(int dir, const char *name, struct sockaddr_un *a)
{
	zns_run_address(dir, name, a);
}

void keep_name(const uint8_t id[ZNS_UUID_LEN], char out[64])
{
	char text[ZNS_UUID_STR];

	snprintf(out, 64, "%s.sock", zns_uuid_format(id, text));
}
