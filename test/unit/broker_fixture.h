/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef BROKER_FIXTURE_H
#define BROKER_FIXTURE_H
/* A temporary emulated device with a private configuration, and short functions for a client's
 * requests to znsd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>
#include "zns/client.h"
#include "../controls/controls.h"
#include "zns/store.h"
#include "until.h"

#define WAYS 2
#define CHANNELS 4
#define DIES (WAYS * CHANNELS)
#define META 3
#define ZONES (META + DIES * 4)
#define CAP MIB(1)

struct fx {
	char dir[64];
	struct zns_registered reg;
	struct zns_dev *dev;
};

struct grant {
	uint8_t id[ZNS_UUID_LEN];
	char container[64];
	uint32_t n, group[64], weight[64], shared;
	char note[256];
};

struct zone {
	uint32_t zone, group;
	uint64_t start, cap, wp;
};

static inline void msleep(unsigned ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000l };

	nanosleep(&ts, NULL);
}

/* write rate of group 3 in MiB/s if it is slower than the others; else 0 */
static uint32_t fx_slow;
static uint32_t fx_ceiling; /* MiB/s of the whole device; 0: the sum of its groups */
static bool fx_on_disk; /* a grant may be a gap between data, in which the writer gets one turn */
/* The clock of this test and its brokers stands still, except in advance(). */
static bool fx_still;

/* The programs in this directory have the test controls. */
static inline void fx_test_programs(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	assert_true(n > 0 && (size_t)n + sizeof("bin") < sizeof(path));
	path[n] = 0;
	strcpy(strrchr(path, '/') + 1, "bin");
	setenv("ZNS_LIBEXEC", path, 1);
}

/* Makes a directory in @parent with a configuration of its own. */
static inline void fx_dir(struct fx *f, const char *parent)
{
	char buf[300], cwd[PATH_MAX];

	memset(f, 0, sizeof(*f));
	assert_in_range(snprintf(f->dir, sizeof(f->dir), "%s/znsd-test.XXXXXX", parent), 1,
			sizeof(f->dir) - 1);
	assert_non_null(mkdtemp(f->dir));
	snprintf(buf, sizeof(buf), "%s/etc", f->dir);
	setenv("ZNS_CONFIG", buf, 1);
	snprintf(buf, sizeof(buf), "%s/run", f->dir);
	setenv("ZNS_RUN", buf, 1);
	setenv("ZNSD_IDLE_S", "1", 1);
	if (fx_still) {
		snprintf(buf, sizeof(buf), "%s/clock", f->dir);
		zns_clock_stop(buf);
		fx_test_programs();
	}
	if (!getenv("ZNS_LIBEXEC")) {
		assert_non_null(getcwd(cwd, sizeof(cwd) - 16));
		strcat(cwd, "/build/bin");
		setenv("ZNS_LIBEXEC", cwd, 1);
	}
}

