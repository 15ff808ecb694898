/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Chooses the groups for a dump, by the rules of design.md §5 and the present state of the tables.
 */
#include <string.h>
#include "policy.h"
#include "zns/layout.h"

#define WIDTH_MAX 256u /* most extents of a segment */
#define DISK_STREAMS 8u /* writes in parallel on a disk, which make it fast */
/* added to the reservations of a group so that it ranks behind all groups that the container has
 * reserved */
#define OTHERS (1u << 24)

const ZnsPb__Reservation *own_reservation(const struct znsd *d, const struct dump_ask *a)
{
	const ZnsPb__Reservation *r = a->dynamic ?
					      NULL :
					      zns_store_find_reservation(d->store, a->container);

	return r && !r->explicit_ ? r : NULL;
}

/* If possible, removes from @order the groups that a waiting dump will get, because a dump that
 * shares can use others. */
static uint32_t leave_held(const struct znsd *d, const ZnsPb__Reservation *own, uint32_t *order,
			   uint32_t found)
{
	uint32_t n = 0, i;

	if (!d->policy->held)
		return found;
	for (i = 0; i < found; i++)
		if (!d->policy->held[order[i]] || reserved_by(own, order[i]))
			order[n++] = order[i];
	return n ? n : found;
}

/* Lists all groups that the dump could have, best first. Returns their number. */
static uint32_t order_groups(struct znsd *d, const struct dump_ask *a, struct choice *ch)
{
	const ZnsPb__Reservation *own = own_reservation(d, a);
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	uint32_t n, i;

	memcpy(gs, ch->gs, d->nr_groups * sizeof(*gs));
	for (i = 0; i < d->nr_groups; i++) {
		/* A container keeps its own groups, even if others share them: all other groups
		 * rank behind these. */
		if (own && !reserved_by(own, i))
			gs[i].nr_reservations += OTHERS;
		if (a->mode != ADM_SHARE && !rate_one_domain(d) &&
		    (gs[i].nr_leases || group_slow(d, i)))
			gs[i].free_zones = 0;
	}
	n = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, ch->order);
	return a->mode == ADM_SHARE ? leave_held(d, own, ch->order, n) : n;
}

/* The rate of the first @n groups together in MiB/s, where each group gives its fair share. */
static uint64_t rate_of(const struct znsd *d, const struct choice *ch, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		sum += ((uint64_t)zns_min(d->zone_mibps, d->groups[ch->order[i]].mibps) << 16) /
		       (1 + ch->gs[ch->order[i]].nr_reservations);
	return (sum + (1 << 15)) >> 16;
}

static int busy(struct choice *ch, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int busy(struct choice *ch, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ch->why, sizeof(ch->why), fmt, ap);
	va_end(ap);
	return -EBUSY;
}

/*
 * Are @more active zones possible? @own of them are active already. If the rest exceeds the limit,
 * parked zones are finished first.
 */
static int check_active(struct znsd *d, struct choice *ch, uint32_t more, uint32_t own)
{
	uint32_t excess = budget_excess(d, more, own);

	if (!excess)
		return 0;
	room_want(d, excess);
	ch->room = true;
	return busy(ch,
		    "%u partly filled zones are being finished, the device allows %u active ones",
		    excess, d->dev->geo.max_active);
}

/* Chooses for a small dump the fullest pack zone that has room for all of it, preferably in an idle
 * group; if there is none, a new zone. */
