/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A dump, from admission to commit (design.md §3 "Order"): data durable → catalogue record durable → handle written.
 * Any error before leaves nothing visible; the broker takes the zones back when our connection ends.
 */
#include <string.h>
#include <sys/socket.h>
#include "dump.h"
#include "zns/crypt.h"

#define BROKER_LIMIT_MS 120000	/* a broker that shows no life is given up sooner: zns_broker.deadline_s */

static int zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out, struct zns_err *err)
{
	struct helper *h = ((struct dump *)arg)->h;
	int ret = helper_broker_lock(h, err);

	if (!ret)
		ret = zns_broker_zone_get(&h->broker, &h->dev->geo, wish, out, err);
	return helper_broker_unlock(h, ret, err);
}

/* --zns-container, else the container's id in the task's cgroup, else the image directory's name (design.md §5). */
static int container_name(struct dump *d, const struct zw_begin *b, struct zns_err *err)
{
	char link[64], path[1024];
	ssize_t n;

	if (b->container[0]) {
		snprintf(d->container, sizeof(d->container), "%s", b->container);
		return zns_check_container(d->container, err) ? zns_wrap(err, "--zns-container") : 0;
	}
	if (b->pid > 0 && !cgroup_container_id(b->pid, d->container, sizeof(d->container)))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->h->dir);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return zns_fail(err, -EINVAL, "cannot tell the container's name; give --zns-container");
	path[n] = 0;
	snprintf(d->container, sizeof(d->container), "%s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	return zns_check_container(d->container, err) ? zns_wrap(err, "the image directory's name is of no use; give --zns-container") : 0;
}

static int parse_options(struct dump *d, const struct zw_begin *b, struct zns_err *err)
{
	uint64_t unit = 0;	/* none asked for */

	if (b->qos[0] && zns_parse_mibps(b->qos, &d->qos_mibps))
		return zns_fail(err, -EINVAL, "--zns-qos %s is no bandwidth; write 500, 500MiB/s or 2GiB/s", b->qos);
	if (b->stripe[0] && (zns_parse_size(b->stripe, &unit) || unit < ZNS_STRIPE_UNIT_MIN || unit > ZNS_STRIPE_UNIT_MAX ||
			     unit % 4096))
		return zns_fail(err, -EINVAL, "--zns-stripe %s is out of range; give 64K to 4M, a multiple of 4K", b->stripe);
	d->unit = (uint32_t)unit;
	d->unit_asked = unit != 0;
	return container_name(d, b, err);
}

static int ask_admission(struct dump *d, const struct zw_begin *b, ZnsPb__Response **resp, struct zns_err *err)
{
	ZnsPb__DumpBegin begin = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	uint8_t ticket[ZNS_UUID_LEN];
	int ret;

	begin.container = d->container;
	begin.qos_mibps = d->qos_mibps;
	begin.has_min_room = 1;
	begin.min_room = d->unit;
	begin.alloc = b->alloc[0] ? (char *)b->alloc : NULL;
	begin.admission = b->admission[0] ? (char *)origin_admission(b->admission) : NULL;
	origin.kind = (char *)"criu";
	origin.has_pid = b->pid > 0;
	origin.pid = (uint32_t)b->pid;
	if (origin_ticket(ticket)) {
		origin.has_ticket = 1;
		origin.ticket = (ProtobufCBinaryData){ ZNS_UUID_LEN, ticket };
	}
	begin.origin = &origin;
	if (!d->pages_only) {	/* else the task is on another machine */
		begin.has_expected_bytes = 1;
		begin.expected_bytes = d->expected = task_tree_bytes(b->pid);
		begin.has_uid = !task_uid(b->pid, &begin.uid);
	}
	begin.has_qos_max_mibps = d->h->cap_mibps > 0;
	begin.qos_max_mibps = d->h->cap_mibps;
	begin.has_separate_metadata = begin.separate_metadata = b->separate_metadata != 0;
	begin.has_key_id = d->master != NULL;
	if (d->master)
		begin.key_id = (ProtobufCBinaryData){ ZNS_KEY_ID_BYTES, (uint8_t *)zns_master_id(d->master) };
	if (d->has_parent) {
		begin.has_parent = 1;
		begin.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, d->parent };
	}
	req.dump_begin = &begin;
	/* If criu goes meanwhile, nobody wants to be admitted any more. */
	d->h->broker.watch_fd = d->h->sk;
	ret = zns_broker_call(&d->h->broker, &req, resp, err);
	d->h->broker.watch_fd = -1;
	return ret;
}

