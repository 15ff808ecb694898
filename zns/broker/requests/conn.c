/* SPDX-License-Identifier: GPL-2.0-only */
/* A connection with its input and output buffers. No function here waits for a peer. */
#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "conn.h"

#define READ_CHUNK KIB(64) /* bytes of one read of a request for which memory was reserved */
#define READ_SMALL KIB(4) /* bytes of one read of any other request */

static int buf_reserve(struct buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 4096;
	uint8_t *p;

	while (cap < b->len + more)
		cap *= 2;
	if (cap == b->cap)
		return 0;
	p = realloc(b->p, cap);
	if (!p)
		return -ENOMEM;
	b->p = p;
	b->cap = cap;
	return 0;
}

struct holder conn_holder(struct conn *c)
{
	return (struct holder){ .conn = c, .pid = conn_pid(c) };
}

bool conn_ours(const struct conn *c)
{
	return c->cred.uid == geteuid();
}

bool conn_left(const struct conn *c)
{
	char b;

	return c->fd >= 0 && !recv(c->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT);
}

void conn_committed(struct conn *c, const char *container)
{
	free(c->committed);
	c->committed = znsd_strdup(container);
}

void conn_set_waiter(struct conn *c, struct waiter *w)
{
	c->waiter = w;
}

/* Sends a part of the output; the descriptor goes with the first byte. */
static ssize_t send_piece(struct conn *c)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = { 0 } };
	struct iovec iov = { c->out.p + c->out_at, c->out.len - c->out_at };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (c->out_fd >= 0) {
		m.msg_control = control.room;
		m.msg_controllen = sizeof(control.room);
		control.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.h), &c->out_fd, sizeof(int));
	}
	n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0 && c->out_fd >= 0) {
		close(c->out_fd);
		c->out_fd = -1;
	}
	return n;
}

void conn_send(struct znsd *d, struct conn *c)
{
	while (c->out_at < c->out.len) {
		ssize_t n = send_piece(c);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n < 0) {
			c->dead = true;
			return;
		}
		c->out_at += n;
		c->moved_ns = zns_mono_ns();
	}
	/* Free the buffer, since an answer may have been large. */
	d->server->out_bytes -= c->out.len;
	free(c->out.p);
	memset(&c->out, 0, sizeof(c->out));
	c->out_at = 0;
	c->dead |= c->hangup;
}

/* Logs at a limited rate, so that peers that send invalid data cannot fill the log. */
void conn_complain(const struct conn *c, const char *what)
{
	static uint64_t last;

	if (last && zns_mono_ns() - last < 1000000000ull)
		return;
	last = zns_mono_ns();
	znsd_say(LOG_NOTICE, NULL, "PID %u of user %u: %s", conn_pid(c), (unsigned)c->cred.uid,
		 what);
}

/* Puts an answer into the output buffer and frees the contents of @rep. */
void conn_answer(struct znsd *d, struct conn *c, struct reply *rep, int code)
{
	uint32_t head;
	size_t len;

	rep->r.code = code;
	if (code)
		rep->r.error = rep->err.code ? rep->err.msg : strerror(-code);
	len = zns_pb__response__get_packed_size(&rep->r);
	if (len > ZNS_BROKER_MSG_MAX || buf_reserve(&c->out, CONN_HEAD + len)) {
		znsd_warn("an answer of %zu bytes to PID %u cannot be sent", len, conn_pid(c));
		c->dead = true;
	} else {
		if (rep->fd >= 0 && !c->out.len)
			c->out_fd = fcntl(rep->fd, F_DUPFD_CLOEXEC, 0);
		head = htole32(len);
		memcpy(c->out.p + c->out.len, &head, CONN_HEAD);
		zns_pb__response__pack(&rep->r, c->out.p + c->out.len + CONN_HEAD);
		c->out.len += CONN_HEAD + len;
		d->server->out_bytes += CONN_HEAD + len;
		c->hangup |= rep->hangup;
		c->moved_ns = zns_mono_ns();
		conn_send(d, c);
	}
	reply_free(rep);
}

/* Reads only once for each round of the poll loop, so that a peer that sends much does not delay
 * the others. */
void conn_read(struct conn *c)
{
	size_t want = READ_SMALL;
	ssize_t n;

	if (c->intake.room)
		want = zns_min(CONN_HEAD + conn_frame_len(c, 0) - c->in.len, READ_CHUNK);
	if (buf_reserve(&c->in, want)) {
		c->dead = true;
		return;
	}
	n = recv(c->fd, c->in.p + c->in.len, want, MSG_DONTWAIT);
	if (n > 0)
		c->in.len += n;
	else if (!n || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		c->dead = true;
}

struct conn *conn_new(struct znsd *d, int fd)
{
	socklen_t len = sizeof(struct ucred);
	struct conn *c = znsd_alloc(sizeof(*c));

	c->fd = fd;
	c->pidfd = c->out_fd = -1;
	c->moved_ns = zns_mono_ns();
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->cred, &len) < 0 ||
	    (c->cred.uid && c->cred.uid != geteuid())) {
		conn_refuse(c);
		return NULL;
	}
#ifdef SYS_pidfd_open
	if (c->cred.pid > 0)
		c->pidfd = (int)syscall(SYS_pidfd_open, c->cred.pid, 0);
#endif
	return c;
}

void conn_refuse(struct conn *c)
{
	conn_complain(c, "its connection is refused");
	conn_free(c);
}

void conn_free(struct conn *c)
{
	close(c->fd);
	if (c->pidfd >= 0)
		close(c->pidfd);
	if (c->out_fd >= 0)
		close(c->out_fd);
	free(c->in.p);
	free(c->out.p);
	free(c->committed);
	free(c);
}

uint32_t conn_frame_len(const struct conn *c, size_t at)
{
	uint32_t len;

	memcpy(&len, c->in.p + at, CONN_HEAD);
	return le32toh(len);
}
