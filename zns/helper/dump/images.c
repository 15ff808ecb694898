/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How images reach the writer during a dump: as whole memfds, through pipes, or read from the
 * memory of frozen tasks.
 */
#include <string.h>
#include <sys/stat.h>
#include "../live/live.h"
#include "zns/grow.h"
#include "zns/handle.h"
#include "zns/pagemap.h"

/*
 * most images that are copied: the handle lists the copies, and would become too large for a tree
 * of thousands of processes
 */
#define COPIES_MAX 2000
#define FILE_PIECE MIB(1)

static const char *image_name(struct packet *p, struct zns_err *err)
{
	const char *name = packet_text(p);

	if (!name || strlen(name) >= ZW_NAME || strchr(name, '/')) {
		zns_fail(err, -EPROTO, "criu sent an impossible image name");
		return NULL;
	}
	return name;
}

/*
 * Keeps a copy of a small image, for tools that read it from the directory. Bulk data stay on the
 * device only.
 */
static bool keep_copy(struct dump *d, const char *name, int fd, bool beside)
{
	struct stat st;
	struct copy *c;

	/*
	 * An encrypted dump copies only the image that Podman looks for: it contains versions and
	 * options, but no data of the tasks.
	 */
	if (d->v.crypt && strcmp(name, "inventory.img"))
		return false;
	if (d->nr_copies == COPIES_MAX || fstat(fd, &st) ||
	    st.st_size > (off_t)ZNS_HANDLE_COPY_MAX ||
	    d->copies_len + (size_t)st.st_size > ZNS_HANDLE_COPIES_MAX)
		return false;
	c = calloc(1, sizeof(*c));
	if (!c)
		return false;
	c->len = (size_t)st.st_size;
	c->beside = beside;
	c->data = malloc(c->len + 1);
	snprintf(c->name, sizeof(c->name), "%s", name);
	if (!c->data || zns_pread_all(fd, c->data, c->len, 0)) {
		free(c->data);
		free(c);
		return false;
	}
	d->nr_copies++;
	d->copies_len += c->len;
	*d->copies_tail = c;
	d->copies_tail = &c->next;
	return true;
}

/*
 * Notes which parents a pagemap refers to, for the record only. Errors are ignored here: an image
 * that cannot be read makes the dump fail where its contents are needed.
 */
static void note_parents(struct dump *d, const char *name, int fd)
{
	cleanup_free struct zns_pagemap_run *run = NULL;
	cleanup_free uint8_t *buf = NULL;
	uint32_t pages_id;
	struct stat st;
	size_t nr = 0;

	if (!d->has_parent || strncmp(name, "pagemap-", 8) || fstat(fd, &st))
		return;
	buf = malloc((size_t)st.st_size + 1);
	if (!buf || zns_pread_all(fd, buf, (size_t)st.st_size, 0) ||
	    zns_pagemap_runs(buf, (size_t)st.st_size, name, &run, &nr, &pages_id, NULL))
		return;
	for (size_t n = 0; n < nr; n++)
		d->parent_bytes += run[n].parent ? run[n].len : 0;
}

static int image_fd(struct dump *d, struct packet *p, struct zns_err *err)
{
	const char *name = image_name(p, err);
	struct zns_wimage *img;
	int ret;

	if (!name)
		return err->code;
	if (p->nr_fd != 1)
		return zns_fail(err, -EPROTO, "image %s came without its contents", name);
	ret = zns_writer_image(d->v.w, name, false, &img, err);
	if (!ret)
		ret = live_fill_pagemap(d, name, p->fd[0], err);
	if (ret)
		return ret;
	note_parents(d, name, p->fd[0]);
	keep_copy(d, name, p->fd[0], false);
	ret = zns_wimage_from_fd(img, p->fd[0], err);
	return ret ? ret : zns_wimage_seal(img, err);
}

/*
 * Reads only @size bytes, the size that criu saw. The directory's owner may append to the file
 * while we read, and the task is frozen meanwhile.
 */
