/* SPDX-License-Identifier: GPL-2.0-only */
/* See export_serve.h. */
#define FUSE_USE_VERSION 35
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include "export_serve.h"
#include "flow.h"

#define FLOW_BYTES MIB(8)
#define SKIP_BYTES KIB(64)

struct export_serve {
	struct export_oci *x; /* the export whose layers are served */
	char dir[PATH_MAX];
	struct fuse *fuse;
	bool mounted, running;
	pthread_t loop;
	struct stream *streams; /* used by the FUSE loop only */
	pthread_mutex_t lock; /* protects the members below */
	struct zns_err err; /* the first error that a reader got */
};

/* An open layer: a thread makes its bytes, and a buffer has the next ones. */
struct stream {
	struct export_serve *serve;
	struct stream *next;
	size_t layer;
	uint64_t pos; /* number of bytes that were read */
	bool running;
	pthread_t thread;
	struct ctl_flow *flow;
	struct export x;
};

static const struct export_layer *layer_of(const struct stream *t)
{
	return &t->serve->x->layers[t->layer];
}

/* ---- making bytes ---- */

static void note(struct export_serve *s, const struct zns_err *err)
{
	pthread_mutex_lock(&s->lock);
	if (!s->err.code)
		s->err = *err;
	pthread_mutex_unlock(&s->lock);
}

static void *make(void *arg)
{
	struct stream *t = arg;
	const struct export_layer *l = layer_of(t);
	cleanup_free uint8_t *buf = malloc(EXPORT_CHUNK);
	struct zns_err err = ZNS_ERR_INIT;
	int ret = buf ? export_layer(&t->x, -1, l->level, l->link, ctl_flow_put, t->flow, buf,
				     &err) :
			zns_fail(&err, -ENOMEM, "no memory for a buffer");

	/* -EPIPE is no error: the reader has closed the file, or reads from an earlier offset */
	if (ret && ret != -EPIPE)
		note(t->serve, &err);
	ctl_flow_end(t->flow);
	return NULL;
}

static int start(struct stream *t)
{
	int ret;

	t->flow = ctl_flow_new(FLOW_BYTES);
	if (!t->flow)
		return -ENOMEM;
	t->pos = 0;
	/* a copy, since its counters belong to this thread */
	t->x = t->serve->x->x;
	ctl_progress_start(&t->x.prog, "push", 0);
	t->x.prog.tty = false;
	ret = -pthread_create(&t->thread, NULL, make, t);
	t->running = !ret;
	if (ret)
		ctl_flow_free(t->flow);
	return ret;
}

static void stop(struct stream *t)
{
	if (!t->running)
		return;
	ctl_flow_leave(t->flow);
	pthread_join(t->thread, NULL);
	ctl_flow_free(t->flow);
	ctl_progress_end(&t->x.prog);
	t->running = false;
}

/* Reads the next @len bytes. -EIO: the layer ends before. */
static int take(struct stream *t, char *buf, size_t len)
{
	size_t n = ctl_flow_take(t->flow, buf, len);

	t->pos += n;
	return n == len ? 0 : -EIO;
}

static int go_to(struct stream *t, uint64_t off)
{
	char skipped[SKIP_BYTES];
	int ret = 0;

	if (t->running && off < t->pos)
		stop(t);
	if (!t->running)
		ret = start(t);
	while (!ret && t->pos < off)
		ret = take(t, skipped, zns_min(sizeof(skipped), off - t->pos));
	return ret;
}

/* ---- files ---- */

static struct export_serve *serve_of(void)
{
	return fuse_get_context()->private_data;
}

/* Returns the index of the layer; -1: there is no such file. */
static ssize_t find(const struct export_oci *x, const char *path)
{
	for (size_t i = 0; *path == '/' && i < x->nr_layers; i++)
		if (!strcmp(path + 1, ctl_oci_digits(x->layers[i].digest)))
			return (ssize_t)i;
	return -1;
}

static int serve_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	const struct export_oci *x = serve_of()->x;
	ssize_t i = find(x, path);

	memset(st, 0, sizeof(*st));
	if (i < 0 && strcmp(path, "/") != 0)
		return -ENOENT;
	st->st_mode = i < 0 ? S_IFDIR | 0500 : S_IFREG | 0400;
	st->st_nlink = i < 0 ? 2 : 1;
	if (i >= 0)
		st->st_size = (off_t)x->layers[i].size;
	return 0;
}

