/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads files that only root can have put in place. A container's creator chooses mounts, labels
 * and annotations, and can write files on the host through volumes. So names and options may only
 * be taken from files that are read here.
 */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "docker.h"

#define JSON_MAX MIB(8)

static bool root_only(int fd, mode_t type)
{
	struct stat st;

	return !fstat(fd, &st) && (st.st_mode & S_IFMT) == type &&
	       (!st.st_uid || st.st_uid == geteuid()) && !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/*
 * Opens @name in the directory @at; with AT_FDCWD, @name is a path that the administrator gave.
 * -EPERM: another user than root may write to it.
 */
static int open_own(int at, const char *name, mode_t type)
{
	int flags = type == S_IFDIR ? O_DIRECTORY : O_NONBLOCK | O_NOCTTY;
	int fd = openat(at, name, O_RDONLY | O_CLOEXEC | flags | (at == AT_FDCWD ? 0 : O_NOFOLLOW));

	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR ? -EPERM : -errno;
	if (root_only(fd, type))
		return fd;
	close(fd);
	return -EPERM;
}

static int read_fd(int fd, size_t max, uint8_t **out, size_t *len)
{
	struct stat st;
	int ret;

	if (fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	*len = (size_t)st.st_size;
	*out = malloc(*len + 1);
	if (!*out)
		return -ENOMEM;
	ret = zns_pread_all(fd, *out, *len, 0);
	if (ret) {
		free(*out);
		*out = NULL;
		return ret;
	}
	(*out)[*len] = 0;
	return 0;
}

static int refuse(struct zns_err *err, int ret, const char *path)
{
	if (ret == -EPERM)
		return zns_fail(
			err, ret,
			"%s is a link, or somebody else than root may write it or its directory, so it was not used",
			path);
	return zns_fail_sys(err, ret, "cannot read %s", path);
}

bool docker_only_roots(int at, const char *name)
{
	cleanup_close int fd = open_own(at, name, S_IFDIR);
	struct stat st, parent;

	return fd >= 0 && !fstat(fd, &st) && !fstat(at, &parent) && st.st_dev == parent.st_dev;
}

/*
 * Opens the directory @own. Only root may be able to write to it and to the @above directories
 * above it.
 */
static int open_dir(const char *own, int above)
{
	char top[PATH_MAX], *names[4];
	int fd, next;

	if ((size_t)snprintf(top, sizeof(top), "%s", own) >= sizeof(top))
		return -ENAMETOOLONG;
	for (int i = above; i--;) {
		names[i] = strrchr(top, '/');
		if (!names[i])
			return -EINVAL;
		*names[i]++ = 0;
	}
	fd = open_own(AT_FDCWD, *top ? top : "/", S_IFDIR);
	for (int i = 0; fd >= 0 && i < above; i++) {
		next = open_own(fd, names[i], S_IFDIR);
		close(fd);
		fd = next;
	}
	return fd;
}

bool podman_bundle(const char *bundle, const char *id)
{
	cleanup_close int fd = podman_tail(bundle, id) ? open_dir(bundle, 3) : -1;

	return fd >= 0;
}

static int read_in(const char *own, int above, const char *name, uint8_t **out, size_t *len,
		   struct zns_err *err)
{
	cleanup_close int dir = open_dir(own, above), fd = -1;
	char path[PATH_MAX + 512];

	snprintf(path, sizeof(path), "%s/%s", own, name);
	fd = dir < 0 ? dir : open_own(dir, name, S_IFREG);
	if (fd < 0)
		return refuse(err, fd, path);
	return read_fd(fd, JSON_MAX, out, len) ? refuse(err, -EIO, path) : 0;
}

int docker_own_path(const struct docker_container *c, const char *name, char *out, size_t len)
{
	size_t n;

	if (*c->bundle)
		n = (size_t)snprintf(out, len, "%s", c->bundle);
	else if (!strcmp(c->kind, "docker"))
		n = (size_t)snprintf(out, len, "%s/containers/%s", c->root, c->id);
	else
		return -ENOENT;
	if (*name && n < len)
		n += (size_t)snprintf(out + n, len - n, "/%s", name);
	return n < len ? 0 : -ENAMETOOLONG;
}

/* Podman keeps these files in its directory for checkpoints. */
int docker_checkpoints_path(const struct docker_container *c, char *out, size_t len)
{
	return docker_own_path(c, *c->bundle ? "" : "checkpoints", out, len);
}

int docker_read_kept(const struct docker_container *c, const char *name, uint8_t **out, size_t *len,
		     struct zns_err *err)
{
	char own[PATH_MAX];
	int ret = docker_own_path(c, "", own, sizeof(own));

	return ret ? zns_fail(err, ret, "container %.80s has no directory of its engine", c->id) :
		     read_in(own, *c->bundle ? 3 : 2, name, out, len, err);
}

int docker_read_own(const char *root, const char *id, const char *name, uint8_t **out, size_t *len,
		    struct zns_err *err)
{
	char own[PATH_MAX + 256];

	snprintf(own, sizeof(own), "%s/containers/%s", root, id);
	return read_in(own, 2, name, out, len, err);
}

int docker_read_admin(const char *dir, const char *name, size_t max, uint8_t **out, size_t *len,
		      struct zns_err *err)
{
	cleanup_close int at = open_own(AT_FDCWD, dir, S_IFDIR), fd = -1;
	char path[2 * PATH_MAX];
	int ret;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = at < 0 ? at : open_own(at, name, S_IFREG);
	if (fd < 0)
		return refuse(err, fd, path);
	ret = read_fd(fd, max, out, len);
	return ret ? refuse(err, ret, path) : 0;
}

bool docker_good_word(const char *s)
{
	if (!isascii((unsigned char)*s) || !isalnum((unsigned char)*s))
		return false;
	for (; *s; s++)
		if (!isascii((unsigned char)*s) ||
		    (!isalnum((unsigned char)*s) && !strchr("_.-", *s)))
			return false;
	return true;
}

bool docker_full_id(const char *s)
{
	return strlen(s) == DOCKER_ID_LEN && strspn(s, "0123456789abcdef") == DOCKER_ID_LEN;
}

bool docker_good_id(const char *id)
{
	const char *p = id;

	while (isascii((unsigned char)*p) && *p &&
	       (isalnum((unsigned char)*p) || strchr("_+-.", *p)))
		p++;
	return *id && !*p && strcmp(id, ".") && strcmp(id, "..") &&
	       strlen(id) < sizeof(((struct docker_container *)0)->id);
}
