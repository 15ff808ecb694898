/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A dump, from admission to commit (design.md §3 "Order"): first data are durable, then the
 * catalogue's record, then the handle is written. After an error before that, nothing of the dump
 * is visible: the broker takes the zones back when our connection closes.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include "../live/live.h"
#include "zns/layout.h"
#include "zns/safeopen.h"

/*
 * ms for one answer; a broker that sends nothing at all is given up sooner, after
 * zns_broker.deadline_s
 */
#define BROKER_LIMIT_MS 120000

/* Names the container: --zns-container, else the container's id in the task's cgroup, else the
 * image directory's name (design.md §5). */
static int container_name(struct dump *d, const struct zw_begin *b, struct zns_err *err)
{
	char link[64], path[PATH_MAX];

	if (b->container[0]) {
		snprintf(d->container, sizeof(d->container), "%s", b->container);
		return zns_check_container(d->container, err) ? zns_wrap(err, "--zns-container") :
								0;
	}
	if (b->pid > 0 && !cgroup_container_id(b->pid, d->container, sizeof(d->container)))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", d->h->dir);
	if (zns_read_link(AT_FDCWD, link, path, sizeof(path)) <= 0)
		return zns_fail(err, -EINVAL,
				"cannot tell the container's name; give --zns-container");
	snprintf(d->container, sizeof(d->container), "%s",
		 strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	return zns_check_container(d->container, err) ?
		       zns_wrap(err,
				"the image directory's name is of no use; give --zns-container") :
		       0;
}

static int parse_options(struct dump *d, const struct zw_begin *b, struct zns_err *err)
{
	uint64_t unit = 0; /* 0: no stripe unit was requested */

	if (b->qos[0] && zns_parse_mibps(b->qos, &d->qos_mibps))
		return zns_fail(err, -EINVAL,
				"--zns-qos %s is no bandwidth; write 500, 500MiB/s or 2GiB/s",
				b->qos);
	if (b->stripe[0] && (zns_parse_size(b->stripe, &unit) || unit < ZNS_STRIPE_UNIT_MIN ||
			     unit > ZNS_STRIPE_UNIT_MAX || unit % 4096))
		return zns_fail(err, -EINVAL,
				"--zns-stripe %s is out of range; give 64K to 4M, a multiple of 4K",
				b->stripe);
	d->v.unit = (uint32_t)unit;
	return container_name(d, b, err);
}

/* Asks for admission and starts the writer. */
static int begin(struct dump *d, const struct zw_begin *b, struct zns_err *err)
{
	ZnsPb__DumpBegin ask = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Origin origin = ZNS_PB__ORIGIN__INIT;
	uint8_t ticket[ZNS_UUID_LEN];
	int ret;

	ask.container = d->container;
	ask.qos_mibps = d->qos_mibps;
	ask.alloc = b->alloc[0] ? (char *)b->alloc : NULL;
	ask.admission = b->admission[0] ? (char *)origin_admission(b->admission) : NULL;
	origin.kind = (char *)"criu";
	origin.has_pid = b->pid > 0;
	origin.pid = (uint32_t)b->pid;
	if (origin_ticket(ticket)) {
		origin.has_ticket = 1;
		origin.ticket = (ProtobufCBinaryData){ ZNS_UUID_LEN, ticket };
	}
	ask.origin = &origin;
	/* a dump with pages only receives them from another machine, where the task is */
	if (!d->pages_only) {
		ask.has_expected_bytes = 1;
		d->expected = task_tree_bytes(b->pid, &ask.least_bytes);
		ask.expected_bytes = d->expected;
		ask.has_least_bytes = !d->has_parent && !b->half;
		ask.has_uid = !task_uid(b->pid, &ask.uid);
	}
	ask.has_qos_max_mibps = d->h->cap_mibps > 0;
	ask.qos_max_mibps = d->h->cap_mibps;
	ask.has_weight = d->h->weight > 0;
	ask.weight = d->h->weight;
	ask.has_separate_metadata = ask.separate_metadata = b->separate_metadata != 0;
	ask.has_parent = d->has_parent;
	if (d->has_parent)
		ask.parent = (ProtobufCBinaryData){ ZNS_UUID_LEN, d->parent };
	d->v.bucket = d->h->bucket;
	d->v.sweeps = true;
	/* Stop waiting for admission if criu exits. */
	d->h->s.broker.watch_fd = d->h->sk;
	d->h->s.broker.watch_pidfd = d->h->criu;
	ret = zns_save_begin(&d->v, &ask, err);
	d->h->s.broker.watch_fd = d->h->s.broker.watch_pidfd = -1;
	if (!ret)
		helper_set_rate(d->h, d->v.grant->rate_mibps);
	return ret;
}

static void work_done(void *arg, struct work *out)
{
	struct dump *d = arg;
	struct zns_writer_stats st;

	pthread_mutex_lock(&d->lock);
	zns_writer_stats_get(d->v.w, &st);
	pthread_mutex_unlock(&d->lock);
	out->bytes = st.written;
	out->page_bytes = st.page_bytes;
	out->data_us = st.last_complete_ns > st.first_submit_ns ?
			       (st.last_complete_ns - st.first_submit_ns) / 1000 :
			       0;
}

static uint32_t wants(void *arg, bool *waits)
{
	struct dump *d = arg;
	uint32_t nr;

	pthread_mutex_lock(&d->lock);
	nr = zns_writer_wants(d->v.w, waits);
	pthread_mutex_unlock(&d->lock);
	return d->anew ? 0 : nr;
}

static void told(void *arg, const ZnsPb__Response *r)
{
	struct dump *d = arg;
	ZnsPb__Response had = *r;

	pthread_mutex_lock(&d->lock);
	if (d->anew)
		had.n_more_zones = 0;
	zns_save_told(&d->v, &had);
	pthread_mutex_unlock(&d->lock);
}

/*
 * Makes the dump fail as soon as the broker is known to hang, not at the next request: the tasks
 * are frozen meanwhile.
 */
static void broker_dead(void *arg, const struct zns_err *err)
{
	struct zns_err e = *err;

	zns_wrap(&e, "the dump was dropped");
	dump_fail(arg, &e);
}

static int show_progress(struct dump *d, struct packet *p, const struct zw_begin *b,
			 struct zns_err *err)
{
	struct progress_params pp = { .op = "dump",
				      .container = d->container,
				      .qos_mibps = d->qos_mibps,
				      .total = d->expected,
				      .guess = true,
				      .get = work_done,
				      .wants = wants,
				      .told = told,
				      .dead = broker_dead,
				      .arg = d };

	memcpy(pp.checkpoint, d->v.id, ZNS_UUID_LEN);
	packet_progress(p, b, &pp.tty, &pp.json);
	return progress_start(d->h, &pp, err);
}

static void say_admitted(const struct dump *d, struct packet *p)
{
	const ZnsPb__DumpGrant *g = d->v.grant;
	char id[ZNS_UUID_STR], text[ZNS_UUID_STR], parent[64] = "";
	struct zw_reply r = { .size = d->h->chain ? zns_chain_levels(d->h->chain) : 0,
			      .warn = g->note != NULL };

	if (d->live)
		r.kind = d->live->durable ? ZW_KIND_DURABLE : ZW_KIND_LIVE;
	memcpy(r.id, d->v.id, ZNS_UUID_LEN);
	memcpy(r.parent, d->parent, ZNS_UUID_LEN);
	if (d->has_parent)
		snprintf(parent, sizeof(parent), " on parent %s", zns_uuid_format(d->parent, text));
	if (zns_geo_is_disk(&d->h->s.dev->geo))
		snprintf(r.msg, sizeof(r.msg),
			 "checkpoint %s of %s%s: %u MiB/s asked, %zu streams%s%s to %s%s%s",
			 zns_uuid_format(d->v.id, id), d->container, parent, d->qos_mibps,
			 g->n_groups, g->packed ? ", small" : "", d->v.crypt ? ", encrypted" : "",
			 d->h->s.reg.path, g->note ? "; " : "", g->note ? g->note : "");
	else
		snprintf(
			r.msg, sizeof(r.msg),
			"checkpoint %s of %s%s: %u MiB/s asked, %zu groups (%u shared%s%s%s) of %s%s%s",
			zns_uuid_format(d->v.id, id), d->container, parent, d->qos_mibps,
			g->n_groups, g->shared_groups,
			g->n_metadata_groups ? ", metadata apart" : "",
			g->packed ? ", pack zone" : "", d->v.crypt ? ", encrypted" : "",
			d->h->s.reg.path, g->note ? "; " : "", g->note ? g->note : "");
	reply_send(p->fd[0], &r, -1);
}

/*
 * An incremental dump goes to its parent's device. criu does not say which device that is, so the
 * user's options decide.
 */
static int find_device(const struct zw_begin *b, struct zns_registered *reg, struct zns_err *err)
{
	const char *dev = b->dev[0] ? b->dev : NULL;

	return b->parent[0] || b->parent_dir ? zns_resolve_device(dev, reg, err) :
					       zns_device_for_dump(dev, reg, err);
}

int dump_begin(struct helper *h, struct packet *p, struct zns_err *err)
{
	const struct zw_begin *b = packet_begin(p);
	struct dump *d;
	struct zns_registered reg;
	int ret;

	if (!b)
		return zns_fail(err, -EPROTO, "zns-helper and criu are of different builds");
	h->dir = packet_take_fd(p, 1);
	d = calloc(1, sizeof(*d));
	if (!d)
		return zns_fail(err, -ENOMEM, "no memory for the dump");
	d->h = h;
	d->v.s = &h->s;
	d->copies_tail = &d->copies;
	d->pages_only = p->h.op == ZW_RECEIVE_BEGIN;
	d->pre_dump = b->pre_dump;
	d->pid = b->pid;
	pthread_mutex_init(&d->lock, NULL);
	ret = live_decide(d, b, err);
	if (!ret)
		ret = deadline_start(h, b->timeout_s, err);
	if (!ret)
		ret = helper_cap(h, b, err);
	if (!ret)
		ret = parse_options(d, b, err);
	if (!ret)
		ret = charge_begin(h, p, d->live, err);
	if (!ret)
		ret = find_device(b, &reg, err);
	if (!ret && faccessat(h->dir, ".", W_OK, 0))
		ret = zns_fail_sys(err, -errno, "the image directory takes no handle");
	if (!ret)
		ret = helper_attach(h, &reg, d, err);
	if (!ret)
		ret = dump_parent(d, b, &reg, err);
	/* check before admission, so that a dump without the key fails before it waits */
	if (!ret)
		ret = zns_save_key(&d->v, err);
	if (!ret)
		ret = begin(d, b, err);
	if (!ret)
		ret = dump_open_parents(d, err);
	/*
	 * From here on tasks are frozen. A broker that lives but does not answer must not keep them
	 * frozen, so requests have a time limit now. Admission had none, since it may take long.
	 */
	h->s.broker.limit_ms = BROKER_LIMIT_MS;
	if (!ret)
		ret = show_progress(d, p, b, err);
	ret = deadline_admitted(h, d, ret, err);
	if (!ret) {
		say_admitted(d, p);
		return 0;
	}
	progress_stop(h, &(struct outcome){ .error = err->msg });
	zns_save_end(&d->v);
	free(d);
	return ret;
}

void dump_broker_gone(struct helper *h)
{
	zns_writer_cancel(h->dump->v.w, -EPIPE,
			  "znsd died during the dump; the dump was dropped, run it again");
}

void dump_fail(struct dump *d, const struct zns_err *err)
{
	pthread_mutex_lock(&d->lock);
	if (!d->err.code)
		d->err = *err;
	/* make the writer fail, so that nothing it wrote is committed */
	zns_writer_cancel(d->v.w, err->code, err->msg);
	pthread_mutex_unlock(&d->lock);
	progress_hush(d->h);
}

int dump_anew(struct dump *d, uint64_t *room, struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(&d->lock);
	d->anew = true;
	pthread_mutex_unlock(&d->lock);
	ret = zns_save_anew(&d->v, d->expected, &d->lock, room, err);
	/* the old writer may have recorded an error meanwhile */
	return ret ? ret : dump_check(d, err);
}

int dump_check(struct dump *d, struct zns_err *err)
{
	int ret;

	pthread_mutex_lock(&d->lock);
	ret = d->err.code;
	if (ret)
		*err = d->err;
	pthread_mutex_unlock(&d->lock);
	return ret ? ret : zns_writer_error(d->v.w, err);
}

/*
 * Called when criu has exited. Writes under way end when this process exits. Then the broker sees
 * the connection close, and takes the zones back.
 */
void dump_end(struct helper *h)
{
	struct zns_err err = ZNS_ERR_INIT;

	zns_writer_cancel(h->dump->v.w, -ECANCELED,
			  "criu ended before the commit: nothing of the dump stays");
	live_end(h->dump->live);
	paged_end(h->dump);
	dump_check(h->dump, &err);
	/* after a commit this does nothing: the commit has printed the last line */
	progress_stop(h, &(struct outcome){ .error = err.msg });
}
