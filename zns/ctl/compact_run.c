// SPDX-License-Identifier: GPL-2.0-only
/* Compaction, one checkpoint after the other: a lease from the broker, the copy, the flush, the new record. */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include "compact.h"
#include "zns/mover.h"
#include "zns/store.h"

#define TRIES 50		/* of a checkpoint, when dumps need the zones first */
#define RETRY_MS 100
#define FLUSH_PATIENCE_MS 10000

struct job {
	struct compact *x;
	struct zns_broker b;	/* the lease */
	uint64_t told;		/* bytes that the progress line knows of */
	uint64_t total;
	bool defer;		/* others may be idle */
};

static void nap(uint32_t ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000l }, NULL);
}

static int zone_get(void *arg, uint32_t group, uint64_t need, const uint32_t *done, uint32_t nr_done,
		    struct zns_zone_slot *out, struct zns_err *err)
{
	struct job *j = arg;
	ZnsPb__CompactZone q = ZNS_PB__COMPACT_ZONE__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	const struct zns_geometry *geo = &j->x->s.dev->geo;
	ZnsPb__Response *r;
	int ret;

	q.group = group;
	q.need = need;
	q.not_zones = j->x->victims;
	q.n_not_zones = j->x->nr_victims;
	q.done_zones = (uint32_t *)done;
	q.n_done_zones = nr_done;
	req.compact_zone = &q;
	ret = zns_broker_call(&j->b, &req, &r, err);
	if (ret)
		return ret;
	if (!r->zone || r->zone->zone >= geo->nr_zones || r->zone->capacity > geo->zone_capacity ||
	    r->zone->start > r->zone->capacity || r->zone->start % geo->block_size ||
	    r->zone->zone >= j->x->zones->n_zones) {
		ret = zns_fail(err, -EPROTO, "znsd granted no usable zone");
	} else {
		j->x->written[r->zone->zone] = true;
		*out = (struct zns_zone_slot){ .zone = r->zone->zone, .group = r->zone->group,
					       .start = r->zone->start, .capacity = r->zone->capacity };
	}
	zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

/* Returns when nobody works where @q says, or after @patience_ms. @first: if somebody does, -EAGAIN at once. */
static int ask(struct job *j, ZnsPb__CompactStep *q, uint64_t patience_ms, bool first, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	uint64_t begun = zns_mono_ns(), waited = 0;
	int ret = 0;

	req.compact_step = q;
	while (!ret) {
		ZnsPb__Response *r;
		uint32_t ms;

		ret = zns_broker_call(&j->b, &req, &r, err);
		if (ret)
			break;
		ms = r->wait_ms;
		zns_pb__response__free_unpacked(r, NULL);
		if (!ms || j->x->rude || waited >= patience_ms * 1000000)
			break;
		if (first)
			return zns_fail(err, -EAGAIN, "dumps or restores work on these groups");
		nap(zns_min(ms, 1000u));
		ctl_progress_add(&j->x->prog, 0);
		waited = zns_mono_ns() - begun;
	}
	j->x->waited_ns += waited;
	return ret;
}

/* Dumps and restores go first: wait while somebody works on these groups or their channels. */
static int step(void *arg, const uint32_t *groups, uint32_t nr, uint64_t bytes, struct zns_err *err)
{
	struct job *j = arg;
	ZnsPb__CompactStep q = ZNS_PB__COMPACT_STEP__INIT;

	q.groups = (uint32_t *)groups;
	q.n_groups = nr;
	q.has_bytes = q.has_total = 1;
	q.bytes = bytes;
	q.total = j->total;
	if (bytes > j->told)
		ctl_progress_add(&j->x->prog, bytes - j->told);
	j->told = bytes;
	return ask(j, &q, UINT64_MAX / 1000000, j->defer && !bytes, err);
}

static int begin(struct job *j, const uint8_t *id, ZnsPb__Response **out, struct zns_err *err)
{
	ZnsPb__CompactBegin q = ZNS_PB__COMPACT_BEGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	int ret;

	q.checkpoint.data = (uint8_t *)id;
	q.checkpoint.len = ZNS_UUID_LEN;
	req.compact_begin = &q;
	ret = zns_broker_call(&j->b, &req, out, err);
	if (!ret && ((*out)->n_checkpoints != 1 || !(*out)->checkpoints[0]->manifest)) {
		zns_pb__response__free_unpacked(*out, NULL);
		*out = NULL;
		ret = zns_fail(err, -EPROTO, "the broker's answer has no checkpoint");
	}
	return ret;
}

/* Nothing is written any more: the zones may go back at once. */
static void abort_lease(struct job *j)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;

