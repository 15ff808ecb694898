// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compaction: a client copies what is live in zones with little of it to other zones, one checkpoint at a time, and the
 * record of its new places replaces the old one. Here is what that client may do: which zones it gets, when it must
 * wait or give up because somebody else has work to do, and whether what it says it moved is its to move. The zones
 * that are left without live data go the way of all garbage, once nobody reads them any more.
 */
#include <string.h>
#include "../znsd.h"

#define WAIT_MS 20	/* until it looks again whether the groups are idle */

uint32_t compact_zones(const struct znsd *d)
{
	const struct lease *l;
	uint32_t n = 0;

	for (l = d->leases; l; l = l->next)
		if (l->background && l->dump)
			n += lease_unfull(d, l);
	return n;
}

static struct lease *compact_of(struct znsd *d, const struct conn *c, struct zns_err *err)
{
	struct lease *l = lease_of(d, c);

	if (l && l->background)
		return l;
	zns_fail(err, -EINVAL, "no compaction on this connection");
	return NULL;
}

/* Who joins or flattens it writes its next version himself, from the places that it has now. */
static int check_rewritten(const struct znsd *d, const uint8_t *id, struct zns_err *err)
{
	const struct lease *l;
	char text[ZNS_UUID_STR];

	for (l = d->leases; l; l = l->next)
		if (l->dump && (l->joins || l->flatten) && !memcmp(l->id, id, ZNS_UUID_LEN))
			return zns_fail(err, -ECANCELED, "checkpoint %s is being %s by PID %u", zns_uuid_format(id, text),
					l->joins ? "joined" : "flattened", l->pid);
	return 0;
}

int handle_compact_begin(struct znsd *d, struct conn *c, const ZnsPb__CompactBegin *q, struct reply *rep)
{
	const ZnsPb__Checkpoint *k;
	struct lease *r, *l;

	if (lease_of(d, c))
		return zns_fail(&rep->err, -EBUSY, "this connection has a dump or a compaction already");
	for (l = d->leases; l; l = l->next)
		if (l->background && l->dump && q->checkpoint.len == ZNS_UUID_LEN &&
		    !memcmp(l->id, q->checkpoint.data, ZNS_UUID_LEN))
			return zns_fail(&rep->err, -EBUSY, "this checkpoint is being moved by PID %u", l->pid);
	if (q->checkpoint.len == ZNS_UUID_LEN && parent_in_use(d, q->checkpoint.data))
		return zns_fail(&rep->err, -ECANCELED, "a dump that is running has this checkpoint as its parent");
	if (q->checkpoint.len == ZNS_UUID_LEN && check_rewritten(d, q->checkpoint.data, &rep->err))
		return rep->err.code;
	r = restore_lease(d, c, &q->checkpoint, rep);
	if (!r)
		return rep->err.code;
	r->background = true;
	k = rep->r.checkpoints[0];
	l = lease_new(d, c, true, k->container, k->id.data);
	l->background = l->dynamic = true;
	l->packed = k->packed;
	l->moved = k->moved;
	return 0;
}

/* ---- zones to move to ---- */

static bool listed(const uint32_t *v, size_t nr, uint32_t zone)
{
	while (nr--)
		if (v[nr] == zone)
			return true;
	return false;
}

/* Of the zones that take it whole the fullest: the others keep their room for dumps. */
static uint32_t find_parked(const struct znsd *d, const struct lease *l, uint32_t group, const ZnsPb__CompactZone *q)
{
	const struct zn_group *g = &d->groups[group];
	uint32_t best = ZNSD_NONE, need = (uint32_t)zns_min(q->need, (uint64_t)UINT32_MAX), i;

	for (i = 0; i < g->nr_zones; i++) {
		uint32_t zone = g->zones[i];
		const struct zns_zone *z = &d->zones[zone].z;

		if (listed(q->not_zones, q->n_not_zones, zone) || z->capacity - zns_min(z->wp, z->capacity) < q->need)
			continue;
		if (!(l->packed ? zone_parked_pack(d, zone, need) : zone_parked_for(d, zone, l->container, need)))
			continue;
		if (best == ZNSD_NONE || z->wp > d->zones[best].z.wp)
			best = zone;
	}
	return best;
}

