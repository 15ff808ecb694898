/* SPDX-License-Identifier: GPL-2.0-only */
/* mount: shows a checkpoint's images as read-only files, for crit and other readers of image
 * directories */
#define FUSE_USE_VERSION 35
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "lib/ctl.h"
#include "lib/outdir.h"
#include "zns/reader.h"
#include "zns/safeopen.h"

/* One mount per process. libfuse calls from several threads; the reader supports that. */
static struct view {
	struct ctl_hold h;
	struct zns_reader *r;
} view;

static struct timespec created(void)
{
	return (struct timespec){ .tv_sec = view.h.c->created_ns / 1000000000,
				  .tv_nsec = view.h.c->created_ns % 1000000000 };
}

static struct zns_rimage *image_at(const char *path)
{
	return *path == '/' ? zns_reader_find(view.r, path + 1) : NULL;
}

static int view_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	struct zns_rimage *i;

	memset(st, 0, sizeof(*st));
	st->st_mtim = st->st_ctim = st->st_atim = created();
	if (!strcmp(path, "/")) {
		st->st_mode = S_IFDIR | 0500;
		st->st_nlink = 2;
		return 0;
	}
	i = image_at(path);
	if (!i)
		return -ENOENT;
	st->st_mode = S_IFREG | 0400;
	st->st_nlink = 1;
	st->st_size = (off_t)zns_rimage_size(i);
	st->st_blocks = (st->st_size + 511) / 512;
	return 0;
}

static int view_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
			struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	fill(buf, ".", NULL, 0, 0);
	fill(buf, "..", NULL, 0, 0);
	for (size_t n = 0; n < view.h.m->n_images; n++)
		if (!view.h.m->images[n]->part && fill(buf, view.h.m->images[n]->name, NULL, 0, 0))
			return -ENOMEM;
	return 0;
}

static int view_open(const char *path, struct fuse_file_info *fi)
{
	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	if (!image_at(path))
		return -ENOENT;
	fi->keep_cache = 1; /* committed data never changes */
	return 0;
}

static int view_read(const char *path, char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct zns_rimage *i = image_at(path);
	struct zns_err err = ZNS_ERR_INIT;
	uint64_t size;

	if (!i || off < 0)
		return -EIO;
	size = zns_rimage_size(i);
	if ((uint64_t)off >= size)
		return 0;
	len = zns_min(len, size - (uint64_t)off);
	return zns_rimage_read(i, (uint64_t)off, buf, len, &err) ? -EIO : (int)len;
}

static void *view_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	cfg->kernel_cache = 1;
	cfg->entry_timeout = cfg->attr_timeout = cfg->negative_timeout = 3600;
	cfg->use_ino = 0;
	return NULL;
}

static const struct fuse_operations operations = { .getattr = view_getattr,
						   .readdir = view_readdir,
						   .open = view_open,
						   .read = view_read,
						   .init = view_init };

static int open_view(const char *dev, const char *what, struct zns_err *err)
{
	struct zns_reader_params p = { 0 };
	int ret = ctl_hold_open(&view.h, dev, what, err);

	if (!ret)
		ret = ctl_hold_key(&view.h, err);
	if (ret)
		return ret;
	p.dev = view.h.s.dev;
	p.crypt = view.h.crypt;
	p.workers = 4;
	return zns_reader_new(&p, view.h.m, &view.r, err);
}

/* ---- the mount point ---- */

/*
 * A mount on one of these, or below the last ones, would hide a part of the system from every
 * program.
 */
static bool of_the_system(const char *path)
{
	static const char *const itself[] = { "/",          "/home",    "/lib",      "/media",
					      "/opt",       "/root",    "/run",      "/srv",
					      "/tmp",       "/var",     "/run/lock", "/run/user",
					      "/var/cache", "/var/lib", "/var/log",  "/var/run",
					      "/var/spool", "/var/tmp" };
	static const char *const below[] = { "/bin",   "/boot",  "/dev",        "/etc",  "/lib",
					     "/lib32", "/lib64", "/libx32",     "/proc", "/sbin",
					     "/sys",   "/usr",   "/run/systemd" };

	for (size_t i = 0; i < ZNS_ARRAY_SIZE(itself); i++)
		if (!strcmp(path, itself[i]))
			return true;
	for (size_t i = 0; i < ZNS_ARRAY_SIZE(below); i++) {
		size_t n = strlen(below[i]);

		if (!strncmp(path, below[i], n) && (!path[n] || path[n] == '/'))
			return true;
	}
	return false;
}