static int choose_pack(struct znsd *d, const struct dump_ask *a, struct choice *ch, uint32_t found,
		       uint32_t left)
{
	uint64_t slack = zns_min((uint64_t)MIB(1), d->dev->geo.zone_capacity / 8),
		 best_room = UINT64_MAX;
	bool best_idle = false;
	uint32_t i;

	ch->packed = true;
	ch->width = 1;
	if (pack_leases(d) >= pack_limit(d))
		return busy(ch, "small dumps write all %u pack zones that may be in use at once",
			    pack_limit(d));
	if (!left)
		return busy(ch, "all %u zones that may be open at once are being written",
			    budget_total(d));
	for (i = 0; i < d->nr_zones; i++) {
		const struct zn_zone *z = &d->zones[i];
		const struct zns_group_state *g = &ch->gs[z->group];
		uint64_t room = z->z.capacity - z->z.wp;
		bool idle = !g->nr_leases;

		if (!zone_parked_pack(d, i, a->min_room) || room < a->expected + slack ||
		    g->promised || (a->mode != ADM_SHARE && !idle))
			continue;
		if (idle < best_idle || (idle == best_idle && room >= best_room))
			continue;
		best_room = room;
		best_idle = idle;
		ch->pack_zone = i;
	}
	if (ch->pack_zone != ZNSD_NONE)
		ch->order[0] = d->zones[ch->pack_zone].group;
	else if (!found)
		return busy(ch, "no group is free");
	return check_active(d, ch, 1, ch->pack_zone != ZNSD_NONE);
}

/* Chooses for a small dump on a disk one place that has room for all of it. If there is none, the
 * dump gets places one by one as it writes, and if empty zones have no room for all of it either,
 * it writes small units. */
static int choose_small_on_disk(struct znsd *d, const struct dump_ask *a, struct choice *ch,
				uint32_t found)
{
	uint64_t want = a->expected + a->min_room;

	ch->packed = true;
	ch->width = 1;
	ch->order[0] = 0;
	if (pack_leases(d) >= pack_limit(d))
		return busy(ch, "%u small dumps run, as many as may at once", pack_limit(d));
	if (space_find(d, NULL, a->min_room, want, &ch->space) &&
	    ch->space.end - ch->space.start >= want)
		ch->pack_zone = ch->space.zone;
	else if (!found && space_for_small(d, zns_unit_small(a->expected, true)) < want)
		return busy(ch, "too little room is left between checkpoints");
	ch->scattered = ch->pack_zone == ZNSD_NONE &&
			ch->gs[0].free_zones * d->dev->geo.zone_capacity < want;
	return 0;
}

/* Without sharing: grants a dump everything that it asks for, or does not admit it now. */
static int choose_strict(struct znsd *d, const struct dump_ask *a, struct choice *ch,
			 uint32_t found, uint32_t left)
{
	uint32_t needed = a->needed + a->separate;

	if (found < needed)
		return busy(ch, "%u groups are needed and %u are free", needed, found);
	if (left < needed)
		return busy(ch, "%u zones are needed and %u of %u may still be opened", needed,
			    left, budget_total(d));
	if (budget_tenant_groups(d, &a->tenant) < needed)
		return busy(ch, "%u groups are needed and %u of %u are left to tenant `%.100s`",
			    needed, budget_tenant_groups(d, &a->tenant), a->tenant.total_groups,
			    a->tenant.who);
	if (budget_tenant_qos(d, &a->tenant) < a->qos)
		return busy(ch, "%u MiB/s are wanted and %u of %u are left to tenant `%.100s`",
			    a->qos, budget_tenant_qos(d, &a->tenant), a->tenant.total_qos_mibps,
			    a->tenant.who);
	if (ceiling_left(d) < a->qos)
		return busy(
			ch,
			"%u MiB/s are wanted, and of the %u that the device writes as a whole %u are not promised",
			a->qos, d->ceiling_mibps, ceiling_left(d));
	ch->width = a->needed;
	ch->nr_meta = a->separate;
	return 0;
}

/* Sorts the groups such that all running dumps get fair shares. Returns how many of the groups to
 * take. */