/* Dumps that run must not find the last zones gone. */
static uint32_t empty_to_spare(const struct znsd *d)
{
	const struct lease *l;
	uint32_t n = 0, keep = 0, i;

	for (i = 0; i < d->nr_zones; i++)
		n += zone_empty(d, i) && !d->groups[d->zones[i].group].io;
	for (l = d->leases; l; l = l->next)
		if (l->dump && !l->background)
			keep += l->width;
	return n > keep ? n - keep : 0;
}

static uint32_t find_in(struct znsd *d, const struct lease *l, uint32_t group, const ZnsPb__CompactZone *q)
{
	uint32_t zone;

	if (d->groups[group].io || !d->groups[group].nr_zones)
		return ZNSD_NONE;
	zone = find_parked(d, l, group, q);
	if (zone == ZNSD_NONE && empty_to_spare(d))
		zone = find_empty_zone(d, &d->groups[group], q->not_zones, q->n_not_zones);
	return zone != ZNSD_NONE && d->zones[zone].z.capacity - d->zones[zone].z.wp >= q->need ? zone : ZNSD_NONE;
}

/* In the group where it is; else where the container is at home; else where nobody else is. */
static uint32_t find_target(struct znsd *d, const struct lease *l, const ZnsPb__CompactZone *q)
{
	cleanup_free struct zns_group_state *gs = NULL;
	cleanup_free uint32_t *order = NULL;
	const ZnsPb__Reservation *own;
	uint32_t zone = find_in(d, l, q->group, q), n, i, pass;

	if (zone != ZNSD_NONE)
		return zone;
	gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	order = znsd_alloc(d->nr_groups * sizeof(*order));
	groups_state(d, l->container, l, gs);
	for (i = 0; i < d->nr_groups; i++)
		gs[i].free_zones += l->packed;	/* what it may continue is not its container's */
	n = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, order);
	own = zns_store_find_reservation(d->store, l->container);
	for (pass = 0; pass < 2; pass++)
		for (i = 0; i < n && zone == ZNSD_NONE; i++)
			if (pass ? !gs[order[i]].nr_reservations && !gs[order[i]].nr_leases : reserved_by(own, order[i]))
				zone = find_in(d, l, order[i], q);
	return zone;
}

/* One more zone is written: only what no dump was promised. */
static int check_budget(struct znsd *d, uint32_t zone, struct zns_err *err)
{
	uint32_t total = budget_total(d), max = d->dev->geo.max_active, batch[ZNSD_RESET_BATCH], n = 0, i;

	if (budget_used(d) >= total)
		return zns_fail(err, -EBUSY, "all %u zones that %s may have open are in use", total, d->reg.path);
	if (!max || zns_zone_is_active(d->zones[zone].z.state))
		return 0;
	max -= zns_min(max, meta_zones(d, false));
	if (zones_active(d) < max)
		return 0;
	for (i = 0; i < d->nr_zones && n < ZNSD_RESET_BATCH; i++)
		if (zns_zone_is_active(d->zones[i].z.state) && zone_garbage(d, i))
			batch[n++] = i;
	zones_reset(d, batch, n, NULL);
	if (zones_active(d) < max)
		return 0;
	return zns_fail(err, -EBUSY, "all %u zones that %s may have active are in use", max, d->reg.path);
}

static void note_done(struct znsd *d, struct lease *l, const uint32_t *zones, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct lease_zone *lz = lease_zone_find(l, zones[i]);

		if (!lz || lz->done)
			continue;
		lz->done = true;
		if (!zones_refresh(d, zones[i], 1, NULL) && zns_zone_is_open(d->zones[zones[i]].z.state) &&
		    !zns_dev_close_zone(d->dev, zones[i], NULL))
			zones_refresh(d, zones[i], 1, NULL);
	}
}

