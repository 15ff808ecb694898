/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The commit of a dump: everything durable, in order, or nothing visible (design.md §3 "Order", §6). */
#include <fcntl.h>
#include <string.h>
#include "dump.h"
#include "zns/crypt.h"
#include "zns/handle.h"
#include "zns/store.h"

static void join_streams(struct dump *d)
{
	while (d->streams) {
		struct stream *s = d->streams;

		d->streams = s->next;
		pthread_join(s->thread, NULL);
		free(s);
	}
}

static ZnsPb__Checkpoint *new_record(const struct dump *d, uint64_t frozen_us)
{
	ZnsPb__Checkpoint *c = calloc(1, sizeof(*c));
	char host[64] = "", link[64], path[1024] = "";
	ssize_t n;

	if (!c)
		return NULL;
	zns_pb__checkpoint__init(c);
	c->id.data = malloc(ZNS_UUID_LEN);
	c->container = strdup(d->container);
	c->origin = calloc(1, sizeof(*c->origin));
	if (!c->id.data || !c->container || !c->origin) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
		return NULL;
	}
	memcpy(c->id.data, d->id, ZNS_UUID_LEN);
	c->id.len = ZNS_UUID_LEN;
	c->created_ns = zns_now_ns();
	c->has_qos_requested_mibps = d->qos_mibps > 0;
	c->qos_requested_mibps = d->qos_mibps;
	c->has_qos_max_mibps = d->h->cap_mibps > 0;
	c->qos_max_mibps = d->h->cap_mibps;
	c->has_shared_groups = 1;
	c->shared_groups = d->shared_groups;
	c->has_packed = c->packed = d->packed;
	c->has_pre_dump = c->pre_dump = d->pre_dump;
	if (d->has_parent) {
		c->parent.data = malloc(ZNS_UUID_LEN);
		if (!c->parent.data) {
			zns_pb__checkpoint__free_unpacked(c, NULL);
			return NULL;
		}
		memcpy(c->parent.data, d->parent, ZNS_UUID_LEN);
		c->parent.len = ZNS_UUID_LEN;
		c->has_parent = 1;
	}
	c->has_frozen_us = !d->pages_only;	/* the task is frozen elsewhere */
	c->frozen_us = frozen_us;
	c->has_pages_only = c->pages_only = d->pages_only;
	c->has_post_copy = c->post_copy = d->post_copy;
	zns_pb__origin__init(c->origin);
	gethostname(host, sizeof(host) - 1);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->h->dir);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	c->origin->has_pid = d->pid > 0;
	c->origin->pid = (uint32_t)d->pid;
	c->origin->host = strdup(host);
	c->origin->image_dir = strdup(path);
	if (origin_fill(c->origin)) {
		zns_pb__checkpoint__free_unpacked(c, NULL);
		return NULL;
	}
	return c;
}

static int set_metadata_groups(const struct dump *d, ZnsPb__Checkpoint *c)
{
	if (!d->separate_metadata)
		return 0;
	c->metadata_groups = malloc(sizeof(*c->metadata_groups));
	if (!c->metadata_groups)
		return -ENOMEM;
	c->metadata_groups[0] = d->metadata_group;
	c->n_metadata_groups = 1;
	return 0;
}

