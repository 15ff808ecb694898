/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Compaction: a client copies the live bytes of nearly empty zones to other zones, one checkpoint
 * at a time, and then replaces the checkpoint's record by one with the new places. This file limits
 * the client: which zones it gets, when it must wait or give up for others, and which bytes its
 * record may name. Zones without live data are then reset like all garbage, once nobody reads them.
 */
#include <string.h>
#include "policy.h"

#define WAIT_MS 20 /* interval at which a waiting compaction checks whether the groups are idle */

int compact_begin(struct znsd *d, const struct holder *who, const ZnsPb__CompactBegin *q,
		  struct chain *chain, struct zns_err *err)
{
	const ProtobufCBinaryData *id = &q->checkpoint;
	const ZnsPb__Checkpoint *k;
	struct lease *r, *l;
	int ret;

	if (lease_of(d, who->conn))
		return zns_fail(err, -EBUSY, "this connection has a dump or a compaction already");
	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_COMPACT && id->len == ZNS_UUID_LEN &&
		    !memcmp(l->id, id->data, ZNS_UUID_LEN))
			return zns_fail(err, -EBUSY, "this checkpoint is being moved by PID %u",
					l->pid);
	if (id->len == ZNS_UUID_LEN && parent_in_use(d, id->data))
		return zns_fail(err, -ECANCELED,
				"a dump that is running has this checkpoint as its parent");
	if (id->len == ZNS_UUID_LEN && yielding_allows(d, id->data, err))
		return err->code = -ECANCELED;
	if (id->len == ZNS_UUID_LEN && record_rewritten(d, id->data, err))
		return err->code;
	ret = weight_check(q->weight, err);
	if (!ret)
		ret = read_begin(d, who, id, false, chain, &r, err);
	if (ret)
		return ret;
	r->kind = LEASE_SOURCE;
	k = chain->v[0];
	l = lease_new(d, who->conn, who->pid, LEASE_COMPACT, k->container, k->id.data);
	l->packed = k->packed;
	l->compact.moved = k->moved;
	l->compact.charged = q->has_weight;
	l->own_class = q->weight > 0;
	l->weight = q->weight ? q->weight : weight_of_tenant(k->container, weight_of_record(k));
	return 0;
}

/* ---- zones that the moved bytes are written to ---- */

static void note_done(struct znsd *d, struct lease *l, const uint32_t *zones, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct lease_zone *lz = lease_zone_find(l, zones[i]);

		if (!lz || lz->done)
			continue;
		lz->done = true;
		zone_close(d, zones[i]);
	}
}

int compact_zone(struct znsd *d, struct lease *l, const ZnsPb__CompactZone *q, uint32_t *zone,
		 struct zns_err *err)
{
	/* Without a need, the search would apply the rules for a dump, which may get more zones. */
	struct wish w = { .l = l,
			  .not_zones = q->not_zones,
			  .nr_not = q->n_not_zones,
			  .need = zns_max(q->need, (uint64_t)1),
			  .below = q->below,
			  .spares = true };
	char size[16];
	int ret;

	if (q->group >= d->nr_groups || q->need > d->dev->geo.zone_capacity)
		return zns_fail(
			err, -EINVAL,
			"a zone of group %u has no room for %llu bytes: it is more than its capacity",
			q->group, (unsigned long long)q->need);
	note_done(d, l, q->done_zones, q->n_done_zones);
	for (uint32_t i = 0; i < l->nr_zones; i++)
		zones_refresh(d, l->zones[i].zone, 1, NULL);
	*zone = zone_search(d, &w, q->group);
	if (*zone == ZNSD_NONE && on_disk(d))
		return zns_fail(err, -ENOSPC, "there is no room to move %s of %s to",
				zns_format_size(q->need, size, sizeof(size)), l->container);
	if (*zone == ZNSD_NONE)
		return zns_fail(err, -ENOSPC,
				"no zone is free to move %llu bytes of %s out of group %u",
				(unsigned long long)q->need, l->container, q->group);
	/* A compaction may open a further zone only if the limit of open zones leaves one that is
	 * not promised to a dump. */
	if (budget_used(d) >= budget_total(d))
		return zns_fail(err, -EBUSY, "all %u zones that %s may have open are in use",
				budget_total(d), d->reg.path);
	ret = make_room(d, *zone, true, err);
	if (!ret && !lease_zone_find(l, *zone))
		lease_zone_add(d, l, *zone, d->zones[*zone].z.wp);
	return ret;
}

