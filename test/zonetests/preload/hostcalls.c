/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preloaded: notes the calls that change files below the directory HOSTCALLS_ROOT, or read them, in
 * the file HOSTCALLS_LOG
 * ("CALL PATH" a line, the path as it was then), and makes the N-th of them fail if
 * HOSTCALLS_FAIL="N ERRNO" says so; errno 0 stands for a transfer that is short by half. A call
 * that fails so changes nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { GO_ON, FAIL, SHORT };

static void where(int at, const char *name, char path[PATH_MAX])
{
	char link[64];
	ssize_t n = 0;

	if (name && *name == '/') {
		snprintf(path, PATH_MAX, "%s", name);
		return;
	}
	snprintf(link, sizeof(link), at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
	n = readlink(link, path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = 0;
	if (name && n > 0)
		snprintf(path + n, PATH_MAX - n, "/%s", name);
}

static int meets(const char *call, int at, const char *name, size_t len)
{
	static int seen;
	const char *root = getenv("HOSTCALLS_ROOT"), *log = getenv("HOSTCALLS_LOG"),
		   *fail = getenv("HOSTCALLS_FAIL");
	char path[PATH_MAX], line[PATH_MAX + 64];
	int nth, code, saved = errno, fd, n;

	where(at, name, path);
	errno = saved;
	if (!root || strncmp(path, root, strlen(root)))
		return GO_ON;
	if (log &&
	    (fd = (int)NEXT(open)(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) >= 0) {
		n = snprintf(line, sizeof(line), "%s %s\n", call, path);
		if (NEXT(write)(fd, line, n) != n)
			abort();
		close(fd);
	}
	errno = saved;
	if (__atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) && fail &&
	    sscanf(fail, "%d %d", &nth, &code) == 2 && nth == seen) {
		if (code)
			errno = code;
		return code ? FAIL : len > 1 ? SHORT : GO_ON;
	}
	return GO_ON;
}

/* A transfer of one buffer. */
#define TRANSFER(name, call, params, len, args)             \
	ssize_t name params                                 \
	{                                                   \
		int what = meets(call, fd, NULL, len);      \
		if (what == SHORT)                          \
			len /= 2;                           \
		return what == FAIL ? -1 : NEXT(name) args; \
	}
TRANSFER(write, "write", (int fd, const void *buf, size_t len), len, (fd, buf, len))
TRANSFER(pwrite64, "write", (int fd, const void *buf, size_t len, off64_t off), len,
	 (fd, buf, len, off))
TRANSFER(read, "read", (int fd, void *buf, size_t len), len, (fd, buf, len))
TRANSFER(pread64, "read", (int fd, void *buf, size_t len, off64_t off), len, (fd, buf, len, off))

TRANSFER(splice, "write",
	 (int from, off64_t *in, int fd, off64_t *out, size_t len, unsigned int flags), len,
	 (from, in, fd, out, len, flags))

ssize_t writev(int fd, const struct iovec *v, int nr)
{
	return meets("write", fd, NULL, 0) == FAIL ? -1 : NEXT(writev)(fd, v, nr);
}

/* What fails or does not. @at, @path: what it is about. */
#define CALL(name, call, at, path, params, args)                                \
	int name params                                                         \
	{                                                                       \
		return meets(call, at, path, 0) == FAIL ? -1 : NEXT(name) args; \
	}
CALL(fsync, "sync", fd, NULL, (int fd), (fd))
CALL(fdatasync, "sync", fd, NULL, (int fd), (fd))
CALL(ftruncate64, "write", fd, NULL, (int fd, off64_t len), (fd, len))
CALL(fallocate64, "write", fd, NULL, (int fd, int mode, off64_t off, off64_t len),
     (fd, mode, off, len))
CALL(fchmod, "mode", fd, NULL, (int fd, mode_t mode), (fd, mode))
CALL(mkdirat, "name", at, path, (int at, const char *path, mode_t mode), (at, path, mode))
CALL(mkdir, "name", AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
CALL(symlinkat, "name", at, path, (const char *to, int at, const char *path), (to, at, path))
CALL(renameat, "name", at, path, (int from, const char *old, int at, const char *path),
     (from, old, at, path))
CALL(renameat2, "name", at, path,
     (int from, const char *old, int at, const char *path, unsigned int flags),
     (from, old, at, path, flags))
CALL(rename, "name", AT_FDCWD, path, (const char *old, const char *path), (old, path))
CALL(linkat, "name", at, path, (int from, const char *old, int at, const char *path, int flags),
     (from, old, at, path, flags))

static int opens(const char *call, int at, const char *path, int flags, mode_t mode)
{
	const char *what = flags & O_CREAT ? "name" : "open";

	return meets(what, at, path, 0) == FAIL ? -1 :
	       !strcmp(call, "open64")          ? NEXT(open64)(path, flags, mode) :
						  NEXT(openat64)(at, path, flags, mode);
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

int openat64(int at, const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return opens("openat64", at, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = mode_of(flags, args);
	va_end(args);
	return opens("open64", AT_FDCWD, path, flags, mode);
}

/* What fortified code and code without large files call. */
int __open64_2(const char *path, int flags)
{
	return open64(path, flags);
}

int __openat64_2(int at, const char *path, int flags)
{
	return openat64(at, path, flags);
}

ssize_t __read_chk(int fd, void *buf, size_t len, size_t room)
{
	return read(fd, buf, len);
}

ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t off, size_t room)
{
	return pread64(fd, buf, len, off);
}
