/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests to znsd, through its own code. First byte even: the rest is a list of (connection,
 * length of two bytes, request as it comes over the socket). Odd: a list of operations with their
 * arguments, which get further: dumps that are granted zones, write them and commit records that
 * may lie. Whatever clients do, the broker answers, a zone has one writer, live data stay, and a
 * plain dump works afterwards.
 */
#include <stdlib.h>
#include <string.h>
#include "../crash/inproc.h"
#include "../unit/memdev.h"
#include "input.h"
#include "zns/context.h"

#define ZONES 16
#define CONNS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct memdev *formatted(void)
{
	ZnsPb__DieGroup g[4], *list[4];
	ZnsPb__Profile p = ZNS_PB__PROFILE__INIT;
	uint32_t of[ZONES];
	struct memdev *m = memdev_new(ZONES, KIB(128), 4096);

	for (uint32_t i = 0; i < 4; i++) {
		zns_pb__die_group__init(&g[i]);
		g[i].id = i;
		list[i] = &g[i];
	}
	for (uint32_t i = 0; i < ZONES; i++)
		of[i] = i % 4;
	p.source = (char *)"vendor";
	p.zone_write_mibps = 100;
	p.zone_read_mibps = 400;
	p.confidence = 1;
	p.groups = list;
	p.n_groups = 4;
	p.zone_group = of;
	p.n_zone_group = ZONES;
	if (zns_store_format(&m->dev, NULL, &p, false, NULL, NULL))
		abort();
	return m;
}

static struct zns_err last_refusal; /* to be looked at when something is wrong */

/* A request that waits is the waiter's. */
static void ask(struct znsd *d, struct conn *c, ZnsPb__Request *req)
{
	struct reply rep;

	memset(&rep, 0, sizeof(rep));
	zns_pb__response__init(&rep.r);
	if (dispatch(d, c, req, &rep))
		last_refusal = rep.err;
	if (!rep.later)
		zns_pb__request__free_unpacked(req, NULL);
	reply_free(&rep);
}

/* ---- operations ---- */

/* A number from the input, mostly one that makes sense. */
static uint32_t wild(struct input *in, uint32_t below)
{
	return take(in, 32) ? take(in, below) : take(in, 256) << 24 | 0xffff;
}

static const char *const names[] = { "web", "db", "cache", "", "a/b" };
static const char *const admissions[] = { "share", "wait", "wait=0", "reject", "wait=x" };

static ZnsPb__Request *request(void)
{
	ZnsPb__Request *r = calloc(1, sizeof(*r));

	zns_pb__request__init(r);
	r->version = ZNS_BROKER_VERSION;
	return r;
}

static void op_dump(struct znsd *d, struct conn *c, struct input *in)
{
	ZnsPb__Request *r = request();
	ZnsPb__DumpBegin *b = r->dump_begin = calloc(1, sizeof(*b));

	zns_pb__dump_begin__init(b);
	b->container = strdup(names[take(in, 3 + (take(in, 8) == 0) * 2)]);
	b->qos_mibps = 50 * wild(in, 12);
	b->admission = strdup(admissions[take(in, 5)]);
	b->alloc = strdup(take(in, 2) ? "dynamic" : "static");
	b->has_min_room = take(in, 2);
	b->min_room = (uint32_t)KIB(64) * take(in, 4);
	ask(d, c, r);
}

static void op_zone(struct znsd *d, struct conn *c, struct input *in)
{
	ZnsPb__Request *r = request();
	ZnsPb__ZoneGet *g = r->zone_get = calloc(1, sizeof(*g));
	struct lease *l = lease_of(d, c);

	zns_pb__zone_get__init(g);
	g->group = l && l->nr_groups && take(in, 8) ? l->groups[take(in, l->nr_groups)] :
						      wild(in, 6);
	if (l && l->nr_zones && take(in, 2)) {
		uint32_t **list = take(in, 3) ? &g->done_zones : &g->not_zones;

		*list = calloc(1, sizeof(uint32_t));
		**list = take(in, 8) ? l->zones[take(in, l->nr_zones)].zone : wild(in, 40);
		*(list == &g->done_zones ? &g->n_done_zones : &g->n_not_zones) = 1;
	}
	ask(d, c, r);
}

