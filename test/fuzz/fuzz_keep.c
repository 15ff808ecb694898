/* SPDX-License-Identifier: GPL-2.0-only */
/* What keepers of trackers and helpers send each other: the input as a packet with descriptors, and
 * as a task's list of pages. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "../../zns/helper/keeper/keep_wire.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void packet(const uint8_t *data, size_t size)
{
	int sk[2], fd[ZNS_PACKET_FDS];
	uint32_t nr = size ? data[0] % (ZNS_PACKET_FDS + 1) : 0;
	struct iovec iov = { (void *)(data + 1), size - 1 };
	struct keep_packet p;

	if (size < 2 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return;
	for (uint32_t i = 0; i < nr; i++)
		fd[i] = sk[0];
	if (!zns_packet_send(sk[0], &iov, 1, fd, nr) && keep_recv(sk[1], &p) == 1) {
		if (p.version != KEEP_VERSION || p.nr_fd != (p.op == KEEP_TASK ? KEEP_FDS : 0))
			abort();
		keep_close(&p);
	}
	close(sk[0]);
	close(sk[1]);
}

static void pages(const uint8_t *data, size_t size)
{
	struct zns_spans a = { 0 }, b = { 0 }, both = { 0 };
	int fd = memfd_create("pages", MFD_CLOEXEC);
	char name[64];

	if (fd < 0 || zns_write_all(fd, data, size))
		abort();
	if (!keep_read_pages(fd, name, &a, &b)) {
		if (strnlen(name, sizeof(name)) == sizeof(name) || zns_spans_both(&a, &b, &both))
			abort();
		if (zns_spans_bytes(&both) > zns_spans_bytes(&a))
			abort();
	}
	zns_spans_free(&a);
	zns_spans_free(&b);
	zns_spans_free(&both);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	packet(data, size);
	pages(data, size);
	return 0;
}