/* ---- priority of others ---- */

/*
 * A compaction waits for a yielding lease that has read or written within this time. A yielding
 * lease never waits for another yielding lease.
 */
#define YIELDING_WORKS_NS 200000000ull

static bool counts(const struct lease *l, enum lease_kind for_whom)
{
	if (l->kind == LEASE_YIELDING)
		return for_whom != LEASE_YIELDING &&
		       zns_mono_ns() - l->yields.worked_ns < YIELDING_WORKS_NS;
	return !lease_background(l);
}

static bool near(const struct znsd *d, uint32_t a, uint32_t b)
{
	return a == b ||
	       (d->groups[a].channel >= 0 && d->groups[a].channel == d->groups[b].channel);
}

bool group_at_work(const struct znsd *d, uint32_t group, enum lease_kind for_whom)
{
	const struct lease *l;
	uint32_t i;

	for (l = d->leases; l; l = l->next) {
		if (!counts(l, for_whom))
			continue;
		for (i = 0; i < l->nr_groups; i++)
			if (near(d, l->groups[i], group))
				return true;
		for (i = 0; lease_writes(l) && i < l->nr_zones; i++)
			if (!l->zones[i].done && !l->zones[i].bad &&
			    near(d, d->zones[l->zones[i].zone].group, group))
				return true;
	}
	return false;
}

/* Has the group a dump with promised bandwidth? Then it is not shared by weight. */
static bool group_promised(const struct znsd *d, uint32_t group)
{
	for (const struct lease *l = d->leases; l; l = l->next)
		for (uint32_t i = 0; lease_promised(l) && i < l->nr_groups; i++)
			if (near(d, l->groups[i], group))
				return true;
	return false;
}

int compact_step(struct znsd *d, struct lease *l, const ZnsPb__CompactStep *q, uint32_t *wait_ms,
		 struct zns_err *err)
{
	struct lease *o;
	size_t i;

	history_moved(d, l, q->bytes);
	l->bytes = q->bytes;
	l->total = q->total;
	l->seen_ns = zns_mono_ns();
	weight_note(l, 2 * q->bytes); /* counted twice, since the bytes are both read and written */
	if (d->policy->compact_yield && leases_yielding(d))
		return zns_fail(err, -ECANCELED,
				"a dump needs the zones that this compaction writes");
	*wait_ms = 0;
	for (o = d->leases; q->has_flush && q->flush && o; o = o->next)
		if (lease_admitted(o))
			*wait_ms = WAIT_MS;
	for (i = 0; i < q->n_groups; i++) {
		if (q->groups[i] >= d->nr_groups)
			return zns_fail(err, -EINVAL, "no group %u", q->groups[i]);
		if (l->compact.charged ? group_promised(d, q->groups[i]) :
					 group_at_work(d, q->groups[i], LEASE_COMPACT))
			*wait_ms = WAIT_MS;
	}
	l->compact.nr_at = (uint32_t)zns_min(q->n_groups, ZNS_ARRAY_SIZE(l->compact.at));
	for (i = 0; i < l->compact.nr_at; i++)
		l->compact.at[i] = q->groups[i];
	return 0;
}

/* ---- commit ---- */

/* Checks one zone use of the new record: it may name bytes of the old record, or bytes that this
 * lease wrote. */
