/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests that change nothing. */
#include <string.h>
#include "table.h"

static void list_rules(struct znsd *d, struct reply *rep)
{
	size_t n = zns_store_nr_retentions(d->store), m = zns_store_nr_marks(d->store), i;

	rep->r.n_retentions = n;
	rep->r.retentions = reply_alloc(rep, n * sizeof(*rep->r.retentions));
	for (i = 0; i < n; i++)
		rep->r.retentions[i] = (ZnsPb__Retention *)zns_store_retention(d->store, i);
	rep->r.n_marks = m;
	rep->r.marks = reply_alloc(rep, m * sizeof(*rep->r.marks));
	for (i = 0; i < m; i++)
		rep->r.marks[i] = (ZnsPb__Mark *)zns_store_mark(d->store, i);
}

/* @only NULL: all of them. */
static bool is_listed(const ZnsPb__Checkpoint *c, const char *only)
{
	char id[ZNS_UUID_STR];

	return !only || !strcmp(c->container, only) ||
	       (c->id.len == ZNS_UUID_LEN && !strcmp(zns_uuid_format(c->id.data, id), only));
}

int serve_ls(struct znsd *d, const struct call *x, struct reply *rep)
{
	size_t n = zns_store_nr_checkpoints(d->store), i;

	rep->r.checkpoints = reply_alloc(rep, n * sizeof(*rep->r.checkpoints));
	for (i = 0; i < n; i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);

		if (is_listed(c, x->q->only))
			rep->r.checkpoints[rep->r.n_checkpoints++] = (ZnsPb__Checkpoint *)c;
	}
	if (!x->q->only)
		list_rules(d, rep);
	return 0;
}

static void status_zones(const struct znsd *d, ZnsPb__Status *s)
{
	uint32_t i;

	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];
		uint64_t live = zone_live(d, i);

		s->zones_by_state[z->z.state]++;
		s->suspect_zones += z->suspect && zone_usable(z);
		if (z->meta)
			continue;
		s->bytes_live += live;
		if (zone_empty(d, i))
			s->bytes_free += z->z.capacity;
		else if (zone_parked(d, i))
			s->bytes_free += z->z.capacity - z->z.wp;
		/* The data of a running dump do not count as garbage. */
		if (!z->writer && z->z.wp > live && !(on_disk(d) && space_usable(d, i)) &&
		    (!d->groups[z->group].io || z->ours))
			s->bytes_wasted += z->z.wp - live;
	}
	if (on_disk(d))
		s->bytes_free = free_bytes(d);
}

static ZnsPb__LeaseDetail *lease_detail(const struct lease *l, struct reply *rep)
{
	ZnsPb__LeaseDetail *det = reply_alloc(rep, sizeof(*det));

	zns_pb__lease_detail__init(det);
	det->has_gained_groups = 1;
	det->packed = l->packed;
	if (lease_admitted(l)) {
		det->width = l->dump.width;
		det->gained_groups = l->dump.nr_gained;
		det->promised = l->dump.promised;
		det->shared_groups = l->dump.nr_shared;
		det->tenant = l->dump.tenant;
	}
	return det;
}

static ZnsPb__MemoryDetail *yielding_detail(const struct lease *l, struct reply *rep)
{
	ZnsPb__MemoryDetail *det = reply_alloc(rep, sizeof(*det));

	zns_pb__memory_detail__init(det);
	l->yields.ops->tell(l, det);
	return det;
}

static ZnsPb__HotStatus *status_hot(const struct znsd *d, struct reply *rep)
{
	ZnsPb__HotStatus *h = reply_alloc(rep, sizeof(*h));
	struct zns_hot_figures f;

	zns_pb__hot_status__init(h);
	zns_hot_figures(d->hot, &f);
	h->limit = f.limit;
	h->used = f.used;
	h->read = f.filled;
	h->given = f.had;
	h->wrong = f.wrong;
	h->late = f.late;
	return h;
}

static void status_budget(struct znsd *d, ZnsPb__Status *s)
{
	uint32_t i, total = budget_total(d);

	s->has_parked_zones = s->has_pack_zones = s->has_zones_granted = 1;
	s->parked_zones = zones_parked(d);
	for (i = 0; i < d->nr_zones; i++)
		s->pack_zones += zone_packed(d, i);
	s->has_zones_budget = total != UINT32_MAX;
	s->zones_budget = total;
	s->zones_granted = budget_used(d);
}

