/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preloaded: a program ends by SIGKILL at one of its messages, which it then has not sent, or has
 * just sent, or received. KILL_AT=PROGRAM:N, N from 1; each message of the process is one byte in
 * the file KILL_COUNT.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int count;

static void message(void)
{
	const char *at = getenv("KILL_AT"), *path = getenv("KILL_COUNT"), *colon;
	int fd;

	colon = at ? strchr(at, ':') : NULL;
	if (!colon || strncmp(program_invocation_short_name, at, (size_t)(colon - at)) ||
	    program_invocation_short_name[colon - at])
		return;
	count++;
	fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
	if (fd >= 0) {
		if (write(fd, ".", 1) != 1)
			abort();
		close(fd);
	}
	if (count == atoi(colon + 1))
		kill(getpid(), SIGKILL);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
	ssize_t n;

	message();
	n = next(fd, m, flags);
	message();
	return n;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t (*next)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
	ssize_t n = next(fd, m, flags);

	if (n > 0)
		message();
	return n;
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	ssize_t (*next)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
	ssize_t n;

	message();
	n = next(fd, buf, len, flags);
	message();
	return n;
}
