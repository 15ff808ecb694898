// SPDX-License-Identifier: GPL-2.0-only
/* The zones of a running dump, its commit and its abort. */
#include <string.h>
#include "../znsd.h"

#define BAD_DIE 2		/* so many zones of a group failed in one dump: it may be the die */

struct search {
	const struct znsd *d;
	struct lease *l;
	const ZnsPb__ZoneGet *q;
	bool suspects;		/* zones where a write failed will do */
};

static bool excluded(const struct search *s, uint32_t zone)
{
	const struct lease_zone *lz = lease_zone_find(s->l, zone);
	size_t i;

	if (lz && (lz->bad || lz->done))
		return true;
	if (s->d->zones[zone].suspect && !s->suspects)
		return true;
	for (i = 0; i < s->q->n_not_zones; i++)
		if (s->q->not_zones[i] == zone)
			return true;
	return false;
}

static bool may_continue(const struct znsd *d, const struct lease *l, uint32_t zone)
{
	return l->packed ? zone_parked_pack(d, zone, l->min_room) : zone_parked_for(d, zone, l->container, l->min_room);
}

/* The container's own parked zone, or a pack zone; of several the one with most room. */
static uint32_t find_parked(struct znsd *d, const struct search *s, const struct zn_group *g)
{
	uint32_t best = ZNSD_NONE, i;
	uint64_t room = 0;

	for (i = 0; i < g->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[g->zones[i]];

		if (!may_continue(d, s->l, g->zones[i]) || excluded(s, g->zones[i]))
			continue;
		if (z->z.capacity - z->z.wp > room) {
			room = z->z.capacity - z->z.wp;
			best = g->zones[i];
		}
	}
	return best;
}

static uint32_t find_empty(struct znsd *d, const struct search *s, struct zn_group *g)
{
	uint32_t i, k;

	for (i = 0; i < g->nr_zones; i++) {
		k = (g->next + i) % g->nr_zones;
		if (zone_empty(d, g->zones[k]) && !excluded(s, g->zones[k])) {
			g->next = (k + 1) % g->nr_zones;
			return g->zones[k];
		}
	}
	return ZNSD_NONE;
}

uint32_t find_empty_zone(struct znsd *d, struct zn_group *g, const uint32_t *not_zones, size_t nr_not)
{
	const ZnsPb__ZoneGet q = { .not_zones = (uint32_t *)not_zones, .n_not_zones = nr_not };
	struct lease none = { .dump = true };

	return find_empty(d, &(struct search){ .d = d, .l = &none, .q = &q }, g);
}

static uint32_t reset_garbage(struct znsd *d, const struct zn_group *g)
{
	uint32_t batch[ZNSD_RESET_BATCH], n = 0, i;

	for (i = 0; i < g->nr_zones && n < ZNSD_RESET_BATCH; i++)
		if (zone_garbage(d, g->zones[i]))
			batch[n++] = g->zones[i];
	return zones_reset(d, batch, n, NULL);
}

static uint32_t find_in_group(struct znsd *d, const struct search *s, uint32_t group)
{
	struct zn_group *g = &d->groups[group];
	uint32_t zone;

	if (!g->nr_zones)
		return ZNSD_NONE;
	/* A small dump that was given no pack zone: none had room for it. */
	zone = s->l->packed && !s->l->nr_zones ? find_empty(d, s, g) : ZNSD_NONE;
	if (zone == ZNSD_NONE)
		zone = find_parked(d, s, g);
	if (zone == ZNSD_NONE)
		zone = find_empty(d, s, g);
	if (zone == ZNSD_NONE && reset_garbage(d, g))
		zone = find_empty(d, s, g);
	return zone;
}

/* Does the dump write a zone of this group now? Two lanes on one die would halve each other. */
static bool writes_in(const struct znsd *d, const struct lease *l, uint32_t group)
{
	uint32_t i;

	for (i = 0; i < l->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[l->zones[i].zone];

		if (z->group == group && z->z.state != ZNS_ZONE_FULL && !l->zones[i].done && !l->zones[i].bad)
			return true;
	}
	return false;
}

