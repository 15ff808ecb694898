// SPDX-License-Identifier: GPL-2.0-only
/* What an administrator asks for: remove, reserve, release, reset, quit. */
#include <string.h>
#include "../znsd.h"

static ZnsPb__Tombstone *copy_tombstone(struct reply *rep, const ZnsPb__Tombstone *t)
{
	ZnsPb__Tombstone *c = reply_alloc(rep, sizeof(*c));

	*c = *t;
	c->id.data = reply_alloc(rep, t->id.len);
	memcpy(c->id.data, t->id.data, t->id.len);
	c->by = reply_printf(rep, "%s", t->by);
	if (t->container)
		c->container = reply_printf(rep, "%s", t->container);
	return c;
}

/* In a group that is reserved for normal I/O meanwhile these zones are still to be reset. */
void note_ours(struct znsd *d, const ZnsPb__Checkpoint *k)
{
	size_t i;

	for (i = 0; i < k->n_zones; i++)
		if (k->zones[i]->zone < d->nr_zones)
			d->zones[k->zones[i]->zone].ours = true;
}

int handle_rm(struct znsd *d, const ZnsPb__Rm *q, struct reply *rep)
{
	ProtobufCBinaryData *ids;
	struct grave { uint32_t *zones, nr; } *graves;
	char id[ZNS_UUID_STR];
	size_t i;
	int ret = 0;

	if (!*q->by || strlen(q->by) > 200)
		return zns_fail(&rep->err, -EINVAL, "rm: who asks must be said in 1 to 200 bytes");
	/* All or nothing as far as it can be known beforehand. */
	for (i = 0; i < q->n_checkpoints; i++) {
		const ProtobufCBinaryData *c = &q->checkpoints[i];

		if (c->len != ZNS_UUID_LEN)
			return zns_fail(&rep->err, -EINVAL, "a checkpoint id has %d bytes", ZNS_UUID_LEN);
		if (!zns_store_find(d->store, c->data) && !zns_store_find_tombstone(d->store, c->data))
			return zns_fail(&rep->err, -ENOENT, "%s has no checkpoint %s", d->reg.path,
					zns_uuid_format(c->data, id));
		if (checkpoint_pinned(d, c->data))
			return zns_fail(&rep->err, -EPERM, "checkpoint %s is pinned: `znsctl unpin` it first",
					zns_uuid_format(c->data, id));
		if (q->secure && secure_check(d, c->data, &rep->err))
			return rep->err.code;
	}
	ret = parents_may_go(d, q->checkpoints, q->n_checkpoints, &rep->err);
	if (ret)
		return ret;
	ids = reply_alloc(rep, q->n_checkpoints * sizeof(*ids));
	if (q->n_checkpoints)
		memcpy(ids, q->checkpoints, q->n_checkpoints * sizeof(*ids));
	parents_last(d, ids, q->n_checkpoints);
	rep->r.removed = reply_alloc(rep, q->n_checkpoints * sizeof(*rep->r.removed));
	graves = reply_alloc(rep, q->n_checkpoints * sizeof(*graves));
	for (i = 0; i < q->n_checkpoints; i++) {
		const ZnsPb__Checkpoint *k = zns_store_find(d->store, ids[i].data);
		cleanup_free char *container = NULL;
		const ZnsPb__Tombstone *t;
		struct grave g;

		if (!k)
			continue;
		container = znsd_strdup(k->container);
		note_ours(d, k);
		g.zones = bury_zones(k, &g.nr);
		ret = zns_store_remove(d->store, ids[i].data, q->by, &rep->err);
		if (ret) {
			free(g.zones);
			break;
		}
		d->sweep = true;
		t = zns_store_find_tombstone(d->store, ids[i].data);
		if (t) {
			graves[rep->r.n_removed] = g;
			rep->r.removed[rep->r.n_removed++] = copy_tombstone(rep, t);
		} else {
			free(g.zones);
		}
		reservation_settle(d, container);
		reservation_renew(d, container);
	}
	/* When all are removed: most zones then hold nothing any more. */
	for (i = 0; i < rep->r.n_removed; i++) {
		bury(d, graves[i].zones, graves[i].nr, rep->r.removed[i]);
		free(graves[i].zones);
	}
	waiters_run(d);
	if (ret)
		return ret;
	/* Also if all of them were removed before: then a crash came in between, or it was done without --secure. */
	if (q->secure && zns_store_erase(d->store, &rep->err))
		return zns_wrap(&rep->err, "removed, but not erased");
	return 0;
}