struct place {
	char base[ZNS_BASE_MAX], path[PATH_MAX]; /* path: the kernel's spelling */
	int parent, dir;
};

static int kernels_name(int fd, char *out, size_t len, struct zns_err *err)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = zns_read_link(AT_FDCWD, link, out, len);
	return *out == '/' ? 0 : zns_fail_sys(err, n < 0 ? (int)n : -ENOENT, "the mount point");
}

/* Finds an empty directory. It may not be a link or a directory of the system. Later steps use
 * its descriptor. */
static int find_place(const char *arg, struct place *p, struct zns_err *err)
{
	char all[PATH_MAX];
	int ret;

	/* "/", "." and "x/.." do not end in a name: ask the kernel for it. */
	p->dir = zns_open_dir(arg, err);
	if (p->dir == -ENOENT || p->dir == -ENOTDIR)
		return zns_fail(err, p->dir, "%s is no directory", arg);
	if (p->dir < 0)
		return p->dir;
	ret = kernels_name(p->dir, all, sizeof(all), err);
	if (!ret && of_the_system(all))
		return zns_fail(err, -EPERM,
				"%s belongs to the system: name an empty directory of your own",
				all);
	close(p->dir);
	p->dir = -1;
	if (!ret)
		p->parent = zns_open_parent(arg, p->base, err);
	if (ret || p->parent < 0)
		return ret ? ret : p->parent;
	p->dir = zns_open_subdir(p->parent, p->base);
	if (p->dir == -ENOTDIR || p->dir == -ELOOP)
		return zns_fail(err, -ENOTDIR,
				"%s is a link or no directory: name the directory itself", arg);
	if (p->dir < 0)
		return zns_fail_sys(err, p->dir, "%s", arg);
	ret = kernels_name(p->dir, p->path, sizeof(p->path), err);
	if (!ret && of_the_system(p->path)) /* the name may refer to another directory by now */
		return zns_fail(err, -EPERM,
				"%s belongs to the system: name an empty directory of your own",
				p->path);
	if (!ret)
		ret = ctl_dir_empty(p->dir);
	if (ret < 0)
		return zns_fail_sys(err, ret, "%s", arg);
	return ret ? 0 : zns_fail(err, -ENOTEMPTY, "%s is not empty: name an empty directory", arg);
}

static void leave_place(struct place *p)
{
	if (p->dir >= 0)
		close(p->dir);
	if (p->parent >= 0)
		close(p->parent);
}

/* Root mounts on the descriptor, so a link that appears later does no harm. Others use
 * fusermount3, which checks the path itself. */
static void mount_name(const struct place *p, char *out, size_t len)
{
	if (geteuid())
		snprintf(out, len, "%s", p->path);
	else
		snprintf(out, len, "/proc/self/fd/%d", p->dir);
}

