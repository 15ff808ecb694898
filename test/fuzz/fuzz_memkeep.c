/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Packets to the keeper of memory contexts. The input is a list of packets of three pagers: raw
 * ones, and those whose head makes sense for the most part. Whatever they say, what is held is
 * whole, names are there once, and no descriptor is lost.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "../../zns/memory/keeper/cmd/keeper.h"
#include "input.h"
#include "zns/packet.h"

#define PAGERS 3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void keeper_log(const char *fmt, ...)
{
}

static const char *const names[] = { "web", "db", "a/b", "", "..", "cache" };

/* Returns the packet's length. */
static size_t build(struct input *in, uint8_t *buf, uint32_t *fds)
{
	struct mk_head h = { .version = MK_VERSION - (take(in, 32) == 1), .op = take(in, 10) };
	uint32_t data = 0;

	*fds = 0;
	if (h.op == MK_BEGIN)
		strcpy(h.name, names[take(in, 6)]);
	if (h.op == MK_SET || h.op == MK_FDS)
		h.nr = *fds = take(in, 6) + (take(in, 32) == 1 ? 1u << 31 : 0);
	if (h.op == MK_SET)
		*fds = 0;
	if (h.op == MK_SET || h.op == MK_DATA)
		h.len = data = take(in, 40) + (take(in, 32) == 1 ? 1u << 31 : 0);
	if (h.op == MK_SET)
		data = 0;
	data = data > 1000 ? 7 : data;
	*fds = *fds > 8 ? 1 : *fds;
	memcpy(buf, &h, sizeof(h));
	memset(buf + sizeof(h), 'd', data);
	return sizeof(h) + data;
}

static void whole(void)
{
	for (uint32_t i = 0; i < nr_contexts; i++) {
		const struct context *c = &contexts[i];

		if (c->holds && (c->has.has_nr != c->has.nr || c->has.has_len != c->has.len))
			abort();
		if (c->next.has_nr > c->next.nr || c->next.has_len > c->next.len ||
		    c->next.nr > ZNS_MEMKEEP_FDS_MAX || c->next.len > ZNS_MEMKEEP_DATA_MAX)
			abort();
		if (*c->name && zns_check_memory(c->name, NULL))
			abort();
		for (uint32_t k = 0; *c->name && k < i; k++)
			if (!strcmp(c->name, contexts[k].name))
				abort();
	}
}

static int lowest_free(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	static uint8_t buf[4096];
	int sk[PAGERS], pair[2], fds[8], first = lowest_free();
	char drain[512];

	for (uint32_t i = 0; i < PAGERS; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) ||
		    context_new(pair[0], getpid()))
			abort();
		sk[i] = pair[1];
	}
	for (uint32_t i = 0; i < 8; i++)
		fds[i] = 0;
	while (in.left) {
		uint32_t who = take(&in, PAGERS), nr = 0;
		size_t len;

		if (take(&in, 8)) {
			len = build(&in, buf, &nr);
		} else {
			len = zns_min(in.left, (size_t)take(&in, 256) + 1);
			memcpy(buf, in.p, len);
			in.p += len;
			in.left -= len;
			nr = take(&in, 3);
		}
		if (contexts[who].sk < 0 || !len)
			continue;
		zns_packet_send(sk[who], &(struct iovec){ buf, len }, 1, fds, nr);
		context_said(&contexts[who]);
		while (recv(sk[who], drain, sizeof(drain), MSG_DONTWAIT) > 0)
			;
		whole();
	}
	for (uint32_t i = 0; i < PAGERS; i++) {
		close(sk[i]);
		context_died(&contexts[i]);
	}
	whole();
	while (nr_contexts)
		context_forget(nr_contexts - 1);
	if (lowest_free() != first)
		abort();
	return 0;
}
