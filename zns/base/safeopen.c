/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See safeopen.h. Uses openat2 in one step if the kernel has it, otherwise component by
 * component. */
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>

#include "zns/safeopen.h"
#include "zns/util.h"

#define READ_FLAGS (O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define LINKS_MAX 40 /* the kernel's limit is the same */
#define LOCK_STEP_MS 20

/* -ENOSYS: the kernel lacks openat2, or a system call filter refuses it. */
static int try_openat2(int dirfd, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = { .flags = flags, .resolve = resolve };
	int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

	if (fd >= 0)
		return fd;
	return errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == E2BIG ? -ENOSYS :
											-errno;
}

static bool plain_name(const char *name)
{
	return *name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

static int open_beneath(int dirfd, const char *name, int flags)
{
	int fd;

	if (!plain_name(name))
		return -EINVAL;
	fd = try_openat2(dirfd, name, (uint64_t)flags, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
	/* without openat2(): O_NOFOLLOW does the same for a path of one component */
	if (fd == -ENOSYS) {
		fd = openat(dirfd, name, flags);
		if (fd < 0)
			fd = -errno;
	}
	return fd;
}

int zns_open_file(int dirfd, const char *name, struct stat *st)
{
	cleanup_close int fd = open_beneath(dirfd, name, READ_FLAGS);

	if (fd < 0)
		/* errors from opening a socket, or a device node that has no device */
		return fd == -ENXIO || fd == -ENODEV ? -EINVAL : fd;
	if (fstat(fd, st))
		return -errno;
	if (!S_ISREG(st->st_mode))
		return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
	return zns_take_fd(&fd);
}

const char *zns_open_why(int code)
{
	switch (code) {
	case -ELOOP:
		return "it is a link";
	case -EISDIR:
		return "it is a directory";
	case -EINVAL:
		return "it is no regular file";
	case -EAGAIN:
		return "another process keeps a lease on it";
	default:
		return strerror(-code);
	}
}

bool zns_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

bool zns_planted(int dirfd, const struct stat *st)
{
	struct stat dir;

	return st->st_nlink > 1 && (fstat(dirfd, &dir) || dir.st_uid != st->st_uid);
}

int zns_open_subdir(int dirfd, const char *name)
{
	return open_beneath(dirfd, name, DIR_FLAGS | O_NOFOLLOW);
}

ssize_t zns_read_link(int dirfd, const char *path, char *out, size_t len)
{
	ssize_t n = readlinkat(dirfd, path, out, len - 1);

	out[n > 0 ? n : 0] = '\0';
	return n < 0 ? -errno : n;
}

/* --- resolving a path, one link at a time --- */

struct walk {
	int at; /* descriptor (O_PATH) of the directory reached so far */
	int links;
	char rest[2 * PATH_MAX]; /* the part of the path that is not resolved yet */
};

static int step_into(struct walk *w, const char *name)
{
	int fd = openat(w->at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	close(w->at);
	w->at = fd;
	return 0;
}

/* @fd is a link named @name: puts its target in front of the rest of the path. */
static int step_through(struct walk *w, int fd, const char *name, const struct stat *st,
			struct zns_err *err)
{
	char to[PATH_MAX], all[sizeof(w->rest)];
	ssize_t n;

	if (st->st_uid && st->st_uid != geteuid())
		return zns_fail(
			err, -ELOOP,
			"%s is a link of user %u's, which is not followed: name the directory itself",
			name, (unsigned)st->st_uid);
	if (++w->links > LINKS_MAX)
		return zns_fail_sys(err, -ELOOP, "cannot follow link %s", name);
	n = zns_read_link(fd, "", to, sizeof(to));
	if (n <= 0)
		return zns_fail_sys(err, n ? (int)n : -ENOENT, "cannot read link %s", name);
	if ((size_t)snprintf(all, sizeof(all), "%s/%s", to, w->rest) >= sizeof(all))
		return zns_fail_sys(err, -ENAMETOOLONG, "cannot follow link %s", name);
	strcpy(w->rest, all);
	if (*to != '/')
		return 0;
	fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return zns_fail_sys(err, -errno, "cannot open /");
	close(w->at);
	w->at = fd;
	return 0;
}

static int step(struct walk *w, const char *name, struct zns_err *err)
{
	cleanup_close int fd = -1;
	struct stat st;
	int ret;

	if (!strcmp(name, ".."))
		ret = step_into(w, name);
	else if ((fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)) < 0 || fstat(fd, &st))
		ret = -errno;
	else if (S_ISLNK(st.st_mode))
		return step_through(w, fd, name, &st, err);
	else
		ret = step_into(w, name); /* fails if the component has become a link meanwhile */
	return ret ? zns_fail_sys(err, ret, "cannot open %s", name) : 0;
}

static int walk_to(const char *path, struct zns_err *err)
{
	struct walk w = { .at = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC) };
	int ret = 0, fd;

	if (w.at < 0)
		return zns_fail_sys(err, -errno, "cannot open %s", path);
	if ((size_t)snprintf(w.rest, sizeof(w.rest), "%s", path) >= sizeof(w.rest))
		ret = zns_fail_sys(err, -ENAMETOOLONG, "cannot open %s", path);
	while (!ret && w.rest[0]) {
		char name[ZNS_BASE_MAX];
		size_t slashes = strspn(w.rest, "/"), len = strcspn(w.rest + slashes, "/");

		if (len >= sizeof(name)) {
			ret = zns_fail_sys(err, -ENAMETOOLONG, "cannot open %s", path);
			break;
		}
		memcpy(name, w.rest + slashes, len);
		name[len] = 0;
		memmove(w.rest, w.rest + slashes + len, strlen(w.rest + slashes + len) + 1);
		if (len && strcmp(name, "."))
			ret = step(&w, name, err);
	}
	fd = ret ? -1 : openat(w.at, ".", DIR_FLAGS);
	if (!ret && fd < 0)
		ret = zns_fail_sys(err, -errno, "cannot open %s", path);
	close(w.at);
	return ret ? ret : fd;
}

int zns_open_dir(const char *path, struct zns_err *err)
{
	struct zns_err why = ZNS_ERR_INIT;
	int fd;

	if (!*path || strlen(path) >= PATH_MAX)
		return zns_fail_sys(err, *path ? -ENAMETOOLONG : -ENOENT, "cannot open %s", path);
	fd = try_openat2(AT_FDCWD, path, DIR_FLAGS, RESOLVE_NO_SYMLINKS);
	if (fd >= 0)
		return fd;
	if (fd != -ENOSYS && fd != -ELOOP)
		return zns_fail_sys(err, fd, "cannot open %s", path);
	fd = walk_to(path, &why);
	if (fd < 0)
		zns_fail(err, fd, "%s: %s", path, why.msg);
	return fd;
}

int zns_open_parent(const char *path, char base[ZNS_BASE_MAX], struct zns_err *err)
{
	char dir[PATH_MAX];
	size_t len = strlen(path), cut;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (cut = len; cut && path[cut - 1] != '/'; cut--)
		;
	if (len - cut >= ZNS_BASE_MAX || cut >= sizeof(dir))
		return zns_fail_sys(err, -ENAMETOOLONG, "cannot open the directory of %s", path);
	memcpy(base, path + cut, len - cut);
	base[len - cut] = 0;
	if (!plain_name(base))
		return zns_fail(err, -EINVAL, "%s does not end in a name", path);
	memcpy(dir, path, cut);
	dir[cut] = 0;
	return zns_open_dir(cut ? dir : ".", err);
}

/* --- writing --- */

int zns_make_file(int dirfd, const char *name)
{
	int fd;

	if (!plain_name(name))
		return -EINVAL;
	fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

int zns_make_temp(int dirfd, const char *base, char tmp[ZNS_BASE_MAX])
{
	uint64_t rnd;
	int fd;

	for (int tries = 0;; tries++) {
		if (getrandom(&rnd, sizeof(rnd), 0) != sizeof(rnd))
			return -EAGAIN;
		/*
		 * cut to the maximal length; begins with a dot, so that programs which list the
		 * directory skip it
		 */
		snprintf(tmp, ZNS_BASE_MAX, ".%.200s.%016llx", base, (unsigned long long)rnd);
		fd = zns_make_file(dirfd, tmp);
		if (fd != -EEXIST || tries == 16)
			return fd;
	}
}

int zns_put_file(int dirfd, const char *name, const void *data, size_t len)
{
	char tmp[ZNS_BASE_MAX] = "";
	cleanup_close int fd = zns_make_file(dirfd, name);
	int ret;

	if (fd == -EEXIST)
		fd = zns_make_temp(dirfd, name, tmp);
	if (fd < 0)
		return fd;
	ret = zns_write_all(fd, data, len);
	if (!ret && *tmp && renameat(dirfd, tmp, dirfd, name))
		ret = -errno;
	if (ret)
		unlinkat(dirfd, *tmp ? tmp : name, 0);
	return ret;
}

int zns_rename_new(int dirfd, const char *from, const char *to)
{
	if (!renameat2(dirfd, from, dirfd, to, RENAME_NOREPLACE))
		return 0;
	/* the file system does not support RENAME_NOREPLACE */
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (linkat(dirfd, from, dirfd, to, 0))
		return -errno;
	return unlinkat(dirfd, from, 0) ? -errno : 0;
}

int zns_flock(int fd, int how, unsigned ms)
{
	uint64_t end = zns_mono_ns() + (uint64_t)ms * 1000000;
	const struct timespec step_ns = { .tv_nsec = LOCK_STEP_MS * 1000000 };

	while (flock(fd, how | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (zns_mono_ns() >= end)
			return -ETIMEDOUT;
		nanosleep(&step_ns, NULL);
	}
	return 0;
}
