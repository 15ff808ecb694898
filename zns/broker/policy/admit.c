/* SPDX-License-Identifier: GPL-2.0-only */
/* Admission of a dump: checks its request against the limits, and makes the reservation and the
 * lease. */
#include <string.h>
#include "policy.h"
#include "zns/layout.h"

#define WAIT_S 60
#define SMALL_UNITS 16 /* a dump with fewer units per zone is given fewer zones */

static int parse(const ZnsPb__DumpBegin *q, struct dump_ask *a, struct zns_err *err)
{
	const char *s = q->admission ? q->admission : "share";
	uint64_t wait_s = WAIT_S;
	int ret;

	*a = (struct dump_ask){ .container = q->container,
				.qos = q->qos_mibps,
				.wait_s = WAIT_S,
				.min_room = q->min_room,
				.expected = q->expected_bytes,
				.uid = q->has_uid ? q->uid : ZNSD_NONE,
				.separate = q->separate_metadata,
				.most = ZNSD_NONE,
				.cap_mibps = q->qos_max_mibps,
				.weight = q->weight,
				.flatten = q->has_flatten,
				.own_class = q->has_flatten && q->own_class };
	ret = zns_check_container(q->container, err);
	if (!ret)
		ret = weight_check(q->weight, err);
	if (!ret)
		ret = rate_check_cap(q, err);
	if (ret)
		return ret;
	if (q->alloc && strcmp(q->alloc, "static") && strcmp(q->alloc, "dynamic"))
		return zns_fail(err, -EINVAL,
				"allocation \"%.40s\" is not known: static or dynamic", q->alloc);
	a->dynamic = q->alloc && !strcmp(q->alloc, "dynamic");
	a->join = q->has_join ? q->join.data : NULL;
	if (!strcmp(s, "share")) {
		a->mode = ADM_SHARE;
	} else if (!strcmp(s, "reject")) {
		a->mode = ADM_REJECT;
	} else if (!strncmp(s, "wait", 4) && (!s[4] || s[4] == '=')) {
		a->mode = ADM_WAIT;
		if (s[4] && zns_parse_number(s + 5, 0, 86400, &wait_s))
			return zns_fail(err, -EINVAL,
					"admission \"%.40s\": wait=S takes 0 to 86400 seconds", s);
		a->wait_s = (uint32_t)wait_s;
	} else {
		return zns_fail(err, -EINVAL,
				"admission \"%.40s\" is not known: share, wait[=SECONDS] or reject",
				s);
	}
	return 0;
}

/* Refuses, in every mode, a rate that the device cannot give even when it is idle. */
static int check_rate(struct znsd *d, struct dump_ask *a, struct zns_err *err)
{
	uint32_t groups = 0, budget = budget_device(d), max, i, k, bound;

	if (on_disk(d)) {
		a->needed = 1;
		/* a disk has only one group, so metadata cannot be separated */
		a->separate = false;
		/*
		 * The rate of a disk was measured once and may be wrong. So a dump in mode share is
		 * admitted nevertheless, at the rate that is left, with a note.
		 */
		return a->qos <= d->zone_mibps || a->mode == ADM_SHARE ?
			       0 :
			       zns_fail(
				       err, -ERANGE,
				       "QoS of %u MiB/s exceeds what %s can promise: at most %u MiB/s, which is all that its disk writes",
				       a->qos, d->reg.path, d->zone_mibps);
	}

	for (i = 0; i < d->nr_groups; i++) {
		if (group_slow(d, i))
			continue;
		for (k = 0; k < d->groups[i].nr_zones; k++)
			if (zone_usable(&d->zones[d->groups[i].zones[k]]))
				break;
		groups += k < d->groups[i].nr_zones;
	}
	/* A segment cannot have more extents than this. */
	budget = zns_min(budget, 256u);
	max = zns_alloc_max_qos(groups, budget, budget, d->zone_mibps);
	bound = zns_min(groups, budget);
	if (d->ceiling_mibps && d->ceiling_mibps < max && a->qos > d->ceiling_mibps)
		return zns_fail(
			err, -ERANGE,
			"QoS of %u MiB/s exceeds what %s can promise: at most %u MiB/s, which is all that the device writes as a whole",
			a->qos, d->reg.path, d->ceiling_mibps);
	if (a->qos > max)
		return zns_fail(
			err, -ERANGE,
			"QoS of %u MiB/s exceeds what %s can promise: at most %u MiB/s (%u %s x %u MiB/s)",
			a->qos, d->reg.path, max, bound, budget < groups ? "open zones" : "groups",
			d->zone_mibps);
	a->needed = zns_alloc_width(a->qos, d->zone_mibps);
	if (a->separate && a->mode != ADM_SHARE && a->needed + 1 > bound)
		return zns_fail(
			err, -ERANGE,
			"QoS of %u MiB/s with a separate group for metadata images needs %u groups, %s can promise %u (%s)",
			a->qos, a->needed + 1, d->reg.path, bound,
			budget < groups ? "open zones" : "groups");
	return 0;
}

