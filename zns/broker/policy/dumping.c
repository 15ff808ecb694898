/* SPDX-License-Identifier: GPL-2.0-only */
/* Gives zones to a running dump, one after the other, and commits its record. */
#include <string.h>
#include "policy.h"
#include "zns/layout.h"

/*
 * Records zones that the writer has reported as bad or as done. Both are closed, so that they no
 * longer count against the open limit.
 */
static void note_zones(struct znsd *d, struct lease *l, const uint32_t *zones, size_t nr, bool bad)
{
	struct lease_zone *lz;
	size_t i;

	for (i = 0; i < nr; i++) {
		lz = lease_zone_find(l, zones[i]);
		/* a zone that was reported as done may turn bad later */
		if (!lz || lz->bad || (lz->done && !bad))
			continue;
		if (bad) {
			lz->bad = d->zones[zones[i]].suspect = true;
			d->history.all.zone_failures++;
		} else {
			lz->done = true;
		}
		zone_close(d, zones[i]);
		if (bad)
			znsd_say(LOG_WARNING, l, "zone %u failed a dump of %s; it is %s", zones[i],
				 l->container, zns_zone_state_name(d->zones[zones[i]].z.state));
	}
}

/* Updates the table for the zones of a lease. @all: also for full zones, whose state only their own
 * writer can change. */