/* ---- memory contexts: one for each connection ---- */

static struct {
	int fd; /* descriptor of its lock; -1: none */
	uint8_t id[ZNS_UUID_LEN];
} contexts[CONNS];
static bool kept[ZONES]; /* a context wrote there */

static char run_at[] = "/tmp/zns-fuzz-broker.XXXXXX";

static void no_run_dir(void)
{
	rmdir(run_at);
}

static void run_dir(void)
{
	static bool made;

	if (!made && mkdtemp(run_at) && !setenv("ZNS_RUN", run_at, 1))
		atexit(no_run_dir);
	made = true;
}

static void context_make(struct znsd *d, uint32_t n)
{
	struct zns_context c = { .container = "fuzz" };

	run_dir();
	if (contexts[n].fd >= 0)
		return;
	memset(contexts[n].id, 'a' + (int)n, ZNS_UUID_LEN);
	memcpy(c.id, contexts[n].id, ZNS_UUID_LEN);
	memcpy(c.device, d->reg.uuid, ZNS_UUID_LEN);
	if (zns_context_create(&c, ZONES, &contexts[n].fd, NULL))
		abort();
}

static void contexts_end(struct znsd *d)
{
	struct lease *l;

	for (uint32_t i = 0; i < CONNS; i++) {
		char path[4096];

		if (contexts[i].fd < 0)
			continue;
		close(contexts[i].fd);
		contexts[i].fd = -1;
		if (!zns_context_path(d->reg.uuid, contexts[i].id, path, sizeof(path)))
			unlink(path);
	}
	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_YIELDING)
			l->yields.ops->unheld(l);
	leases_reap(d);
}

/* Mostly a zone of this lease, else any zone. */
static uint32_t *some_zone(const struct lease *l, struct input *in)
{
	uint32_t *v = calloc(1, sizeof(*v));

	*v = l && l->nr_zones && take(in, 8) ? l->zones[take(in, l->nr_zones)].zone : wild(in, 40);
	return v;
}

static void op_memory(struct znsd *d, struct conn *conn, struct conn *c, struct input *in)
{
	struct lease *l = lease_of(d, c);
	ZnsPb__Request *r = request();
	uint32_t n = (uint32_t)(c - conn);

	switch (take(in, 5)) {
	case 0:
		n = take(in, 8) ? n : take(in, CONNS); /* or another connection's */
		context_make(d, n);
		r->memory_begin = calloc(1, sizeof(*r->memory_begin));
		zns_pb__memory_begin__init(r->memory_begin);
		r->memory_begin->context.data = malloc(ZNS_UUID_LEN);
		r->memory_begin->context.len = ZNS_UUID_LEN;
		memcpy(r->memory_begin->context.data, contexts[n].id, ZNS_UUID_LEN);
		r->memory_begin->has_width = 1;
		r->memory_begin->width = wild(in, 6);
		break;
	case 1:
	case 2:
		r->memory_zone = calloc(1, sizeof(*r->memory_zone));
		zns_pb__memory_zone__init(r->memory_zone);
		r->memory_zone->group = l && l->nr_groups && take(in, 8) ?
						l->groups[take(in, l->nr_groups)] :
						wild(in, 6);
		if (take(in, 3) == 1) {
			r->memory_zone->not_zones = some_zone(l, in);
			r->memory_zone->n_not_zones = 1;
		}
		if (take(in, 3) == 1) {
			r->memory_zone->done_zones = some_zone(l, in);
			r->memory_zone->n_done_zones = 1;
		}
		break;
	case 3:
		r->memory_free = calloc(1, sizeof(*r->memory_free));
		zns_pb__memory_free__init(r->memory_free);
		r->memory_free->zones = some_zone(l, in);
		r->memory_free->n_zones = 1;
		if (take(in, 3) == 1) {
			r->memory_free->not_zones = some_zone(l, in);
			r->memory_free->n_not_zones = 1;
		}
		break;
	default:
		r->memory_step = calloc(1, sizeof(*r->memory_step));
		zns_pb__memory_step__init(r->memory_step);
		r->memory_step->groups = calloc(1, sizeof(uint32_t));
		r->memory_step->groups[0] = wild(in, 6);
		r->memory_step->n_groups = 1;
		r->memory_step->has_written = 1;
		r->memory_step->written = take(in, 256);
		break;
	}
	ask(d, c, r);
}

