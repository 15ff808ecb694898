/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The commit of a dump: either everything is durable, in order, or nothing is visible (design.md §3
 * "Order", §6).
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include "../live/live.h"
#include "zns/safeopen.h"

static void join_streams(struct dump *d)
{
	while (d->streams) {
		struct stream *s = d->streams;

		d->streams = s->next;
		pthread_join(s->thread, NULL);
		free(s);
	}
}

/* Fills in the fields of the record that are not yet set by the request or the grant. */
static int describe(struct dump *d, uint64_t frozen_us, struct zns_err *err)
{
	ZnsPb__Checkpoint *c = d->v.c;
	char link[64], path[PATH_MAX];

	c->has_pre_dump = c->pre_dump = d->pre_dump;
	c->has_parent_bytes = d->has_parent;
	c->parent_bytes = d->parent_bytes;
	/* the task is frozen on another machine, whose criu reports the time */
	c->has_frozen_us = !d->pages_only;
	c->frozen_us = frozen_us;
	c->has_pages_only = c->pages_only = d->pages_only;
	c->has_post_copy = c->post_copy = d->post_copy;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->h->dir);
	zns_read_link(AT_FDCWD, link, path, sizeof(path));
	c->origin->image_dir = strdup(path);
	return !c->origin->image_dir || origin_fill(c->origin) || live_describe(d, c) ?
		       zns_fail(err, -ENOMEM, "no memory for the record") :
		       0;
}

static int broker_commit(struct dump *d, struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	int ret;

	/* from here on only this thread uses the connection to the broker */
	progress_stop(d->h, NULL);
	if (d->h->broker_lost)
		return zns_fail(err, -ETIMEDOUT, "%s; the dump was dropped", d->h->broker_err.msg);
	ret = zns_save_commit(&d->v, err);
	/* the broker drops a commit whose connection has closed */
	if (ret == -EPIPE && d->h->late)
		return zns_fail(
			err, d->h->late_err.code,
			"%s; the broker had not confirmed the commit: `znsctl ls` tells whether checkpoint %s exists",
			d->h->late_err.msg, zns_uuid_format(d->v.id, id));
	return ret == -EPIPE ? zns_save_settle(&d->v, err) : ret;
}

static int write_handle(struct dump *d, struct zns_err *err)
{
	int ret = 0;

	for (struct copy *k = d->copies; k && !ret; k = k->next)
		ret = zns_save_copy(&d->v, k->name, k->len, zns_hash(k->data, k->len), err);
	if (!ret)
		ret = copies_end(d, true, err);
	if (!ret)
		ret = zns_save_handle(&d->v, d->h->dir, err);
	/*
	 * Without a handle the copies would look like the images of a plain dump that lost its
	 * pages: remove them.
	 */
	for (struct copy *k = d->copies; ret && k; k = k->next)
		if (!k->beside)
			unlinkat(d->h->dir, k->name, 0);
	for (struct taken *t = d->taken; !ret && t; t = t->next)
		unlinkat(d->h->dir, t->name, 0);
	return ret;
}