static uint32_t spread_over(struct znsd *d, const struct dump_ask *a, struct choice *ch,
			    uint32_t found, uint32_t most)
{
	const ZnsPb__Reservation *own = own_reservation(d, a);
	uint32_t nr, none, first = 0;
	cleanup_free struct zns_sharer *s = sharers_of(d, NULL, &nr, &none);
	double want = zns_max(1.0, zns_min((double)a->qos / d->zone_mibps, (double)a->needed));

	while (first < found && reserved_by(own, ch->order[first]))
		first++;
	return zns_alloc_spread(ch->gs, d->nr_groups, s, nr, want,
				(a->weight ? a->weight : ZNS_WEIGHT_DEFAULT) /
					(double)ZNS_WEIGHT_DEFAULT,
				a->needed, most, first, ceiling_share(d), ch->order, found);
}

/* With sharing: adds groups until the dump's fair shares of them sum up to the rate, or a limit is
 * reached. */
static int choose_share(struct znsd *d, const struct dump_ask *a, struct choice *ch, uint32_t found,
			uint32_t left)
{
	uint32_t tenant = budget_tenant_groups(d, &a->tenant),
		 qos = budget_tenant_qos(d, &a->tenant), most;
	uint64_t want = zns_min((uint64_t)a->qos, (uint64_t)a->needed * d->zone_mibps);
	const char *less = NULL;

	if (!found)
		return busy(
			ch,
			"every group with a free zone is reserved for normal I/O or promised to a dump");
	if (!left)
		return busy(ch, "all %u zones that may be open at once are being written",
			    budget_total(d));
	if (!tenant || (a->qos && !qos))
		return busy(ch, "tenant `%.100s` has all that it may have in use", a->tenant.who);
	most = zns_min(zns_min(found, WIDTH_MAX),
		       a->tenant.max_groups ? a->tenant.max_groups : WIDTH_MAX);
	if (a->most < most)
		most = a->most;
	ch->width = spread_over(d, a, ch, found, most);
	if (ch->width > zns_alloc_width(qos, d->zone_mibps) && qos < a->qos) {
		ch->width = zns_alloc_width(qos, d->zone_mibps);
		less = "of the tenant's rate is left";
	}
	if (ch->width > tenant) {
		ch->width = tenant;
		less = "of the tenant's groups is left";
	}
	ch->nr_meta = a->separate && found > 1 && left > 1 && tenant > 1 &&
		      (!a->tenant.max_groups || a->tenant.max_groups > 1);
	if (ch->nr_meta && ch->width + 1 > zns_min(found, zns_min(left, tenant)))
		ch->width = zns_min(found, zns_min(left, tenant)) - 1;
	if (ch->width + ch->nr_meta > left) {
		ch->width = left - ch->nr_meta;
		snprintf(ch->note, sizeof(ch->note),
			 "only %u of %u open zones are left: %u zones of %u, about %u MiB/s of %u",
			 left, budget_total(d), ch->width, a->needed,
			 (unsigned)rate_of(d, ch, ch->width), a->qos);
	} else if (less) {
		snprintf(ch->note, sizeof(ch->note),
			 "little %s: %u zones of %u, about %u MiB/s of %u", less, ch->width,
			 a->needed, (unsigned)rate_of(d, ch, ch->width), a->qos);
	} else if (ceiling_left(d) < want) {
		snprintf(
			ch->note, sizeof(ch->note),
			"of the %u MiB/s that the device writes as a whole %u are not promised: at most these, of %u",
			d->ceiling_mibps, ceiling_left(d), a->qos);
	} else if (rate_of(d, ch, ch->width) < want && !rate_one_domain(d)) {
		snprintf(ch->note, sizeof(ch->note),
			 "groups are shared or used up: %u zones, about %u MiB/s of %u", ch->width,
			 (unsigned)rate_of(d, ch, ch->width), a->qos);
	}
	return 0;
}

/* The group that has the metadata images of the container's last checkpoint; ZNSD_NONE: there is
 * none. */