/* What a context wrote is there as long as the zone is the context's. */
static void memory_stays(struct znsd *d)
{
	for (uint32_t i = 0; i < ZONES; i++) {
		const struct lease *l = d->zones[i].writer;
		struct zns_zone z;

		if (!l || l->kind != LEASE_YIELDING)
			kept[i] = false;
		else if (kept[i] && !zns_dev_report(d->dev, i, 1, &z, NULL) &&
			 z.state == ZNS_ZONE_EMPTY)
			abort();
	}
}

static void op_write(struct znsd *d, struct conn *c, struct input *in)
{
	static uint8_t buf[KIB(64)] __attribute__((aligned(4096)));
	struct lease *l = lease_of(d, c);
	struct zns_zone z;
	uint32_t zone;

	if (!l || !l->nr_zones)
		return;
	zone = l->zones[take(in, l->nr_zones)].zone;
	if (!zns_dev_report(d->dev, zone, 1, &z, NULL) &&
	    !zns_dev_write(d->dev, zone, z.wp, buf, 4096 * (1 + take(in, 16)), NULL))
		kept[zone] |= l->kind == LEASE_YIELDING;
}

static void op_commit(struct znsd *d, struct conn *c, struct input *in)
{
	struct lease *l = lease_of(d, c);
	ZnsPb__Request *r = request();
	ZnsPb__Checkpoint *k = r->commit = calloc(1, sizeof(*k));
	bool lie = take(in, 4) == 0;

	zns_pb__checkpoint__init(k);
	k->id.data = calloc(1, ZNS_UUID_LEN);
	k->id.len = ZNS_UUID_LEN;
	if (l)
		memcpy(k->id.data, l->id, ZNS_UUID_LEN);
	k->container = strdup(l && !(lie && take(in, 2)) ? l->container : "liar");
	k->zones = calloc(l && l->nr_zones ? l->nr_zones : 1, sizeof(*k->zones));
	for (uint32_t i = 0; l && i < l->nr_zones; i++) {
		ZnsPb__ZoneUse *u;
		struct zns_zone z;

		if (zns_dev_report(d->dev, l->zones[i].zone, 1, &z, NULL) ||
		    z.wp <= l->zones[i].start)
			continue;
		u = k->zones[k->n_zones++] = calloc(1, sizeof(*u));
		zns_pb__zone_use__init(u);
		u->zone = l->zones[i].zone;
		u->start = l->zones[i].start;
		u->len = z.wp - u->start;
		if (lie && take(in, 2))
			u->len = 4096ull * take(in, 200);
		if (lie && take(in, 4) == 0)
			u->zone = wild(in, 20);
	}
	if (k->n_zones) {
		k->manifest = calloc(1, sizeof(*k->manifest));
		zns_pb__extent_ref__init(k->manifest);
		k->manifest->zone = k->zones[0]->zone;
		k->manifest->start = k->zones[0]->start + (lie ? 4096ull * take(in, 40) : 0);
		k->manifest->len = 100;
	}
	ask(d, c, r);
}

