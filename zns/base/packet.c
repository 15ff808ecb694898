/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets with descriptors: see zns/packet.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include "zns/broker.h"
#include "zns/packet.h"

union control {
	char buf[CMSG_SPACE(sizeof(int) * ZNS_PACKET_FDS)];
	struct cmsghdr align;
};

int zns_packet_send(int sk, const struct iovec *iov, unsigned nr_iov, const int *fds, uint32_t nr)
{
	union control u = { .buf = { 0 } };
	struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = nr_iov };
	ssize_t n;

	if (nr > ZNS_PACKET_FDS)
		return -E2BIG;
	if (nr) {
		struct cmsghdr *c;

		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nr);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nr);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nr);
	}
	while ((n = sendmsg(sk, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	return n < 0 ? -errno : 0;
}

static void take_fds(struct msghdr *m, int *fds, uint32_t max, uint32_t *nr, bool *more)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*nr < max)
				fds[(*nr)++] = fd;
			else
				close(fd);
			*more |= *nr == max && i + 1 < n;
		}
	}
}

int zns_packet_recv(int sk, const struct iovec *iov, unsigned nr_iov, int *fds, uint32_t max,
		    uint32_t *nr)
{
	union control u;
	struct msghdr m = { .msg_iov = (struct iovec *)iov,
			    .msg_iovlen = nr_iov,
			    .msg_control = u.buf,
			    .msg_controllen = sizeof(u.buf) };
	bool more = false;
	ssize_t n;

	*nr = 0;
	while ((n = recvmsg(sk, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	take_fds(&m, fds, max, nr, &more);
	if (n > 0 && !more && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return (int)n;
	while (*nr)
		close(fds[--*nr]);
	return n ? -EPROTO : 0;
}

void zns_packet_timeouts(int sk, unsigned seconds)
{
	const struct timeval t = { .tv_sec = seconds };

	setsockopt(sk, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	setsockopt(sk, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
}

int zns_run_subdir(const char *sub, struct zns_err *err)
{
	char path[4096];
	struct stat st;
	int fd, ret = zns_broker_run_dir(err);

	if (ret)
		return ret;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", zns_run_dir(), sub) >= sizeof(path))
		return zns_fail(err, -ENAMETOOLONG, "runtime directory %s: its name is too long",
				zns_run_dir());
	if (mkdir(path, 0700) && errno != EEXIST)
		return zns_fail_sys(err, -errno, "cannot make %s", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
		return fd;
	close(fd);
	return zns_fail(err, -EPERM, "%s: others may use it (chmod 0700, owner root)", path);
}

void zns_run_address(int dir, const char *name, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%.80s", dir, name);
}

int zns_run_bind(int sk, int dir, const char *name)
{
	struct sockaddr_un a;
	char first[32];

	snprintf(first, sizeof(first), ".new-%d", (int)getpid());
	zns_run_address(dir, first, &a);
	unlinkat(dir, first, 0);
	return bind(sk, (struct sockaddr *)&a, sizeof(a)) || renameat(dir, first, dir, name) ?
		       -errno :
		       0;
}

int zns_run_connect(int sk, int dir, const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	cleanup_close int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", fd);
	return connect(sk, (struct sockaddr *)&a, sizeof(a)) ? -errno : 0;
}
