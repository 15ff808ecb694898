/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_CONN_H
#define BROKER_CONN_H
/* The inside of a connection, for the poll loop and conn.c. Handlers only use what is in
 * requests.h. */
#include <sys/socket.h>
#include "requests.h"

#define CONN_HEAD 4 /* length of a frame's head in bytes */

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
	int out_fd; /* a descriptor to be sent with the first byte of @out; -1: none */
	struct intake intake;
	/* when a request of it was last served, or it last read a part of its answer */
	uint64_t moved_ns;
	struct waiter *waiter;
	char *committed; /* the container of the dump that it has committed */
	/* does this client notice that the store is resized? Set by its latest request */
	bool follows;
	bool dead; /* the poll loop shall close it */
	bool hangup; /* close it when the answer has been sent */
};

static inline uint32_t conn_pid(const struct conn *c)
{
	return c->cred.pid > 0 ? c->cred.pid : 0;
}

/* length of the body of the frame at @at */
uint32_t conn_frame_len(const struct conn *c, size_t at);
void conn_refuse(struct conn *c); /* closes a new connection because there are too many */

#endif
