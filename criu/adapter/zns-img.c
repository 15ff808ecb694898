/* SPDX-License-Identifier: GPL-2.0-only */
/* How criu opens, writes and closes images. See include/zns-img.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bfd.h"
#include "crtools.h"
#include "cr_options.h"
#include "image.h"
#include "log.h"
#include "servicefd.h"
#include "util.h"
#include "xmalloc.h"
#include "zns-bundle.h"
#include "zns-img.h"
#include "zns-link.h"
#include "zns-live.h"
#include "zns-memfd.h"
#include "zns-opts.h"
#include "zns-pages.h"
#include "zns-state.h"

#undef LOG_PREFIX
#define LOG_PREFIX "zns: "

#define STREAM_PIPE (1 << 20)

/*
 * Returns the level of the parent whose directory descriptor is @dfd; 0: the image directory
 * itself. A parent's descriptor is a memfd, and its length is the level. So no table has to follow
 * a fork, a dup or a close.
 */
static int level_of(int dfd)
{
	struct stat st;

	if (dfd == get_service_fd(IMG_FD_OFF))
		return 0;
	return dfd >= 0 && !fstat(dfd, &st) && S_ISREG(st.st_mode) ? st.st_size : -1;
}

bool zns_img_wanted(int dfd, unsigned long oflags)
{
	int level;

	if (zns_session.state == ZNS_OFF)
		return false;
	level = level_of(dfd);
	return level > 0 || (!level && !(oflags & O_FORCE_LOCAL));
}

static int ask_name(enum zw_op op, int level, const char *path, struct zw_reply *r, int *fd)
{
	struct zns_msg m = ZNS_MSG(op);

	m.h.image = level;
	m.payload = path;
	m.len = strlen(path) + 1;
	return zns_ask(&m, r, fd);
}

/*
 * Opens an image for writing: all of it goes into a memfd, which is sent to the helper when criu
 * closes the image.
 */
static int open_memfd(struct zns_img *zi)
{
	zi->fd = zns_memfd("zns-image");
	if (zi->fd < 0)
		return -errno;
	return fcntl(zi->fd, F_DUPFD_CLOEXEC, 0);
}

/*
 * Opens a large image for writing: criu writes into a pipe, which the helper reads at the same
 * time.
 */
static int open_stream(const char *path)
{
	struct zns_msg m = ZNS_MSG(ZW_IMG_STREAM);
	int p[2], ret;

	if (pipe2(p, O_CLOEXEC))
		return -errno;
	fcntl(p[1], F_SETPIPE_SZ, STREAM_PIPE); /* if this fails, the pipe is only slower */
	m.payload = path;
	m.len = strlen(path) + 1;
	m.fd[0] = p[0];
	m.nr_fd = 1;
	ret = zns_send(&m);
	close(p[0]);
	if (ret) {
		close(p[1]);
		return ret;
	}
	return p[1];
}

/*
 * Returns a dummy descriptor for a pages image. Its data go through zns-pages.c only, so any other
 * use must fail. It has no path, since the task may be in an empty root of its own already.
 */
static int pages_fd(struct zns_img *zi)
{
	int fd = fcntl(get_service_fd(IMG_FD_OFF), F_DUPFD_CLOEXEC, 0);

	zi->pages = true;
	return fd < 0 ? -errno : fd;
}

static int open_pages_for_read(struct zns_img *zi, int level, const char *path)
{
	struct zw_reply r;
	int ret = ask_name(ZW_OPEN, level, path, &r, NULL);

	if (ret) {
		if (ret != -ENOENT)
			zns_pr_err("%s\n", r.msg);
		return ret;
	}
	zi->id = r.image;
	zi->size = r.size;
	return pages_fd(zi);
}

/*
 * Opens a pages image without waiting for the helper's answer: the tasks are frozen, and each task
 * has such an image. An error appears in the answer to the next request. Only the main process
 * calls this, since criu counts its pages images in a variable of that process.
 */
static int open_pages_for_write(struct zns_img *zi, const char *path)
{
	static uint32_t nr_opened;
	struct zns_msg m = ZNS_MSG(ZW_PAGES_OPEN);
	int ret;

	zi->id = nr_opened++;
	m.h.image = zi->id;
	m.payload = path;
	m.len = strlen(path) + 1;
	ret = zns_send(&m);
	if (ret) {
		zns_pr_err("%s; nothing was committed, run the dump again\n", zns_helper_gone());
		return ret;
	}
	return pages_fd(zi);
}

static int open_for_read(int level, const char *path)
{
	struct zw_reply r;
	int fd, ret = ask_name(ZW_OPEN, level, path, &r, &fd);

	if (ret && ret != -ENOENT)
		zns_pr_err("%s\n", r.msg);
	return ret ? ret : fd;
}

int zns_open_local(int dfd, const char *path, int flags)
{
	/*
	 * the directory's owner must not make root empty and write another file (O_NOFOLLOW), nor
	 * wait (O_NONBLOCK)
	 */
	if (zns_session.used && flags & O_CREAT)
		flags |= O_NOFOLLOW | O_NONBLOCK;
	return openat(dfd, path, flags, CR_FD_PERM);
}