static void op_rm(struct znsd *d, struct conn *c, struct input *in)
{
	size_t nr = zns_store_nr_checkpoints(d->store);
	ZnsPb__Request *r = request();
	ZnsPb__Rm *rm = r->rm = calloc(1, sizeof(*rm));

	zns_pb__rm__init(rm);
	rm->by = strdup("fuzz");
	rm->checkpoints = calloc(1, sizeof(*rm->checkpoints));
	rm->n_checkpoints = 1;
	rm->checkpoints[0].data = calloc(1, ZNS_UUID_LEN);
	rm->checkpoints[0].len = ZNS_UUID_LEN;
	if (nr)
		memcpy(rm->checkpoints[0].data,
		       zns_store_checkpoint(d->store, take(in, (uint32_t)nr) % nr)->id.data,
		       ZNS_UUID_LEN);
	ask(d, c, r);
}

static void op_restore(struct znsd *d, struct conn *c, struct input *in)
{
	size_t nr = zns_store_nr_checkpoints(d->store);
	ZnsPb__Request *r = request();
	ZnsPb__RestoreBegin *b = r->restore_begin = calloc(1, sizeof(*b));

	zns_pb__restore_begin__init(b);
	b->has_hot = b->hot = 1;
	b->checkpoint.data = calloc(1, ZNS_UUID_LEN);
	b->checkpoint.len = ZNS_UUID_LEN;
	if (nr)
		memcpy(b->checkpoint.data,
		       zns_store_checkpoint(d->store, take(in, (uint32_t)nr) % nr)->id.data,
		       ZNS_UUID_LEN);
	ask(d, c, r);
}

static ZnsPb__ZoneUse *use_of(uint32_t zone, uint64_t start, uint64_t len)
{
	ZnsPb__ZoneUse *u = calloc(1, sizeof(*u));

	zns_pb__zone_use__init(u);
	u->zone = zone;
	u->start = start;
	u->len = len;
	return u;
}

static int cmp_use(const void *pa, const void *pb)
{
	const ZnsPb__ZoneUse *a = *(ZnsPb__ZoneUse *const *)pa, *b = *(ZnsPb__ZoneUse *const *)pb;

	if (a->zone != b->zone)
		return a->zone < b->zone ? -1 : 1;
	return a->start < b->start ? -1 : a->start > b->start;
}

/* The end of a move: some of its old uses, and what was written; sometimes neither. */
static void op_compact_commit(struct znsd *d, struct conn *c, struct input *in)
{
	struct lease *l = lease_of(d, c);
	const ZnsPb__Checkpoint *now = l ? zns_store_find(d->store, l->id) : NULL;
	ZnsPb__Request *r = request();
	ZnsPb__Checkpoint *k = r->compact_commit = calloc(1, sizeof(*k));
	size_t had = now ? now->n_zones : 0;
	bool lie = take(in, 4) == 0;

	zns_pb__checkpoint__init(k);
	k->id.data = calloc(1, ZNS_UUID_LEN);
	k->id.len = ZNS_UUID_LEN;
	if (l)
		memcpy(k->id.data, l->id, ZNS_UUID_LEN);
	k->container = strdup(l ? l->container : "liar");
	k->zones = calloc(had + (l ? l->nr_zones : 0) + 1, sizeof(*k->zones));
	for (size_t i = 0; i < had; i++)
		if (take(in, 2))
			k->zones[k->n_zones++] = use_of(now->zones[i]->zone + (lie && !take(in, 4)),
							now->zones[i]->start,
							now->zones[i]->len +
								(lie ? 4096 * take(in, 3) : 0));
	for (uint32_t i = 0; l && i < l->nr_zones; i++) {
		uint64_t start = l->zones[i].start;
		struct zns_zone z;

		if (zns_dev_report(d->dev, l->zones[i].zone, 1, &z, NULL) || z.wp <= start)
			continue;
		if (!k->manifest) {
			k->manifest = calloc(1, sizeof(*k->manifest));
			zns_pb__extent_ref__init(k->manifest);
			k->manifest->zone = l->zones[i].zone;
			k->manifest->start = start + (lie ? 4096ull * take(in, 40) : 0);
			k->manifest->len = 100;
		}
		k->zones[k->n_zones++] = use_of(l->zones[i].zone, start, z.wp - start);
	}
	if (k->n_zones && take(in, 16))
		qsort(k->zones, k->n_zones, sizeof(*k->zones), cmp_use);
	ask(d, c, r);
}

