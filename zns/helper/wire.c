/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets from criu and answers to it. Everything received is checked before it is used. */
#include <string.h>
#include <sys/socket.h>
#include "helper.h"

int packet_recv(int sk, struct packet *p)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * ZW_MAX_FDS) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} u;
	struct iovec iov[2] = { { &p->h, sizeof(p->h) }, { p->payload, sizeof(p->payload) - 1 } };
	struct msghdr m = { .msg_iov = iov,
			    .msg_iovlen = 2,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	struct zns_err err = ZNS_ERR_INIT;
	bool too_many = false;
	ssize_t n;

	p->nr_fd = 0;
	p->sender = 0;
	do {
		n = recvmsg(sk, &m, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_RIGHTS) {
			size_t nr = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			/*
			 * the padding of the control buffer may have room for one descriptor more
			 * than wanted
			 */
			for (size_t i = 0; i < nr; i++) {
				int fd;

				memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
				if (p->nr_fd < ZW_MAX_FDS)
					p->fd[p->nr_fd++] = fd;
				else
					close(fd);
				too_many |= i >= ZW_MAX_FDS;
			}
		} else if (c->cmsg_type == SCM_CREDENTIALS) {
			struct ucred uc;

			memcpy(&uc, CMSG_DATA(c), sizeof(uc));
			p->sender = uc.pid;
		}
	}
	if ((size_t)n < sizeof(p->h) || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || too_many ||
	    p->h.version != ZW_VERSION) {
		zns_fail(&err, -EPROTO,
			 "zns-helper and criu are of different builds: install both from one");
		reply_error(p->nr_fd ? p->fd[0] : -1, &err);
		packet_close_fds(p);
		return -EPROTO;
	}
	p->len = (size_t)n - sizeof(p->h);
	p->payload[p->len] = 0;
	return 1;
}

void packet_close_fds(struct packet *p)
{
	for (uint32_t i = 0; i < p->nr_fd; i++)
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	p->nr_fd = 0;
}

int packet_take_fd(struct packet *p, uint32_t n)
{
	int fd = n < p->nr_fd ? p->fd[n] : -1;

	if (fd >= 0)
		p->fd[n] = -1;
	return fd;
}

void reply_send(int reply_sk, const struct zw_reply *answer, int fd)
{
	struct zw_reply clean = *answer, *r = &clean;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} u = { .buf = { 0 } };
	struct iovec iov = { r, sizeof(*r) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (reply_sk < 0)
		return;
	r->msg[sizeof(r->msg) - 1] = 0;
	zns_clean(r->msg); /* replace control characters: criu logs the text */
	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = u.buf;
		m.msg_controllen = sizeof(u.buf);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	/* if the process that asked has exited, the answer is dropped */
	while (sendmsg(reply_sk, &m, MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

void reply_error(int reply_sk, const struct zns_err *err)
{
	struct zw_reply r = { .code = err->code ? err->code : -EIO };

	snprintf(r.msg, sizeof(r.msg), "%s", err->msg);
	reply_send(reply_sk, &r, -1);
}

const char *packet_text(struct packet *p)
{
	if (!p->len || p->len > ZW_STR || memchr(p->payload, 0, p->len) != p->payload + p->len - 1)
		return NULL;
	return (char *)p->payload;
}

const struct zw_begin *packet_begin(const struct packet *p)
{
	const struct zw_begin *b = (const struct zw_begin *)p->payload;
	const uint32_t all = ZW_PROGRESS_TTY | ZW_PROGRESS_JSON;

	if (p->len != sizeof(*b) || b->progress & ~all ||
	    !memchr(b->parent, 0, sizeof(b->parent)) ||
	    p->nr_fd != 2u + (uint32_t)__builtin_popcount(b->progress) ||
	    !memchr(b->qos_max, 0, sizeof(b->qos_max)) ||
	    !memchr(b->weight, 0, sizeof(b->weight)) || !memchr(b->dev, 0, sizeof(b->dev)) ||
	    !memchr(b->container, 0, sizeof(b->container)) ||
	    !memchr(b->checkpoint, 0, sizeof(b->checkpoint)) ||
	    !memchr(b->alloc, 0, sizeof(b->alloc)) ||
	    !memchr(b->admission, 0, sizeof(b->admission)) || !memchr(b->qos, 0, sizeof(b->qos)) ||
	    !memchr(b->stripe, 0, sizeof(b->stripe)))
		return NULL;
	return b;
}

void packet_progress(struct packet *p, const struct zw_begin *b, int *tty, int *json)
{
	uint32_t n = 2;

	*tty = b->progress & ZW_PROGRESS_TTY ? packet_take_fd(p, n++) : -1;
	*json = b->progress & ZW_PROGRESS_JSON ? packet_take_fd(p, n) : -1;
}

const struct zw_iov *packet_iov(const struct packet *p)
{
	if (!p->h.nr || p->h.nr > ZW_MAX_IOV || p->len != p->h.nr * sizeof(struct zw_iov))
		return NULL;
	return (const struct zw_iov *)p->payload;
}