/* Before admission: who has not got the key shall not wait for it, with or without frozen tasks. */
static int get_key(struct dump *d, struct zns_err *err)
{
	struct helper *h = d->h;
	int ret = zns_master_for_dump(&h->reg, h->broker.encrypted ? h->broker.key_id : NULL, &d->master, err);

	if (!ret && d->master)
		zns_crypt_harden();
	return ret;
}

static int start_writer(struct dump *d, const ZnsPb__DumpGrant *g, struct zns_err *err)
{
	uint32_t groups[ZNS_STRIPE_MAX_WIDTH], weights[ZNS_STRIPE_MAX_WIDTH];
	struct zns_writer_params p = { .dev = d->h->dev, .bucket = d->h->bucket, .unit = d->unit, .zone_get = zone_get, .arg = d };

	if (!g || !g->n_groups || g->n_groups > ZNS_STRIPE_MAX_WIDTH || g->checkpoint.len != ZNS_UUID_LEN)
		return zns_fail(err, -EPROTO, "znsd granted no usable stripe");
	for (size_t i = 0; i < g->n_groups; i++) {
		groups[i] = g->groups[i]->group;
		weights[i] = g->groups[i]->weight;
	}
	if (g->n_metadata_groups > 1)
		return zns_fail(err, -EPROTO, "znsd granted no usable stripe");
	if (g->n_metadata_groups) {
		p.metadata_group = &g->metadata_groups[0]->group;
		d->metadata_group = g->metadata_groups[0]->group;
		d->separate_metadata = true;
	}
	memcpy(d->id, g->checkpoint.data, ZNS_UUID_LEN);
	d->packed = g->packed;
	helper_set_rate(d->h, g->rate_mibps);
	d->shared_groups = g->shared_groups;
	p.zone_mibps = g->zone_write_mibps;
	p.nr_groups = (uint32_t)g->n_groups;
	if (!d->unit_asked)
		p.unit = zns_writer_unit(&d->h->dev->geo, p.nr_groups);
	p.groups = groups;
	p.weights = weights;
	if (d->master) {
		int ret = zns_crypt_new(d->master, d->id, &d->h->crypt, err);

		if (ret)
			return ret;
		zns_master_free(d->master);	/* not needed any more */
		d->master = NULL;
		p.crypt = d->h->crypt;
	}
	return zns_writer_new(&p, &d->w, err);
}

static void work_done(void *arg, struct work *out)
{
	struct dump *d = arg;
	struct zns_writer_stats st;

	zns_writer_stats(d->w, &st);
	out->bytes = st.written;
	out->page_bytes = st.page_bytes;
	out->data_us = st.last_complete_ns > st.first_submit_ns ? (st.last_complete_ns - st.first_submit_ns) / 1000 : 0;
}

static uint32_t wants(void *arg, bool *waits)
{
	return zns_writer_wants(((struct dump *)arg)->w, waits);
}

/* A zone that is gained and cannot be used stays as it is: the lease's, until the dump ends. */
static void told(void *arg, const ZnsPb__Response *r)
{
	struct dump *d = arg;

	zns_writer_crowded(d->w, r->crowded);
	for (size_t i = 0; i < r->n_writers; i++)
		zns_writer_told(d->w, r->writers[i]->group, r->writers[i]->weight);
	for (size_t i = 0; i < r->n_more_zones; i++) {
		const ZnsPb__ZoneGrant *g = r->more_zones[i];
		const struct zns_zone_slot slot = { .zone = g->zone, .group = g->group, .start = g->start,
						    .capacity = g->capacity };

		zns_writer_gain(d->w, &slot, g->writers, NULL);
	}
}

/* Now, and not at the next request: the tasks are frozen meanwhile. */
static void broker_dead(void *arg, const struct zns_err *err)
{
	struct zns_err e = *err;

	zns_wrap(&e, "the dump was dropped");
	dump_fail(arg, &e);
}

static int show_progress(struct dump *d, struct packet *p, const struct zw_begin *b, struct zns_err *err)
{
	struct progress_params pp = { .op = "dump", .container = d->container, .qos_mibps = d->qos_mibps,
				      .total = d->expected, .guess = true, .get = work_done, .wants = wants, .told = told, .dead = broker_dead,
				      .arg = d };

	memcpy(pp.checkpoint, d->id, ZNS_UUID_LEN);
	packet_progress(p, b, &pp.tty, &pp.json);
	return progress_start(d->h, &pp, err);
}

