/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * See zns-files.h. The directory may belong to another user, who may write there while the tasks
 * are frozen. So this code follows no link, never waits for another process, and reads no more than
 * the size that it saw first. The numbers of files and bytes are limited.
 */
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

#define ZNS_HANDLE "zns-handle.img"
#define NEW_MAX 4096 /* most files that may appear during a dump */
/*
 * most bytes in files that belong to another user than criu; plugins' files belong to criu's user
 */
#define FOREIGN_MAX (64ull << 20)

static struct stat *before;
static size_t nr_before, max_before, nr_new;
static unsigned long long foreign;

static int by_inode(const void *a, const void *b)
{
	const struct stat *x = a, *y = b;

	if (x->st_dev != y->st_dev)
		return x->st_dev < y->st_dev ? -1 : 1;
	return x->st_ino == y->st_ino ? 0 : x->st_ino < y->st_ino ? -1 : 1;
}

static bool was_there(const struct stat *st)
{
	const struct stat *b = nr_before ?
				       bsearch(st, before, nr_before, sizeof(*before), by_inode) :
				       NULL;

	return b && (S_ISDIR(st->st_mode) ||
		     (b->st_size == st->st_size && b->st_mtim.tv_sec == st->st_mtim.tv_sec &&
		      b->st_mtim.tv_nsec == st->st_mtim.tv_nsec));
}

/* Calls @one for each file and directory of the image directory until it returns an error. */
static int each(int (*one)(int dir, const char *name, const struct stat *st))
{
	int fd = openat(get_service_fd(IMG_FD_OFF), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    ret = 0;
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
	if (nr_before == max_before) {
		size_t max = max_before ? 2 * max_before : 64;

		if (xrealloc_safe(&before, max * sizeof(*before)))
			return -1;
		max_before = max;
	}
	before[nr_before++] = *st;
	return 0;
}

int zns_files_begin(void)
{
	int ret;

	nr_before = nr_new = foreign = 0;
	ret = each(remember);
	if (nr_before)
		qsort(before, nr_before, sizeof(*before), by_inode);
	return ret;
}

/*
 * Does criu itself keep this file in the directory? Its log, its output and progress lines are no
 * part of the checkpoint. Nor are the images that always stay local (O_FORCE_LOCAL), since the work
 * directory may be the image directory.
 */
static bool of_criu(const char *name, const struct stat *st)
{
	const int fds[] = { log_get_fd(), STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO };
	const char *progress = secure_getenv("ZNS_PROGRESS");
	struct stat other;
	int i;

	if (!strncmp(name, "stats-", 6) || !strcmp(name, "irmap-cache"))
		return true;
	for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0 && !fstat(fds[i], &other) && other.st_dev == st->st_dev &&
		    other.st_ino == st->st_ino)
			return true;
	}
	return progress && *progress == '/' && !stat(progress, &other) &&
	       other.st_dev == st->st_dev && other.st_ino == st->st_ino;
}

static bool plain_text(const char *name)
{
	for (; *name; name++)
		if (*name < ' ' || *name > '~')
			return false;
	return true;
}

/* Refuses a file that is too large, or that its owner would not be allowed to read. */
static int admit(int dir, const char *name, const struct stat *st)
{
	struct stat of_dir;

	if (!plain_text(name)) {
		pr_err("A file, new in the image directory (inode %lu), has a name that is not plain ASCII: it cannot go to a device\n",
		       (unsigned long)st->st_ino);
		return -1;
	}
	if (strlen(name) >= ZW_NAME) {
		pr_err("The file %.80s in the image directory has too long a name for a device (%d characters)\n",
		       name, ZW_NAME - 1);
		return -1;
	}
	if (st->st_nlink > 1 && (fstat(dir, &of_dir) || of_dir.st_uid != st->st_uid)) {
		pr_err("The file %s, new in the image directory, is a hard link to a file of another user (%u) than the directory's: "
		       "remove it and dump again\n",
		       name, (unsigned)st->st_uid);
		return -1;
	}
	if (st->st_uid != geteuid())
		foreign += st->st_size;
	if (st->st_size > FOREIGN_MAX && st->st_uid != geteuid())
		foreign = FOREIGN_MAX + 1; /* a value over the limit, so that no sum overflows */
	if (foreign > FOREIGN_MAX) {
		pr_err("The file %s, new in the image directory, belongs to user %u: such files may have %llu MiB in all, since tasks "
		       "are frozen while they are read. Remove it and dump again\n",
		       name, (unsigned)st->st_uid, FOREIGN_MAX >> 20);
		return -1;
	}
	return 0;
}

/* Opens a file and checks that it is the one of @st, and not another one that has its name now. */
static int open_seen(int dir, const char *name, const struct stat *st)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat now;

	if (fd < 0) {
		pr_perror(
			"Can't open %s, new in the image directory: nobody may change it during a dump",
			name);
		return -1;
	}
	if (!fstat(fd, &now) && S_ISREG(now.st_mode) && now.st_dev == st->st_dev &&
	    now.st_ino == st->st_ino)
		return fd;
	pr_err("%s, new in the image directory, was replaced while the dump looked at it: nobody may change the directory during "
	       "a dump\n",
	       name);
	close(fd);
	return -1;
}

static int take(int dir, const char *name, const struct stat *st)
{
	struct zns_msg m = ZNS_MSG(ZW_FILE);
	int ret;

	if (was_there(st))
		return 0;
	if (++nr_new > NEW_MAX) {
		pr_err("More than %d files appeared in the image directory during the dump: use one that nobody else writes to\n",
		       NEW_MAX);
		return -1;
	}
	/* skip the handle of an earlier dump: this dump replaces it */
	if (of_criu(name, st) || !strcmp(name, ZNS_HANDLE))
		return 0;
	if (S_ISDIR(st->st_mode)) {
		pr_warn("The directory %s, made in the image directory during the dump, is not on the device\n",
			plain_text(name) ? name : "(odd name)");
		return 0;
	}
	if (admit(dir, name, st))
		return -1;
	m.fd[0] = open_seen(dir, name, st);
	if (m.fd[0] < 0)
		return -1;
	m.nr_fd = 1;
	m.payload = name;
	m.len = strlen(name) + 1;
	m.h.off = st->st_size;
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