static void op_compact(struct znsd *d, struct conn *c, struct input *in)
{
	size_t nr = zns_store_nr_checkpoints(d->store);
	uint32_t what = take(in, 4);
	ZnsPb__Request *r;

	if (what == 3) {
		op_compact_commit(d, c, in);
		return;
	}
	r = request();
	if (what == 0) {
		r->compact_begin = calloc(1, sizeof(*r->compact_begin));
		zns_pb__compact_begin__init(r->compact_begin);
		r->compact_begin->checkpoint.data = calloc(1, ZNS_UUID_LEN);
		r->compact_begin->checkpoint.len = ZNS_UUID_LEN;
		if (nr)
			memcpy(r->compact_begin->checkpoint.data,
			       zns_store_checkpoint(d->store, take(in, (uint32_t)nr) % nr)->id.data,
			       ZNS_UUID_LEN);
	} else if (what == 1) {
		r->compact_zone = calloc(1, sizeof(*r->compact_zone));
		zns_pb__compact_zone__init(r->compact_zone);
		r->compact_zone->group = wild(in, 6);
		r->compact_zone->need = 4096ull * take(in, 300);
	} else {
		r->compact_step = calloc(1, sizeof(*r->compact_step));
		zns_pb__compact_step__init(r->compact_step);
		r->compact_step->groups = calloc(1, sizeof(uint32_t));
		r->compact_step->groups[0] = wild(in, 6);
		r->compact_step->n_groups = 1;
		r->compact_step->has_flush = r->compact_step->flush = take(in, 2);
	}
	ask(d, c, r);
}

static void op_manage(struct znsd *d, struct conn *c, struct input *in)
{
	ZnsPb__Request *r = request();

	switch (take(in, 7)) {
	case 0:
		r->reserve = calloc(1, sizeof(*r->reserve));
		zns_pb__reserve__init(r->reserve);
		r->reserve->container = strdup(names[take(in, 5)]);
		r->reserve->has_groups = take(in, 2);
		r->reserve->groups = wild(in, 6);
		r->reserve->has_channels = take(in, 4) == 0;
		r->reserve->channels = take(in, 4);
		break;
	case 1:
		r->release = strdup(names[take(in, 5)]);
		break;
	case 2:
		r->reset = calloc(1, sizeof(*r->reset));
		zns_pb__zones_reset__init(r->reset);
		if (take(in, 2)) {
			r->reset->zones = calloc(1, sizeof(uint32_t));
			r->reset->zones[0] = wild(in, 20);
			r->reset->n_zones = 1;
		}
		break;
	case 3:
		r->has_status = r->status = true;
		break;
	case 4:
		r->has_zones = r->zones = true;
		break;
	case 5:
		r->has_ls = r->ls = true;
		break;
	default:
		r->has_abort = r->abort = true;
		break;
	}
	ask(d, c, r);
}

/* No live zone was reset behind its owner's back. (Two writers cannot be: the zone has one field.)
 */
static void live_stays(struct znsd *d)
{
	for (uint32_t i = 0; i < d->nr_zones; i++) {
		struct zns_zone z;

		if (!d->zones[i].meta && zone_live(d, i) &&
		    !zns_dev_report(d->dev, i, 1, &z, NULL) && z.state == ZNS_ZONE_EMPTY)
			abort();
	}
}

