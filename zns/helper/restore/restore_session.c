/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A restore: finds the checkpoint by handle or id, protects it by a lease, sends verified data to
 * criu's processes. Whole images: restore_images.c.
 */
#include <string.h>
#include "fill.h"
#include "../helper.h"
#include "restore_session.h"
#include "../work_progress.h"
#include "zns/flat.h"
#include "zns/handle.h"
#include "zns/image_map.h"
#include "zns/reader.h"

static struct helper *self; /* used in completion callbacks, which run on the reader's threads */
/*
 * ms; short, since a restore only reports progress to the broker and does not depend on its answers
 */
#define BROKER_LIMIT_MS 10000

static int from_handle(struct helper *h, const struct zw_begin *b, struct restore *r,
		       struct zns_registered *reg, uint8_t *id, char *warn, size_t warn_len,
		       struct zns_err *err)
{
	struct zns_err copies = ZNS_ERR_INIT;
	struct zns_registered given;
	const ZnsPb__Handle *hd;
	struct zns_err why = ZNS_ERR_INIT;
	int ret = zns_handle_read(h->dir, &r->handle, &why);

	if (ret)
		return zns_fail(
			err, ret,
			"%s is damaged or foreign (%s); find the checkpoint with `znsctl ls` and restore it "
			"with --zns-checkpoint ID",
			ZNS_HANDLE_NAME, why.msg);
	hd = r->handle;
	memcpy(id, hd->checkpoint.data, ZNS_UUID_LEN);
	ret = zns_registered_by_uuid(hd->device.data, reg, err);
	if (!ret && b->dev[0]) {
		ret = zns_resolve_device(b->dev, &given, err);
		if (!ret && memcmp(given.uuid, reg->uuid, ZNS_UUID_LEN))
			ret = zns_fail(
				err, -EXDEV,
				"the handle is of another device than --zns-dev %s; leave the option out",
				b->dev);
	}
	if (!ret && zns_handle_check_copies(h->dir, hd, &copies) > 0)
		snprintf(warn, warn_len, "%s; the device's own images are used", copies.msg);
	return ret;
}

static int open_checkpoint(struct helper *h, struct restore *r, const uint8_t *id,
			   const struct zw_begin *b, char *warn, size_t warn_len,
			   struct zns_err *err)
{
	struct zns_reader_params p = { .bucket = h->bucket };
	ZnsPb__Response *resp = NULL;
	char text[ZNS_UUID_STR];
	int ret;