static int broker_commit(struct dump *d, ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__RestoreBegin ask = ZNS_PB__RESTORE_BEGIN__INIT;
	ZnsPb__Response *resp = NULL;
	struct zns_err again = ZNS_ERR_INIT;
	char id[ZNS_UUID_STR];
	int ret;

	progress_stop(d->h, NULL);	/* the connection is ours alone from here on */
	if (d->h->broker_lost)
		return zns_fail(err, -ETIMEDOUT, "%s; the dump was dropped", d->h->broker_err.msg);
	req.commit = c;
	ret = zns_broker_call(&d->h->broker, &req, &resp, err);
	if (resp && resp->has_shared_groups)
		c->shared_groups = d->shared_groups = resp->shared_groups;	/* others came meanwhile */
	if (resp)
		zns_pb__response__free_unpacked(resp, NULL);
	if (ret == -ETIMEDOUT)
		return zns_wrap(err, "checkpoint %s may or may not exist, `znsctl ls` tells", zns_uuid_format(d->id, id));
	if (ret == -EPIPE && d->h->late)	/* the broker drops the commit of a connection that is gone */
		return zns_fail(err, -ETIMEDOUT, "the broker did not confirm the commit within --timeout %u s; `znsctl ls` tells "
				"whether checkpoint %s exists", d->h->timeout_s, zns_uuid_format(d->id, id));
	if (ret != -EPIPE)
		return ret;
	/* It died between our asking and its answer: the next one knows whether the record is in the log. */
	close(d->h->lock);	/* nothing is written any more; a new broker waits for this */
	d->h->lock = -1;
	zns_broker_close(&d->h->broker);
	d->h->connected = !zns_broker_connect(&d->h->reg, &d->h->broker, &again);
	if (!d->h->connected)
		return zns_fail(err, ret, "znsd died during the commit and cannot be started again (%s); `znsctl ls` will tell "
				"whether checkpoint %s exists", again.msg, zns_uuid_format(d->id, id));
	ask.checkpoint = c->id;
	memset(&req, 0, sizeof(req));
	zns_pb__request__init(&req);
	req.restore_begin = &ask;
	resp = NULL;
	if (zns_broker_call(&d->h->broker, &req, &resp, &again) == -ENOENT)
		return zns_fail(err, ret, "znsd died during the commit; the dump was dropped, run it again");
	if (!resp)
		return zns_fail(err, ret, "znsd died during the commit and the next one does not answer (%s); `znsctl ls` will "
				"tell whether checkpoint %s exists", again.msg, zns_uuid_format(d->id, id));
	zns_pb__response__free_unpacked(resp, NULL);
	return 0;
}

static void drop_committed(struct dump *d, struct zns_err *err)
{
	ZnsPb__Rm rm = ZNS_PB__RM__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	ProtobufCBinaryData id = { ZNS_UUID_LEN, d->id };
	char text[ZNS_UUID_STR];

	rm.n_checkpoints = 1;
	rm.checkpoints = &id;
	rm.by = (char *)"a dump whose handle could not be written";
	req.rm = &rm;
	if (!zns_broker_call(&d->h->broker, &req, &resp, NULL))
		zns_pb__response__free_unpacked(resp, NULL);
	else	/* it takes room until somebody removes it */
		zns_wrap(err, "checkpoint %s stays without a handle, `znsctl rm` removes it", zns_uuid_format(d->id, text));
}

static int write_handle(struct dump *d, const ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__Handle hd = ZNS_PB__HANDLE__INIT;
	cleanup_free ZnsPb__HandleCopy *copy = NULL;
	cleanup_free ZnsPb__HandleCopy **list = NULL;
	struct zns_handle_seal seal;
	size_t nr = 0;
	int ret;

	for (struct copy *k = d->copies; k; k = k->next)
		nr++;
	copy = calloc(nr + 1, sizeof(*copy));
	list = calloc(nr + 1, sizeof(*list));
	if (!copy || !list)
		return zns_fail(err, -ENOMEM, "no memory for the handle");
	nr = 0;
	for (struct copy *k = d->copies; k; k = k->next, nr++) {
		zns_pb__handle_copy__init(&copy[nr]);
		copy[nr].name = k->name;
		copy[nr].size = k->len;
		copy[nr].hash = zns_hash(k->data, k->len);
		list[nr] = &copy[nr];
	}
	hd.device.data = d->h->reg.uuid;
	hd.device.len = hd.checkpoint.len = ZNS_UUID_LEN;
	hd.checkpoint.data = d->id;
	zns_handle_describe(&hd, c);
	hd.copies = list;
	hd.n_copies = nr;
	ret = copies_end(d, true, err);
	if (!ret)
		ret = zns_crypt_seal_handle(d->h->crypt, c, zns_writer_seal(d->w), &hd, &seal, err);
	if (!ret)
		ret = zns_handle_write(d->h->dir, &hd, err);
	/* Without the handle they would look like images of a plain dump that lost its pages. */
	for (struct copy *k = d->copies; ret && k; k = k->next)
		if (!k->beside)
			unlinkat(d->h->dir, k->name, 0);
	for (struct taken *t = d->taken; !ret && t; t = t->next)
		unlinkat(d->h->dir, t->name, 0);
	return ret;
}

