/* SPDX-License-Identifier: GPL-2.0-only */
/* Compaction as znsctl does it, with the broker's code in this process: see load.h. */
#include <stdlib.h>
#include <string.h>
#include "load.h"
#include "zns/compact.h"
#include "zns/move.h"

/* What the control does wrong: the old zones go before anybody has said that they may. */
static void reset_early(struct znsd *d, struct trace *t, const ZnsPb__Checkpoint *now,
			const struct zns_move *m)
{
	for (size_t i = 0; i < now->n_zones; i++)
		for (uint32_t k = 0; k < m->nr_victims; k++)
			if (now->zones[i]->zone == m->victims[k] &&
			    zone_live(d, m->victims[k]) == now->zones[i]->len) {
				t->omitted++;
				zns_dev_reset(d->dev, &m->victims[k], 1, NULL);
			}
}

static int move(struct load_peer *peer, struct trace *t, struct zns_move *m, const uint8_t *id,
		int (*meanwhile)(void *arg, struct znsd *d, struct zns_err *err), void *arg,
		struct zns_err *err)
{
	int ret = zns_move_copy(m, id, err);

	if (!ret) {
		t->moving = true;
		ret = zns_move_durable(m, err);
		t->moving = false;
	}
	if (!ret)
		ret = meanwhile(arg, peer->d, err);
	if (!ret && t->omit == OMIT_ORDER)
		reset_early(peer->d, t, m->answer->checkpoints[0], m);
	if (!ret)
		ret = zns_move_commit(m, err);
	load_hang_up(peer);
	zns_move_end(m);
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
		const char *owner = zone_packed(d, i) ? "(pack)" :
							zns_store_zone_owner(d->store, i);

		z[i] = (struct zns_compact_zone){
			.index = i,
			.group = zn->group,
			.owner = owner ? (uint32_t)zns_hash(owner, strlen(owner)) : 0,
			.capacity = zn->z.capacity,
			.wp = zn->z.wp,
			.live = zone_live(d, i),
			.extra = 2 * 4096,
			.empty = zone_empty(d, i),
			.parked = zone_parked(d, i),
			.fixed = !zone_usable(zn) || zn->writer,
		};
	}
	if (zns_compact_plan_make(z, d->nr_zones, percent, &p, err))
		return 0;
	for (uint32_t i = 0; i < p.nr; i++)
		for (uint32_t k = 0; k < p.v[i].nr && !p.v[i].blocked; k++)
			victims[n++] = p.v[i].victims[k];
	zns_compact_plan_fini(&p);
	return n;
}

/* Compaction gains nothing on devices this small, so take any zone with live data as a victim. */
static uint32_t any_victim(const struct znsd *d, struct load *l, uint32_t *victims)
{
	for (uint32_t i = 0, from = (uint32_t)load_rnd(&l->rng, d->nr_zones); i < d->nr_zones;
	     i++) {
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

/* Every other time compacts as a defragmentation does: all data of a zone go to one given group. */
static bool targets(const struct znsd *d, struct load *l, uint32_t nr, uint32_t *to)
{
	if (load_rnd(&l->rng, 2))
		return false;
	for (uint32_t i = 0; i < nr; i++)
		to[i] = (uint32_t)load_rnd(&l->rng, d->nr_groups);
	return true;
}

int load_compact(struct znsd *d, struct trace *t, struct load *l, uint32_t percent,
		 int (*meanwhile)(void *arg, struct znsd *d, struct zns_err *err), void *arg,
		 struct zns_err *err)
{
	cleanup_free uint32_t *victims = calloc(d->nr_zones, sizeof(*victims));
	cleanup_free uint32_t *groups = calloc(d->nr_zones, sizeof(*groups));
	cleanup_free uint32_t *to = calloc(d->nr_zones, sizeof(*to));
	uint32_t nr;
	int ret = 0;

	broker_idle(d);
	nr = plan(d, percent, victims, err);
	if (!nr)
		nr = any_victim(d, l, victims);
	for (uint32_t i = 0; i < d->nr_zones; i++)
		groups[i] = d->zones[i].group;
	for (uint32_t i = 0; i < l->nr && nr && !ret; i++) {
		const ZnsPb__Checkpoint *c = l->ckpt[i].begun == LOAD_NEVER ?
						     NULL :
						     zns_store_find(d->store, l->ckpt[i].id);
		bool defrag = targets(d, l, nr, to);
		struct load_peer peer;
		struct zns_move m = { .s = &peer.s,
				      .dev = d->dev,
				      .victims = victims,
				      .nr_victims = nr,
				      .to_group = defrag ? to : NULL,
				      .zone_group = groups,
				      .rude = true };

		if (!c || !in_victims(c, victims, nr))
			continue;
		load_connect(&peer, d);
		ret = move(&peer, t, &m, l->ckpt[i].id, meanwhile, arg, err);
		l->moves += !ret;
		l->defrags += !ret && defrag;
		/* Removed while it was being moved; or no room for it now. */
		if (ret == -ESTALE || ret == -ENOSPC || ret == -EBUSY || ret == -ECANCELED)
			ret = 0;
	}
	for (uint32_t i = 0; i < nr; i++)
		l->moved_zones += !zone_live(d, victims[i]);
	return ret;
}
