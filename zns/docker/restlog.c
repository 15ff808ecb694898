/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Keeps criu's log of a container's last restore. The log is no part of a checkpoint, and Docker
 * deletes it with the container's run-time directory. So a copy stays in <run dir>/docker for a
 * week, or until the machine restarts.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "docker.h"

#define KEEP_S (7 * 24 * 3600)
#define LOG_MAX KIB(256)
#define SUFFIX ".restore.log"

static bool is_log(const char *name)
{
	size_t n = strlen(name);

	return n > strlen(SUFFIX) && !strcmp(name + n - strlen(SUFFIX), SUFFIX);
}

static void drop_old(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;

	while (d && (e = readdir(d)))
		if (is_log(e->d_name) && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
		    st.st_mtim.tv_sec < time(NULL) - KEEP_S)
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}

int docker_keep_restore_log(const char *id, const char *from)
{
	cleanup_close int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	char path[PATH_MAX], dir[PATH_MAX];
	cleanup_free char *text = NULL;
	struct stat st;
	size_t n;
	int ret;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	n = zns_min((size_t)st.st_size, (size_t)LOG_MAX);
	text = malloc(n + 1);
	if (!text)
		return -ENOMEM;
	ret = zns_pread_all(fd, text, n, st.st_size - (off_t)n);
	if (!ret)
		ret = docker_run_path(id, SUFFIX + 1, path, sizeof(path), NULL);
	if (!ret)
		ret = zns_replace_file(AT_FDCWD, path, text, n, 0600);
	if (!ret) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') - path), path);
		drop_old(dir);
	}
	return ret;
}

int docker_restore_log(const char *id, uint8_t **text, size_t *len, struct zns_err *err)
{
	char path[PATH_MAX], dir[PATH_MAX];
	struct dirent *e;
	int ret = docker_run_path(id, SUFFIX + 1, path, sizeof(path), err), nr = 0;
	DIR *d;

	if (ret)
		return ret;
	if (access(path, F_OK) && strlen(id) >= 12) { /* @id may be the beginning of an id */
		snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') - path), path);
		d = opendir(dir);
		while (d && (e = readdir(d)))
			if (is_log(e->d_name) && !strncmp(e->d_name, id, strlen(id)) && !nr++ &&
			    (size_t)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >=
				    sizeof(path))
				nr = 2;
		if (d)
			closedir(d);
	}
	ret = nr > 1 ? -EEXIST : zns_read_file(AT_FDCWD, path, LOG_MAX + 1, text, len);
	if (ret == -EEXIST)
		return zns_fail(err, ret,
				"the ids of several containers begin with %s: give more digits",
				id);
	if (ret == -ENOENT)
		return zns_fail(
			err, ret,
			"no restore of container %.64s is known: it was not restored by zns-runc since this "
			"machine was started, or over a week ago",
			id);
	return ret ? zns_fail_sys(err, ret, "cannot read %s", path) : 0;
}