static uint32_t bad_in(const struct znsd *d, const struct lease *l, uint32_t group)
{
	uint32_t i, n = 0;

	for (i = 0; i < l->nr_zones; i++)
		n += l->zones[i].bad && d->zones[l->zones[i].zone].group == group;
	return n;
}

static uint32_t find_zone(struct znsd *d, const struct search *s, uint32_t group)
{
	cleanup_free struct zns_group_state *gs = NULL;
	cleanup_free uint32_t *order = NULL;
	bool sick = bad_in(d, s->l, group) >= BAD_DIE;
	uint32_t zone, n, i;

	zone = sick ? ZNSD_NONE : find_in_group(d, s, group);
	if (zone != ZNSD_NONE)
		return zone;
	/*
	 * The group is used up: the least reserved of the others, at first of those this dump does not write. Never one
	 * that was promised to another dump.
	 */
	gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	order = znsd_alloc(d->nr_groups * sizeof(*order));
	groups_state(d, s->l->container, s->l, gs);
	if (s->l->packed)	/* what it may continue is not its container's */
		for (i = 0; i < d->nr_zones; i++)
			gs[d->zones[i].group].free_zones += may_continue(d, s->l, i);
	n = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, order);
	for (int written = 0; written < 2; written++)
		for (i = 0; i < n && zone == ZNSD_NONE; i++)
			if (order[i] != group && writes_in(d, s->l, order[i]) == written)
				zone = find_in_group(d, s, order[i]);
	return zone == ZNSD_NONE && sick ? find_in_group(d, s, group) : zone;
}

static int finish_done(struct znsd *d, uint32_t max, struct zns_err *err)
{
	struct lease *l;
	uint32_t i;
	int ret;

	for (l = d->leases; l; l = l->next) {
		for (i = 0; l->dump && i < l->nr_zones; i++) {
			if (zones_active(d) < max)
				return 0;
			if (!l->zones[i].done || !zns_zone_is_active(d->zones[l->zones[i].zone].z.state))
				continue;
			ret = zone_finish(d, l->zones[i].zone, err);
			if (ret)
				return zns_wrap(err, "finishing zone %u", l->zones[i].zone);
		}
	}
	return 0;
}

/* What the writer says of its zones: bad ones, and those it is through with. Both leave the open limit. */
static void note_zones(struct znsd *d, struct lease *l, const uint32_t *zones, size_t nr, bool bad)
{
	struct zns_err err = ZNS_ERR_INIT;
	struct lease_zone *lz;
	size_t i;

	for (i = 0; i < nr; i++) {
		lz = lease_zone_find(l, zones[i]);
		if (!lz || lz->bad || (lz->done && !bad))	/* one that was done may turn bad */
			continue;
		if (bad)
			lz->bad = d->zones[zones[i]].suspect = true;
		else
			lz->done = true;
		if (!zones_refresh(d, zones[i], 1, &err) && zns_zone_is_open(d->zones[zones[i]].z.state) &&
		    !zns_dev_close_zone(d->dev, zones[i], &err))
			zones_refresh(d, zones[i], 1, &err);
		if (err.code)
			znsd_log("closing zone %u: %s", zones[i], err.msg);
		mount_heed(d, &err);
		if (bad)
			znsd_log("zone %u failed a dump of %s; it is %s", zones[i], l->container,
				 zns_zone_state_name(d->zones[zones[i]].z.state));
	}
}