int handle_compact_zone(struct znsd *d, struct conn *c, const ZnsPb__CompactZone *q, struct reply *rep)
{
	struct lease *l = compact_of(d, c, &rep->err);
	ZnsPb__ZoneGrant *g;
	uint32_t zone;
	int ret;

	if (!l)
		return rep->err.code;
	if (q->group >= d->nr_groups || q->need > d->dev->geo.zone_capacity)
		return zns_fail(&rep->err, -EINVAL, "no zone of group %u takes %llu bytes", q->group,
				(unsigned long long)q->need);
	note_done(d, l, q->done_zones, q->n_done_zones);
	for (uint32_t i = 0; i < l->nr_zones; i++)
		zones_refresh(d, l->zones[i].zone, 1, NULL);
	zone = find_target(d, l, q);
	if (zone == ZNSD_NONE && readers_check(d))
		zone = find_target(d, l, q);
	if (zone == ZNSD_NONE)
		return zns_fail(&rep->err, -ENOSPC, "no zone is free to move %llu bytes of %s out of group %u",
				(unsigned long long)q->need, l->container, q->group);
	ret = check_budget(d, zone, &rep->err);
	if (ret)
		return ret;
	if (!lease_zone_find(l, zone))
		lease_zone_add(d, l, zone, d->zones[zone].z.wp);
	g = reply_alloc(rep, sizeof(*g));
	zns_pb__zone_grant__init(g);
	g->zone = zone;
	g->start = d->zones[zone].z.wp;
	g->capacity = d->zones[zone].z.capacity;
	g->group = d->zones[zone].group;
	rep->r.zone = g;
	return 0;
}

/* ---- giving way ---- */

static bool near(const struct znsd *d, uint32_t a, uint32_t b)
{
	return a == b || (d->groups[a].channel >= 0 && d->groups[a].channel == d->groups[b].channel);
}

/* Is a dump or a restore at work on the group, or on its channel? */
static bool busy(const struct znsd *d, uint32_t group)
{
	const struct lease *l;
	uint32_t i;

	for (l = d->leases; l; l = l->next) {
		if (l->background)
			continue;
		for (i = 0; i < l->nr_groups; i++)
			if (near(d, l->groups[i], group))
				return true;
		for (i = 0; l->dump && i < l->nr_zones; i++)
			if (!l->zones[i].done && !l->zones[i].bad && near(d, d->zones[l->zones[i].zone].group, group))
				return true;
	}
	return false;
}

int handle_compact_step(struct znsd *d, struct conn *c, const ZnsPb__CompactStep *q, struct reply *rep)
{
	struct lease *l = compact_of(d, c, &rep->err), *o;
	size_t i;

	if (!l)
		return rep->err.code;
	l->bytes = q->bytes;
	l->total = q->total;
	l->seen_ns = zns_mono_ns();
	if (d->compact_yield && compact_zones(d))
		return zns_fail(&rep->err, -ECANCELED, "a dump needs the zones that this compaction writes");
	rep->r.has_wait_ms = 1;
	for (o = d->leases; q->has_flush && q->flush && o; o = o->next)
		if (o->dump && !o->background)
			rep->r.wait_ms = WAIT_MS;
	for (i = 0; i < q->n_groups; i++) {
		if (q->groups[i] >= d->nr_groups)
			return zns_fail(&rep->err, -EINVAL, "no group %u", q->groups[i]);
		if (busy(d, q->groups[i]))
			rep->r.wait_ms = WAIT_MS;
	}
	return 0;
}

/* ---- commit ---- */

/* What it had before, or part of it; or what this lease wrote. In order, so that nothing is named twice. */
static int check_use(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *now, const ZnsPb__ZoneUse *u,
		     struct zns_err *err)
{
	struct lease_zone *lz = lease_zone_find(l, u->zone);
	size_t i;

	if (u->zone < d->nr_zones && u->len) {
		for (i = 0; i < now->n_zones; i++) {
			const ZnsPb__ZoneUse *o = now->zones[i];

			if (o->zone == u->zone && u->start >= o->start && u->len <= o->len &&
			    u->start - o->start <= o->len - u->len)
				return 0;
		}
		if (lz && u->start >= lz->start && u->start <= d->zones[u->zone].z.wp &&
		    u->len <= d->zones[u->zone].z.wp - u->start)
			return 0;
	}
	return zns_fail(err, -EINVAL, "compaction: bytes %llu+%llu of zone %u are neither the checkpoint's nor were they written",
			(unsigned long long)u->start, (unsigned long long)u->len, u->zone);
}

static int check_record(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *now, const ZnsPb__Checkpoint *q,
			struct zns_err *err)
{
	struct lease_zone *lz;
	int ret;

