// SPDX-License-Identifier: GPL-2.0-only
/*
 * A dump without a task: what zns-helper does towards broker and device, with bytes that follow from a seed. For loads
 * of many dumps, and for being killed. One dump, one line of JSON on standard output: what became of it, and where it
 * stood if it failed. Exit code 0: committed; 1: not; 2: wrong usage.
 */
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include "zns/client.h"
#include "zns/dev.h"
#include "zns/layout.h"
#include "zns/store.h"
#include "zns/writer.h"

#define PIECE KIB(64)

struct dumper {
	const char *container, *mode, *alloc, *stage;
	uint32_t qos, pause_us, images;
	uint64_t bytes;
	bool announce, separate;
	struct zns_registered reg;
	struct zns_broker broker;
	struct zns_dev *dev;
	struct zns_writer *w;
	uint8_t id[ZNS_UUID_LEN];
	uint32_t groups, shared, unit;
	bool packed;
	uint64_t begun_ns, admitted_ns, frozen_ns;
	uint32_t asked;		/* zones */
	uint32_t gained;	/* zones, of groups that it had not */
};

static int zone_get(void *arg, const struct zns_zone_wish *wish, struct zns_zone_slot *out, struct zns_err *err)
{
	struct dumper *d = arg;

	d->asked++;
	return zns_broker_zone_get(&d->broker, &d->dev->geo, wish, out, err);
}

/* As the helper's loop does: a broker that is gone ends the dump at once. */
static void *watch(void *arg)
{
	struct dumper *d = arg;
	struct pollfd p = { .fd = d->broker.fd, .events = POLLRDHUP };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	zns_writer_cancel(d->w, -EPIPE, "znsd died during the dump");
	return NULL;
}

static int admission(struct dumper *d, ZnsPb__Response **resp, struct zns_err *err)
{
	ZnsPb__DumpBegin q = ZNS_PB__DUMP_BEGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;

	d->unit = zns_stripe_unit(&d->dev->geo);
	q.container = (char *)d->container;
	q.qos_mibps = d->qos;
	q.admission = (char *)d->mode;
	q.alloc = (char *)d->alloc;
	q.has_min_room = 1;
	q.min_room = d->unit;
	q.has_expected_bytes = d->announce;
	q.expected_bytes = d->bytes;
	q.has_separate_metadata = q.separate_metadata = d->separate;
	req.dump_begin = &q;
	return zns_broker_call(&d->broker, &req, resp, err);
}

static int begin(struct dumper *d, struct zns_err *err)
{
	uint32_t groups[ZNS_STRIPE_MAX_WIDTH], weights[ZNS_STRIPE_MAX_WIDTH];
	ZnsPb__Response *resp;
	ZnsPb__DumpGrant *g;
	int lock, ret;

	d->stage = "connect";
	ret = zns_resolve_device(NULL, &d->reg, err);
	if (!ret)
		ret = zns_broker_connect(&d->reg, &d->broker, err);
	/* Kept until the process ends, as the helper does. */
	if (!ret)
		ret = zns_broker_lock_shared(d->reg.uuid, "writers", &lock, err);
	if (!ret)
		ret = zns_dev_open(d->reg.path, 0, &d->dev, err);
	if (ret)
		return ret;
	d->stage = "admission";
	d->begun_ns = zns_mono_ns();
	ret = admission(d, &resp, err);
	if (ret)
		return ret;
	d->admitted_ns = zns_mono_ns();
	g = resp->dump;
	memcpy(d->id, g->checkpoint.data, ZNS_UUID_LEN);
	d->groups = (uint32_t)(g->n_groups + g->n_metadata_groups);
	d->shared = g->shared_groups;
	d->packed = g->packed;
	for (size_t i = 0; i < g->n_groups; i++) {
		groups[i] = g->groups[i]->group;
		weights[i] = g->groups[i]->weight;
	}
	ret = zns_writer_new(&(struct zns_writer_params){
				     .dev = d->dev, .unit = d->unit, .nr_groups = (uint32_t)g->n_groups,
				     .zone_mibps = g->zone_write_mibps, .groups = groups, .weights = weights, .zone_get = zone_get, .arg = d,
				     .metadata_group = g->n_metadata_groups ? &g->metadata_groups[0]->group : NULL,
			     }, &d->w, err);
	zns_pb__response__free_unpacked(resp, NULL);
	return ret;
}

static void nap(uint32_t us)
{
	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000l }, NULL);
}

/* As the helper's progress does; but always as if its zones were what it waits for. */
static int progress(struct dumper *d, struct zns_err *err)
{
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	int ret;

	p.has_more_zones = p.has_waits = p.waits = 1;
	p.more_zones = 2;
	req.progress = &p;
	ret = zns_broker_call(&d->broker, &req, &resp, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < resp->n_writers; i++)
		zns_writer_told(d->w, resp->writers[i]->group, resp->writers[i]->weight);
	for (size_t i = 0; i < resp->n_more_zones && !ret; i++) {
		const ZnsPb__ZoneGrant *g = resp->more_zones[i];
		const struct zns_zone_slot slot = { .zone = g->zone, .group = g->group, .start = g->start,
						    .capacity = g->capacity };

		d->gained += !zns_writer_gain(d->w, &slot, g->writers, err);
	}
	*err = (struct zns_err)ZNS_ERR_INIT;
	zns_pb__response__free_unpacked(resp, NULL);
	return 0;
}