/* Marks of @pick: a group nobody has reserved or leased. */
static void free_groups(const struct znsd *d, const char *container, struct zns_group_state *gs)
{
	uint32_t i;

	groups_state(d, container, NULL, gs);
	for (i = 0; i < d->nr_groups; i++)
		if (gs[i].nr_reservations || gs[i].nr_leases || !d->groups[i].nr_zones)
			gs[i].free_zones = 0;
}

/* Whole channels with nothing on them; those with metadata last. Returns how many groups. */
static uint32_t pick_channels(const struct znsd *d, const struct zns_group_state *gs, uint32_t channels, uint32_t *out,
			      uint32_t *found)
{
	uint32_t n = 0, i, k, pass;

	*found = 0;
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < d->nr_groups && *found < channels; i++) {
			bool all_free = true, metadata = false, first = true;

			/* Each channel once: at its first group. */
			for (k = 0; k < d->nr_groups; k++) {
				if (gs[k].channel != gs[i].channel)
					continue;
				first &= k >= i;
				all_free &= gs[k].free_zones > 0 || !d->groups[k].nr_zones;
				metadata |= gs[k].metadata;
			}
			if (!first || !all_free || metadata != (pass == 1))
				continue;
			for (k = 0; k < d->nr_groups; k++)
				if (gs[k].channel == gs[i].channel)
					out[n++] = k;
			(*found)++;
		}
	}
	return n;
}

static void reset_groups(struct znsd *d, const uint32_t *groups, uint32_t nr)
{
	uint32_t batch[ZNSD_RESET_BATCH], n, i, k;

	for (i = 0; i < nr; i++) {
		const struct zn_group *g = &d->groups[groups[i]];

		for (k = n = 0; k < g->nr_zones; k++) {
			if (zone_garbage(d, g->zones[k]))
				batch[n++] = g->zones[k];
			if (n == ZNSD_RESET_BATCH || (n && k + 1 == g->nr_zones)) {
				zones_reset(d, batch, n, NULL);
				n = 0;
			}
		}
	}
}

int handle_reserve(struct znsd *d, const ZnsPb__Reserve *q, struct reply *rep)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	cleanup_free uint32_t *out = znsd_alloc(d->nr_groups * sizeof(*out));
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	uint32_t n, found, i;
	int ret;

	ret = zns_check_container(q->container, &rep->err);
	if (ret)
		return ret;
	if (!!q->groups == !!q->channels)
		return zns_fail(&rep->err, -EINVAL, "reserve: a number of groups or of channels, one of them");
	if (zns_store_find_reservation(d->store, q->container))
		return zns_fail(&rep->err, -EEXIST, "%s has a reservation already; release it first", q->container);
	free_groups(d, q->container, gs);
	if (q->groups) {
		n = zns_alloc_pick(gs, d->nr_groups, zns_min(q->groups, d->nr_groups), out);
		if (n < q->groups)
			return zns_fail(&rep->err, -EBUSY, "%s: %u groups of %u are free of reservations and leases, %u are asked for",
					d->reg.path, n, d->nr_groups, q->groups);
	} else {
		for (i = 0; i < d->nr_groups; i++)
			if (gs[i].channel < 0)
				return zns_fail(&rep->err, -EOPNOTSUPP, "%s: its channels are not known; reserve groups instead",
						d->reg.path);
		n = pick_channels(d, gs, q->channels, out, &found);
		if (found < q->channels)
			return zns_fail(&rep->err, -EBUSY, "%s: %u channels are free of any reservation, %u are asked for",
					d->reg.path, found, q->channels);
	}
	r.container = q->container;
	r.groups = out;
	r.n_groups = n;
	r.has_created_ns = r.has_explicit_ = 1;
	r.created_ns = zns_now_ns();
	r.explicit_ = 1;
	/* They come empty; from here on what is written there is not ours to reset. */
	reset_groups(d, out, n);
	ret = zns_store_reserve(d->store, &r, &rep->err);
	if (ret)
		return ret;
	groups_io_refresh(d);
	rep->r.reservation = (ZnsPb__Reservation *)zns_store_find_reservation(d->store, q->container);
	return 0;
}

