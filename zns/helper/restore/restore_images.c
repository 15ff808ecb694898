/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Serves the images that criu opens in a restore: in memory, through a pipe, or as a plain file. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include "../helper.h"
#include "restore_session.h"
#include "zns-memfd.h"
#include "zns/flat.h"
#include "zns/reader.h"
#include "zns/safeopen.h"

struct fetch {
	struct zns_rimage *img;
	struct zns_flat *flat; /* the flat view that has the image; NULL: none */
	int reply, fd;
};

struct zns_flat *restore_flat(const struct helper *h, const struct zns_rimage *img)
{
	struct zns_flat *f = h->restore ? h->restore->flat : NULL;
	uint32_t n = zns_rimage_index(img); /* images of level 0 come first */

	return f && n < zns_flat_images(f) && zns_flat_is(f, n) ? f : NULL;
}

static uint64_t size_of(const struct zns_flat *flat, const struct zns_rimage *img)
{
	return flat ? zns_flat_size(flat, zns_rimage_index(img)) : zns_rimage_size(img);
}

#define FLAT_PIECE MIB(1)

static int copy_all(const struct fetch *f, uint64_t len, struct zns_err *err)
{
	cleanup_free uint8_t *buf = NULL;
	uint64_t off = 0;
	int ret = 0;

	if (!f->flat)
		return zns_rimage_to_fd(f->img, off, len, f->fd, err);
	buf = malloc(FLAT_PIECE);
	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for image %s", zns_rimage_name(f->img));
	for (size_t part; len && !ret; off += part, len -= part) {
		part = zns_min(len, FLAT_PIECE);
		ret = zns_flat_read(f->flat, zns_rimage_index(f->img), off, buf, part, err);
		if (ret)
			break;
		ret = zns_pwrite_all(f->fd, buf, part, (off_t)off);
		if (ret)
			zns_fail_sys(err, ret, "image %s: cannot write its copy",
				     zns_rimage_name(f->img));
	}
	return ret;
}

static void *fetch_run(void *arg)
{
	struct fetch *f = arg;
	struct zw_reply r = { .kind = ZW_KIND_FD, .size = size_of(f->flat, f->img) };
	struct zns_err err = ZNS_ERR_INIT;
	int ret = 0;

	if (ftruncate(f->fd, (off_t)r.size))
		ret = zns_fail_sys(&err, -errno, "no memory for image %s", zns_rimage_name(f->img));
	if (!ret && r.size)
		ret = copy_all(f, r.size, &err);
	if (ret)
		reply_error(f->reply, &err);
	else
		reply_send(f->reply, &r, f->fd);
	close(f->fd);
	close(f->reply);
	free(f);
	return NULL;
}

static void *stream_run(void *arg)
{
	struct fetch *f = arg;
	uint64_t size = zns_rimage_size(f->img), unit = KIB(256);
	cleanup_free uint8_t *buf = malloc(unit);
	struct zns_err err = ZNS_ERR_INIT;

	/*
	 * After an error the pipe is closed early: the reader gets less than the whole archive, and
	 * tar reports a truncated archive.
	 */
	for (uint64_t off = 0; off < size && buf; off += unit) {
		size_t len = zns_min(unit, size - off);

		if (zns_rimage_read(f->img, off, buf, len, &err) || zns_write_all(f->fd, buf, len))
			break;
	}
	close(f->fd);
	free(f);
	return NULL;
}

/*
 * Serves the image in a thread, even a small one. In the message loop this could deadlock: the loop
 * would wait for the reader's workers, the workers for a task to take its answers, and the task for
 * the loop to take its requests.
 */
static int start(void *(*run)(void *), struct fetch *f)
{
	pthread_t t;

	if (pthread_create(&t, NULL, run, f))
		return -EAGAIN;
	pthread_detach(t);
	return 0;
}