static uint32_t last_metadata_group(const struct znsd *d, const struct dump_ask *a)
{
	size_t i = zns_store_nr_checkpoints(d->store);

	while (!a->dynamic && i-- > 0) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);

		if (c->n_metadata_groups && !strcmp(c->container, a->container))
			return c->metadata_groups[0];
	}
	return ZNSD_NONE;
}

/* Splits the best groups into those for pages and one for metadata images. */
static void set_apart(struct znsd *d, const struct dump_ask *a, struct choice *ch, uint32_t found)
{
	cleanup_free uint32_t *pages = znsd_alloc(d->nr_groups * sizeof(*pages));
	uint32_t meta = 0, n, i, last = last_metadata_group(d, a);
	enum zns_apart apart;

	/* Of equal groups, the last one in the order becomes the one for metadata. So move the
	 * group of the last checkpoint to the end. */
	for (i = 0; i + 1 < found; i++) {
		if (ch->order[i] != last)
			continue;
		ch->order[i] = ch->order[i + 1];
		ch->order[i + 1] = last;
	}
	apart = zns_alloc_apart(ch->gs, ch->order, found, ch->width, pages, &n, &meta);
	ch->width = n;
	ch->nr_meta = apart != ZNS_APART_NONE;
	memcpy(ch->order, pages, n * sizeof(*pages));
	ch->order[n] = meta;
}

static uint32_t own_parked(const struct znsd *d, const struct dump_ask *a, const struct choice *ch)
{
	uint32_t i, k, n = 0;

	for (i = 0; i < ch->width + ch->nr_meta; i++) {
		const struct zn_group *g = &d->groups[ch->order[i]];

		for (k = 0; k < g->nr_zones; k++)
			if (zone_parked_for(d, g->zones[k], a->container, a->min_room))
				break;
		n += k < g->nr_zones;
	}
	return n;
}

/* On a drive where all zones share all dies (one domain), only promised rates are counted. */
static int choose_domain(struct znsd *d, const struct dump_ask *a, struct choice *ch)
{
	char why[sizeof(ch->why)];

	if (!rate_one_domain(d) || !rate_admit(d, a->qos, &ch->promise, why, sizeof(why)))
		return 0;
	if (a->mode != ADM_SHARE)
		return busy(ch, "%s", why);
	snprintf(ch->note, sizeof(ch->note), "%s", why);
	return 0;
}

/*
 * Can zones become free without a removal? Only if there is a writer, or a reader of a removed
 * checkpoint, whose zones can be freed when it ends. A reader of an existing checkpoint frees
 * nothing when it ends; that includes a lease that flattens one.
 */
static bool zones_may_come(const struct znsd *d)
{
	uint32_t i;

	for (const struct lease *l = d->leases; l; l = l->next)
		if (l->kind != LEASE_RESTORE && l->kind != LEASE_SOURCE)
			return true;
	for (i = 0; i < d->nr_zones; i++)
		if (d->zones[i].readers && !zone_live(d, i))
			return true;
	return false;
}

/*
 * Chooses the number of streams on a disk. Each stream writes one zone at a time, and on average
 * half of its last zone is wasted. So a dump has no more streams than disk_stream_min() allows.
 */
static int choose_disk(struct znsd *d, const struct dump_ask *a, struct choice *ch)
{
	uint32_t qos = budget_tenant_qos(d, &a->tenant);

	ch->order[0] = 0;
	ch->width = DISK_STREAMS;
	if (a->expected)
		ch->width = (uint32_t)zns_max(UINT64_C(1), zns_min(a->expected / disk_stream_min(d),
								   (uint64_t)DISK_STREAMS));
	if (qos >= a->qos)
		return 0;
	if (a->mode != ADM_SHARE)
		return busy(ch, "%u MiB/s are wanted and %u of %u are left to tenant `%.100s`",
			    a->qos, qos, a->tenant.total_qos_mibps, a->tenant.who);
	if (!qos)
		return busy(ch, "tenant `%.100s` has all that it may have in use", a->tenant.who);
	ch->promise = zns_min(ch->promise, qos);
	snprintf(ch->note, sizeof(ch->note), "%u MiB/s of the tenant's rate are left, of %u", qos,
		 a->qos);
	return 0;
}