int handle_release(struct znsd *d, const char *container, struct reply *rep)
{
	struct lease *l;
	int ret;

	if (!zns_store_find_reservation(d->store, container))
		return zns_fail(&rep->err, -ENOENT, "%.200s has no reservation on %s", container, d->reg.path);
	for (l = d->leases; l; l = l->next)
		if (l->dump && !l->dynamic && !l->background && !strcmp(l->container, container))
			return zns_fail(&rep->err, -EBUSY, "a dump of %s is running (PID %u)", container, l->pid);
	ret = zns_store_release(d->store, container, &rep->err);
	if (!ret)	/* what normal I/O wrote we know nothing of */
		ret = zones_refresh(d, 0, d->nr_zones, &rep->err);
	groups_io_refresh(d);
	if (ret)
		return ret;
	waiters_run(d);
	return 0;
}

static const struct lease *reader_of(const struct znsd *d, uint32_t zone)
{
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (!l->dump && lease_zone_find(l, zone))
			return l;
	return NULL;
}

static int may_reset(const struct znsd *d, uint32_t zone, struct zns_err *err)
{
	const struct zn_zone *z;
	const struct lease *l;

	if (zone >= d->nr_zones)
		return zns_fail(err, -EINVAL, "no zone %u: %s has %u", zone, d->reg.path, d->nr_zones);
	z = &d->zones[zone];
	if (z->meta)
		return zns_fail(err, -EBUSY, "zone %u holds the store's metadata", zone);
	if (!zone_usable(z))
		return zns_fail(err, -EROFS, "zone %u is %s", zone, zns_zone_state_name(z->z.state));
	if (z->writer)
		return zns_fail(err, -EBUSY, "zone %u is being written by a dump of %s (PID %u)", zone,
				z->writer->container, z->writer->pid);
	if (z->finishing)
		return zns_fail(err, -EBUSY, "zone %u is being finished", zone);
	if (zone_live(d, zone))
		return zns_fail(err, -EBUSY, "zone %u holds live checkpoints of %s; remove them with `znsctl rm`", zone,
				zns_store_zone_owner(d->store, zone));
	l = reader_of(d, zone);
	if (l)
		return zns_fail(err, -EBUSY, "zone %u is being read by a restore of %s (PID %u)", zone, l->container, l->pid);
	if (z->old && !d->readers_clear)
		return zns_fail(err, -EBUSY, "zone %u may be read by a restore that an earlier broker let in", zone);
	return 0;
}

int handle_reset(struct znsd *d, const ZnsPb__ZonesReset *q, struct reply *rep)
{
	cleanup_free uint32_t *list = znsd_alloc(d->nr_zones * sizeof(*list));
	uint32_t n = 0, i, k, done;
	int ret;

	ret = zones_refresh(d, 0, d->nr_zones, &rep->err);
	if (ret)
		return ret;
	readers_check(d);
	if (q->n_zones > d->nr_zones)
		return zns_fail(&rep->err, -EINVAL, "reset: %zu zones are more than %s has", q->n_zones, d->reg.path);
	for (i = 0; i < q->n_zones; i++) {
		ret = may_reset(d, q->zones[i], &rep->err);
		if (ret)
			return ret;
		for (k = 0; k < n && list[k] != q->zones[i]; k++)
			;
		if (k == n && d->zones[q->zones[i]].z.state != ZNS_ZONE_EMPTY)
			list[n++] = q->zones[i];
	}
	for (i = 0; !q->n_zones && i < d->nr_zones; i++)
		if (zone_garbage(d, i))
			list[n++] = i;
	done = zones_reset(d, list, n, &rep->err);
	if (done < n)
		return rep->err.code ? rep->err.code : -EIO;
	rep->r.n_reset_zones = n;
	rep->r.reset_zones = reply_alloc(rep, n * sizeof(*list));
	memcpy(rep->r.reset_zones, list, n * sizeof(*list));
	waiters_run(d);
	return 0;
}

int handle_quit(struct znsd *d, struct reply *rep)
{
	char who[384];

	if (d->leases)
		return zns_fail(&rep->err, -EBUSY, "%s is in use by %s", d->reg.path,
				groups_holders(d, "", who, sizeof(who)));
	d->quit = true;
	rep->hangup = true;
	return 0;
}