/* Applies the administrator's limits for this container, which hold whatever the device could
 * give. */
static int check_ceiling(struct znsd *d, struct dump_ask *a, struct zns_err *err)
{
	const struct zns_tenant *t = &a->tenant;
	uint32_t qos, groups;
	int ret;

	ret = zns_tenant_find(a->container, a->uid == ZNSD_NONE ? -1 : (int64_t)a->uid, &a->tenant,
			      err);
	if (ret || !*t->who)
		return ret;
	qos = t->max_qos_mibps && (!t->total_qos_mibps || t->max_qos_mibps < t->total_qos_mibps) ?
		      t->max_qos_mibps :
		      t->total_qos_mibps;
	groups = t->max_groups && (!t->total_groups || t->max_groups < t->total_groups) ?
			 t->max_groups :
			 t->total_groups;
	if (qos && a->qos > qos)
		return zns_fail(
			err, -EDQUOT,
			"QoS of %u MiB/s exceeds the ceiling of %u MiB/s that `%.100s` has (%s/tenants.conf:%u)",
			a->qos, qos, t->who, zns_config_dir(), t->line);
	if (t->max_weight && a->weight > t->max_weight && !a->flatten)
		return zns_fail(
			err, -EDQUOT,
			"a weight of %u exceeds the ceiling of %u that `%.100s` has (%s/tenants.conf:%u)",
			a->weight, t->max_weight, t->who, zns_config_dir(), t->line);
	if (!a->own_class)
		a->weight = weight_under(t, a->weight);
	if (groups && a->needed + (a->separate && a->mode != ADM_SHARE) > groups)
		return zns_fail(
			err, -EDQUOT,
			"QoS of %u MiB/s takes %u groups%s, the ceiling of `%.100s` is %u, %u MiB/s (%s/tenants.conf:%u)",
			a->qos, a->needed, a->separate ? " and one for metadata" : "", t->who,
			groups, groups * d->zone_mibps, zns_config_dir(), t->line);
	return 0;
}

/*
 * Limits the zones of a small dump: with few units it cannot use many zones. A dump of very few
 * units shares a pack zone (design.md §4).
 */
static void check_size(const struct znsd *d, struct dump_ask *a)
{
	uint64_t each = (uint64_t)SMALL_UNITS * a->min_room;

	if (!a->expected || !each)
		return;
	if (on_disk(d)) {
		a->small = a->expected < disk_stream_min(d);
		return;
	}
	a->most = (uint32_t)zns_min(zns_max(a->expected / each, (uint64_t)1), (uint64_t)ZNSD_NONE);
	a->needed = zns_min(a->needed, a->most);
	a->small = a->expected < each && !a->separate && !own_reservation(d, a);
}

/*
 * Does the dump reserve its groups? A dump in a pack zone does not. The reservation of a container
 * that also does normal I/O is kept for that I/O.
 */
static bool reserves(const struct znsd *d, const struct dump_ask *a, const struct choice *ch)
{
	const ZnsPb__Reservation *r = zns_store_find_reservation(d->store, a->container);

	return !a->dynamic && !ch->packed && !on_disk(d) && !(r && r->explicit_);
}

static void set_parent(const struct znsd *d, struct lease *l, const ZnsPb__DumpBegin *q)
{
	if (l->kind != LEASE_DUMP)
		l->dump.moved = zns_store_find(d->store, l->id)->moved;
	l->dump.has_parent = q->has_parent;
	if (q->has_parent)
		memcpy(l->dump.parent, q->parent.data, ZNS_UUID_LEN);
	if (q->has_join) { /* a checkpoint that is joined keeps its parent */
		const ZnsPb__Checkpoint *k = zns_store_find(d->store, q->join.data);

		l->dump.has_parent = k->has_parent;
		if (k->has_parent)
			memcpy(l->dump.parent, k->parent.data, ZNS_UUID_LEN);
	}
}