static void status_leases(struct znsd *d, ZnsPb__Status *s, struct reply *rep)
{
	struct lease *l;
	size_t n = 0;

	for (l = d->leases; l; l = l->next)
		n++;
	s->leases = reply_alloc(rep, n * sizeof(*s->leases));
	for (l = d->leases; l; l = l->next) {
		ZnsPb__LeaseLine *line = reply_alloc(rep, sizeof(*line));

		if (l->kind == LEASE_SOURCE || l->kind == LEASE_NAMED)
			continue; /* the zone belongs to a lease that is listed anyway */

		zns_pb__lease_line__init(line);
		line->kind = l->kind == LEASE_YIELDING ? (char *)l->yields.ops->kind :
			     lease_background(l)       ? "compact" :
			     lease_writes(l)           ? "dump" :
							 "restore";
		line->pid = l->pid;
		line->container = l->container;
		line->groups = l->groups;
		line->n_groups = l->nr_groups;
		if (lease_admitted(l)) {
			line->has_qos_mibps = 1;
			line->qos_mibps = l->dump.qos_mibps;
			line->qos_max_mibps = l->dump.cap_mibps;
			line->promised_mibps = l->dump.promised_mibps;
		}
		line->has_since_ns = 1;
		line->since_ns = l->since_ns;
		line->has_bytes = line->has_total = line->has_mibps = l->seen_ns > 0;
		line->bytes = l->bytes;
		line->total = l->total;
		line->mibps = l->mibps;
		line->has_rate_mibps = line->has_qos_max_mibps = line->has_promised_mibps = 1;
		line->rate_mibps = rate_limit(d, l);
		line->has_weight = l->weight > 0;
		line->weight = l->weight;
		line->detail = lease_writes(l) ? lease_detail(l, rep) : NULL;
		line->memory = l->kind == LEASE_YIELDING ? yielding_detail(l, rep) : NULL;
		s->leases[s->n_leases++] = line;
	}
}

static ZnsPb__HostReservation *status_host(struct znsd *d, struct reply *rep)
{
	ZnsPb__HostReservation *h;
	struct zns_resv_state now;

	if (!d->server->resv.offered)
		return NULL;
	host_look(d, &now);
	h = reply_alloc(rep, sizeof(*h));
	zns_pb__host_reservation__init(h);
	h->held = now.held;
	h->ours = now.ours;
	h->type = (char *)zns_resv_type_name(now.type);
	h->key = now.key;
	return h;
}

#define SCATTERED_SHOWN 8
#define SCATTERED_BELOW 0.9
/* a smaller checkpoint is restored quickly wherever its bytes are */
#define SCATTERED_BYTES MIB(64)

/* How many groups the checkpoint's rate needs. Moves may leave it in fewer, if they bring two lanes
 * together. */
static uint32_t width_wanted(struct znsd *d, const ZnsPb__Checkpoint *c)
{
	uint32_t want = zns_alloc_width(c->qos_requested_mibps, d->zone_mibps);

	return zns_min(want, zns_min(d->nr_groups, budget_total(d)));
}

static bool metadata_only(const ZnsPb__Checkpoint *c, uint32_t group)
{
	for (size_t i = 0; i < c->n_metadata_groups; i++)
		if (c->metadata_groups[i] == group)
			return true;
	return false;
}

/*
 * An upper bound for the rate of a restore, computed from the bytes in each group, regardless of
 * the order of units. 0: unknown.
 */
static double rate_bound(struct znsd *d, const ZnsPb__Checkpoint *c, uint64_t *in)
{
	uint64_t most = 0, all = 0;
	uint32_t nr = 0, i;

	memset(in, 0, d->nr_groups * sizeof(*in));
	for (size_t k = 0; k < c->n_zones; k++)
		if (c->zones[k]->zone < d->nr_zones)
			in[d->zones[c->zones[k]->zone].group] += c->zones[k]->len;
	for (i = 0; i < d->nr_groups; i++) {
		nr += in[i] > 0 && !metadata_only(c, i);
		all += in[i];
		most = zns_max(most, in[i]);
	}
	nr = zns_max(nr, width_wanted(d, c));
	return most && nr ? zns_min((double)all / nr / (double)most, 1.0) : 0;
}

/* Inserts a line; the slowest come first, and the fastest are dropped if there are too many. */
static void add_scattered(ZnsPb__Status *s, ZnsPb__Scattered *line)
{
	size_t at = s->n_scattered;

	while (at && s->scattered[at - 1]->of_best > line->of_best)
		at--;
	if (at == SCATTERED_SHOWN)
		return;
	s->n_scattered = zns_min(s->n_scattered + 1, (size_t)SCATTERED_SHOWN);
	memmove(&s->scattered[at + 1], &s->scattered[at],
		(s->n_scattered - at - 1) * sizeof(*s->scattered));
	s->scattered[at] = line;
}

static void status_scattered(struct znsd *d, ZnsPb__Status *s, struct reply *rep)
{
	cleanup_free uint64_t *in = znsd_alloc((d->nr_groups + 1) * sizeof(*in));

	s->scattered = reply_alloc(rep, SCATTERED_SHOWN * sizeof(*s->scattered));
	for (size_t i = 0; i < s->nr_checkpoints; i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);
		double of_best = c->bytes < SCATTERED_BYTES ? 0 : rate_bound(d, c, in);
		ZnsPb__Scattered *line;

		if (of_best <= 0 || of_best >= SCATTERED_BELOW)
			continue;
		line = reply_alloc(rep, sizeof(*line));
		zns_pb__scattered__init(line);
		line->container = c->container;
		line->checkpoint = c->id;
		line->of_best = of_best;
		add_scattered(s, line);
	}
}