static int choose_now(struct znsd *d, const struct dump_ask *a, struct choice *ch, uint32_t left,
		      struct zns_err *err)
{
	uint32_t found, i, room = 0;
	int ret;

	ch->pack_zone = ZNSD_NONE;
	groups_state(d, a->container, NULL, ch->gs);
	found = order_groups(d, a, ch);
	if (a->small && on_disk(d)) {
		room = 1; /* a small dump may fit between other checkpoints */
	} else if (a->small) {
		for (i = 0; i < d->nr_zones && !room; i++)
			room += zone_parked_pack(d, i, a->min_room);
	}
	for (i = 0; i < d->nr_groups; i++)
		room += ch->gs[i].free_zones;
	if (!room)
		return device_full(d, err);
	ret = choose_domain(d, a, ch);
	if (ret)
		return ret;
	if (a->small) {
		ret = on_disk(d) ? choose_small_on_disk(d, a, ch, found) :
				   choose_pack(d, a, ch, found, left);
		/* There are pack zones with room, but not enough for this dump. */
		return ret == -EBUSY && !found && !ch->room && !zones_may_come(d) ?
			       device_full(d, err) :
			       ret;
	}
	if (on_disk(d))
		return choose_disk(d, a, ch);
	ret = a->mode == ADM_SHARE ? choose_share(d, a, ch, found, left) :
				     choose_strict(d, a, ch, found, left);
	if (ret)
		return ret;
	if (ch->nr_meta)
		set_apart(d, a, ch, found);
	if (a->separate && !ch->nr_meta)
		snprintf(ch->note, sizeof(ch->note),
			 "no group is left for metadata images: they go with the pages");
	return check_active(d, ch, ch->width + ch->nr_meta, own_parked(d, a, ch));
}

/*
 * Zones that a compaction writes count as free. They are granted after the compaction has given
 * them up, which it does at its next step.
 */
int choose_groups(struct znsd *d, const struct dump_ask *a, struct choice *ch, struct zns_err *err)
{
	uint32_t total = budget_total(d), used = budget_used(d), moving = leases_yielding(d);
	uint32_t others = used - zns_min(used, moving);
	int ret = choose_now(d, a, ch, total > others ? total - others : 0, err);

	if (!moving) {
		d->policy->compact_yield = false;
		return ret;
	}
	if (!ret && total - zns_min(total, used) < ch->width + ch->nr_meta)
		ret = busy(ch, "%u zones are being compacted", moving);
	else if (ret == -ENOSPC)
		ret = busy(ch, "the last free zone is being compacted into");
	if (ret == -EBUSY)
		d->policy->compact_yield = ch->room = true;
	return ret;
}

/* Marks the groups that a waiting dump will get, so that dumps which can use others avoid them. */
void choose_hold(struct znsd *d, const struct dump_ask *a)
{
	const ZnsPb__Reservation *own = own_reservation(d, a);
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	cleanup_free uint32_t *order = znsd_alloc(d->nr_groups * sizeof(*order));
	uint32_t i, n;

	groups_state(d, a->container, NULL, gs);
	for (i = 0; i < d->nr_groups; i++) {
		gs[i].promised = false;
		if (own && !reserved_by(own, i))
			gs[i].nr_reservations += OTHERS;
	}
	n = zns_alloc_pick(gs, d->nr_groups, zns_min(a->needed + a->separate, d->nr_groups), order);
	if (!d->policy->held)
		d->policy->held = znsd_alloc(d->nr_groups);
	memset(d->policy->held, 0, d->nr_groups);
	for (i = 0; i < n; i++)
		d->policy->held[order[i]] = 1;
}

void choose_release(struct znsd *d)
{
	free(d->policy->held);
	d->policy->held = NULL;
}