static void operations(struct znsd *d, struct conn *conn, struct input *in)
{
	while (in->left) {
		struct conn *c = &conn[take(in, CONNS)];
		uint32_t what = take(in, 16);

		if (what == 15) {
			waiter_drop(d, c);
			leases_of_conn_lost(d, c, &(int){ -1 });
		} else if (c->waiter) {
			continue;
		} else if (what < 3) {
			op_dump(d, c, in);
		} else if (what < 6) {
			op_zone(d, c, in);
		} else if (what < 9) {
			op_write(d, c, in);
		} else if (what < 11) {
			op_commit(d, c, in);
		} else if (what == 11) {
			op_rm(d, c, in);
		} else if (what == 12) {
			op_restore(d, c, in);
		} else if (what == 13) {
			op_compact(d, c, in);
		} else if (what == 14 && take(in, 2)) {
			op_memory(d, conn, c, in);
		} else {
			op_manage(d, c, in);
		}
		reclaim_step(d);
		live_stays(d);
		memory_stays(d);
	}
}

static void must_work(struct znsd *d)
{
	ZnsPb__DumpBegin *b = calloc(1, sizeof(*b));
	ZnsPb__Request *req = calloc(1, sizeof(*req));
	struct conn c = { 0 };

	zns_pb__request__init(req);
	zns_pb__dump_begin__init(b);
	b->container = strdup("after");
	req->version = ZNS_BROKER_VERSION;
	req->dump_begin = b;
	ask(d, &c, req);
	if (!lease_of(d, &c)) {
		printf("the dump after it was refused: %s\n", last_refusal.msg);
		abort();
	}
	leases_of_conn_lost(d, &c, &(int){ -1 });
}

static void messages(struct znsd *d, struct conn *conn, const uint8_t *data, size_t size)
{
	while (size >= 3) {
		struct conn *c = &conn[data[0] % CONNS];
		size_t len = zns_min((size_t)(data[1] | data[2] << 8), size - 3);
		ZnsPb__Request *req = zns_pb__request__unpack(NULL, len, data + 3);

		data += 3 + len;
		size -= 3 + len;
		if (!req)
			continue;
		/* Not found by chance, and not what is looked for here. */
		req->version = ZNS_BROKER_VERSION;
		if (c->waiter)
			zns_pb__request__free_unpacked(req, NULL);
		else
			ask(d, c, req);
		reclaim_step(d);
		live_stays(d);
	}
}

/* No client is connected any more: no zone is held, and all space is freed when users remove their
 * checkpoints and reservations. */
static void must_be_clean(struct znsd *d)
{
	struct conn c = { 0 };
	size_t n;

	for (uint32_t i = 0; i < d->nr_zones; i++)
		if (d->zones[i].writer || d->zones[i].readers)
			abort();
	while ((n = zns_store_nr_checkpoints(d->store))) {
		op_rm(d, &c, &(struct input){ 0 });
		if (zns_store_nr_checkpoints(d->store) != n - 1)
			abort();
	}
	while ((n = zns_store_nr_reservations(d->store))) {
		ZnsPb__Request *r = request();

		r->release = strdup(zns_store_reservation(d->store, 0)->container);
		ask(d, &c, r);
		if (zns_store_nr_reservations(d->store) != n - 1)
			abort();
	}
	d->sweep = true;
	broker_idle(d);
	for (uint32_t i = 0; i < d->nr_zones; i++)
		if (!d->zones[i].meta && d->zones[i].z.state != ZNS_ZONE_EMPTY)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conn conn[CONNS] = { 0 };
	struct memdev *m;
	struct znsd d;

	if (!size)
		return 0;
	m = formatted();
	for (int i = 0; i < CONNS; i++)
		contexts[i].fd = -1;
	memset(kept, 0, sizeof(kept));
	if (broker_open(&m->dev, &d, NULL))
		abort();
	if (data[0] & 1)
		operations(&d, conn, &(struct input){ data + 1, size - 1 });
	else
		messages(&d, conn, data + 1, size - 1);
	for (int i = 0; i < CONNS; i++) {
		waiter_drop(&d, &conn[i]);
		leases_of_conn_lost(&d, &conn[i], &(int){ -1 });
	}
	contexts_end(&d);
	must_be_clean(&d);
	must_work(&d);
	broker_close(&d);
	memdev_close(&m->dev);
	return 0;
}