/* Opens an image that is never stored on zones, but may be a file beside a handle. */
static int open_beside_parent(const char *path)
{
	char at[PATH_MAX];
	struct stat st;
	int fd;

	if (snprintf(at, sizeof(at), CR_PARENT_LINK "/%s", path) >= sizeof(at))
		return -ENAMETOOLONG;
	fd = openat(get_service_fd(IMG_FD_OFF), at, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode)))
		close_safe(&fd);
	return fd < 0 ? -ENOENT : fd;
}

static int parent_fd(int level)
{
	int fd = zns_memfd("zns-parent");

	if (fd >= 0 && ftruncate(fd, level)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

bool zns_open_parent(int dfd, int *pfd, int *ret)
{
	int level = zns_session.state == ZNS_OFF ? -1 : level_of(dfd);

	*pfd = -1;
	*ret = 0;
	if (level < 0)
		return false;
	/*
	 * A dump reads only its direct parent, never an older one. In a restore there are no
	 * parents, since the helper merges the chain (zns/helper/restore/restore_session.c).
	 */
	if (level || !zns_session.nr_parents || zns_live_names_pages())
		return true;
	*pfd = parent_fd(level + 1);
	if (*pfd < 0) {
		pr_perror("Can't make a descriptor for a parent");
		*ret = -1;
	}
	return true;
}

int zns_parent_has(int pfd, const char *path)
{
	struct zw_reply r;
	int level = zns_session.state == ZNS_OFF ? 0 : level_of(pfd), fd, ret;

	if (level <= 0)
		return -2;
	ret = ask_name(ZW_OPEN, level, path, &r, &fd);
	close_safe(&fd);
	if (ret && ret != -ENOENT) {
		zns_pr_err("%s\n", r.msg);
		return -1;
	}
	return !ret;
}

int zns_check_parent_dir(int dfd, const char *parent)
{
	char path[PATH_MAX];

	if (zns_opts_given)
		return 0; /* no parent is opened here: the helper looks for the parent's handle */
	if (snprintf(path, sizeof(path), "%s/" HANDLE_NAME, parent) >= sizeof(path) ||
	    faccessat(dfd, path, F_OK, 0))
		return 0;
	pr_err("The parent %s is a checkpoint on zones, a plain one cannot follow it: give --zns-dev, or `znsctl export` the "
	       "parent first\n",
	       parent);
	return -1;
}

int zns_img_open(struct cr_img *img, int dfd, int type, const char *path, unsigned long oflags)
{
	struct zns_img *zi;
	bool pages = type == CR_FD_PAGES;
	int fd, level = level_of(dfd);

	if (oflags & O_FORCE_LOCAL)
		return open_beside_parent(path);
	if (zns_session.state == ZNS_RESTORE && !level) {
		fd = zns_bundle_open(path, pages);
		if (fd != -EAGAIN)
			return fd;
	}
	zi = xzalloc(sizeof(*zi));
	if (!zi)
		return -ENOMEM;
	zi->fd = -1;
	if (snprintf(zi->name, sizeof(zi->name), "%s", path) >= sizeof(zi->name)) {
		xfree(zi);
		return -ENAMETOOLONG;
	}
	zi->read = zns_session.state == ZNS_RESTORE || level > 0;
	if (zi->read)
		fd = pages ? open_pages_for_read(zi, level, path) : open_for_read(level, path);
	else if (pages && !zns_session.receiving)
		fd = open_pages_for_write(zi, path);
	else if (pages || type == CR_FD_TMPFS_DEV || type == CR_FD_TMPFS_IMG ||
		 type == CR_FD_GHOST_FILE)
		fd = open_stream(path);
	else
		fd = open_memfd(zi);
	if (fd < 0) {
		close_safe(&zi->fd);
		xfree(zi);
		return fd;
	}
	img->zns = zi;
	return fd;
}

/*
 * Reports an error of this process to the helper, so that the commit fails even if another process
 * requests it.
 */
static void tell_failed(const char *what)
{
	struct zns_msg m = ZNS_MSG(ZW_FAILED);

	m.payload = what;
	m.len = strlen(what) + 1;
	zns_send(&m);
}

void zns_img_close(struct cr_img *img)
{
	struct zns_img *zi = img->zns;
	struct zns_msg m = ZNS_MSG(ZW_IMG_FD);

	if (!zi)
		return;
	if (!zi->read) {
		if (bfd_flush_images())
			tell_failed(zi->name);
		if (zi->pages && zns_pages_seal(zi))
			tell_failed(zi->name);
		if (!zi->pages && zi->fd >= 0) {
			m.payload = zi->name;
			m.len = strlen(zi->name) + 1;
			m.fd[0] = zi->fd;
			m.nr_fd = 1;
			if (zns_send(&m))
				zns_pr_err("%s; nothing was committed, run the dump again\n",
					   zns_helper_gone());
		}
	}
	zns_pages_drop_windows(zi);
	close_safe(&zi->fd);
	xfree(zi);
	img->zns = NULL;
}
