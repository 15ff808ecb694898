/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preloaded: the attacker acts at the worst moment. WORST="NAME N FROM TO UID": right before the
 * Nth opening of a file called NAME, user UID exchanges FROM and TO. A race that he wins once in a
 * hundred times is thus won each time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static void look(const char *path)
{
	static int seen;
	char name[256], from[512], to[512];
	const char *rule = getenv("WORST"), *last = path ? strrchr(path, '/') : NULL;
	unsigned uid;
	int n;

	if (!rule || !path ||
	    sscanf(rule, "%255s %d %511s %511s %u", name, &n, from, to, &uid) != 5)
		return;
	if (strcmp(last ? last + 1 : path, name) ||
	    __atomic_add_fetch(&seen, 1, __ATOMIC_SEQ_CST) != n)
		return;
	setfsgid(uid);
	setfsuid(uid);
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE))
		dprintf(2, "worst: cannot exchange\n");
	setfsuid(0);
	setfsgid(0);
}

#define OPENER(name, at)                                       \
	int name(at const char *path, int flags, ...);         \
	int name(at const char *path, int flags, ...)          \
	{                                                      \
		static int (*next)(at const char *, int, ...); \
		mode_t mode = 0;                               \
		va_list ap;                                    \
		va_start(ap, flags);                           \
		if (flags & (O_CREAT | O_TMPFILE))             \
			mode = va_arg(ap, mode_t);             \
		va_end(ap);                                    \
		if (!next)                                     \
			next = dlsym(RTLD_NEXT, #name);        \
		look(path);                                    \
		return

#define DIRFD int dirfd,
#define NONE
OPENER(open, NONE) next(path, flags, mode);
}
OPENER(open64, NONE) next(path, flags, mode);
}
OPENER(openat, DIRFD) next(dirfd, path, flags, mode);
}
OPENER(openat64, DIRFD) next(dirfd, path, flags, mode);
}

long syscall(long nr, ...)
{
	static long (*next)(long, ...);
	long a[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (!next)
		next = dlsym(RTLD_NEXT, "syscall");
#ifdef SYS_openat2
	if (nr == SYS_openat2)
		look((const char *)a[1]);
#endif
	return next(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
