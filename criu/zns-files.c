/* SPDX-License-Identifier: GPL-2.0-only */
/* See zns-files.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "servicefd.h"
#include "xmalloc.h"
#include "zns-files.h"
#include "zns-link.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

struct seen {
	struct stat st;
	struct seen *next;
};

static struct seen *before;

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && (S_ISDIR(a->st_mode) ||
	       (a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec));
}

/* Calls @one for each file and directory of the image directory until it returns an error. */
static int each(int (*one)(int dir, const char *name, const struct stat *st))
{
	int fd = openat(get_service_fd(IMG_FD_OFF), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	struct stat st;

	if (!d) {
		pr_perror("Can't look into the image directory");
		return -1;
	}
	while (!ret && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
			ret = one(fd, e->d_name, &st);
	}
	closedir(d);
	return ret;
}

static int remember(int dir, const char *name, const struct stat *st)
{
	struct seen *s = xmalloc(sizeof(*s));

	if (!s)
		return -1;
	s->st = *st;
	s->next = before;
	before = s;
	return 0;
}

int zns_files_begin(void)
{
	while (before) {
		struct seen *s = before;

		before = s->next;
		xfree(s);
	}
	return each(remember);
}

/*
 * criu's log, what its output was redirected to, progress lines: of the dump, not of what is dumped. So are the images
 * that always stay local (O_FORCE_LOCAL); the work directory may be the image directory.
 */
static bool of_criu(const char *name, const struct stat *st)
{
	const int fds[] = { log_get_fd(), STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO };
	const char *progress = getenv("ZNS_PROGRESS");
	struct stat other;
	int i;

	if (!strncmp(name, "stats-", 6) || !strcmp(name, "irmap-cache"))
		return true;
	for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0 && !fstat(fds[i], &other) && other.st_dev == st->st_dev && other.st_ino == st->st_ino)
			return true;
	}
	return progress && *progress == '/' && !stat(progress, &other) && other.st_dev == st->st_dev &&
	       other.st_ino == st->st_ino;
}

static int take(int dir, const char *name, const struct stat *st)
{
	struct zns_msg m = ZNS_MSG(ZW_FILE);
	const struct seen *s;
	int ret;

	for (s = before; s; s = s->next) {
		if (same(&s->st, st))
			return 0;
	}
	if (of_criu(name, st))
		return 0;
	if (S_ISDIR(st->st_mode)) {
		pr_warn("The directory %s, made in the image directory during the dump, is not on the device\n", name);
		return 0;
	}
	if (strlen(name) >= ZW_NAME) {
		pr_err("The file %.80s in the image directory has too long a name for a device (%d characters)\n", name, ZW_NAME - 1);
		return -1;
	}
	m.fd[0] = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (m.fd[0] < 0) {
		pr_perror("Can't open %s in the image directory", name);
		return -1;
	}
	m.nr_fd = 1;
	m.payload = name;
	m.len = strlen(name) + 1;
	pr_debug("%s goes to the device\n", name);
	ret = zns_send(&m);
	close(m.fd[0]);
	if (ret)
		pr_err("zns-helper died; nothing was committed, run the dump again\n");
	return ret ? -1 : 0;
}

int zns_files_take(void)
{
	return each(take);
}