static int refresh_lease(struct znsd *d, struct lease *l, bool all, struct zns_err *err)
{
	uint32_t i;
	int ret;

	for (i = 0; i < l->nr_zones; i++) {
		if (!all && d->zones[l->zones[i].zone].z.state == ZNS_ZONE_FULL)
			continue;
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

/* Returns the pack zone that was granted with the admission, if it is not used yet. */
static uint32_t claimed_zone(const struct znsd *d, const struct wish *w, uint32_t group)
{
	uint32_t zone = w->l->dump.claimed;

	w->l->dump.claimed = ZNSD_NONE;
	return zone != ZNSD_NONE && d->zones[zone].group == group && !zone_excluded(d, w, zone) ?
		       zone :
		       ZNSD_NONE;
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

/* Like zone_search(). If on a disk a place within a zone was found, the lease gets it. */
static uint32_t search_for_dump(struct znsd *d, struct wish *w, uint32_t group)
{
	struct space s = { .zone = ZNSD_NONE };
	uint32_t zone;

	w->space = &s;
	do
		zone = zone_search(d, w, group);
	while (zone != ZNSD_NONE && zone == s.zone && !space_give(d, w->l, &s));
	return zone;
}

int dump_zone(struct znsd *d, struct lease *l, const ZnsPb__ZoneGet *q, uint32_t *zone,
	      struct zns_err *err)
{
	struct wish w = { .l = l,
			  .not_zones = q->not_zones,
			  .nr_not = q->n_not_zones,
			  .run = q->has_need ? q->need : l->dump.min_room };
	int ret;

	if (q->group >= d->nr_groups || !may_ask(d, l, q->group))
		return zns_fail(err, -EINVAL, "group %u was not granted to this dump", q->group);
	note_zones(d, l, q->not_zones, q->n_not_zones, true);
	note_zones(d, l, q->done_zones, q->n_done_zones, false);
	ret = refresh_lease(d, l, false, err);
	if (ret)
		return ret;
	if (l->dump.claimed == ZNSD_NONE && lease_unfull(d, l) >= l->dump.width &&
	    budget_used(d) >= budget_total(d))
		return zns_fail(err, -EBUSY,
				"all %u zones that %s may have open are in use; this dump has %u",
				budget_total(d), d->reg.path, lease_unfull(d, l));
	*zone = claimed_zone(d, &w, q->group);
	if (*zone == ZNSD_NONE)
		*zone = search_for_dump(d, &w, q->group);
	if (*zone == ZNSD_NONE && free_but_promised(d, l))
		return zns_fail(
			err, -EBUSY,
			"%s: the only free zones are in groups that were promised to other dumps or to normal I/O",
			d->reg.path);
	if (*zone == ZNSD_NONE)
		return device_full(d, err);
	ret = make_room(d, *zone, false, err);
	if (ret)
		return ret;
	ahead_take(d, l, *zone);
	if (!lease_zone_find(l, *zone))
		lease_zone_add(d, l, *zone, d->zones[*zone].z.wp);
	if (!lease_has_group(l, d->zones[*zone].group))
		groups_mark_shared(d, l, d->zones[*zone].group);
	return 0;
}

/* How many bytes of a zone this dump may still write. */
static uint64_t zone_room(const struct znsd *d, const struct lease *l, uint32_t zone)
{
	const struct lease_zone *lz = lease_zone_find(l, zone);
	const struct zn_zone *z = &d->zones[zone];

	if (z->meta || d->groups[z->group].io)
		return 0;
	if (zone_empty(d, zone) || zone_garbage(d, zone))
		return z->z.capacity;
	if (zone_parked_for(d, zone, l->container, l->dump.min_room) ||
	    (lz && !lz->done && !lz->bad && zone_usable(z)))
		return lz ? lz->end - zns_min(zns_max(z->z.wp, lz->start), lz->end) :
			    z->z.capacity - zns_min(z->z.wp, z->z.capacity);
	return 0;
}

int dump_room(struct znsd *d, struct lease *l, uint64_t *out, struct zns_err *err)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	int ret = refresh_lease(d, l, true, err);
	uint32_t i;

	*out = 0;
	groups_state(d, l->container, l, gs);
	for (i = 0; i < d->nr_zones && !ret; i++)
		if (!gs[d->zones[i].group].promised || lease_has_group(l, d->zones[i].group))
			*out += zone_room(d, l, i);
	if (l->packed && on_disk(d))
		*out += space_for_small(d, zns_unit_small(l->dump.expected, l->dump.scattered));
	return ret;
}

static bool has_use(const ZnsPb__Checkpoint *k, const ZnsPb__ZoneUse *u)
{
	size_t i;

	for (i = 0; k && i < k->n_zones; i++)
		if (k->zones[i]->zone == u->zone && k->zones[i]->start == u->start &&
		    k->zones[i]->len == u->len)
			return true;
	return false;
}

/* Checks that the new record names all bytes that the joined checkpoint has. */
static int check_joined(const struct lease *l, const ZnsPb__Checkpoint *k,
			const ZnsPb__Checkpoint *old, struct zns_err *err)
{
	char id[ZNS_UUID_STR];
	size_t i;

	if (l->kind != LEASE_IMPORT)
		return 0;
	if (k->pages_only)
		return zns_fail(
			err, -EINVAL,
			"commit: checkpoint %s still has pages only, so the join added nothing",
			zns_uuid_format(l->id, id));
	for (i = 0; i < old->n_zones; i++)
		if (!has_use(k, old->zones[i]))
			return zns_fail(
				err, -EINVAL,
				"commit: the new record of checkpoint %s lacks bytes of zone %u that the old one has",
				zns_uuid_format(l->id, id), old->zones[i]->zone);
	return 0;
}

/* Checks that the record names only bytes that this lease was granted and has written. */
static int check_record(struct znsd *d, struct lease *l, const ZnsPb__Checkpoint *k,
			struct zns_err *err)
{
	const ZnsPb__ExtentRef *m = k->manifest;
	const ZnsPb__Checkpoint *old = l->kind == LEASE_IMPORT ? zns_store_find(d->store, l->id) :
								 NULL;
	const ZnsPb__Tombstone *t = zns_store_find_tombstone(d->store, l->id);
	bool manifest_in = false;
	size_t i;

	if (check_joined(l, k, old, err))
		return err->code;
	if (k->id.len != ZNS_UUID_LEN || memcmp(k->id.data, l->id, ZNS_UUID_LEN))
		return zns_fail(err, -EINVAL, "commit: not the checkpoint that was granted");
	if (l->kind == LEASE_DUMP && t && k->moved_ns <= t->deleted_ns)
		return zns_fail(
			err, -EINVAL,
			"commit: the record is not later than the removal of its checkpoint");
	if (strcmp(k->container, l->container))
		return zns_fail(err, -EINVAL, "commit: the record names another container");
	if (k->has_parent != l->dump.has_parent ||
	    (l->dump.has_parent && (k->parent.len != ZNS_UUID_LEN ||
				    memcmp(k->parent.data, l->dump.parent, ZNS_UUID_LEN))))
		return zns_fail(err, -EINVAL,
				"commit: the record names another parent than the dump asked for");
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
		if (u->has_memory) {
			if (naming_check(d, l, u, err))
				return err->code;
			continue;
		}
		if (!lz)
			return zns_fail(err, -EINVAL,
					"commit: zone %u was not granted to this dump", u->zone);
		if (d->zones[u->zone].z.state == ZNS_ZONE_OFFLINE)
			return zns_fail(err, -ENXIO,
					"commit: zone %u turned offline; run the dump again",
					u->zone);
		wp = zns_min(d->zones[u->zone].z.wp, lz->end);
		if (!u->len || u->start < lz->committed || u->start > wp || u->len > wp - u->start)
			return zns_fail(
				err, -EINVAL,
				"commit: zone %u: bytes %llu+%llu are not what this dump wrote (%llu to %llu)",
				u->zone, (unsigned long long)u->start, (unsigned long long)u->len,
				(unsigned long long)lz->committed, (unsigned long long)wp);
		lz->committed = u->start + u->len;
		if (m->zone == u->zone && m->start >= u->start && m->start - u->start <= u->len &&
		    m->len <= u->len - (m->start - u->start))
			manifest_in = true;
	}
	if (!manifest_in)
		return zns_fail(err, -EINVAL,
				"commit: the manifest is outside the checkpoint's zones");
	return 0;
}

int commit_dump(struct znsd *d, struct lease *l, ZnsPb__Checkpoint *k, struct zns_err *err)
{
	bool replaces = l->kind != LEASE_DUMP;
	uint32_t i;
	int ret;

	ret = refresh_lease(d, l, true, err);
	if (!ret)
		ret = naming_refresh(d, l, err);
	if (!ret && replaces)
		ret = record_check(d, l, k, err);
	if (!ret)
		ret = check_record(d, l, k, err);
	if (!ret)
		ret = encryption_check_record(l, k, err);
	if (ret)
		return ret;
	k->has_shared_groups = 1;
	k->shared_groups = l->kind == LEASE_IMPORT ? zns_max(k->shared_groups, l->dump.nr_shared) :
						     l->dump.nr_shared;
	k->has_packed = k->packed = l->packed;
	ret = replaces ? record_replace(d, l, k, err) : zns_store_commit(d->store, k, err);
	if (!ret)
		naming_end(d, l);
	for (i = 0; !ret && i < l->nr_zones; i++)
		if (!l->zones[i].bad && l->zones[i].committed > l->zones[i].start)
			d->zones[l->zones[i].zone].suspect = false;
	return ret;
}
