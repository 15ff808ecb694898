/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A dump without a task: what zns-helper does towards broker and device, with bytes that follow
 * from a seed. For loads of many dumps, and for being killed. One dump, one line of JSON on
 * standard output: what became of it, and where it stood if it failed. Exit code 0: committed; 1:
 * not; 2: wrong usage. With --times it does so several times, of a hundred containers in turn, each
 * dump in a process of its own.
 */
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include "zns/layout.h"
#include "zns/save.h"

#define PIECE KIB(64)

struct dumper {
	const char *container, *mode, *alloc, *stage;
	uint32_t qos, pause_us, images;
	uint64_t bytes;
	bool announce, separate;
	struct zns_session s;
	struct zns_save v;
	uint32_t groups;
	bool packed;
	uint64_t begun_ns, admitted_ns, frozen_ns;
	uint32_t gained; /* number of zones of groups that the dump was given later */
};

/* As in the helper: the dump ends at once if the broker is gone. */
static void *watch(void *arg)
{
	struct dumper *d = arg;
	struct pollfd p = { .fd = d->s.broker.fd, .events = POLLRDHUP };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	zns_writer_cancel(d->v.w, -EPIPE, "znsd died during the dump");
	return NULL;
}

static int begin(struct dumper *d, struct zns_err *err)
{
	ZnsPb__DumpBegin q = ZNS_PB__DUMP_BEGIN__INIT;
	struct zns_registered reg;
	int ret;

	d->stage = "connect";
	ret = zns_resolve_device(NULL, &reg, err);
	/* Kept until the process ends, as the helper does. */
	if (!ret)
		ret = zns_session_open(&d->s, &reg, ZNS_WRITES, err);
	if (ret)
		return ret;
	d->stage = "admission";
	d->begun_ns = zns_mono_ns();
	d->v = (struct zns_save){ .s = &d->s, .unit = zns_stripe_unit(&d->s.dev->geo) };
	q.container = (char *)d->container;
	q.qos_mibps = d->qos;
	q.admission = (char *)d->mode;
	q.alloc = (char *)d->alloc;
	q.has_expected_bytes = d->announce;
	q.expected_bytes = d->bytes;
	q.has_separate_metadata = q.separate_metadata = d->separate;
	ret = zns_save_begin(&d->v, &q, err);
	if (ret)
		return ret;
	d->admitted_ns = zns_mono_ns();
	d->groups = (uint32_t)(d->v.grant->n_groups + d->v.grant->n_metadata_groups);
	d->packed = d->v.grant->packed;
	return 0;
}

static void nap(uint32_t us)
{
	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000l }, NULL);
}

/* Reports progress as the helper does, but always says that its zones are the bottleneck. */
static int progress(struct dumper *d, struct zns_err *err)
{
	ZnsPb__Progress p = ZNS_PB__PROGRESS__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *resp = NULL;
	int ret;

	p.has_more_zones = p.has_waits = p.waits = 1;
	p.more_zones = 2;
	req.progress = &p;
	ret = zns_session_ask(&d->s, &req, &resp, err);
	if (ret)
		return ret;
	d->gained += zns_save_told(&d->v, resp);
	zns_pb__response__free_unpacked(resp, NULL);
	return 0;
}

/* Most of it pages, the rest in small images. */
static int write_images(struct dumper *d, struct zns_err *err)
{
	static uint64_t buf[PIECE / 8];
	uint64_t x = zns_hash(d->v.id, sizeof(d->v.id)) | 1;
	int ret = 0;

	d->stage = "write";
	for (uint32_t n = 0; n < d->images && !ret; n++) {
		uint64_t len = n ? 3000 : d->bytes;
		struct zns_wimage *img;
		char name[32];

		snprintf(name, sizeof(name), n ? "core-%u.img" : "pages-%u.img", n + 1);
		ret = zns_writer_image(d->v.w, name, !n, &img, err);
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
	int ret = zns_save_finish(&d->v, err);

	if (!ret)
		ret = zns_save_durable(&d->v, err);
	if (ret)
		return ret;
	d->stage = "commit";
	return zns_save_commit(&d->v, err);
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
	       code ? "false" : "true", zns_uuid_format(d->v.id, id), d->container, d->stage, code,
	       msg, d->groups, d->v.c ? d->v.c->shared_groups : 0, d->packed ? "true" : "false",
	       d->v.asked, d->gained,
	       d->begun_ns && d->admitted_ns ? (double)(d->admitted_ns - d->begun_ns) / 1e6 : 0.0,
	       d->admitted_ns ? (double)(zns_mono_ns() - d->admitted_ns) / 1e6 : 0.0);
	fflush(stdout);
}

/* Returns in each child, which does one dump, and for good only with the result of all. */
static void several(struct dumper *d, uint32_t times)
{
	static char name[64];
	bool failed = false;
	int status;

	for (uint32_t i = 0; i < times; i++) {
		pid_t pid = fork();

		if (!pid) {
			snprintf(name, sizeof(name), "%s-%u", d->container, i % 100);
			d->container = name;
			return;
		}
		failed |= pid < 0 || waitpid(pid, &status, 0) != pid || status;
	}
	_exit(failed);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: dumper --container NAME --bytes SIZE [--qos MIBPS] [--mode share|wait=S|reject] [--dynamic]\n"
		"              [--images N] [--pause-us N] [--separate] [--unannounced] [--times N]\n"
		"One dump into the device of $ZNS_CONFIG, with bytes from a generator.\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "container", required_argument, NULL, 'c' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "qos", required_argument, NULL, 'q' },
		{ "mode", required_argument, NULL, 'm' },
		{ "dynamic", no_argument, NULL, 'd' },
		{ "images", required_argument, NULL, 'i' },
		{ "pause-us", required_argument, NULL, 'p' },
		{ "separate", no_argument, NULL, 's' },
		{ "unannounced", no_argument, NULL, 'u' },
		{ "times", required_argument, NULL, 't' },
		{ 0 },
	};
	struct dumper d = {
		.stage = "start", .images = 4, .announce = true, .s = ZNS_SESSION_INIT
	};
	struct zns_err err = ZNS_ERR_INIT;
	uint32_t times = 1;
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
		else if (c == 't')
			times = (uint32_t)strtoul(optarg, NULL, 10);
		else
			return usage();
	}
	if (ret || !d.container || !d.bytes || !d.images || optind != argc)
		return usage();
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* no dumps without their test */
	if (times > 1) {
		several(&d, times);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
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
