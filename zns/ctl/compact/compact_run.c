/* SPDX-License-Identifier: GPL-2.0-only */
/* Executes a compaction, one checkpoint after the other: lease, copy, flush, new record. */
#include <string.h>
#include <time.h>
#include "compaction.h"
#include "zns/move.h"

#define TRIES 50 /* most tries for one checkpoint, if dumps take the zones first */
#define RETRY_MS 100

struct job {
	struct zns_move m;
	struct zns_session s; /* its connection holds the lease */
	struct compact *x;
	uint64_t told; /* bytes that the progress line already counts */
};

static void tell(void *arg, uint64_t bytes)
{
	struct job *j = arg;

	ctl_progress_add(&j->x->prog, bytes > j->told ? bytes - j->told : 0);
	j->told = zns_max(j->told, bytes);
}

static int move(struct job *j, const uint8_t *id, struct zns_err *err)
{
	/*
	 * connect without the writers' lock: a new broker waits for that lock, as it waits for
	 * dumps, so holding it here would deadlock
	 */
	int ret = zns_session_connect(&j->s, &j->x->s.reg, ZNS_WRITES, err);

	if (ret)
		return ret;
	ret = zns_move_copy(&j->m, id, err);
	if (!ret)
		ret = zns_move_durable(&j->m, err);
	if (!ret)
		ret = zns_move_commit(&j->m, err);
	if (!ret)
		j->x->moved_bytes += j->m.bytes;
	else if (ret != -EPIPE)
		zns_move_abort(&j->m);
	zns_move_end(&j->m);
	zns_session_close(&j->s);
	return ret;
}

int compact_move(struct compact *x, const ZnsPb__Checkpoint *c, struct zns_bucket *bucket,
		 const uint32_t *to_group, bool defer, struct zns_err *err)
{
	struct job j = { .x = x, .s = ZNS_SESSION_INIT };
	int ret;

	j.m = (struct zns_move){ .s = &j.s,
				 .dev = x->s.dev,
				 .bucket = bucket,
				 .rate_mibps = x->rate_mibps,
				 .charged = x->charged,
				 .weight = x->weight,
				 .victims = x->victims,
				 .nr_victims = x->nr_victims,
				 .to_group = to_group,
				 .below = x->keep,
				 .zone_group = x->zone_group,
				 .written = x->written,
				 .rude = x->rude,
				 .defer = defer,
				 .tell = tell,
				 .arg = &j };
	for (size_t i = 0; i < c->n_zones; i++)
		for (uint32_t k = 0; k < x->nr_victims; k++)
			if (c->zones[i]->zone == x->victims[k])
				j.m.total += c->zones[i]->len;
	if (!j.m.total)
		return -ENODATA;
	for (int n = 0;; n++) {
		ret = move(&j, c->id.data, err);
		if ((ret != -ECANCELED && ret != -EBUSY) || n == TRIES)
			break;
		j.told = 0;
		nanosleep(&(struct timespec){ .tv_nsec = RETRY_MS * 1000000l }, NULL);
	}
	x->waited_ns += j.m.waited_ns;
	return ret;
}

static bool uses_zone(const ZnsPb__Checkpoint *c, uint32_t zone)
{
	for (size_t i = 0; i < c->n_zones; i++)
		if (c->zones[i]->zone == zone)
			return true;
	return false;
}

/*
 * Counts the result for one checkpoint. Returns -EAGAIN: try again later; 0: go on; any other error
 * ends the whole run.
 */
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
	return ret; /* neither waiting nor more space would help with the others */
}

/*
 * Moves all checkpoints of the plan. Zones with the least live data come first: they become free
 * soon, and the following moves may need them. Zones in idle groups come before zones in busy
 * groups, which have to be waited for.
 */
static int run_all(struct compact *x, struct zns_bucket *bucket, struct zns_err *err)
{
	cleanup_free bool *done = calloc(x->ls->n_checkpoints + 1, sizeof(*done));

	if (!done)
		return zns_fail(err, -ENOMEM, "no memory for %zu checkpoints",
				x->ls->n_checkpoints);
	for (uint32_t v = 0; v < 2 * x->nr_victims; v++) {
		for (size_t i = 0; i < x->ls->n_checkpoints; i++) {
			const ZnsPb__Checkpoint *c = x->ls->checkpoints[i];
			struct zns_err e = ZNS_ERR_INIT;
			int ret;

			if (done[i] || !uses_zone(c, x->victims[v % x->nr_victims]))
				continue;
			ret = account(x, compact_move(x, c, bucket, NULL, v < x->nr_victims, &e),
				      &e);
			done[i] = ret != -EAGAIN;
			if (ret && ret != -EAGAIN) {
				*err = e;
				return ret;
			}
		}
	}
	return 0;
}

/*
 * Counts the result: the zones that became empty, minus formerly empty zones that contain moved
 * data now.
 */
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
	ret = zns_dev_open(x->s.reg.path, ZNS_DEV_SERVED, &x->s.dev, err);
	if (!ret) {
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
	int ret = ctl_session_open(&x->s, spec, ZNS_READS, err);

	if (!ret)
		ret = compact_plan(x, err);
	if (!ret && !x->dry_run)
		ret = compact_run(x, err);
	return ret;
}