/* Most of it pages, the rest in small images. */
static int write_images(struct dumper *d, struct zns_err *err)
{
	static uint64_t buf[PIECE / 8];
	uint64_t x = zns_hash(d->id, sizeof(d->id)) | 1;
	int ret = 0;

	d->stage = "write";
	for (uint32_t n = 0; n < d->images && !ret; n++) {
		uint64_t len = n ? 3000 : d->bytes;
		struct zns_wimage *img;
		char name[32];

		snprintf(name, sizeof(name), n ? "core-%u.img" : "pages-%u.img", n + 1);
		ret = zns_writer_image(d->w, name, !n, &img, err);
		for (uint64_t off = 0; off < len && !ret; off += PIECE) {
			for (size_t i = 0; i < PIECE / 8; i++) {
				x ^= x << 13;
				x ^= x >> 7;
				x ^= x << 17;
				buf[i] = x;
			}
			ret = progress(d, err);
			if (!ret)
				ret = zns_wimage_data(img, buf, zns_min(len - off, PIECE), err);
			if (d->pause_us)
				nap(d->pause_us);
		}
		if (!ret)
			ret = zns_wimage_seal(img, err);
	}
	return ret;
}

static int commit(struct dumper *d, struct zns_err *err)
{
	ZnsPb__Checkpoint c = ZNS_PB__CHECKPOINT__INIT;
	ZnsPb__Manifest m = ZNS_PB__MANIFEST__INIT;
	ZnsPb__ExtentRef ref = ZNS_PB__EXTENT_REF__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	int ret;

	c.id.data = d->id;
	c.id.len = ZNS_UUID_LEN;
	c.container = (char *)d->container;
	c.created_ns = zns_now_ns();
	c.has_qos_requested_mibps = d->qos > 0;
	c.qos_requested_mibps = d->qos;
	m.device.data = d->reg.uuid;
	m.device.len = ZNS_UUID_LEN;
	m.checkpoint = &c;
	ret = zns_writer_finish(d->w, &m, &ref, err);
	c.manifest = &ref;
	if (!ret)
		ret = zns_writer_durable(d->w, &c, err);
	if (ret)
		return ret;
	d->stage = "commit";
	req.commit = &c;
	ret = zns_broker_call(&d->broker, &req, &resp, err);
	if (resp) {
		d->shared = resp->shared_groups;
		zns_pb__response__free_unpacked(resp, NULL);
	}
	return ret;
}

static void print(const struct dumper *d, int code, const struct zns_err *err)
{
	char id[ZNS_UUID_STR], msg[ZNS_ERR_MAX];
	size_t n = 0;

	for (const char *p = code ? err->msg : ""; *p && n < sizeof(msg) - 1; p++)
		msg[n++] = *p == '"' || *p == '\\' || (unsigned char)*p < 0x20 ? '\'' : *p;
	msg[n] = 0;
	printf("{\"committed\":%s,\"id\":\"%s\",\"container\":\"%s\",\"stage\":\"%s\",\"code\":%d,\"error\":\"%s\","
	       "\"groups\":%u,\"shared\":%u,\"packed\":%s,\"zones\":%u,\"gained\":%u,\"waited_ms\":%.3f,\"dump_ms\":%.3f}\n",
	       code ? "false" : "true", zns_uuid_format(d->id, id), d->container, d->stage, code, msg, d->groups, d->shared,
	       d->packed ? "true" : "false", d->asked, d->gained,
	       d->begun_ns && d->admitted_ns ? (double)(d->admitted_ns - d->begun_ns) / 1e6 : 0.0,
	       d->admitted_ns ? (double)(zns_mono_ns() - d->admitted_ns) / 1e6 : 0.0);
	fflush(stdout);
}

static int usage(void)
{
	fprintf(stderr, "usage: dumper --container NAME --bytes SIZE [--qos MIBPS] [--mode share|wait=S|reject] [--dynamic]\n"
			"              [--images N] [--pause-us N] [--separate] [--unannounced]\n"
			"One dump into the device of $ZNS_CONFIG, with bytes from a generator.\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "container", required_argument, NULL, 'c' }, { "bytes", required_argument, NULL, 'b' },
		{ "qos", required_argument, NULL, 'q' }, { "mode", required_argument, NULL, 'm' },
		{ "dynamic", no_argument, NULL, 'd' }, { "images", required_argument, NULL, 'i' },
		{ "pause-us", required_argument, NULL, 'p' }, { "separate", no_argument, NULL, 's' },
		{ "unannounced", no_argument, NULL, 'u' }, { 0 },
	};
	struct dumper d = { .stage = "start", .images = 4, .announce = true, .broker.fd = -1 };
	struct zns_err err = ZNS_ERR_INIT;
	pthread_t thread;
	int c, ret = 0;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'c')
			d.container = optarg;
		else if (c == 'b')
			ret |= zns_parse_size(optarg, &d.bytes);
		else if (c == 'q')
			ret |= zns_parse_mibps(optarg, &d.qos);
		else if (c == 'm')
			d.mode = optarg;
		else if (c == 'd')
			d.alloc = "dynamic";
		else if (c == 'i')
			d.images = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'p')
			d.pause_us = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 's')
			d.separate = true;
		else if (c == 'u')
			d.announce = false;
		else
			return usage();
	}
	if (ret || !d.container || !d.bytes || !d.images || optind != argc)
		return usage();
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);	/* no dumps without their test */
	ret = begin(&d, &err);
	if (!ret && pthread_create(&thread, NULL, watch, &d))
		ret = zns_fail(&err, -ENOMEM, "no thread");
	if (!ret)
		ret = write_images(&d, &err);
	if (!ret)
		ret = commit(&d, &err);
	print(&d, ret, &err);
	/* As the helper: connection and lock go when the last thread is out of its last write. */
	_exit(ret != 0);
}