int serve_status(struct znsd *d, const struct call *x, struct reply *rep)
{
	const struct zns_geometry *geo = &d->dev->geo;
	ZnsPb__Status *s = reply_alloc(rep, sizeof(*s));
	size_t i, n = zns_store_nr_reservations(d->store);
	int ret;

	ret = zones_refresh(d, 0, d->nr_zones, &rep->err);
	if (ret)
		return ret;
	zns_pb__status__init(s);
	s->device.data = d->reg.uuid;
	s->device.len = ZNS_UUID_LEN;
	s->path = d->reg.path;
	s->nr_zones = geo->nr_zones;
	s->zone_size = geo->zone_size;
	s->zone_capacity = geo->zone_capacity;
	s->block_size = geo->block_size;
	s->max_open = geo->max_open;
	s->max_active = geo->max_active;
	s->n_zones_by_state = ZNS_ZONE_NR_STATES;
	s->zones_by_state = reply_alloc(rep, ZNS_ZONE_NR_STATES * sizeof(*s->zones_by_state));
	s->has_suspect_zones = 1;
	status_zones(d, s);
	s->nr_checkpoints = zns_store_nr_checkpoints(d->store);
	s->has_nr_damaged = 1;
	for (i = 0; i < zns_store_nr_marks(d->store); i++)
		s->nr_damaged += zns_store_mark(d->store, i)->has_damaged_ns;
	status_scattered(d, s, rep);
	s->n_reservations = n;
	s->reservations = reply_alloc(rep, n * sizeof(*s->reservations));
	for (i = 0; i < n; i++)
		s->reservations[i] = (ZnsPb__Reservation *)zns_store_reservation(d->store, i);
	status_leases(d, s, rep);
	status_budget(d, s);
	s->has_metadata_zones = s->has_log_generation = s->has_broker_pid = s->has_nr_waiting = 1;
	s->metadata_zones = zns_store_nr_meta(d->store);
	s->log_generation = zns_store_generation(d->store);
	s->broker_pid = getpid();
	s->nr_waiting = d->policy->nr_waiting;
	if (d->restores) {
		s->n_restores = d->restores->n_restores;
		s->restores = d->restores->restores;
	}
	if (rate_one_domain(d)) {
		s->has_promised_mibps = s->has_device_mibps = 1;
		s->promised_mibps = promises_rate(d);
		s->device_mibps = d->zone_mibps;
	}
	s->host_reservation = status_host(d, rep);
	s->hot = d->hot ? status_hot(d, rep) : NULL;
	rep->r.status = s;
	return 0;
}

int serve_history(struct znsd *d, const struct call *x, struct reply *rep)
{
	ZnsPb__History *h = reply_alloc(rep, sizeof(*h));
	ZnsPb__GroupLoad **groups;
	int ret = zones_refresh(d, 0, d->nr_zones, &rep->err);

	if (ret)
		return ret;
	history_tell(d, h, &groups);
	reply_keep(rep, groups);
	rep->r.history = h;
	return 0;
}

int serve_zones(struct znsd *d, const struct call *x, struct reply *rep)
{
	ZnsPb__ZoneLine *lines;
	uint32_t i;
	int ret;

	ret = zones_refresh(d, 0, d->nr_zones, &rep->err);
	if (ret)
		return ret;
	lines = reply_alloc(rep, d->nr_zones * sizeof(*lines));
	rep->r.n_zones = d->nr_zones;
	rep->r.zones = reply_alloc(rep, d->nr_zones * sizeof(*rep->r.zones));
	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];
		ZnsPb__ZoneLine *line = &lines[i];
		const char *owner = zns_store_zone_owner(d->store, i);

		zns_pb__zone_line__init(line);
		line->index = i;
		line->state = z->z.state;
		line->wp = z->z.wp;
		line->capacity = z->z.capacity;
		line->group = z->group;
		if (z->meta)
			line->owner = z->z.conventional ? "(conventional)" : "(metadata)";
		else if (z->writer && z->writer->kind == LEASE_YIELDING)
			line->owner = z->writer->container;
		else if (z->writer)
			line->owner = reply_printf(rep, "(writing) %s", z->writer->container);
		else if (zone_packed(d, i))
			line->owner = "(pack)";
		else if (!owner && d->groups[z->group].io && z->z.wp)
			line->owner = "(normal I/O)";
		else
			line->owner = (char *)owner;
		line->has_live = 1;
		line->live = zone_live(d, i);
		line->has_suspect = 1;
		line->suspect = z->suspect && zone_usable(z);
		rep->r.zones[i] = line;
	}
	return 0;
}

int serve_profile(struct znsd *d, const struct call *x, struct reply *rep)
{
	rep->r.profile = (ZnsPb__Profile *)zns_store_profile(d->store);
	return 0;
}
