/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets between helpers and keepers, and the places of keepers' sockets. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include "keep.h"
#include "zns/broker.h"

#define SENT offsetof(struct keep_packet, fd)

int keep_send(int sk, struct keep_packet *p)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * KEEP_FDS)];
		struct cmsghdr align;
	} u = { .buf = { 0 } };
	struct iovec iov = { p, SENT };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	p->version = KEEP_VERSION;
	if (p->nr_fd) {
		struct cmsghdr *c;

		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * p->nr_fd);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * p->nr_fd);
		memcpy(CMSG_DATA(c), p->fd, sizeof(int) * p->nr_fd);
	}
	while ((n = sendmsg(sk, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	return n < 0 ? -errno : 0;
}

static void take_fds(struct msghdr *m, struct keep_packet *p)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t nr = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < nr; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (p->nr_fd < KEEP_FDS)
				p->fd[p->nr_fd++] = fd;
			else
				close(fd);
		}
	}
}

int keep_recv(int sk, struct keep_packet *p)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * KEEP_FDS)];
		struct cmsghdr align;
	} u;
	struct iovec iov = { p, SENT };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	ssize_t n;

	*p = (struct keep_packet){ 0 };
	while ((n = recvmsg(sk, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	if (n <= 0)
		return n < 0 && errno != ECONNRESET ? -errno : 0;
	take_fds(&m, p);
	if (n == SENT && p->version == KEEP_VERSION && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
	    p->nr_fd == (p->op == KEEP_TASK ? KEEP_FDS : 0))
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
	const struct timeval t = { .tv_sec = KEEP_TIMEOUT_S };

	setsockopt(sk, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	setsockopt(sk, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

int keep_dir(struct zns_err *err)
{
	char path[4096];
	struct stat st;
	int fd, ret = zns_broker_run_dir(err);

	if (ret)
		return ret;
	if ((size_t)snprintf(path, sizeof(path), "%s/keep", zns_run_dir()) >= sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s", zns_run_dir());
	if (mkdir(path, 0700) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "%s", path);
	if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
		return fd;
	close(fd);
	return zns_fail(err, -EPERM, "%s: others may use it (chmod 0700, owner root)", path);
}

void keep_address(int dir, const char *name, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	/* a runtime directory may have a longer name than an address has room for */
	snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%.64s", dir, name);
}

void keep_name(const uint8_t id[ZNS_UUID_LEN], char out[64])
{
	char text[ZNS_UUID_STR];

	snprintf(out, 64, "%s.sock", zns_uuid_format(id, text));
}
