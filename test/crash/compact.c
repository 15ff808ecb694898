// SPDX-License-Identifier: GPL-2.0-only
/* Compaction as znsctl does it, with the broker's code in this process: see load.h. */
#include <stdlib.h>
#include <string.h>
#include "load.h"
#include "zns/compact.h"
#include "zns/mover.h"

struct move {
	struct znsd *d;
	struct conn conn;
	const uint32_t *victims;
	uint32_t nr;
};

static int zone_get(void *arg, uint32_t group, uint64_t need, const uint32_t *done, uint32_t nr_done,
		    struct zns_zone_slot *out, struct zns_err *err)
{
	struct move *m = arg;
	ZnsPb__CompactZone q = ZNS_PB__COMPACT_ZONE__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct reply rep;
	int ret;

	q.group = group;
	q.need = need;
	q.not_zones = (uint32_t *)m->victims;
	q.n_not_zones = m->nr;
	q.done_zones = (uint32_t *)done;
	q.n_done_zones = nr_done;
	req.compact_zone = &q;
	ret = load_ask(m->d, &m->conn, &req, &rep, err);
	if (!ret)
		*out = (struct zns_zone_slot){ .zone = rep.r.zone->zone, .group = rep.r.zone->group,
					       .start = rep.r.zone->start, .capacity = rep.r.zone->capacity };
	reply_free(&rep);
	return ret;
}

static int step(void *arg, const uint32_t *groups, uint32_t nr, uint64_t bytes, struct zns_err *err)
{
	struct move *m = arg;
	ZnsPb__CompactStep q = ZNS_PB__COMPACT_STEP__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct reply rep;
	int ret;

	q.groups = (uint32_t *)groups;
	q.n_groups = nr;
	req.compact_step = &q;
	ret = load_ask(m->d, &m->conn, &req, &rep, err);
	reply_free(&rep);
	return ret;
}

static ZnsPb__Checkpoint *copy(const ZnsPb__Checkpoint *c)
{
	size_t n = zns_pb__checkpoint__get_packed_size(c);
	cleanup_free uint8_t *buf = malloc(n + 1);

	zns_pb__checkpoint__pack(c, buf);
	return zns_pb__checkpoint__unpack(NULL, n, buf);
}

static int begin(struct move *m, const uint8_t *id, ZnsPb__Checkpoint **now, struct zns_err *err)
{
	ZnsPb__CompactBegin q = ZNS_PB__COMPACT_BEGIN__INIT;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct reply rep;
	int ret;

	q.checkpoint.data = (uint8_t *)id;
	q.checkpoint.len = ZNS_UUID_LEN;
	req.compact_begin = &q;
	ret = load_ask(m->d, &m->conn, &req, &rep, err);
	if (!ret)
		*now = copy(rep.r.checkpoints[0]);
	reply_free(&rep);
	return ret;
}

/* What the control does wrong: the old zones go before anybody has said that they may. */
static void reset_early(struct znsd *d, struct trace *t, const ZnsPb__Checkpoint *now, const struct move *m)
{
	for (size_t i = 0; i < now->n_zones; i++)
		for (uint32_t k = 0; k < m->nr; k++)
			if (now->zones[i]->zone == m->victims[k] &&
			    zone_live(d, m->victims[k]) == now->zones[i]->len) {
				t->omitted++;
				zns_dev_reset(d->dev, &m->victims[k], 1, NULL);
			}
}

static int move(struct znsd *d, struct trace *t, struct move *m, const uint8_t *id, const uint32_t *zone_group,
		int (*meanwhile)(void *arg, struct znsd *d, struct zns_err *err), void *arg, struct zns_err *err)
{
	struct zns_mover_params p = { .dev = d->dev, .victims = m->victims, .nr_victims = m->nr, .zone_group = zone_group,
				      .zone_get = zone_get, .step = step, .arg = m };
	ZnsPb__Checkpoint *now = NULL, *next = NULL;
	ZnsPb__Request req = ZNS_PB__REQUEST__INIT;
	struct reply rep;
	uint64_t bytes;
	int ret = begin(m, id, &now, err);

	p.c = now;
	if (!ret)
		ret = zns_mover_run(&p, &next, &bytes, err);
	if (!ret) {
		t->moving = true;
		ret = zns_mover_durable(&p, next, err);
		t->moving = false;
	}
	if (!ret)
		ret = meanwhile(arg, d, err);
	if (!ret && t->omit == OMIT_ORDER)
		reset_early(d, t, now, m);
	if (!ret) {
		req.compact_commit = next;
		ret = load_ask(d, &m->conn, &req, &rep, err);
		reply_free(&rep);
	}
	leases_of_conn_lost(d, &m->conn, &(int){ -1 });
	if (now)
		zns_pb__checkpoint__free_unpacked(now, NULL);
	if (next)
		zns_pb__checkpoint__free_unpacked(next, NULL);
	return ret;
}