static int file_bytes(struct zns_wimage *img, const char *name, int fd, uint64_t size,
		      struct zns_err *err)
{
	cleanup_free uint8_t *buf = malloc(FILE_PIECE);
	struct stat st;
	int ret = 0;

	if (!buf)
		return zns_fail(err, -ENOMEM, "no memory for file %s", name);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return zns_fail(err, -EINVAL, "%s in the image directory is no regular file", name);
	for (uint64_t off = 0; off < size && !ret; off += FILE_PIECE) {
		size_t len = zns_min(FILE_PIECE, size - off);

		ret = zns_pread_all(fd, buf, len, (off_t)off);
		if (ret == -ENODATA)
			return zns_fail(
				err, -EBUSY,
				"%s in the image directory became shorter while it was read", name);
		if (ret)
			return zns_fail_sys(err, ret, "cannot read %s in the image directory",
					    name);
		ret = zns_wimage_data(img, buf, len, err);
	}
	return ret;
}

/*
 * Stores a file of a plugin or a script. A small file also stays in the directory, as copies of
 * small images do.
 */
static int file_beside(struct dump *d, struct packet *p, struct zns_err *err)
{
	const char *name = image_name(p, err);
	struct zns_wimage *img;
	struct taken *t;
	int ret;

	if (!name)
		return err->code;
	if (p->nr_fd != 1)
		return zns_fail(err, -EPROTO, "file %s came without its contents", name);
	ret = zns_writer_image(d->v.w, name, false, &img, err);
	if (ret == -EEXIST)
		return zns_fail(
			err, ret,
			"somebody wrote %s into the image directory, and criu has an image of this name",
			name);
	if (ret)
		return ret;
	zns_wimage_set_beside(img);
	if (!keep_copy(d, name, p->fd[0], true)) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return zns_fail(err, -ENOMEM, "no memory for file %s", name);
		snprintf(t->name, sizeof(t->name), "%s", name);
		t->next = d->taken;
		d->taken = t;
	}
	ret = file_bytes(img, name, p->fd[0], p->h.off, err);
	return ret ? ret : zns_wimage_seal(img, err);
}

static void *stream_run(void *arg)
{
	struct stream *s = arg;
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_wimage_from_fd(s->img, s->fd, &err) || zns_wimage_seal(s->img, &err))
		dump_fail(s->d, &err);
	close(s->fd);
	return NULL;
}

/*
 * Joins the threads of streams that have ended. Otherwise thousands of ghost files in a row would
 * leave thousands of stacks.
 */
static void reap_streams(struct dump *d)
{
	for (struct stream **p = &d->streams; *p;) {
		struct stream *s = *p;

		if (pthread_tryjoin_np(s->thread, NULL)) {
			p = &s->next;
		} else {
			*p = s->next;
			free(s);
		}
	}
}

/*
 * Gives each open stream (tmpfs archive, ghost file) a thread, which waits for the stream's writer.
 * Few streams are open at once.
 */
static int image_stream(struct dump *d, struct packet *p, struct zns_err *err)
{
	const char *name = image_name(p, err);
	struct stream *s;
	int ret;

	if (!name)
		return err->code;
	reap_streams(d);
	s = calloc(1, sizeof(*s));
	if (!s)
		return zns_fail(err, -ENOMEM, "no memory for image %s", name);
	s->d = d;
	ret = zns_writer_image(d->v.w, name, !strncmp(name, "pages-", 6), &s->img, err);
	if (!ret) {
		s->fd = packet_take_fd(p, 0);
		ret = s->fd < 0 ? zns_fail(err, -EPROTO, "image %s came without its pipe", name) :
				  0;
	}
	if (!ret) {
		ret = -pthread_create(&s->thread, NULL, stream_run, s);
		if (ret) {
			zns_fail_sys(err, ret, "cannot start a reader for image %s", name);
			close(s->fd);
		}
	}
	if (ret) {
		free(s);
		return ret;
	}
	s->next = d->streams;
	d->streams = s;
	return 0;
}