static inline void fx_open(struct fx *f, uint32_t max_open, uint32_t max_active, uint32_t groups)
{
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	ZnsPb__DieGroup g[DIES], *gp[DIES];
	uint32_t map[ZONES], rate[DIES], i;
	struct zns_emu_params e;
	struct zns_err err = ZNS_ERR_INIT;
	char path[300], buf[300];
	uint8_t uuid[ZNS_UUID_LEN];

	fx_dir(f, "/tmp");
	zns_emu_default_params(&e);
	e.nr_zones = ZONES;
	e.zone_size = e.zone_capacity = CAP;
	e.channels = CHANNELS;
	e.ways = WAYS;
	e.max_open = max_open;
	e.max_active = max_active;
	e.timing = false;
	snprintf(path, sizeof(path), "%s/dev", f->dir);
	if (zns_emu_create(path, &e, true, &err))
		fail_msg("%s", err.msg);
	snprintf(buf, sizeof(buf), "emu:%s/dev", f->dir);
	if (zns_dev_open(buf, 0, &f->dev, &err))
		fail_msg("%s", err.msg);
	for (i = 0; i < groups; i++) {
		gp[i] = &g[i];
		zns_pb__die_group__init(gp[i]);
		g[i].id = i;
		g[i].has_channel = 1;
		g[i].channel = i % CHANNELS;
	}
	/* Metadata are on group 0. The other zones go to the groups in turn: of
	 * eight groups each has 4 data zones. */
	for (i = 0; i < ZONES; i++)
		map[i] = i < META ? 0 : (i - META) % groups;
	p.source = "vendor";
	p.zone_read_mibps = 400;
	p.confidence = 1;
	for (i = 0; fx_slow && i < groups; i++)
		rate[i] = i == 3 ? fx_slow : 100;
	p.zone_write_mibps = fx_slow ? zns_min(fx_slow, 100u) : 100;
	p.group_write_mibps = rate;
	p.n_group_write_mibps = fx_slow ? groups : 0;
	p.has_device_write_mibps = fx_ceiling > 0;
	p.device_write_mibps = fx_ceiling;
	p.groups = gp;
	p.n_groups = groups;
	p.zone_group = map;
	p.n_zone_group = ZONES;
	zns_uuid_generate(uuid);
	if (zns_store_format(f->dev, uuid, &p, false, f->reg.uuid, &err) ||
	    zns_register(f->reg.uuid, buf, &err) ||
	    zns_registered_by_uuid(f->reg.uuid, &f->reg, &err))
		fail_msg("%s", err.msg);
}

static inline int connect_err(struct fx *f, struct zns_broker *b, struct zns_err *err)
{
	memset(err, 0, sizeof(*err));
	return zns_broker_connect(&f->reg, b, err);
}

static inline struct zns_broker client(struct fx *f)
{
	struct zns_err err;
	struct zns_broker b;

	if (connect_err(f, &b, &err))
		fail_msg("connect: %s", err.msg);
	return b;
}

static inline ZnsPb__Response *ask(struct zns_broker *b, ZnsPb__Request *q)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Response *r;

	if (zns_broker_call(b, q, &r, &err))
		fail_msg("%s", err.msg);
	return r;
}

static inline void drop(ZnsPb__Response *r)
{
	zns_pb__response__free_unpacked(r, NULL);
}

/* The request must fail with @code and a message that contains @part. */
static inline void refused(struct zns_broker *b, ZnsPb__Request *q, int code, const char *part)
{
	struct zns_err err = ZNS_ERR_INIT;
	ZnsPb__Response *r;
	int ret = zns_broker_call(b, q, &r, &err);

	if (ret != code || !strstr(err.msg, part))
		fail_msg("expected %d with \"%s\", got %d: %s", code, part, ret, err.msg);
	assert_null(strchr(err.msg, '\n'));
}

#define REQ(name) ZnsPb__Request name = ZNS_PB__REQUEST__INIT

static inline void begin_request(ZnsPb__Request *q, ZnsPb__DumpBegin *d, const char *container,
				 uint32_t qos, const char *mode, const char *alloc)
{
	zns_pb__request__init(q);
	zns_pb__dump_begin__init(d);
	d->container = (char *)container;
	d->qos_mibps = qos;
	d->admission = (char *)mode;
	d->alloc = (char *)alloc;
	q->dump_begin = d;
}

/* Sends a request and does not wait for the answer. */
static inline void post(struct zns_broker *b, ZnsPb__Request *q)
{
	uint32_t len;
	uint8_t *body;

	q->version = ZNS_BROKER_VERSION;
	len = zns_pb__request__get_packed_size(q);
	body = malloc(len);
	assert_non_null(body);
	zns_pb__request__pack(q, body);
	assert_int_equal(zns_msg_send(b->fd, body, len, NULL, NULL), 0);
	free(body);
}

/*
 * Waits until the broker has done everything that was due. What is due now is done at the beginning
 * of its next round, and a message is seen in a round after that.
 */