static uint32_t plan(struct znsd *d, uint32_t percent, uint32_t *victims, struct zns_err *err)
{
	cleanup_free struct zns_compact_zone *z = calloc(d->nr_zones, sizeof(*z));
	struct zns_compact_plan p;
	uint32_t n = 0;

	zones_refresh(d, 0, d->nr_zones, NULL);
	for (uint32_t i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *zn = &d->zones[i];
		const char *owner = zone_packed(d, i) ? "(pack)" : zns_store_zone_owner(d->store, i);

		z[i] = (struct zns_compact_zone){
			.index = i, .group = zn->group, .owner = owner ? (uint32_t)zns_hash(owner, strlen(owner)) : 0,
			.capacity = zn->z.capacity, .wp = zn->z.wp, .live = zone_live(d, i), .extra = 2 * 4096,
			.empty = zone_empty(d, i), .parked = zone_parked(d, i), .fixed = !zone_usable(zn) || zn->writer,
		};
	}
	if (zns_compact_plan(z, d->nr_zones, percent, &p, err))
		return 0;
	for (uint32_t i = 0; i < p.nr; i++)
		for (uint32_t k = 0; k < p.v[i].nr && !p.v[i].blocked; k++)
			victims[n++] = p.v[i].victims[k];
	zns_compact_plan_fini(&p);
	return n;
}

/* Nothing to win on devices this small: then any zone with live data, as if it were worth it. */
static uint32_t any_victim(const struct znsd *d, struct load *l, uint32_t *victims)
{
	for (uint32_t i = 0, from = (uint32_t)load_rnd(&l->rng, d->nr_zones); i < d->nr_zones; i++) {
		uint32_t zone = (from + i) % d->nr_zones;

		if (zone_live(d, zone) && !d->zones[zone].writer && zone_usable(&d->zones[zone])) {
			*victims = zone;
			return 1;
		}
	}
	return 0;
}

static bool in_victims(const ZnsPb__Checkpoint *c, const uint32_t *victims, uint32_t nr)
{
	for (size_t i = 0; i < c->n_zones; i++)
		for (uint32_t k = 0; k < nr; k++)
			if (c->zones[i]->zone == victims[k])
				return true;
	return false;
}

int load_compact(struct znsd *d, struct trace *t, struct load *l, uint32_t percent,
		 int (*meanwhile)(void *arg, struct znsd *d, struct zns_err *err), void *arg, struct zns_err *err)
{
	cleanup_free uint32_t *victims = calloc(d->nr_zones, sizeof(*victims));
	cleanup_free uint32_t *groups = calloc(d->nr_zones, sizeof(*groups));
	uint32_t nr;
	int ret = 0;

	broker_idle(d);
	nr = plan(d, percent, victims, err);
	if (!nr)
		nr = any_victim(d, l, victims);
	for (uint32_t i = 0; i < d->nr_zones; i++)
		groups[i] = d->zones[i].group;
	for (uint32_t i = 0; i < l->nr && nr && !ret; i++) {
		const ZnsPb__Checkpoint *c = l->ckpt[i].begun == LOAD_NEVER ? NULL : zns_store_find(d->store, l->ckpt[i].id);
		struct move m = { .d = d, .victims = victims, .nr = nr };

		if (!c || !in_victims(c, victims, nr))
			continue;
		ret = move(d, t, &m, l->ckpt[i].id, groups, meanwhile, arg, err);
		l->moves += !ret;
		/* Removed while it was being moved; or no room for it now. */
		if (ret == -ESTALE || ret == -ENOSPC || ret == -EBUSY || ret == -ECANCELED)
			ret = 0;
	}
	for (uint32_t i = 0; i < nr; i++)
		l->moved_zones += !zone_live(d, victims[i]);
	return ret;
}