static int pages_open(struct dump *d, struct packet *p, struct zns_err *err)
{
	const char *name = image_name(p, err);

	if (!name)
		return err->code;
	if (p->h.image != d->nr_pages)
		return zns_fail(err, -EPROTO, "criu opened pages image %u after %u images",
				p->h.image, d->nr_pages);
	if (zns_grow(d->pages, d->nr_pages, d->max_pages))
		return zns_fail(err, -ENOMEM, "no memory for image %s", name);
	d->pages[d->nr_pages] = (struct pages){ 0 };
	snprintf(d->pages[d->nr_pages++].name, ZW_NAME, "%s", name);
	return 0;
}

/* Finds the image that the request names, for writing. NULL: none; @err has the reason. */
static struct zns_wimage *pages_image(struct dump *d, uint32_t image, struct zns_err *err)
{
	struct pages *g = image < d->nr_pages ? &d->pages[image] : NULL;

	if (!g || g->live) {
		zns_fail(err, -EPROTO, "criu sent pages of an image it never opened");
		return NULL;
	}
	if (!g->img && zns_writer_image(d->v.w, g->name, true, &g->img, err))
		g->img = NULL;
	return g->img;
}

static int pages_mem(struct dump *d, struct packet *p, struct zns_err *err)
{
	const struct zw_iov *v = packet_iov(p);
	struct iovec iov[ZW_MAX_IOV];
	struct zns_wimage *img;
	uint64_t bytes = 0;

	if (!v || p->h.pid <= 0)
		return zns_fail(err, -EPROTO, "criu sent an impossible list of pages");
	img = pages_image(d, p->h.image, err);
	if (!img)
		return err->code;
	for (uint32_t i = 0; i < p->h.nr; i++) {
		iov[i] = (struct iovec){ (void *)(uintptr_t)v[i].base, v[i].len };
		bytes += v[i].len;
	}
	live_note_plain(d, p->h.pid, bytes);
	return zns_wimage_mem(img, p->h.pid, iov, p->h.nr, err);
}

static int pages_unsteady(struct dump *d, struct packet *p, struct zns_err *err)
{
	const struct zw_iov *v = packet_iov(p);
	struct iovec iov[ZW_MAX_IOV];

	if (!v || p->h.pid <= 0)
		return zns_fail(err, -EPROTO, "criu sent an impossible list of rseq areas");
	for (uint32_t i = 0; i < p->h.nr; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)v[i].base, v[i].len };
	/* without this list of pages that may change, the dump works unless a zone fails */
	zns_writer_unsteady(d->v.w, p->h.pid, iov, p->h.nr);
	return 0;
}

/*
 * Like stream_run(), but the pipe's end is not the image's end: criu says when the image is
 * complete.
 */
static void *pages_run(void *arg)
{
	struct stream *s = arg;
	struct zns_err err = ZNS_ERR_INIT;

	if (zns_wimage_from_fd(s->img, s->fd, &err))
		dump_fail(s->d, &err);
	close(s->fd);
	return NULL;
}

static int pages_stream(struct dump *d, struct packet *p, struct zns_err *err)
{
	struct zns_wimage *img = pages_image(d, p->h.image, err);
	struct stream *s;
	int ret;

	if (!img)
		return err->code;
	if (p->nr_fd != 1)
		return zns_fail(err, -EPROTO, "criu sent an impossible stream of pages");
	reap_streams(d);
	s = calloc(1, sizeof(*s));
	if (!s)
		return zns_fail(err, -ENOMEM, "no memory for pages");
	s->d = d;
	s->img = img;
	s->fd = packet_take_fd(p, 0);
	ret = -pthread_create(&s->thread, NULL, pages_run, s);
	if (ret) {
		close(s->fd);
		free(s);
		return zns_fail_sys(err, ret, "cannot start a reader for pages");
	}
	s->next = d->streams;
	d->streams = s;
	return 0;
}