static int check_use(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *now,
		     const ZnsPb__ZoneUse *u, struct zns_err *err)
{
	struct lease_zone *lz = lease_zone_find(l, u->zone);
	size_t i;

	if (u->zone < d->nr_zones && u->len) {
		for (i = 0; i < now->n_zones; i++) {
			const ZnsPb__ZoneUse *o = now->zones[i];

			/* a part that other records may refer to as well must not be moved */
			if (o->has_memory || u->has_memory ?
				    zns_use_shares(o, u) && u->len == o->len && !u->start :
				    o->zone == u->zone && u->start >= o->start &&
					    u->len <= o->len &&
					    u->start - o->start <= o->len - u->len)
				return 0;
		}
		if (lz && !u->has_memory && u->start >= lz->start &&
		    u->start <= d->zones[u->zone].z.wp &&
		    u->len <= d->zones[u->zone].z.wp - u->start)
			return 0;
	}
	return zns_fail(
		err, -EINVAL,
		"compaction: bytes %llu+%llu of zone %u neither belong to the checkpoint nor were written by this compaction",
		(unsigned long long)u->start, (unsigned long long)u->len, u->zone);
}

static int check_record(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *now,
			const ZnsPb__Checkpoint *q, struct zns_err *err)
{
	struct lease_zone *lz;
	int ret;

	if (!q->n_zones || !q->manifest || q->id.len != ZNS_UUID_LEN ||
	    memcmp(q->id.data, l->id, ZNS_UUID_LEN))
		return zns_fail(
			err, -EINVAL,
			"compaction: the record is of another checkpoint than was asked for, or has no zones");
	for (size_t i = 0; i < q->n_zones; i++) {
		const ZnsPb__ZoneUse *u = q->zones[i], *prev = i ? q->zones[i - 1] : NULL;

		ret = check_use(d, l, now, u, err);
		if (ret)
			return ret;
		if (prev && (prev->zone > u->zone ||
			     (prev->zone == u->zone && prev->start + prev->len > u->start)))
			return zns_fail(err, -EINVAL, "compaction: the zone uses are not in order");
	}
	lz = lease_zone_find(l, q->manifest->zone);
	if (!lz || q->manifest->start < lz->start)
		return zns_fail(err, -EINVAL,
				"compaction: the manifest is not where this lease wrote");
	return 0;
}

static bool among(const uint32_t *v, size_t nr, uint32_t x)
{
	while (nr--)
		if (v[nr] == x)
			return true;
	return false;
}

/* Sets the groups of the new record: first those of the old one that it still uses, in their
 * order. */
static void set_groups(const struct znsd *d, const ZnsPb__Checkpoint *now, ZnsPb__Checkpoint *k,
		       uint32_t *groups)
{
	size_t nr = 0;

	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < k->n_zones; i++) {
			uint32_t g = d->zones[k->zones[i]->zone].group;

			if ((pass || among(now->groups, now->n_groups, g)) && !among(groups, nr, g))
				groups[nr++] = g;
		}
	k->groups = groups;
	k->n_groups = nr;
}

int compact_commit(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *q, struct zns_err *err)
{
	const ZnsPb__Checkpoint *now = zns_store_find(d->store, l->id);
	cleanup_free uint32_t *groups = NULL, *meta = NULL;
	ZnsPb__Checkpoint k;
	size_t i;
	int ret;

	k = now ? *now : (ZnsPb__Checkpoint)ZNS_PB__CHECKPOINT__INIT;
	k.has_moved = k.has_moved_ns = 1;
	k.moved = l->compact.moved + 1;
	k.moved_ns = q->moved_ns;
	ret = record_check(d, l, &k, err);
	for (i = 0; !ret && i < l->nr_zones; i++)
		ret = zones_refresh(d, l->zones[i].zone, 1, err);
	if (!ret)
		ret = check_record(d, l, now, q, err);
	if (ret)
		return ret;
	/* Take only the zone uses from the client; all other fields stay as they were. */
	k.zones = q->zones;
	k.n_zones = q->n_zones;
	k.manifest = q->manifest;
	groups = znsd_alloc((k.n_zones + 1) * sizeof(*groups));
	set_groups(d, now, &k, groups);
	meta = znsd_alloc((now->n_metadata_groups + 1) * sizeof(*meta));
	k.metadata_groups = meta;
	k.n_metadata_groups = 0;
	for (i = 0; i < now->n_metadata_groups; i++)
		if (among(groups, k.n_groups, now->metadata_groups[i]))
			meta[k.n_metadata_groups++] = now->metadata_groups[i];
	return record_replace(d, l, &k, err);
}