	if (!q->n_zones || !q->manifest || q->id.len != ZNS_UUID_LEN || memcmp(q->id.data, l->id, ZNS_UUID_LEN))
		return zns_fail(err, -EINVAL, "compaction: not the checkpoint that was asked for, or without zones");
	for (size_t i = 0; i < q->n_zones; i++) {
		const ZnsPb__ZoneUse *u = q->zones[i], *prev = i ? q->zones[i - 1] : NULL;

		ret = check_use(d, l, now, u, err);
		if (ret)
			return ret;
		if (prev && (prev->zone > u->zone || (prev->zone == u->zone && prev->start + prev->len > u->start)))
			return zns_fail(err, -EINVAL, "compaction: the zone uses are not in order");
	}
	lz = lease_zone_find(l, q->manifest->zone);
	if (!lz || q->manifest->start < lz->start)
		return zns_fail(err, -EINVAL, "compaction: the manifest is not where this lease wrote");
	return 0;
}

static void add_once(uint32_t *v, size_t *nr, uint32_t x)
{
	if (!listed(v, *nr, x))
		v[(*nr)++] = x;
}

/* Groups of the zones: first those that it had, in their order. */
static void set_groups(const struct znsd *d, const ZnsPb__Checkpoint *now, ZnsPb__Checkpoint *k, uint32_t *groups)
{
	size_t nr = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < k->n_zones; i++) {
			uint32_t g = d->zones[k->zones[i]->zone].group;

			if (pass || listed(now->groups, now->n_groups, g))
				add_once(groups, &nr, g);
		}
	k->groups = groups;
	k->n_groups = nr;
}

uint32_t *old_manifests(const struct znsd *d, const ZnsPb__Checkpoint *now, size_t *nr)
{
	uint32_t *old = znsd_alloc((now->n_old_manifests + 1) * sizeof(*old));

	*nr = 0;
	for (size_t i = 0; i < now->n_old_manifests; i++)
		if (now->old_manifests[i] < d->nr_zones && zone_live(d, now->old_manifests[i]))
			add_once(old, nr, now->old_manifests[i]);
	add_once(old, nr, now->manifest->zone);
	return old;
}

int handle_compact_commit(struct znsd *d, struct conn *c, const ZnsPb__Checkpoint *q, struct reply *rep)
{
	struct lease *l = compact_of(d, c, &rep->err);
	const ZnsPb__Checkpoint *now = l ? zns_store_find(d->store, l->id) : NULL;
	cleanup_free uint32_t *groups = NULL, *meta = NULL, *old = NULL;
	char id[ZNS_UUID_STR];
	ZnsPb__Checkpoint k;
	size_t i;
	int ret;

	if (!l)
		return rep->err.code;
	if (!now)
		return zns_fail(&rep->err, -ESTALE, "checkpoint %s was removed meanwhile", zns_uuid_format(l->id, id));
	if (now->moved != l->moved)
		return zns_fail(&rep->err, -ESTALE, "checkpoint %s was moved by somebody else", zns_uuid_format(l->id, id));
	if (parent_in_use(d, l->id))
		return zns_fail(&rep->err, -ECANCELED, "a dump that is running has this checkpoint as its parent");
	ret = check_rewritten(d, l->id, &rep->err);
	if (ret)
		return ret;
	for (i = 0; i < l->nr_zones; i++) {
		ret = zones_refresh(d, l->zones[i].zone, 1, &rep->err);
		if (ret)
			return ret;
	}
	ret = check_record(d, l, now, q, &rep->err);
	if (ret)
		return ret;
	/* Everything else is as it was: only places are taken from the client. */
	k = *now;
	k.zones = q->zones;
	k.n_zones = q->n_zones;
	k.manifest = q->manifest;
	k.has_moved = k.has_moved_ns = 1;
	k.moved = now->moved + 1;
	k.moved_ns = q->moved_ns;
	groups = znsd_alloc((k.n_zones + 1) * sizeof(*groups));
	set_groups(d, now, &k, groups);
	meta = znsd_alloc((now->n_metadata_groups + 1) * sizeof(*meta));
	k.metadata_groups = meta;
	k.n_metadata_groups = 0;
	for (i = 0; i < now->n_metadata_groups; i++)
		if (listed(groups, k.n_groups, now->metadata_groups[i]))
			meta[k.n_metadata_groups++] = now->metadata_groups[i];
	old = old_manifests(d, now, &k.n_old_manifests);
	k.old_manifests = old;
	note_ours(d, now);
	ret = zns_store_move(d->store, &k, &rep->err);
	if (ret)
		return ret;
	d->sweep = true;
	lease_end(d, l);
	return 0;
}