static void join_stream_of(struct dump *d, const struct zns_wimage *img)
{
	for (struct stream **p = &d->streams; *p; p = &(*p)->next) {
		struct stream *s = *p;

		if (s->img != img)
			continue;
		*p = s->next;
		pthread_join(s->thread, NULL);
		free(s);
		return;
	}
}

static int pages_seal(struct dump *d, struct packet *p, struct zns_err *err)
{
	struct zw_reply r = { 0 };
	struct zns_wimage *img;
	int ret = 0;

	if (p->h.image >= d->nr_pages)
		return zns_fail(err, -EPROTO, "criu closed an image it never opened");
	if (!d->pages[p->h.image].live) {
		img = pages_image(d, p->h.image, err);
		if (!img)
			return err->code;
		join_stream_of(d, img);
		ret = zns_wimage_settle(img, err);
		if (!ret)
			ret = zns_wimage_seal(img, err);
	}
	if (!ret)
		ret = dump_check(d, err);
	if (!ret)
		reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	return ret;
}

void dump_packet(struct helper *h, struct packet *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct dump *d = h->dump;
	bool answered = p->h.op == ZW_PAGES_SEAL ||
			(p->h.op >= ZW_LIVE_ROUNDS && p->h.op <= ZW_LIVE_FINAL) ||
			p->h.op == ZW_MEM_BEGIN || p->h.op == ZW_MEM_OWNS;
	bool reading = p->h.op == ZW_OPEN || p->h.op == ZW_READ;
	int ret;

	switch (p->h.op) {
	case ZW_IMG_FD:
		ret = image_fd(d, p, &err);
		break;
	case ZW_IMG_STREAM:
		ret = image_stream(d, p, &err);
		break;
	case ZW_PAGES_OPEN: /* from here on the tasks are frozen */
		ret = pages_open(d, p, &err);
		if (!ret)
			ret = charge_container(h, &err);
		break;
	case ZW_PAGES_MEM:
		ret = pages_mem(d, p, &err);
		break;
	case ZW_PAGES_UNSTEADY:
		ret = pages_unsteady(d, p, &err);
		break;
	case ZW_PAGES_STREAM:
		ret = pages_stream(d, p, &err);
		break;
	case ZW_PAGES_SEAL:
		ret = pages_seal(d, p, &err);
		break;
	case ZW_MEM_BEGIN:
		ret = paged_begin(d, p, &err);
		break;
	case ZW_MEM_OWNS:
		ret = paged_owns(d, p, &err);
		break;
	case ZW_LIVE_ROUNDS:
		ret = live_rounds(d, p, &err);
		break;
	case ZW_LIVE_SMAPS:
		ret = live_maps(d->live, p, &err);
		break;
	case ZW_LIVE_FINAL:
		ret = live_final(d, p, &err);
		break;
	case ZW_LIVE_IMAGE:
		ret = live_image(d, p, &err);
		break;
	case ZW_FILE:
		ret = file_beside(d, p, &err);
		break;
	case ZW_OPEN:
	case ZW_READ: /* the parents' images; level 0 is the dump that is being written */
		ret = p->nr_fd ? serve_packet(h, p, 1, &err) : 0;
		break;
	case ZW_FAILED:
		ret = zns_fail(&err, -EIO, "a part of the dump failed: %s",
			       packet_text(p) ? packet_text(p) : "(no reason)");
		break;
	case ZW_COMMIT:
		dump_commit(d, p);
		return;
	case ZW_WHY:
		ret = dump_check(d, &err);
		if (ret)
			reply_error(p->nr_fd ? p->fd[0] : -1, &err);
		else
			reply_send(p->nr_fd ? p->fd[0] : -1, &(struct zw_reply){ 0 }, -1);
		return;
	default:
		ret = zns_fail(&err, -EPROTO, "unknown request %u from criu", p->h.op);
	}
	if (ret) {
		if (ret != -ENOENT || !reading)
			dump_fail(d, &err);
		if (!reading)
			charge_end(h);
		if (answered || reading)
			reply_error(p->nr_fd ? p->fd[0] : -1, &err);
	}
}