/* The name now leads to the mount's own root. libfuse would look for the directory below it. */
static void unmount(const struct place *p)
{
	char name[64];
	int fd = geteuid() ?
			 -1 :
			 openat(p->parent, p->base, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	struct stat below, st;

	if (fd < 0)
		return;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	if (!fstat(p->dir, &below) && !fstat(fd, &st) && st.st_dev != below.st_dev)
		umount2(name, MNT_DETACH);
	close(fd);
}

/* Serves until unmounted. Writes to @ready once mounted; -1: nobody waits for that. */
static int serve(const struct place *p, int ready, struct zns_err *err)
{
	char *argv[] = {
		(char *)"znsctl",
		(char *)"-oro,nodev,nosuid,noexec,default_permissions,fsname=zns,subtype=znsctl",
		NULL
	};
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	struct fuse_loop_config loop = { .clone_fd = 0, .max_idle_threads = 4 };
	struct fuse *f = fuse_new(&args, &operations, sizeof(operations), NULL);
	char target[PATH_MAX];
	int ret = 0;

	if (!f)
		return zns_fail(
			err, -EIO,
			"libfuse cannot be set up: is there memory, and is fuse3 installed?");
	mount_name(p, target, sizeof(target));
	/* libfuse explains a failed mount on standard error itself. */
	if (fuse_mount(f, target)) {
		ret = zns_fail(
			err, -EIO,
			"cannot mount on %s: that needs /dev/fuse, and root or the program fusermount3",
			p->path);
	} else {
		fuse_set_signal_handlers(fuse_get_session(f));
		if (ready >= 0) {
			/* a parent that reads the errors waits until they are closed */
			dup2(STDOUT_FILENO, STDERR_FILENO);
			if (write(ready, "", 1) != 1)
				fuse_exit(f);
			close(ready);
		}
		fuse_loop_mt(f, &loop);
		fuse_remove_signal_handlers(fuse_get_session(f));
		unmount(p);
		fuse_unmount(f);
	}
	fuse_destroy(f);
	fuse_opt_free_args(&args);
	return ret;
}

static int work(const struct ctl_cmd *cmd, const char *dev, const char *what, const struct place *p,
		int ready)
{
	struct zns_err err = ZNS_ERR_INIT;
	int ret = open_view(dev, what, &err);

	/* The starting directory must not stay busy. Names may be relative up to here. */
	if (!ret && ready >= 0 && chdir("/"))
		ret = zns_fail_sys(&err, -errno, "/");
	if (!ret)
		ret = serve(p, ready, &err);
	zns_reader_free(view.r);
	ctl_hold_close(&view.h);
	return ret ? ctl_fail(cmd, &err) : CTL_OK;
}

/* A fork would lose the reader's threads. So the child does everything and the parent waits for
 * the mount. */
static int in_background(const struct ctl_cmd *cmd, const char *dev, const char *what,
			 const struct place *at)
{
	int p[2], status, null;
	char byte;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) || (pid = fork()) < 0) {
		perror("znsctl mount");
		return CTL_FAILED;
	}
	if (!pid) {
		close(p[0]);
		setsid();
		null = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null >= 0)
			dup2(null, STDIN_FILENO), dup2(null, STDOUT_FILENO);
		exit(work(cmd, dev, what, at, p[1]));
	}
	close(p[1]);
	if (read(p[0], &byte, 1) == 1)
		return CTL_OK;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) ?
		       WEXITSTATUS(status) :
		       CTL_FAILED;
}

static int cmd_mount(const struct ctl_cmd *cmd, int argc, char **argv)
{
	struct place at = { .parent = -1, .dir = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	struct ctl_args args = { 0 };
	bool foreground = false;
	int code;
	const struct ctl_opt opts[] = { CTL_FLAG("foreground", &foreground), CTL_DEV,
					CTL_OPTS_END };

	if (ctl_parse(cmd, argc, argv, opts, &args))
		return args.code;
	if (args.argc > 2)
		ctl_take_dev(&args);
	if (args.argc != 2 || !*args.argv[0] || !*args.argv[1])
		return ctl_usage(
			cmd,
			"a checkpoint and a mount point are wanted: ID or a directory with its handle, and DIR");
	if (find_place(args.argv[1], &at, &err))
		code = ctl_fail(cmd, &err);
	else
		code = foreground ? work(cmd, args.dev, args.argv[0], &at, -1) :
				    in_background(cmd, args.dev, args.argv[0], &at);
	if (code == CTL_OK && !foreground && args.json)
		code = ctl_print_list("target", json_object_new_string(at.path));
	leave_place(&at);
	return code;
}

const struct ctl_cmd command_mount = {
	"mount",
	"[DEV] ID|DIRECTORY MOUNTPOINT",
	"a checkpoint's images as read-only files, until umount",
	"  ID may be the beginning of one, or a directory that holds a handle\n"
	"  MOUNTPOINT is an empty directory, no link, and none of the system's\n"
	"  --foreground    stay until it is unmounted\n" CTL_DEV_HELP,
	cmd_mount,
};