static int serve_open(const char *path, struct fuse_file_info *fi)
{
	struct export_serve *s = serve_of();
	ssize_t i = find(s->x, path);
	struct stream *t;

	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		return -EROFS;
	if (i < 0)
		return -ENOENT;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->serve = s;
	t->layer = (size_t)i;
	t->next = s->streams;
	s->streams = t;
	fi->fh = (uint64_t)(uintptr_t)t;
	fi->direct_io = 1; /* it is read in order, and not kept in the page cache */
	return 0;
}

static int serve_read(const char *path, char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	struct stream *t = (struct stream *)(uintptr_t)fi->fh;
	uint64_t size = layer_of(t)->size;
	int ret;

	if (off < 0)
		return -EINVAL;
	if ((uint64_t)off >= size)
		return 0;
	len = zns_min(len, size - (uint64_t)off);
	ret = go_to(t, (uint64_t)off);
	if (!ret)
		ret = take(t, buf, len);
	return ret ? ret : (int)len;
}

static void end_stream(struct stream *t)
{
	stop(t);
	free(t);
}

static int serve_release(const char *path, struct fuse_file_info *fi)
{
	struct stream *t = (struct stream *)(uintptr_t)fi->fh;
	struct stream **at = &t->serve->streams;

	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	end_stream(t);
	return 0;
}

/*
 * Behaves as if poll were not implemented. It must exist, since without it libfuse would lose the
 * handle.
 */
static int serve_poll(const char *path, struct fuse_file_info *fi, struct fuse_pollhandle *ph,
		      unsigned *events)
{
	if (ph)
		fuse_pollhandle_destroy(ph);
	return -ENOSYS;
}

static void *serve_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	cfg->entry_timeout = cfg->attr_timeout = 3600;
	cfg->nullpath_ok = 1;
	return fuse_get_context()->private_data;
}

static const struct fuse_operations operations = { .getattr = serve_getattr,
						   .open = serve_open,
						   .read = serve_read,
						   .release = serve_release,
						   .poll = serve_poll,
						   .init = serve_init };

/* ---- the mount ---- */

static void *loop(void *arg)
{
	const struct export_serve *s = arg;

	/* one thread suffices: copying takes less time than waking another one */
	fuse_loop(s->fuse);
	return NULL;
}

/* From here on, mounts of this thread and its children are not visible to others. */
static int alone(struct zns_err *err)
{
	cleanup_close int fd = geteuid() ? -1 : open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return zns_fail(err, -ENOTSUP, "no mount without root and /dev/fuse");
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL))
		return zns_fail(err, -ENOTSUP, "no mount namespace: %s", strerror(errno));
	return 0;
}

static int mount_it(struct export_serve *s, struct zns_err *err)
{
	char *argv[] = {
		(char *)"znsctl",
		(char *)"-oro,nodev,nosuid,noexec,default_permissions,fsname=zns,subtype=znsctl",
		NULL
	};
	struct fuse_args args = FUSE_ARGS_INIT(2, argv);
	int ret = 0;

	s->fuse = fuse_new(&args, &operations, sizeof(operations), s);
	fuse_opt_free_args(&args);
	/* libfuse itself prints what is missing */
	s->mounted = s->fuse && !fuse_mount(s->fuse, s->dir);
	if (!s->mounted)
		return zns_fail(err, -ENOTSUP, "cannot mount on %s", s->dir);
	ret = -pthread_create(&s->loop, NULL, loop, s);
	s->running = !ret;
	return ret ? zns_fail_sys(err, ret, "cannot start a thread") : 0;
}

int export_serve_begin(struct export_oci *x, const char *dir, struct export_serve **out,
		       struct zns_err *err)
{
	struct export_serve *s = *out = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return zns_fail(err, -ENOMEM, "no memory for the mount");
	s->x = x;
	pthread_mutex_init(&s->lock, NULL);
	snprintf(s->dir, sizeof(s->dir), "%s", dir);
	ret = alone(err);
	return ret ? ret : mount_it(s, err);
}

int export_serve_end(struct export_serve *s, struct zns_err *err)
{
	struct stream *t;
	int ret;

	if (!s)
		return 0;
	if (s->mounted) /* unmount by force: the loop ends even if there is no reader */
		umount2(s->dir, MNT_FORCE | MNT_DETACH);
	if (s->running)
		pthread_join(s->loop, NULL);
	if (s->mounted)
		fuse_unmount(s->fuse);
	if (s->fuse)
		fuse_destroy(s->fuse);
	while ((t = s->streams)) { /* after that, open files were not released */
		s->streams = t->next;
		end_stream(t);
	}
	ret = s->err.code;
	if (ret)
		*err = s->err;
	pthread_mutex_destroy(&s->lock);
	free(s);
	return ret;
}