static void summary(const struct dump *d, struct zw_reply *r)
{
	const ZnsPb__Checkpoint *c = d->v.c;
	char id[ZNS_UUID_STR], size[32], got[64] = "too short to rate", cap[48] = "";
	struct zns_writer_stats st;

	zns_writer_stats_get(d->v.w, &st);
	if (d->h->cap_mibps)
		snprintf(cap, sizeof(cap), " (at most %u)", d->h->cap_mibps);
	if (c->has_qos_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f MiB/s", c->qos_achieved_mibps);
	snprintf(
		r->msg, sizeof(r->msg),
		"checkpoint %s of %s committed%s: %s in %u images on %zu zones of %zu groups (%u shared), data phase %.3f s, "
		"frozen %.3f s, asked %u MiB/s%s, got %s%s%s",
		zns_uuid_format(d->v.id, id), d->container, d->pages_only ? " (pages only)" : "",
		zns_format_size(c->bytes, size, sizeof(size)), c->nr_images, c->n_zones,
		c->n_groups, c->shared_groups, (double)c->data_phase_us / 1e6,
		(double)c->frozen_us / 1e6, d->qos_mibps, cap, got, st.nr_bad ? "; " : "", st.bad);
	if (c->memory_bytes) {
		size_t at = strlen(r->msg);

		snprintf(r->msg + at, sizeof(r->msg) - at, "; %s of it were on zones already",
			 zns_format_size(c->memory_bytes, size, sizeof(size)));
	}
	if (d->left_out) {
		size_t at = strlen(r->msg);

		snprintf(r->msg + at, sizeof(r->msg) - at,
			 "; " ORIGIN_FDS " or " ORIGIN_SHAPE " is left out: it is %s", d->left_out);
	}
	r->warn = st.nr_bad > 0 || d->left_out;
	r->size = c->bytes;
}

static int keep_one(struct dump *d, const char *name, int fd, struct zns_err *err)
{
	struct zns_wimage *img;
	int ret;

	for (const struct taken *t = d->taken; fd >= 0 && t; t = t->next)
		if (!strcmp(t->name, name))
			return 0; /* criu has handed this file over, so it is stored already */
	if (fd < 0)
		return 0;
	ret = zns_writer_image(d->v.w, name, false, &img, err);
	if (!ret)
		ret = zns_wimage_from_fd(img, fd, err);
	return ret ? ret : zns_wimage_seal(img, err);
}

/*
 * Stores criu's log and the runtime's files with the images, under the names that these programs
 * give them. A restore does not write them into the image directory.
 */
static int keep_beside(struct dump *d, struct zns_err *err)
{
	cleanup_close int log = origin_log(),
			  fds = origin_file(d->h->dir, ORIGIN_FDS, &d->left_out),
			  shape = origin_file(d->h->dir, ORIGIN_SHAPE, &d->left_out);
	int ret = keep_one(d, "dump.log", log, err);

	if (!ret)
		ret = keep_one(d, ORIGIN_FDS, fds, err);
	return ret ? ret : keep_one(d, ORIGIN_SHAPE, shape, err);
}

static int commit(struct dump *d, uint64_t frozen_us, struct zw_reply *r, struct zns_err *err)
{
	const ZnsPb__Checkpoint *c = d->v.c;
	int ret = describe(d, frozen_us, err);

	join_streams(d);
	if (!ret)
		ret = dump_check(d, err);
	if (!ret)
		ret = live_finish(d, err);
	if (!ret)
		ret = keep_beside(d, err);
	if (!ret)
		ret = zns_save_finish(&d->v, err);
	if (!ret)
		ret = copies_begin(d, err);
	if (!ret)
		ret = zns_save_durable(&d->v, err);
	if (!ret)
		/* the last check of --timeout: after it the commit runs to its end */
		ret = dump_check(d, err);
	if (!ret)
		ret = deadline_asked(d->h, err);
	if (!ret)
		ret = broker_commit(d, err);
	if (!ret) {
		ret = write_handle(d, err);
		if (ret)
			zns_save_roll_back(&d->v, "a dump whose handle could not be written", err);
	}
	if (!ret) {
		if (d->live)
			live_keep_commit(d->live);
		summary(d, r);
		progress_stop(d->h, &(struct outcome){ .ok = true,
						       .achieved_mibps = c->qos_achieved_mibps,
						       .frozen_us = c->frozen_us,
						       .zones = (uint32_t)c->n_zones,
						       .groups = (uint32_t)c->n_groups,
						       .shared_groups = c->shared_groups });
	}
	copies_end(d, false, NULL); /* after a failed commit: remove the copies */
	return ret;
}

void dump_commit(struct dump *d, struct packet *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zw_reply r = { 0 };
	int ret;

	d->post_copy = p->h.nr == 1;
	ret = commit(d, p->h.off, &r, &err);
	charge_end(d->h);
	if (ret) {
		dump_fail(d, &err);
		reply_error(p->nr_fd ? p->fd[0] : -1, &err);
	} else {
		deadline_over();
		reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	}
	live_end(d->live);
}