	h->s.shares = true;
	h->s.half = b->half;
	ret = restore_lease(h, b, id, &resp, err);
	if (ret)
		return ret;
	if (resp->promise_note)
		snprintf(warn, warn_len, "%s", resp->promise_note);
	zns_bucket_cap(h->bucket, h->cap_mibps);
	helper_set_rate(h, resp->rate_mibps);
	/*
	 * Check that the handle agrees with the record. A user may have written the handle, and an
	 * id alone must not let that user restore another user's process.
	 */
	if (r->handle)
		ret = zns_handle_agrees(r->handle, resp->checkpoints[0], err);
	if (!ret && resp->checkpoints[0]->pre_dump)
		ret = zns_fail(
			err, -EINVAL,
			"checkpoint %s is a pre-dump: it has memory only, for dumps that name it as their "
			"parent; restore one of those",
			zns_uuid_format(id, text));
	if (!ret)
		ret = zns_session_chain(&h->s, resp, r->handle, &p, &h->chain, err);
	if (!ret)
		r->c = zns_chain_manifest(h->chain, 0)->checkpoint;
	if (!ret && zns_chain_levels(h->chain) > 1)
		ret = zns_flat_new(h->chain, &r->flat, err);
	if (!ret) {
		r->first = resp->first_pages;
		resp->first_pages = NULL;
	}
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

static void work_done(void *arg, struct work *out)
{
	struct helper *h = arg;

	zns_reader_stats(zns_chain_reader(h->chain), &out->bytes, &out->data_us);
	out->page_bytes = out->bytes;
}

static int show_progress(struct helper *h, struct restore *r, struct packet *p,
			 const struct zw_begin *b, struct zns_err *err)
{
	const ZnsPb__Checkpoint *c = r->c;
	struct progress_params pp = { .op = "restore",
				      .container = c->container,
				      .total = zns_images_bytes(zns_chain_manifest(h->chain, 0)),
				      .qos_mibps = c->has_qos_requested_mibps ?
							   c->qos_requested_mibps :
							   0,
				      .get = work_done,
				      .arg = h };

	memcpy(pp.checkpoint, c->id.data, ZNS_UUID_LEN);
	packet_progress(p, b, &pp.tty, &pp.json);
	h->s.broker.limit_ms = BROKER_LIMIT_MS;
	self = h;
	return progress_start(h, &pp, err);
}

int restore_begin(struct helper *h, struct packet *p, struct zns_err *err)
{
	const struct zw_begin *b = packet_begin(p);
	struct restore *r = calloc(1, sizeof(*r));
	struct zw_reply reply = { 0 };
	struct zns_registered reg;
	cleanup_close int bundle = -1;
	uint8_t id[ZNS_UUID_LEN];
	int ret;

	if (!r)
		return zns_fail(err, -ENOMEM, "no memory for the restore");
	if (!b) {
		free(r);
		return zns_fail(err, -EPROTO, "zns-helper and criu are of different builds");
	}
	h->dir = packet_take_fd(p, 1);
	ret = helper_cap(h, b, err);
	if (!ret)
		ret = charge_begin(h, p, false, err);
	if (ret) {
		free(r);
		return ret;
	}
	if (b->checkpoint[0])
		ret = zns_resolve_device(b->dev[0] ? b->dev : NULL, &reg, err);
	else
		ret = from_handle(h, b, r, &reg, id, reply.msg, sizeof(reply.msg), err);
	if (!ret)
		ret = helper_attach(h, &reg, NULL, err);
	if (!ret && b->checkpoint[0] && zns_broker_resolve_id(&h->s.broker, b->checkpoint, id, err))
		ret = zns_wrap(err, "--zns-checkpoint (`znsctl ls` lists ids)");
	if (!ret)
		ret = open_checkpoint(h, r, id, b, reply.msg, sizeof(reply.msg), err);
	if (!ret)
		ret = origin_check(r->c, err);
	if (!ret && r->c->pages_only)
		ret = zns_plain_check(h->dir, zns_chain_manifest(h->chain, 0), err);
	if (!ret)
		ret = bundle = bundle_make(h->chain, r->flat, !r->c->pages_only, err);
	if (ret >= 0)
		ret = beside_put_back(h->dir, zns_chain_manifest(h->chain, 0),
				      zns_chain_reader(h->chain), err);
	if (!ret)
		ret = show_progress(h, r, p, b, err);
	if (r->handle)
		zns_pb__handle__free_unpacked(r->handle, NULL);
	r->handle = NULL;
	if (ret) {
		zns_flat_free(r->flat);
		if (r->first)
			zns_pb__first_pages__free_unpacked(r->first, NULL);
		zns_chain_close(h->chain);
		h->chain = NULL;
		free(r);
		return ret;
	}
	reply.warn = reply.msg[0] != 0;
	memcpy(reply.id, id, ZW_ID);
	memcpy(reply.parent, reg.uuid, ZW_ID);
	if (r->c->post_copy)
		reply.kind = ZW_KIND_POST_COPY;
	h->restore = r;
	if (b->record)
		first_begin();
	if (p->h.nr) /* the request is of criu itself, not of a daemon that waits for criu */
		awake_begin(zns_mono_ns());
	reply_send(p->fd[0], &reply, bundle);
	return 0;
}

struct pages_read {
	int reply, uffd; /* reply: socket for the answer; uffd: the task's userfaultfd, or -1 */
};

static void read_done(void *arg, const struct zns_err *err)
{
	struct pages_read *a = arg;
	struct zw_reply r = { 0 };

	if (a->uffd >= 0)
		close(a->uffd); /* close it before the task may touch the memory */
	if (err->code) {
		progress_hush(self);
		reply_error(a->reply, err);
	} else {
		reply_send(a->reply, &r, -1);
	}
	close(a->reply);
	free(a);
}

static int read_pages(struct helper *h, struct packet *p, struct zns_err *err)
{
	struct zns_rimage *img = h->chain ?
					 zns_reader_image(zns_chain_reader(h->chain), p->h.image) :
					 NULL;
	const struct zw_iov *v = packet_iov(p);
	struct iovec iov[ZW_MAX_IOV];
	struct zns_task task = ZNS_TASK(p->sender);
	struct pages_read *a;
	struct zns_flat *flat;

	if (!img || !v || p->sender <= 0 || p->nr_fd > 2)
		return zns_fail(err, -EPROTO, "criu sent an impossible read");
	a = malloc(sizeof(*a));
	if (!a)
		return zns_fail(err, -ENOMEM, "no memory for a read request");
	for (uint32_t i = 0; i < p->h.nr; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)v[i].base, v[i].len };
	*a = (struct pages_read){ packet_take_fd(p, 0), packet_take_fd(p, 1) };
	if (!zns_task_huge_pages())
		task.uffd = a->uffd;
	if (!fill_covers(task, iov, p->h.nr))
		task.uffd = -1;
	flat = restore_flat(h, img);
	if (flat)
		zns_flat_read_task(flat, p->h.image, p->h.off, task, iov, p->h.nr, read_done, a);
	else
		zns_rimage_read_task(img, p->h.off, task, iov, p->h.nr, read_done, a);
	return 0;
}

/* The image that a request names. NULL: criu has opened none of that number, -EPROTO in @err. */
static struct zns_rimage *opened_image(struct helper *h, const struct packet *p,
				       struct zns_err *err)
{
	struct zns_rimage *img = h->chain ?
					 zns_reader_image(zns_chain_reader(h->chain), p->h.image) :
					 NULL;