/* Stores the groups and their weights in the lease. */
static void take_groups(struct znsd *d, struct lease *l, const struct dump_ask *a,
			const struct choice *ch)
{
	uint32_t i;

	l->dump.nr_meta = ch->nr_meta;
	l->dump.width = l->nr_groups = ch->width + ch->nr_meta;
	if (on_disk(d)) /* on a disk the width is a number of streams into its only group */
		l->nr_groups = 1;
	l->groups = znsd_alloc(l->nr_groups * sizeof(*l->groups));
	memcpy(l->groups, ch->order, l->nr_groups * sizeof(*l->groups));
	l->dump.weights = znsd_alloc(l->nr_groups * sizeof(*l->dump.weights));
	for (i = 0; i < l->nr_groups; i++)
		l->dump.weights[i] = 1;
	/* Was the dump admitted without sharing? That is so if no other lease uses these groups
	 * now, even if another container has reserved them. */
	if (a->mode == ADM_SHARE)
		zns_alloc_weights(ch->gs, ch->order, l->nr_groups - ch->nr_meta, l->dump.weights);
	for (i = 0; i < l->nr_groups; i++)
		groups_mark_shared(d, l, l->groups[i]);
}

static void of_tenant(struct lease *l, const struct zns_tenant *t)
{
	free(l->dump.tenant);
	l->dump.tenant = *t->who ? znsd_strdup(t->who) : NULL;
	l->dump.max_rate_mibps = t->max_qos_mibps;
	l->dump.max_groups = t->max_groups;
	l->dump.total_groups = t->total_groups;
}

static enum lease_kind kind_of(const ZnsPb__DumpBegin *q)
{
	return q->has_flatten ? LEASE_FLATTEN : q->has_join ? LEASE_IMPORT : LEASE_DUMP;
}

static struct lease *grant(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q,
			   const struct dump_ask *a, const struct choice *ch, const uint8_t *id)
{
	struct lease *l = lease_new(d, who->conn, who->pid, kind_of(q), a->container, id);

	l->dump.dynamic = !reserves(d, a, ch);
	l->dump.promised = a->mode != ADM_SHARE && !rate_one_domain(d);
	l->dump.promised_mibps = ch->promise;
	l->dump.cap_mibps = a->cap_mibps;
	l->weight = a->weight;
	l->own_class = a->own_class;
	encryption_note(l, q);
	l->packed = ch->packed;
	l->dump.scattered = ch->scattered;
	l->dump.qos_mibps = a->qos;
	l->dump.min_room = a->min_room;
	l->dump.expected = a->expected;
	l->dump.most = a->most;
	l->dump.waits_ns =
		/* until its writer reports progress, a new dump counts as one that is limited by
		 * its zones */
		zns_mono_ns();
	of_tenant(l, &a->tenant);
	set_parent(d, l, q);
	take_groups(d, l, a, ch);
	if (ch->pack_zone != ZNSD_NONE && on_disk(d)) {
		if (space_give(d, l, &ch->space))
			l->dump.claimed = ch->pack_zone;
		else
			l->dump.scattered = true;
	} else if (ch->pack_zone != ZNSD_NONE) {
		l->dump.claimed = ch->pack_zone;
		lease_zone_add(d, l, ch->pack_zone, d->zones[ch->pack_zone].z.wp);
	}
	return l;
}

/*
 * Hands a lease over to criu. A runtime freezes the container before criu asks for admission. So
 * that a frozen container need not wait, the runtime asks for admission before that, and criu takes
 * over the lease; the checkpoint's id is the ticket. If the lease has ended meanwhile, the dump is
 * admitted like any other. Leases for an import or a flattening are never handed over, since their
 * checkpoint already exists.
 */
struct lease *admit_take_over(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q,
			      const struct dump_ask *a)
{
	const ProtobufCBinaryData *t = q->origin && q->origin->has_ticket ? &q->origin->ticket :
									    NULL;
	struct lease *l;

	if (!t || t->len != ZNS_UUID_LEN || q->has_sealed || kind_of(q) != LEASE_DUMP)
		return NULL;
	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_DUMP && !l->dying_until &&
		    l->nr_zones == (l->dump.claimed != ZNSD_NONE) && l->conn != who->conn &&
		    !memcmp(l->id, t->data, ZNS_UUID_LEN) && !strcmp(l->container, q->container))
			break;
	if (!l)
		return NULL;
	l->conn = who->conn;
	l->pid = who->pid;
	of_tenant(l, &a->tenant);
	set_parent(d, l, q);
	l->dump.cap_mibps = a->cap_mibps;
	l->weight = a->weight;
	encryption_note(l, q);
	if (q->min_room && !on_disk(d))
		l->dump.min_room = q->min_room;
	return l;
}