static inline void settle(struct zns_broker *b)
{
	for (int i = 0; i < 3; i++) {
		REQ(q);

		drop(ask(b, &q)); /* so it does not require encryption */
	}
}

/* Lets time pass. @b: any connection that waits for no answer. */
static inline void advance(struct zns_broker *b, unsigned ms)
{
	zns_clock_advance(ms * UINT64_C(1000000));
	settle(b);
}

/* Has the answer arrived? */
static inline bool has_answer(struct zns_broker *b)
{
	struct pollfd p = { .fd = b->fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Receives the answer to what was posted. */
static inline ZnsPb__Response *answer(struct zns_broker *b)
{
	ZnsPb__Response *r;
	uint32_t len;
	uint8_t *body;

	until(has_answer(b));
	assert_int_equal(zns_msg_recv(b->fd, &body, &len, NULL, NULL), 0);
	r = zns_pb__response__unpack(NULL, len, body);
	assert_non_null(r);
	free(body);
	return r;
}

static inline struct grant grant_of(const ZnsPb__Response *r, const char *container)
{
	struct grant g = { .n = 0 };
	uint32_t i;

	if (r->code)
		fail_msg("%s", r->error);
	assert_non_null(r->dump);
	assert_int_equal(r->dump->checkpoint.len, ZNS_UUID_LEN);
	memcpy(g.id, r->dump->checkpoint.data, ZNS_UUID_LEN);
	snprintf(g.container, sizeof(g.container), "%s", container);
	assert_true(r->dump->n_groups > 0 && r->dump->n_groups <= 64);
	for (i = 0; i < r->dump->n_groups; i++) {
		g.group[i] = r->dump->groups[i]->group;
		g.weight[i] = r->dump->groups[i]->weight;
	}
	g.n = r->dump->n_groups;
	g.shared = r->dump->shared_groups;
	snprintf(g.note, sizeof(g.note), "%s", r->dump->note ? r->dump->note : "");
	return g;
}

static inline struct grant begin_mode(struct zns_broker *b, const char *container, uint32_t qos,
				      const char *mode, const char *alloc)
{
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct grant g;
	ZnsPb__Response *r;

	begin_request(&q, &d, container, qos, mode, alloc);
	r = ask(b, &q);
	g = grant_of(r, container);
	drop(r);
	return g;
}

static inline struct grant begin(struct zns_broker *b, const char *container, uint32_t qos)
{
	return begin_mode(b, container, qos, NULL, NULL);
}

/* Begins a dump that waits for admission while time passes. @other: any other connection. */
static inline struct grant begin_waiting(struct zns_broker *b, struct zns_broker *other,
					 const char *container, uint32_t qos, const char *mode)
{
	ZnsPb__DumpBegin d;
	ZnsPb__Request q;
	struct grant g;
	ZnsPb__Response *r;

	begin_request(&q, &d, container, qos, mode, NULL);
	post(b, &q);
	until((advance(other, 20), has_answer(b)));
	r = answer(b);
	g = grant_of(r, container);
	drop(r);
	return g;
}

static inline struct zone zone_get(struct zns_broker *b, uint32_t group)
{
	ZnsPb__ZoneGet z = ZNS_PB__ZONE_GET__INIT;
	struct zone out = { 0 };
	ZnsPb__Response *r;
	REQ(q);

	z.group = group;
	q.zone_get = &z;
	r = ask(b, &q);
	assert_non_null(r->zone);
	assert_false(r->zone->has_turn && !fx_on_disk);
	out = (struct zone){ r->zone->zone, r->zone->group, r->zone->start, r->zone->capacity,
			     r->zone->start };
	drop(r);
	return out;
}

static inline void zone_refused(struct zns_broker *b, uint32_t group, int code, const char *part)
{
	ZnsPb__ZoneGet z = ZNS_PB__ZONE_GET__INIT;
	REQ(q);

	z.group = group;
	q.zone_get = &z;
	refused(b, &q, code, part);
}

static inline void fill(struct fx *f, struct zone *z, uint64_t len)
{
	struct zns_err err = ZNS_ERR_INIT;
	void *buf = aligned_alloc(4096, len);

	assert_non_null(buf);
	memset(buf, 0x5a, len);
	if (zns_dev_write(f->dev, z->zone, z->wp, buf, len, &err))
		fail_msg("zone %u: %s", z->zone, err.msg);
	z->wp += len;
	free(buf);
}

struct record {
	ZnsPb__Checkpoint c;
	ZnsPb__ZoneUse use[64], *up[64];
	ZnsPb__ExtentRef m;
};

static inline void record(struct record *k, struct grant *g, struct zone *z, uint32_t n)
{
	uint32_t i;

	zns_pb__checkpoint__init(&k->c);
	k->c.id.data = g->id;
	k->c.id.len = ZNS_UUID_LEN;
	k->c.container = g->container;
	k->c.created_ns = zns_now_ns();
	k->c.nr_images = 1;
	k->c.groups = g->group;
	k->c.n_groups = g->n;
	k->c.zones = k->up;
	k->c.n_zones = n;
	for (i = 0; i < n; i++) {
		k->up[i] = &k->use[i];
		zns_pb__zone_use__init(&k->use[i]);
		k->use[i].zone = z[i].zone;
		k->use[i].start = z[i].start;
		k->use[i].len = z[i].wp - z[i].start;
		k->c.bytes += k->use[i].len;
	}
	k->c.page_bytes = k->c.bytes;
	zns_pb__extent_ref__init(&k->m);
	k->m.zone = z[n - 1].zone;
	k->m.start = z[n - 1].wp - 4096;
	k->m.len = 4000;
	k->c.manifest = &k->m;
}

static inline void commit(struct zns_broker *b, struct grant *g, struct zone *z, uint32_t n)
{
	struct record k;
	REQ(q);

	record(&k, g, z, n);
	q.commit = &k.c;
	drop(ask(b, &q));
}

/* A complete small dump of one zone; *z is that zone. */
static inline struct grant dump(struct fx *f, struct zns_broker *b, const char *container,
				uint64_t len, struct zone *z)
{
	struct grant g = begin(b, container, 0);

	*z = zone_get(b, g.group[0]);
	fill(f, z, len);
	commit(b, &g, z, 1);
	return g;
}

static inline void abort_dump(struct zns_broker *b)
{
	REQ(q);

	q.has_abort = q.abort = 1;
	drop(ask(b, &q));
}

static inline ZnsPb__Response *status(struct zns_broker *b)
{
	REQ(q);

	q.has_status = q.status = 1;
	return ask(b, &q);
}

static inline size_t nr_reservations(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	size_t n = r->status->n_reservations;

	drop(r);
	return n;
}

static inline size_t nr_leases(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	size_t n = r->status->n_leases;

	drop(r);
	return n;
}

static inline uint32_t nr_waiting(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	uint32_t n = r->status->nr_waiting;

	drop(r);
	return n;
}

static inline uint32_t nr_parked(struct zns_broker *b)
{
	ZnsPb__Response *r = status(b);
	uint32_t n = r->status->parked_zones;

	drop(r);
	return n;
}

static inline size_t nr_checkpoints(struct zns_broker *b)
{
	ZnsPb__Response *r;
	size_t n;
	REQ(q);

	q.has_ls = q.ls = 1;
	r = ask(b, &q);
	n = r->n_checkpoints;
	drop(r);
	return n;
}

static inline void rm(struct zns_broker *b, const uint8_t *id, size_t expect)
{
	ProtobufCBinaryData d = { ZNS_UUID_LEN, (uint8_t *)id };
	ZnsPb__Rm m = ZNS_PB__RM__INIT;
	ZnsPb__Response *r;
	REQ(q);

	m.checkpoints = &d;
	m.n_checkpoints = 1;
	m.by = "test";
	q.rm = &m;
	r = ask(b, &q);
	assert_int_equal(r->n_removed, expect);
	drop(r);
}

static inline void restore_request(ZnsPb__Request *q, ZnsPb__RestoreBegin *rb, const uint8_t *id)
{
	zns_pb__request__init(q);
	zns_pb__restore_begin__init(rb);
	rb->checkpoint.data = (uint8_t *)id;
	rb->checkpoint.len = ZNS_UUID_LEN;
	q->restore_begin = rb;
}

static inline enum zns_zone_state state_of(struct fx *f, uint32_t zone)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct zns_zone z;

	if (zns_dev_report(f->dev, zone, 1, &z, &err))
		fail_msg("%s", err.msg);
	return z.state;
}

static inline bool becomes(struct fx *f, uint32_t zone, enum zns_zone_state s)
{
	until(state_of(f, zone) == s);
	return true;
}

/* The state letter that the kernel shows for it: S is asleep, T is stopped. */
static inline char run_state(pid_t pid)
{
	char path[64], state = 0;
	FILE *p;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	p = fopen(path, "re");
	assert_non_null(p);
	assert_int_equal(fscanf(p, "%*d %*s %c", &state), 1);
	fclose(p);
	return state;
}

/* A descriptor that becomes readable when the process ends. */
static inline int pidfd_of(uint32_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	assert_true(fd >= 0);
	return fd;
}

/* Returns when the broker has ended and all its locks are free. */
static inline void kill_broker(struct zns_broker *b)
{
	struct pollfd p = { .events = POLLIN };

	assert_true(b->broker_pid > 1);
	p.fd = pidfd_of(b->broker_pid);
	assert_int_equal(kill(b->broker_pid, SIGKILL), 0);
	assert_int_equal(poll(&p, 1, 60000), 1);
	close(p.fd);
	zns_broker_close(b);
}

static inline int lock_file(struct fx *f, const char *suffix)
{
	char path[300];
	int fd;

	assert_int_equal(zns_broker_path(f->reg.uuid, suffix, path, sizeof(path)), 0);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_SH), 0);
	return fd;
}