static void summary(const struct dump *d, const ZnsPb__Checkpoint *c, struct zw_reply *r)
{
	char id[ZNS_UUID_STR], size[32], got[64] = "too short to rate", cap[48] = "";
	struct zns_writer_stats st;

	zns_writer_stats(d->w, &st);
	if (d->h->cap_mibps)
		snprintf(cap, sizeof(cap), " (at most %u)", d->h->cap_mibps);
	if (c->has_qos_achieved_mibps)
		snprintf(got, sizeof(got), "%.0f MiB/s", c->qos_achieved_mibps);
	snprintf(r->msg, sizeof(r->msg),
		 "checkpoint %s of %s committed%s: %s in %u images on %zu zones of %zu groups (%u shared), data phase %.3f s, "
		 "frozen %.3f s, asked %u MiB/s%s, got %s%s%s",
		 zns_uuid_format(d->id, id), d->container, d->pages_only ? " (pages only)" : "",
		 zns_format_size(c->bytes, size, sizeof(size)), c->nr_images, c->n_zones,
		 c->n_groups, c->shared_groups, (double)c->data_phase_us / 1e6, (double)c->frozen_us / 1e6,
		 d->qos_mibps, cap, got, st.nr_bad ? "; " : "", st.bad);
	r->warn = st.nr_bad > 0;
	r->size = c->bytes;
}

static int keep_one(struct dump *d, const char *name, int fd, struct zns_err *err)
{
	struct zns_wimage *img;
	int ret;

	for (const struct taken *t = d->taken; fd >= 0 && t; t = t->next)
		if (!strcmp(t->name, name))
			return 0;	/* criu has handed it over */
	if (fd < 0)
		return 0;
	ret = zns_writer_image(d->w, name, false, &img, err);
	if (!ret)
		ret = zns_wimage_from_fd(img, fd, err);
	return ret ? ret : zns_wimage_seal(img, err);
}

/* Kept with the images, under the names that criu and runc give them; nothing restores them by itself. */
static int keep_beside(struct dump *d, struct zns_err *err)
{
	cleanup_close int log = origin_log(), fds = origin_fds(d->h->dir);
	int ret = keep_one(d, "dump.log", log, err);

	return ret ? ret : keep_one(d, ORIGIN_FDS, fds, err);
}

static int commit(struct dump *d, uint64_t frozen_us, struct zw_reply *r, struct zns_err *err)
{
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef *ref = calloc(1, sizeof(*ref));
	ZnsPb__Checkpoint *c = new_record(d, frozen_us);
	int ret;

	if (!ref || !c || set_metadata_groups(d, c)) {
		free(ref);
		if (c)
			zns_pb__checkpoint__free_unpacked(c, NULL);
		return zns_fail(err, -ENOMEM, "no memory for the record");
	}
	zns_pb__extent_ref__init(ref);
	join_streams(d);
	ret = dump_check(d, err);
	if (!ret)
		ret = keep_beside(d, err);
	m.device.data = d->h->reg.uuid;
	m.device.len = ZNS_UUID_LEN;
	m.checkpoint = c;
	zns_writer_rate(d->w, c);
	if (!ret)
		ret = zns_writer_finish(d->w, &m, ref, err);
	c->manifest = ref;
	if (!ret)
		ret = copies_begin(d, err);
	zns_writer_rate(d->w, c);
	if (!ret)
		ret = zns_writer_durable(d->w, c, err);
	if (!ret)
		ret = dump_check(d, err);	/* --timeout: from here on it is too late for being late */
	if (!ret)
		ret = broker_commit(d, c, err);
	if (!ret) {
		ret = write_handle(d, c, err);
		if (ret)
			drop_committed(d, err);
	}
	if (!ret) {
		summary(d, c, r);
		progress_stop(d->h, &(struct outcome){ .ok = true, .achieved_mibps = c->qos_achieved_mibps,
						       .frozen_us = c->frozen_us, .zones = (uint32_t)c->n_zones,
						       .groups = (uint32_t)c->n_groups,
						       .shared_groups = c->shared_groups });
	}
	copies_end(d, false, NULL);	/* of a commit that failed */
	zns_pb__checkpoint__free_unpacked(c, NULL);
	return ret;
}

void dump_commit(struct dump *d, struct packet *p)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zw_reply r = { 0 };

	d->post_copy = p->h.nr == 1;
	if (commit(d, p->h.off, &r, &err)) {
		dump_fail(d, &err);
		reply_error(p->nr_fd ? p->fd[0] : -1, &err);
	} else {
		reply_send(p->nr_fd ? p->fd[0] : -1, &r, -1);
	}
}