	req.has_abort = req.abort = 1;
	if (!zns_broker_call(&j->b, &req, &r, NULL))
		zns_pb__response__free_unpacked(r, NULL);
}

static int commit(struct job *j, const struct zns_mover_params *p, ZnsPb__Checkpoint *c, struct zns_err *err)
{
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	ZnsPb__Response *r;
	ZnsPb__CompactStep q = ZNS_PB__COMPACT_STEP__INIT;
	int ret = 0;

	/* A flush of the whole device takes every writer's time: rather between two dumps, but not never. */
	q.has_flush = q.flush = 1;
	if (!p->dev->ops->flush_zones)
		ret = ask(j, &q, FLUSH_PATIENCE_MS, false, err);
	if (!ret)
		ret = zns_mover_durable(p, c, err);
	if (ret)
		return ret;
	req.compact_commit = c;
	ret = zns_broker_call(&j->b, &req, &r, err);
	if (!ret)
		zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

static int move(struct job *j, const uint8_t *id, struct zns_bucket *bucket, struct zns_err *err)
{
	struct zns_mover_params p = { .dev = j->x->s.dev, .bucket = bucket, .victims = j->x->victims,
				      .nr_victims = j->x->nr_victims, .zone_group = j->x->zone_group,
				      .zone_get = zone_get, .step = step, .arg = j };
	ZnsPb__Checkpoint *c = NULL;
	ZnsPb__Response *r = NULL;
	uint64_t bytes = 0;
	int ret = begin(j, id, &r, err);

	if (ret)
		return ret;
	p.c = r->checkpoints[0];
	ret = zns_mover_run(&p, &c, &bytes, err);
	if (!ret)
		ret = commit(j, &p, c, err);
	if (!ret)
		j->x->moved_bytes += bytes;
	else if (ret != -EPIPE)
		abort_lease(j);
	if (c)
		zns_pb__checkpoint__free_unpacked(c, NULL);
	zns_pb__response__free_unpacked(r, NULL);
	return ret;
}

static int move_one(struct compact *x, const ZnsPb__Checkpoint *c, struct zns_bucket *bucket, bool defer,
		    struct zns_err *err)
{
	struct job j = { .x = x, .b = { .fd = -1 }, .defer = defer };
	int ret;

	for (size_t i = 0; i < c->n_zones; i++)
		for (uint32_t k = 0; k < x->nr_victims; k++)
			if (c->zones[i]->zone == x->victims[k])
				j.total += c->zones[i]->len;
	if (!j.total)
		return -ENODATA;
	for (int n = 0;; n++) {
		int writers = -1;

		/*
		 * A connection is a lease: the old zones are let go with it. The lock makes a new broker wait until we are
		 * gone, as for dumps; so it is not held while we connect, which may start one.
		 */
		ret = zns_broker_connect(&x->s.reg, &j.b, err);
		if (!ret)
			ret = zns_broker_lock_shared(x->s.reg.uuid, "writers", &writers, err);
		if (!ret)
			ret = move(&j, c->id.data, bucket, err);
		zns_broker_close(&j.b);
		if (writers >= 0)
			close(writers);
		if ((ret != -ECANCELED && ret != -EBUSY) || n == TRIES || x->background)
			return ret;
		j.told = 0;
		nap(RETRY_MS);
	}
}

static bool uses_zone(const ZnsPb__Checkpoint *c, uint32_t zone)
{
	for (size_t i = 0; i < c->n_zones; i++)
		if (c->zones[i]->zone == zone)
			return true;
	return false;
}

/* -EAGAIN: later; else it is done with, as far as that goes. Not 0: all of it ends. */
static int account(struct compact *x, int ret, const struct zns_err *e)
{
	switch (ret) {
	case 0:
		x->moved++;
		return 0;
	case -EAGAIN:
		return ret;
	case -ESTALE:
	case -ENOENT:
	case -ENODATA:
		x->gone++;
		return 0;
	case -EBUSY:
	case -ECANCELED:
	case -ENOSPC:
		if (!x->given_up++)
			snprintf(x->why, sizeof(x->why), "%s", e->msg);
		return 0;
	}
	return ret;		/* not a matter of time or room */
}

/*
 * The least live data first: its zones are free first, and may be what the next ones need. At first those where nobody
 * works, then the others, waiting for them.
 */
static int run_all(struct compact *x, struct zns_bucket *bucket, struct zns_err *err)
{
	cleanup_free bool *done = calloc(x->ls->n_checkpoints + 1, sizeof(*done));

	if (!done)
		return zns_fail(err, -ENOMEM, "no memory for %zu checkpoints", x->ls->n_checkpoints);
	for (uint32_t v = 0; v < 2 * x->nr_victims; v++) {
		for (size_t i = 0; i < x->ls->n_checkpoints; i++) {
			const ZnsPb__Checkpoint *c = x->ls->checkpoints[i];
			struct zns_err e = ZNS_ERR_INIT;
			int ret;

			if (done[i] || !uses_zone(c, x->victims[v % x->nr_victims]))
				continue;
			ret = account(x, move_one(x, c, bucket, v < x->nr_victims, &e), &e);
			done[i] = ret != -EAGAIN;
			if (ret && ret != -EAGAIN) {
				*err = e;
				return ret;
			}
		}
	}
	return 0;
}

/* What became of it: the zones that it emptied, less those that were empty and have what was moved. */
static int count(struct compact *x, struct zns_err *err)
{
	ZnsPb__Request reset = ZNS_PB__REQUEST__INIT, zones = ZNS_PB__REQUEST__INIT;
	ZnsPb__ZonesReset all = ZNS_PB__ZONES_RESET__INIT;
	uint32_t won = 0, begun = 0;
	ZnsPb__Response *r;
	int ret;

	reset.reset = &all;
	zones.has_zones = zones.zones = 1;
	ret = zns_broker_call(&x->s.broker, &reset, &x->reset, err);
	if (!ret)
		ret = zns_broker_call(&x->s.broker, &zones, &r, err);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < x->nr_victims; i++) {
		uint32_t zone = x->victims[i];

		x->emptied[zone] = zone < r->n_zones && !r->zones[zone]->live;
		won += x->emptied[zone] && r->zones[zone]->state == ZNS_ZONE_EMPTY;
	}
	for (size_t i = 0; i < x->zones->n_zones; i++)
		begun += x->written[i] && x->zones->zones[i]->state == ZNS_ZONE_EMPTY;
	x->freed = won > begun ? won - begun : 0;
	zns_pb__response__free_unpacked(r, NULL);
	return 0;
}

int compact_run(struct compact *x, struct zns_err *err)
{
	struct zns_bucket *bucket = NULL;
	int ret;

	if (!x->nr_victims)
		return 0;
	zns_dev_close(x->s.dev);
	x->s.dev = NULL;
	ret = zns_dev_open(x->s.reg.path, 0, &x->s.dev, err);
	if (!ret && x->rate_mibps) {
		bucket = zns_bucket_new();
		if (!bucket)
			ret = zns_fail(err, -ENOMEM, "no memory for a token bucket");
		else
			zns_bucket_set(bucket, x->rate_mibps);
	}
	if (!ret) {
		ctl_progress_start(&x->prog, "compacting", x->plan.live);
		ret = run_all(x, bucket, err);
		ctl_progress_end(&x->prog);
	}
	zns_bucket_free(bucket);
	return ret ? ret : count(x, err);
}

int compact_all(struct compact *x, const char *spec, struct zns_err *err)
{
	int ret = ctl_session_open(&x->s, spec, err);

	if (!ret)
		ret = compact_plan(x, err);
	if (!ret && !x->dry_run)
		ret = compact_run(x, err);
	return ret;
}