/* A broker that accepts no connection. */
static inline void kill_holder(struct fx *f)
{
	char path[300];
	int fd, pid;

	assert_int_equal(zns_broker_path(f->reg.uuid, "broker", path, sizeof(path)), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	pid = fd >= 0 ? zns_flock_holder(fd) : 0;
	if (pid > 1)
		kill(pid, SIGKILL);
	close(fd);
}

static inline void fx_close(struct fx *f)
{
	struct zns_err err;
	struct zns_broker b;
	char cmd[128];
	REQ(q);
	ZnsPb__Response *r;
	struct pollfd p;
	int ret;

	/* Not one may be left behind. Our own limit for its answer must pass. */
	zns_clock_run();
	ret = zns_broker_connect_running(&f->reg, &b, &err);
	if (ret && ret != -ENOENT)
		kill_holder(f);
	if (!ret) {
		q.has_quit = q.quit = 1;
		if (!zns_broker_call(&b, &q, &r, &err))
			drop(r);
		else
			kill(b.broker_pid, SIGTERM);
		p = (struct pollfd){ .fd = b.fd, .events = POLLIN };
		poll(&p, 1, 60000);
		zns_broker_close(&b);
	}
	zns_dev_close(f->dev);
	if (getenv("ZNSD_TEST_LOG")) {
		snprintf(cmd, sizeof(cmd), "cat %s/run/*.log", f->dir);
		if (system(cmd))
			printf("no log\n");
	}
	/* a broker that is about to exit may still write there */
	snprintf(cmd, sizeof(cmd), "rm -rf %s 2>/dev/null", f->dir);
	until(!system(cmd));
}

/* cmocka's setup and teardown: a device with all its dies and no limits. */
static inline int fx_setup(void **state)
{
	struct fx *f = calloc(1, sizeof(*f));

	fx_open(f, 0, 0, DIES);
	*state = f;
	return 0;
}

static inline int fx_teardown(void **state)
{
	fx_close(*state);
	free(*state);
	return 0;
}

#endif