	if (!img)
		zns_fail(
			err, -EPROTO,
			"criu asked for an image that it never opened: if criu and zns-helper are of the same build, report this with criu's log");
	return img;
}

static int fetch(struct helper *h, struct packet *p, struct zns_err *err)
{
	struct zns_rimage *img = opened_image(h, p, err);

	return img ? lazy_fetch(h, p, img, restore_flat(h, img), err) : -EPROTO;
}

static int fill(struct helper *h, struct packet *p, struct zns_err *err)
{
	struct zns_rimage *img = opened_image(h, p, err);

	return img ? fill_start(h, p, img, restore_flat(h, img), err) : -EPROTO;
}

/*
 * Called when every task is restored. Reports the figures to the broker, which stores them, and to
 * criu, which logs them. Without a broker they are only logged.
 */
static void done(struct helper *h, struct packet *p)
{
	const ZnsPb__Checkpoint *c = h->restore->c;
	ZnsPb__Progress pr = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	struct zw_reply r = { 0 };
	char id[ZNS_UUID_STR], size[32], part[32], shared_text[64] = "",
						   got[64] = "too short to rate", asked[64] = "",
						   parents[48] = "";
	uint32_t levels = zns_chain_levels(h->chain);
	uint32_t shared = 0;
	uint64_t got_shared;
	struct work w;
	double achieved_mibps;

	awake_end();
	progress_stop(h, NULL);
	work_done(h, &w);
	achieved_mibps = zns_rate_mibps(w.bytes, w.data_us);
	pr.bytes = w.bytes;
	pr.has_data_us = pr.has_done = pr.done = 1;
	pr.data_us = w.data_us;
	req.progress = &pr;
	if (!zns_session_ask(&h->s, &req, &resp, NULL)) {
		shared = resp->restore ? resp->restore->shared_groups : 0;
		zns_pb__response__free_unpacked(resp, NULL);
	}
	if (achieved_mibps > 0)
		snprintf(got, sizeof(got), "%.0f MiB/s", achieved_mibps);
	if (c->has_qos_requested_mibps)
		snprintf(asked, sizeof(asked), ", dumped with %u MiB/s asked",
			 c->qos_requested_mibps);
	if (levels > 1)
		snprintf(parents, sizeof(parents), " and %u parent%s", levels - 1,
			 levels > 2 ? "s" : "");
	got_shared = zns_min(zns_reader_shared(zns_chain_reader(h->chain)), w.bytes);
	/* counted in whole units, although the restore needed only a part of some */
	if (got_shared)
		snprintf(shared_text, sizeof(shared_text), ", %s of it read by other restores,",
			 zns_format_size(got_shared, part, sizeof(part)));
	snprintf(
		r.msg, sizeof(r.msg),
		"checkpoint %s of %s%s restored: %s read and verified%s from %zu zones of %zu groups (%u shared), data phase %.3f s, "
		"got %s%s",
		zns_uuid_format(c->id.data, id), c->container, parents,
		zns_format_size(w.bytes, size, sizeof(size)), shared_text, c->n_zones, c->n_groups,
		shared, (double)w.data_us / 1e6, got, asked);
	progress_stop(h, &(struct outcome){ .ok = true,
					    .achieved_mibps = achieved_mibps,
					    .zones = (uint32_t)c->n_zones,
					    .groups = (uint32_t)c->n_groups,
					    .shared_groups = shared });
	reply_send(p->fd[0], &r, -1);
}

int serve_packet(struct helper *h, struct packet *p, uint32_t above, struct zns_err *err)
{
	self = h;
	switch (p->h.op) {
	case ZW_OPEN:
		return restore_open(h, p, above, err);
	case ZW_READ:
		return read_pages(h, p, err);
	case ZW_FETCH:
		return fetch(h, p, err);
	case ZW_GATE:
		return lazy_gate(h, p, err);
	case ZW_FILL:
		return fill(h, p, err);
	default:
		return zns_fail(err, -EPROTO, "unknown request %u from criu", p->h.op);
	}
}

void restore_packet(struct helper *h, struct packet *p)
{
	struct zns_err err = ZNS_ERR_INIT;

	if (!p->nr_fd)
		return; /* nobody is left to receive the answer */
	if (p->h.op == ZW_DONE)
		done(h, p);
	else if (p->h.op == ZW_FIRST ?
			 first_serve(h, p, h->restore->flat, h->restore->first, &err) :
			 serve_packet(h, p, 0, &err))
		reply_error(p->fd[0], &err);
}

/*
 * Called when all processes of the restore have closed their sockets. Threads that still write into
 * a pipe end with this process.
 */
void restore_end(struct helper *h)
{
	beside_take_away(h->dir);
	progress_stop(h,
		      &(struct outcome){ .error = "criu ended before the restore was complete" });
}