/* Checks the checkpoint that the new images will join. */
static int check_join(const struct znsd *d, const ZnsPb__DumpBegin *q, struct zns_err *err)
{
	const ZnsPb__Checkpoint *k;
	const struct lease *l;
	char id[ZNS_UUID_STR];

	if (!q->has_join)
		return 0;
	if (q->has_flatten)
		return zns_fail(err, -EINVAL,
				"a dump joins a checkpoint or flattens one, not both");
	if (q->join.len != ZNS_UUID_LEN)
		return zns_fail(err, -EINVAL, "a checkpoint's id must have %d bytes", ZNS_UUID_LEN);
	zns_uuid_format(q->join.data, id);
	k = zns_store_find(d->store, q->join.data);
	if (!k)
		return zns_fail(err, -ENOENT, "%s has no checkpoint %s", d->reg.path, id);
	if (!k->pages_only)
		return zns_fail(err, -EEXIST, "checkpoint %s is whole: there is nothing to join",
				id);
	if (strcmp(k->container, q->container))
		return zns_fail(err, -EINVAL, "checkpoint %s is of container %.100s", id,
				k->container);
	for (l = d->leases; l; l = l->next)
		if (l->kind == LEASE_IMPORT && !memcmp(l->id, q->join.data, ZNS_UUID_LEN))
			return zns_fail(
				err, -EBUSY,
				"checkpoint %s is being joined by PID %u: wait until that has ended",
				id, l->pid);
	return 0;
}

int ask_check(struct znsd *d, const ZnsPb__DumpBegin *q, struct dump_ask *a, struct zns_err *err)
{
	int ret;

	ret = parse(q, a, err);
	if (on_disk(d)) /* on a disk: a dump that may continue a zone writes small units */
		a->min_room = ZNSD_UNIT_MIN;
	if (!ret)
		ret = encryption_check(d, q, err);
	if (!ret)
		ret = sealed_check(d, q, err);
	if (!ret)
		ret = parent_check(d, q, err);
	if (!ret)
		ret = check_join(d, q, err);
	if (!ret)
		ret = flatten_check(d, q, err);
	if (!ret)
		ret = check_rate(d, a, err);
	if (!ret && q->has_flatten && !a->weight)
		a->weight = weight_of_record(zns_store_find(d->store, q->flatten.data));
	if (!ret)
		ret = check_ceiling(d, a, err);
	if (!ret)
		check_size(d, a);
	return ret;
}

/*
 * Refuses a dump that cannot fit on a disk now rather than after it was written. Not if a memory
 * context exists: its pages on zones are not written again, so the size is not known.
 */
static int check_fits(const struct znsd *d, const ZnsPb__DumpBegin *q, const struct dump_ask *a,
		      struct zns_err *err)
{
	uint64_t unit = q->has_sealed ? ZNS_UNIT_LEAST : zns_unit_small(a->expected, a->small);
	char size[16];

	if (!on_disk(d) || yielding_zones(d) || space_can_hold(d, q->least_bytes, unit))
		return 0;
	device_full(d, err);
	return zns_wrap(err, "no room for %s", zns_format_size(q->least_bytes, size, sizeof(size)));
}

int admit(struct znsd *d, const struct holder *who, const ZnsPb__DumpBegin *q, struct dump_ask *a,
	  struct admitted *out, struct zns_err *err)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	cleanup_free uint32_t *order = znsd_alloc((d->nr_groups + 1) * sizeof(*order));
	struct choice ch = { .gs = gs, .order = order };
	uint8_t id[ZNS_UUID_LEN];
	char holders[512];
	int ret;

	*out = (struct admitted){ .lease = NULL };
	ret = ask_check(d, q, a, err);
	if (!ret && q->sweeps && on_disk(d) && a->expected > free_bytes(d))
		ret = device_full(d, err);
	if (!ret)
		ret = check_fits(d, q, a, err);
	if (!ret)
		ret = choose_groups(d, a, &ch, err);
	out->room = ch.room;
	if (ret == -EBUSY)
		return zns_fail(err, ret, "%s: %s; in use by %s", d->reg.path, ch.why,
				groups_holders(d, a->container, holders, sizeof(holders)));
	if (ret)
		return ret;
	if (q->has_flatten || a->join)
		memcpy(id, q->has_flatten ? q->flatten.data : a->join, ZNS_UUID_LEN);
	else if (q->has_sealed)
		memcpy(id, q->sealed.data, ZNS_UUID_LEN);
	else
		ret = zns_uuid_generate(id);
	if (ret)
		return zns_fail_sys(err, ret, "no random UUID");
	if (reserves(d, a, &ch))
		ret = reservation_extend(d, a, &ch, err);
	if (ret)
		return ret;
	out->lease = grant(d, who, q, a, &ch, id);
	memcpy(out->note, ch.note, sizeof(out->note));
	return 0;
}