/* One more zone becomes active: see to it that the device allows it. */
static int make_room(struct znsd *d, uint32_t zone, struct zns_err *err)
{
	uint32_t max = d->dev->geo.max_active, lru = ZNSD_NONE, i, batch[ZNSD_RESET_BATCH], n = 0;
	int ret;

	if (!max || zns_zone_is_active(d->zones[zone].z.state))
		return 0;
	max -= zns_min(max, meta_zones(d, false));
	if (zones_active(d) < max)
		return 0;
	/* What the table holds of zones being written is old. */
	for (i = 0; i < d->nr_zones; i++)
		if (d->zones[i].writer && zones_refresh(d, i, 1, err))
			return err->code;
	if (zones_active(d) < max)
		return 0;
	for (i = 0; i < d->nr_zones && n < ZNSD_RESET_BATCH; i++)
		if (zns_zone_is_active(d->zones[i].z.state) && zone_garbage(d, i))
			batch[n++] = i;
	if (zones_reset(d, batch, n, NULL) && zones_active(d) < max)
		return 0;
	/* Then what writers are through with: at most a tail too small for them is lost. */
	ret = finish_done(d, max, err);
	if (ret)
		return ret;
	while (zones_active(d) >= max) {
		/* Not the zone to be given; it is not active, so it cannot be the one. */
		if (!zone_lru_parked(d, true, &lru))
			return zns_fail(err, -EBUSY, "all %u zones that %s may have active are being written", max,
					d->reg.path);
		ret = zone_finish(d, lru, err);
		if (ret)
			return zns_wrap(err, "finishing parked zone %u", lru);
	}
	return 0;
}

static int refresh_lease(struct znsd *d, struct lease *l, struct zns_err *err)
{
	uint32_t i;
	int ret;

	for (i = 0; i < l->nr_zones; i++) {
		ret = zones_refresh(d, l->zones[i].zone, 1, err);
		if (ret)
			return ret;
	}
	return 0;
}

static bool may_ask(const struct znsd *d, const struct lease *l, uint32_t group)
{
	uint32_t i;

	if (lease_has_group(l, group))
		return true;
	for (i = 0; i < l->nr_zones; i++)
		if (d->zones[l->zones[i].zone].group == group)
			return true;
	return false;
}

/* The pack zone that came with the admission. */
static uint32_t claimed_zone(struct znsd *d, const struct search *s, uint32_t group)
{
	uint32_t zone = s->l->claimed;

	s->l->claimed = ZNSD_NONE;
	return zone != ZNSD_NONE && d->zones[zone].group == group && !excluded(s, zone) ? zone : ZNSD_NONE;
}

static bool free_but_promised(const struct znsd *d, const struct lease *l)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	uint32_t i;

	groups_state(d, l->container, l, gs);
	for (i = 0; i < d->nr_groups; i++)
		if (gs[i].free_zones)
			return true;
	return false;
}

int handle_zone_get(struct znsd *d, struct conn *c, const ZnsPb__ZoneGet *q, struct reply *rep)
{
	struct lease *l = lease_of(d, c);
	struct search s = { .d = d, .l = l, .q = q };
	ZnsPb__ZoneGrant *g;
	uint32_t zone;
	int ret;

	if (!l || l->background)
		return zns_fail(&rep->err, -EINVAL, "zone_get without a dump on this connection");
	if (q->group >= d->nr_groups || !may_ask(d, l, q->group))
		return zns_fail(&rep->err, -EINVAL, "group %u was not granted to this dump", q->group);
	note_zones(d, l, q->not_zones, q->n_not_zones, true);
	note_zones(d, l, q->done_zones, q->n_done_zones, false);
	ret = refresh_lease(d, l, &rep->err);
	if (ret)
		return ret;
	if (l->claimed == ZNSD_NONE && lease_unfull(d, l) >= l->width && budget_used(d) >= budget_total(d))
		return zns_fail(&rep->err, -EBUSY, "all %u zones that %s may have open are in use; this dump has %u",
				budget_total(d), d->reg.path, lease_unfull(d, l));
	zone = claimed_zone(d, &s, q->group);
	if (zone == ZNSD_NONE)
		zone = find_zone(d, &s, q->group);
	if (zone == ZNSD_NONE && readers_check(d))
		zone = find_zone(d, &s, q->group);
	s.suspects = true;
	if (zone == ZNSD_NONE)
		zone = find_zone(d, &s, q->group);
	if (zone == ZNSD_NONE && free_but_promised(d, l))
		return zns_fail(&rep->err, -EBUSY, "%s: the only free zones are in groups that were promised to other dumps or to normal I/O",
				d->reg.path);
	if (zone == ZNSD_NONE)
		return zns_fail(&rep->err, -ENOSPC, "%s is full: %u zones, %zu live checkpoints; `znsctl gc --compact` or `znsctl rm` makes room",
				d->reg.path, d->nr_zones, zns_store_nr_checkpoints(d->store));
	ret = make_room(d, zone, &rep->err);
	if (ret)
		return ret;
	if (!lease_zone_find(l, zone))
		lease_zone_add(d, l, zone, d->zones[zone].z.wp);
	if (!lease_has_group(l, d->zones[zone].group))
		groups_mark_shared(d, l, d->zones[zone].group);

	g = reply_alloc(rep, sizeof(*g));
	zns_pb__zone_grant__init(g);
	g->zone = zone;
	g->start = d->zones[zone].z.wp;
	g->capacity = d->zones[zone].z.capacity;
	g->group = d->zones[zone].group;
	rep->r.zone = g;
	return 0;
}