int dump_begin(struct helper *h, struct packet *p, struct zns_err *err)
{
	const struct zw_begin *b = packet_begin(p);
	struct dump *d;
	struct zns_registered reg;
	ZnsPb__Response *resp = NULL;
	struct zw_reply r = { 0 };
	char id[ZNS_UUID_STR], text[ZNS_UUID_STR], parent[64] = "";
	int ret;

	if (!b)
		return zns_fail(err, -EPROTO, "zns-helper and criu are of different builds");
	h->dir = packet_take_fd(p, 1);
	d = calloc(1, sizeof(*d));
	if (!d)
		return zns_fail(err, -ENOMEM, "no memory for the dump");
	d->h = h;
	d->copies_tail = &d->copies;
	d->pages_only = p->h.op == ZW_RECEIVE_BEGIN;
	pthread_mutex_init(&d->lock, NULL);
	ret = deadline_start(h, b->timeout_s, err);
	if (!ret)
		ret = helper_cap(h, b, err);
	if (!ret)
		ret = parse_options(d, b, err);
	if (!ret)
		ret = zns_resolve_device(b->dev[0] ? b->dev : NULL, &reg, err);
	if (!ret && faccessat(h->dir, ".", W_OK, 0))
		ret = zns_fail_sys(err, -errno, "the image directory takes no handle");
	if (!ret)
		ret = helper_attach(h, &reg, true, err);
	if (!ret)
		ret = dump_parent(d, b, &reg, err);
	if (!ret)
		ret = get_key(d, err);
	if (!ret && !d->unit)
		d->unit = zns_stripe_unit(&h->dev->geo);
	if (!ret)
		ret = ask_admission(d, b, &resp, err);
	if (!ret)
		ret = start_writer(d, resp->dump, err);
	if (!ret)
		ret = dump_open_parents(d, resp, err);
	/* Admission may wait; from now on tasks are frozen, and a broker that lives but hangs must not keep them so. */
	h->broker.limit_ms = BROKER_LIMIT_MS;
	if (!ret)
		ret = show_progress(d, p, b, err);
	ret = deadline_admitted(h, d, ret, err);
	if (!ret) {
		d->pid = b->pid;
		d->pre_dump = b->pre_dump;
		r.size = h->chain ? zns_chain_levels(h->chain) : 0;
		r.warn = resp->dump->note != NULL;
		if (d->has_parent)
			snprintf(parent, sizeof(parent), " on parent %s", zns_uuid_format(d->parent, text));
		snprintf(r.msg, sizeof(r.msg), "checkpoint %s of %s%s: %u MiB/s asked, %zu groups (%u shared%s%s%s) of %s%s%s",
			 zns_uuid_format(d->id, id), d->container, parent, d->qos_mibps, resp->dump->n_groups, d->shared_groups,
			 d->separate_metadata ? ", metadata apart" : "", d->packed ? ", pack zone" : "",
			 h->crypt ? ", encrypted" : "",
			 reg.path, resp->dump->note ? "; " : "", resp->dump->note ? resp->dump->note : "");
		reply_send(p->fd[0], &r, -1);
	}
	if (resp)
		zns_pb__response__free_unpacked(resp, NULL);
	if (ret) {
		progress_stop(h, &(struct outcome){ .error = err->msg });
		zns_master_free(d->master);
		free(d);
	}
	return ret;
}

void dump_broker_gone(struct helper *h)
{
	zns_writer_cancel(h->dump->w, -EPIPE, "znsd died during the dump; the dump was dropped, run it again");
}

void dump_fail(struct dump *d, const struct zns_err *err)
{
	pthread_mutex_lock(&d->lock);
	if (!d->err.code)
		d->err = *err;
	pthread_mutex_unlock(&d->lock);
	progress_hush(d->h);
	zns_writer_cancel(d->w, err->code, err->msg);	/* nothing of it will be committed */
}

int dump_check(struct dump *d, struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(&d->lock);
	ret = d->err.code;
	if (ret)
		*err = d->err;
	pthread_mutex_unlock(&d->lock);
	return ret ? ret : zns_writer_error(d->w, err);
}

/* criu is gone. In-flight writes end with the process; then the broker sees our connection close and cleans up. */
void dump_end(struct helper *h)
{
	struct zns_err err = ZNS_ERR_INIT;

	zns_writer_cancel(h->dump->w, -ECANCELED, "criu ended before the commit");
	dump_check(h->dump, &err);
	progress_stop(h, &(struct outcome){ .error = err.msg });	/* none after a commit, which has told */
}
