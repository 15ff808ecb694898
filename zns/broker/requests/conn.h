/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_CONN_H
#define BROKER_CONN_H
/* A connection for the poll loop and conn.c. Handlers know only the parts in requests.h. */
#include <sys/socket.h>
#include "requests.h"

#define CONN_HEAD 4 /* bytes of a frame before its body */

struct buf {
	uint8_t *p;
	size_t len, cap;
};

struct conn {
	struct conn *next;
	int fd;
	int pidfd;
	struct ucred cred;
	struct buf in, out;
	size_t out_at;
	int out_fd; /* a descriptor that is sent with the first byte of @out; -1: none */
	struct intake intake;
	uint64_t moved_ns; /* when it was last served, or took a part of its answer */
	struct waiter *waiter;
	char *committed; /* the container whose dump it committed */
	bool follows; /* set by its newest request: this client follows resizes of the store */
	bool dead; /* the loop shall close it */
	bool hangup; /* to be closed when the answer is sent */
};

static inline uint32_t conn_pid(const struct conn *c)
{
	return c->cred.pid > 0 ? c->cred.pid : 0;
}

/* length of the frame at @at, without its head */
uint32_t conn_frame_len(const struct conn *c, size_t at);
void conn_refuse(struct conn *c); /* closes a new connection */

#endif