uint32_t zone_gain(struct znsd *d, struct lease *l, uint32_t group)
{
	const ZnsPb__ZoneGet q = ZNS_PB__ZONE_GET__INIT;
	const struct search s = { .d = d, .l = l, .q = &q };
	uint32_t zone = bad_in(d, l, group) || writes_in(d, l, group) ? ZNSD_NONE : find_in_group(d, &s, group);

	if (zone != ZNSD_NONE)
		lease_zone_add(d, l, zone, d->zones[zone].z.wp);
	return zone;
}

static bool has_use(const ZnsPb__Checkpoint *k, const ZnsPb__ZoneUse *u)
{
	size_t i;

	for (i = 0; k && i < k->n_zones; i++)
		if (k->zones[i]->zone == u->zone && k->zones[i]->start == u->start && k->zones[i]->len == u->len)
			return true;
	return false;
}

/* The pages that a join found must still be there, and be what it names besides its own. */
static int check_joined(struct znsd *d, const struct lease *l, const ZnsPb__Checkpoint *k, const ZnsPb__Checkpoint **old,
			struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	size_t i;

	*old = NULL;
	if (!l->joins)
		return 0;
	*old = zns_store_find(d->store, l->id);
	zns_uuid_format(l->id, id);
	if (!*old)
		return zns_fail(err, -ESTALE, "checkpoint %s was removed meanwhile", id);
	if (k->moved != (*old)->moved + 1)
		return zns_fail(err, -ESTALE, "checkpoint %s was moved meanwhile: try again", id);
	if (k->pages_only)
		return zns_fail(err, -EINVAL, "commit: checkpoint %s has pages only as before", id);
	for (i = 0; i < (*old)->n_zones; i++)
		if (!has_use(k, (*old)->zones[i]))
			return zns_fail(err, -EINVAL, "commit: checkpoint %s loses bytes of zone %u", id, (*old)->zones[i]->zone);
	return 0;
}

