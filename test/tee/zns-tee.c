/* SPDX-License-Identifier: GPL-2.0-only */
/* See zns-tee.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "util.h"
#include "zns-tee.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns-tee: "

static int dir = -1;

int zns_tee_begin(void)
{
	const char *path = secure_getenv("ZNS_TEE");

	if (!path)
		return 0;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		pr_perror("Can't open %s", path);
		return -1;
	}
	return 0;
}

static int make(const char *name, int flags)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	if (fd < 0)
		pr_perror("Can't make %s", name);
	return fd;
}

static int write_whole(int fd, const char *buf, ssize_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, buf, len);

		if (n <= 0)
			return -1;
		buf += n;
		len -= n;
	}
	return 0;
}

int zns_tee_memfd(const char *name, int fd)
{
	static char buf[1 << 16];
	off_t off = 0;
	ssize_t n;
	int out;

	if (dir < 0)
		return 0;
	out = make(name, O_EXCL);
	if (out < 0)
		return -1;
	while ((n = pread(fd, buf, sizeof(buf), off)) > 0) {
		if (write_whole(out, buf, n))
			break;
		off += n;
	}
	close(out);
	if (n)
		pr_err("Can't copy %s\n", name);
	return n ? -1 : 0;
}

int zns_tee_pages(const char *name)
{
	int fd;

	if (dir < 0)
		return 0;
	fd = make(name, O_EXCL);
	close_safe(&fd);
	return 0;
}

int zns_tee_mem(const char *name, pid_t pid, void *base, unsigned long len)
{
	static char buf[1 << 20];
	int out, ret = 0;

	if (dir < 0)
		return 0;
	out = make(name, O_APPEND);
	if (out < 0)
		return -1;
	while (len && !ret) {
		struct iovec local = { buf, len < sizeof(buf) ? len : sizeof(buf) },
			     remote = { base, local.iov_len };

		if (process_vm_readv(pid, &local, 1, &remote, 1, 0) != (ssize_t)local.iov_len) {
			pr_perror("Can't read the memory of %d", pid);
			ret = -1;
			break;
		}
		ret = write_whole(out, buf, local.iov_len);
		base += local.iov_len;
		len -= local.iov_len;
	}
	close(out);
	return ret;
}

static void pump(int in, int out, int copy)
{
	static char buf[1 << 16];
	ssize_t n;

	while ((n = read(in, buf, sizeof(buf))) > 0) {
		if (write_whole(copy, buf, n) || write_whole(out, buf, n))
			_exit(1);
	}
	_exit(n != 0);
}

/* Puts a process in between: criu itself may not have threads, and the stream's writer expects a
 * plain descriptor. SIGCHLD waits: while criu dumps, its handler takes any child that ends for a
 * task that died (parasite-syscall.c). */
int zns_tee_stream(const char *name, int fd)
{
	sigset_t chld, old;
	int p[2], copy;
	pid_t pid;

	if (dir < 0)
		return fd;
	copy = make(name, O_EXCL);
	if (copy < 0 || pipe2(p, O_CLOEXEC)) {
		close_safe(&copy);
		return -1;
	}
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &old);
	pid = fork();
	if (!pid) {
		pid = fork();
		if (pid)
			_exit(pid < 0);
		close(p[1]);
		pump(p[0], fd, copy);
	}
	if (pid > 0 && waitpid(pid, NULL, 0) != pid)
		pid = -1;
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(copy);
	close(p[0]);
	close(fd);
	if (pid < 0) {
		close(p[1]);
		return -1;
	}
	return p[1];
}