static int fetch_start(const struct helper *h, struct packet *p, struct zns_rimage *img,
		       struct zns_err *err)
{
	struct fetch *f = calloc(1, sizeof(*f));
	int fd = zns_memfd("zns-image");

	if (!f || fd < 0) {
		int code = fd < 0 ? -errno : -ENOMEM;

		free(f);
		if (fd >= 0)
			close(fd);
		return zns_fail_sys(err, code, "no memory for image %s", zns_rimage_name(img));
	}
	*f = (struct fetch){
		.img = img, .flat = restore_flat(h, img), .reply = packet_take_fd(p, 0), .fd = fd
	};
	if (!start(fetch_run, f))
		return 0;
	p->fd[0] = f->reply;
	close(fd);
	free(f);
	return zns_fail(err, -EAGAIN, "cannot start a thread");
}

/*
 * Serves an archive through a pipe: it is read once, from front to end, so no memory is needed for
 * it.
 */
static int stream_start(struct packet *p, struct zns_rimage *img, struct zns_err *err)
{
	struct zw_reply r = { .kind = ZW_KIND_FD, .size = zns_rimage_size(img) };
	struct fetch *f = calloc(1, sizeof(*f));
	int fds[2];

	if (!f || pipe2(fds, O_CLOEXEC)) {
		free(f);
		return zns_fail(err, -ENOMEM, "no pipe for image %s", zns_rimage_name(img));
	}
	f->img = img;
	f->fd = fds[1];
	reply_send(p->fd[0], &r, fds[0]);
	close(fds[0]);
	if (!start(stream_run, f))
		return 0;
	close(fds[1]);
	free(f);
	return 0; /* answer criu all the same: it reads an empty archive and fails */
}

/*
 * Opens an image that the sender of a migration kept: a plain file beside the handle, until the
 * migration is joined.
 */
static int plain_open(int dir, const char *name, uint64_t *size, struct zns_err *err)
{
	struct stat st;
	int fd;

	/* Pages and pagemaps come only from the device. */
	if (!*name || strchr(name, '/') || !strncmp(name, "pages-", 6) ||
	    !strncmp(name, "pagemap-", 8))
		return zns_fail(err, -ENOENT, "no image %s in the checkpoint", name);
	fd = zns_open_file(dir, name, &st);
	if (fd == -ENOENT)
		return zns_fail(err, fd, "no image %s", name);
	if (fd < 0)
		return zns_fail(err, fd, "image %s in the image directory: %s", name,
				zns_open_why(fd));
	*size = (uint64_t)st.st_size;
	return fd;
}

static int open_plain(struct helper *h, struct packet *p, const char *name, struct zns_err *err)
{
	struct zw_reply r = { .kind = ZW_KIND_FD };
	cleanup_close int fd = plain_open(h->dir, name, &r.size, err);

	if (fd < 0)
		return fd;
	reply_send(p->fd[0], &r, fd);
	return 0;
}

int restore_open(struct helper *h, struct packet *p, uint32_t above, struct zns_err *err)
{
	const char *name = packet_text(p);
	struct zns_rimage *img = name && h->chain && p->h.image >= above ?
					 zns_chain_find(h->chain, p->h.image - above, name) :
					 NULL;
	struct zw_reply r = { .kind = ZW_KIND_PAGES };

	if (!img && name && h->restore && !p->h.image && h->restore->c->pages_only)
		return open_plain(h, p, name, err);
	if (!img)
		return zns_fail(err, -ENOENT, "no image %s in the checkpoint",
				name ? name : "(none)");
	if (!strncmp(name, "tmpfs-", 6) && zns_rimage_size(img) > KIB(64))
		return stream_start(p, img, err);
	if (strncmp(name, "pages-", 6))
		return fetch_start(h, p, img, err);
	r.image = zns_rimage_index(img);
	r.size = size_of(restore_flat(h, img), img);
	reply_send(p->fd[0], &r, -1);
	return 0;
}