/* The record may name only what this lease was given and has written. */
static int check_record(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k, struct zns_err *err)
{
	const ZnsPb__ExtentRef *m = k->manifest;
	const ZnsPb__Checkpoint *old;
	bool manifest_in = false;
	size_t i;

	if (check_joined(d, l, k, &old, err))
		return err->code;
	if (k->id.len != ZNS_UUID_LEN || memcmp(k->id.data, l->id, ZNS_UUID_LEN))
		return zns_fail(err, -EINVAL, "commit: not the checkpoint that was granted");
	if (strcmp(k->container, l->container))
		return zns_fail(err, -EINVAL, "commit: the record names another container");
	if (k->has_parent != l->has_parent || (l->has_parent && (k->parent.len != ZNS_UUID_LEN ||
								 memcmp(k->parent.data, l->parent, ZNS_UUID_LEN))))
		return zns_fail(err, -EINVAL, "commit: the record names another parent than the dump asked for");
	if (!k->n_zones || !m || !m->len)
		return zns_fail(err, -EINVAL, "commit: the record has no zones or no manifest");
	for (i = 0; i < k->n_groups; i++)
		if (k->groups[i] >= d->nr_groups)
			return zns_fail(err, -EINVAL, "commit: no group %u", k->groups[i]);
	for (i = 0; i < l->nr_zones; i++)
		l->zones[i].committed = l->zones[i].start;
	for (i = 0; i < k->n_zones; i++) {
		const ZnsPb__ZoneUse *u = k->zones[i];
		struct lease_zone *lz = lease_zone_find(l, u->zone);
		uint64_t wp;

		if (has_use(old, u))
			continue;
		if (!lz)
			return zns_fail(err, -EINVAL, "commit: zone %u was not granted to this dump", u->zone);
		if (d->zones[u->zone].z.state == ZNS_ZONE_OFFLINE)
			return zns_fail(err, -ENXIO, "commit: zone %u turned offline; run the dump again", u->zone);
		wp = d->zones[u->zone].z.wp;
		if (!u->len || u->start < lz->committed || u->start > wp || u->len > wp - u->start)
			return zns_fail(err, -EINVAL, "commit: zone %u: bytes %llu+%llu are not what this dump wrote (%llu to %llu)",
					u->zone, (unsigned long long)u->start, (unsigned long long)u->len,
					(unsigned long long)lz->committed, (unsigned long long)wp);
		lz->committed = u->start + u->len;
		if (m->zone == u->zone && m->start >= u->start && m->start - u->start <= u->len &&
		    m->len <= u->len - (m->start - u->start))
			manifest_in = true;
	}
	if (!manifest_in)
		return zns_fail(err, -EINVAL, "commit: the manifest is outside the checkpoint's zones");
	return 0;
}

int handle_commit(struct znsd *d, struct conn *c, ZnsPb__Checkpoint *ckpt, struct reply *rep)
{
	struct lease *l = lease_of(d, c);
	int ret;

	if (!l || l->background)
		return zns_fail(&rep->err, -EINVAL, "commit without a dump on this connection");
	if (conn_left(c))	/* it gave up, and said that nothing was committed */
		return zns_fail(&rep->err, -EPIPE, "commit: whoever asked is gone");
	ret = refresh_lease(d, l, &rep->err);
	if (!ret)
		ret = check_record(d, l, ckpt, &rep->err);
	if (!ret)
		ret = encryption_check_record(l, ckpt, &rep->err);
	if (!ret) {
		ckpt->has_shared_groups = 1;
		ckpt->shared_groups = l->joins ? zns_max(ckpt->shared_groups, l->nr_shared) : l->nr_shared;
		ckpt->has_packed = ckpt->packed = l->packed;
		if (l->flatten)
			ret = flatten_commit(d, l, ckpt, &rep->err);
		else
			ret = (l->joins ? zns_store_move : zns_store_commit)(d->store, ckpt, &rep->err);
	}
	/* On failure the lease lives on: the client aborts, or goes and so ends it. */
	if (ret)
		return ret;
	for (uint32_t i = 0; i < l->nr_zones; i++)
		if (!l->zones[i].bad && l->zones[i].committed > l->zones[i].start)
			d->zones[l->zones[i].zone].suspect = false;
	rep->r.has_shared_groups = 1;
	rep->r.shared_groups = l->nr_shared;
	conn_committed(c, ckpt->container);
	lease_end(d, l);
	return 0;
}

int handle_abort(struct znsd *d, struct conn *c, struct reply *rep)
{
	struct lease *l = lease_of(d, c);

	/* Nothing begun, nothing to undo. */
	if (l)
		lease_end(d, l);
	return 0;
}
