/* SPDX-License-Identifier: GPL-2.0-only */
/* What a pager sends to a dump: the input is its answer, and its list of units, once sealed against
 * writes and once not. */
#include <stdlib.h>
#include <sys/mman.h>

#include "../../zns/client/quiesce.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int list_of(const uint8_t *data, size_t size, bool sealed)
{
	int fd = memfd_create("units", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || zns_write_all(fd, data, size) ||
	    (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK)))
		abort();
	return fd;
}

static void lists(const uint8_t *data, size_t size, uint32_t nr)
{
	struct zns_quiesce s = { .sk = -1, .name = "fuzz" };
	struct zns_quiesce_unit *u = NULL;
	struct zns_err err = ZNS_ERR_INIT;

	for (int sealed = 0; sealed < 2; sealed++) {
		int fd = list_of(data, size, sealed);

		if (!read_list(&s, fd, nr, &u, &err)) {
			if (!sealed || nr * sizeof(*u) != size)
				abort();
			for (uint32_t i = 1; i < nr; i++)
				if (u[i].addr < u[i - 1].addr)
					abort();
			free(u);
		}
		close(fd);
	}
}

static void answers(const uint8_t *data, size_t size)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_quiesce_answer a;
	struct iovec none = { &err, 1 };
	struct iovec iov = { (void *)data, size };
	int sk[2], fd;

	if (!size || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sk))
		return;
	if (!zns_packet_send(sk[1], &iov, 1, sk, data[0] % 3)) {
		if (!ask(sk[0], "fuzz", &none, 1, &a, &fd, &err) && size != sizeof(a))
			abort();
		if (fd >= 0)
			close(fd);
	}
	close(sk[0]);
	close(sk[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	answers(data, size);
	lists(data, size, (uint32_t)(size / sizeof(struct zns_quiesce_unit)));
	if (size >= 4) {
		uint32_t nr;

		memcpy(&nr, data, 4);
		lists(data + 4, size - 4, nr);
	}
	return 0;
}
