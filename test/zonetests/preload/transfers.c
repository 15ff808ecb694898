/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preloaded: counts the transfers of one kind that programs of one name make, and makes the N-th of
 * them fail. The environment says which:
 *
 *   TRANSFERS_PROGRAM  the name of the program; others are left alone
 *   TRANSFERS_KIND     "task": the memory of another process. "socket": local sockets
 *   TRANSFERS_COUNT    a file of 4 bytes in which all processes count together
 *   TRANSFERS_FAIL     "N ERRNO"; errno 0 stands for a transfer that is short by half
 *
 * A transfer that fails has moved nothing. Packets are never short, since the kernel cuts none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define PARTS 1024

enum what { GO_ON, FAIL, SHORT };

static const char *kind;
static unsigned int *seen;

/* Before main(): a process may lose sight of the file later, in another root. */
__attribute__((constructor)) static void begin(void)
{
	const char *program = getenv("TRANSFERS_PROGRAM"), *count = getenv("TRANSFERS_COUNT");
	int fd;

	if (!program || !count || strcmp(program, program_invocation_short_name))
		return;
	fd = open(count, O_RDWR | O_CLOEXEC);
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || seen == MAP_FAILED)
		abort();
	close(fd);
	kind = getenv("TRANSFERS_KIND");
}

static enum what meets(size_t len)
{
	const char *fail = getenv("TRANSFERS_FAIL");
	unsigned int now = __atomic_add_fetch(seen, 1, __ATOMIC_SEQ_CST), nth;
	int code;

	if (!fail || sscanf(fail, "%u %d", &nth, &code) != 2 || nth != now)
		return GO_ON;
	if (code)
		errno = code;
	return code ? FAIL : len > 1 ? SHORT : GO_ON;
}

static enum what task(size_t len)
{
	return kind && !strcmp(kind, "task") ? meets(len) : GO_ON;
}

static bool is_memory(int fd)
{
	char link[64], path[64];
	int saved = errno, end = 0;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	errno = saved;
	path[n > 0 ? n : 0] = 0;
	return sscanf(path, "/proc/%*d/mem%n", &end) == 0 && end && !path[end];
}

/* Of ours: a stream or packets, to a path or to a process that got its end by descent. */
static enum what local(int fd, size_t len)
{
	struct sockaddr_un peer;
	socklen_t room = sizeof(peer), one = sizeof(int);
	int type = 0, saved = errno;
	bool ours;

	if (!kind || strcmp(kind, "socket"))
		return GO_ON;
	ours = !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &one) &&
	       (type == SOCK_STREAM || type == SOCK_SEQPACKET) &&
	       !getpeername(fd, (struct sockaddr *)&peer, &room) && peer.sun_family == AF_UNIX &&
	       (room <= sizeof(sa_family_t) || peer.sun_path[0]);
	errno = saved;
	return ours ? meets(type == SOCK_STREAM ? len : 0) : GO_ON;
}

/* Copies the first half of @v to @half. The number of its parts. */
static int halved(const struct iovec *v, int nr, struct iovec half[PARTS])
{
	size_t sum = 0, n;
	int used = 0;

	if (nr > PARTS)
		abort();
	for (int i = 0; i < nr; i++)
		sum += v[i].iov_len;
	for (sum /= 2; used < nr && sum; used++, sum -= n) {
		n = v[used].iov_len < sum ? v[used].iov_len : sum;
		half[used] = (struct iovec){ v[used].iov_base, n };
	}
	return used;
}

#define MEMORY(name)                                                                            \
	ssize_t name(pid_t pid, const struct iovec *l, unsigned long nl, const struct iovec *r, \
		     unsigned long nr, unsigned long flags)                                     \
	{                                                                                       \
		struct iovec half[PARTS];                                                       \
		enum what what = task(2);                                                       \
                                                                                                \
		if (what == SHORT) {                                                            \
			nr = halved(r, nr, half);                                               \
			r = half;                                                               \
		}                                                                               \
		return what == FAIL ? -1 : NEXT(name)(pid, l, nl, r, nr, flags);                \
	}
MEMORY(process_vm_readv)
MEMORY(process_vm_writev)

#define AT(name, buffer)                                                  \
	ssize_t name(int fd, buffer buf, size_t len, off64_t off)         \
	{                                                                 \
		enum what what = is_memory(fd) ? task(len) : GO_ON;       \
                                                                          \
		if (what == SHORT)                                        \
			len /= 2;                                         \
		return what == FAIL ? -1 : NEXT(name)(fd, buf, len, off); \
	}
AT(pread64, void *)
AT(pwrite64, const void *)

#define BUFFER(name, params, args)                          \
	ssize_t name params                                 \
	{                                                   \
		enum what what = local(fd, len);            \
                                                            \
		if (what == SHORT)                          \
			len /= 2;                           \
		return what == FAIL ? -1 : NEXT(name) args; \
	}
BUFFER(read, (int fd, void *buf, size_t len), (fd, buf, len))
BUFFER(write, (int fd, const void *buf, size_t len), (fd, buf, len))
BUFFER(send, (int fd, const void *buf, size_t len, int flags), (fd, buf, len, flags))
BUFFER(recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags))

static size_t bytes(const struct msghdr *m)
{
	size_t sum = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++)
		sum += m->msg_iov[i].iov_len;
	return sum;
}

#define MESSAGE(name, type)                                                  \
	ssize_t name(int fd, type m, int flags)                              \
	{                                                                    \
		struct iovec half[PARTS], *v = m->msg_iov;                   \
		size_t nr = m->msg_iovlen;                                   \
		enum what what = local(fd, bytes(m));                        \
		ssize_t n;                                                   \
                                                                             \
		if (what == FAIL)                                            \
			return -1;                                           \
		if (what != SHORT)                                           \
			return NEXT(name)(fd, m, flags);                     \
		((struct msghdr *)m)->msg_iovlen = halved(v, (int)nr, half); \
		((struct msghdr *)m)->msg_iov = half;                        \
		n = NEXT(name)(fd, m, flags);                                \
		((struct msghdr *)m)->msg_iov = v;                           \
		((struct msghdr *)m)->msg_iovlen = nr;                       \
		return n;                                                    \
	}
MESSAGE(sendmsg, const struct msghdr *)
MESSAGE(recvmsg, struct msghdr *)

/* What fortified code calls. */
ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	return read(fd, buf, len);
}

ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t off, size_t room)
{
	return pread64(fd, buf, len, off);
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	return recv(fd, buf, len, flags);
}
