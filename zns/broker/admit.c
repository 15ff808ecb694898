// SPDX-License-Identifier: GPL-2.0-only
/* Admission of a dump: QoS → width → groups and weights, the reservation, and the queue of those who wait. */
#include <string.h>
#include "znsd.h"

enum admission { ADM_SHARE, ADM_WAIT, ADM_REJECT };

struct ask {
	const char *container;
	uint32_t qos, needed;	/* needed: zones for the QoS when nothing is shared */
	bool dynamic;
	enum admission mode;
	uint32_t wait_s;
	uint32_t min_room;
};

static int parse(const ZnsPb__DumpBegin *q, struct ask *a, struct zns_err *err)
{
	const char *s = q->admission ? q->admission : "share";
	char *end;
	int ret;

	*a = (struct ask){ .container = q->container, .qos = q->qos_mibps, .wait_s = ZNSD_WAIT_S,
			     .min_room = q->min_room };
	ret = znsd_check_container(q->container, err);
	if (ret)
		return ret;
	if (q->alloc && strcmp(q->alloc, "static") && strcmp(q->alloc, "dynamic"))
		return zns_fail(err, -EINVAL, "allocation \"%.40s\" is not known: static or dynamic", q->alloc);
	a->dynamic = q->alloc && !strcmp(q->alloc, "dynamic");
	if (!strcmp(s, "share")) {
		a->mode = ADM_SHARE;
	} else if (!strcmp(s, "reject")) {
		a->mode = ADM_REJECT;
	} else if (!strncmp(s, "wait", 4) && (!s[4] || s[4] == '=')) {
		a->mode = ADM_WAIT;
		if (s[4]) {
			unsigned long v;

			errno = 0;
			v = strtoul(s + 5, &end, 10);
			if (s[5] < '0' || s[5] > '9' || *end || errno || v > 86400)
				return zns_fail(err, -EINVAL, "admission \"%.40s\": wait=S takes 0 to 86400 seconds", s);
			a->wait_s = v;
		}
	} else {
		return zns_fail(err, -EINVAL, "admission \"%.40s\" is not known: share, wait[=SECONDS] or reject", s);
	}
	return 0;
}

/* A rate that the device cannot give even when idle is refused in every mode. */
static int check_rate(struct znsd *d, struct ask *a, struct zns_err *err)
{
	uint32_t groups = 0, budget = budget_total(d), max, i, k, bound;

	for (i = 0; i < d->nr_groups; i++) {
		for (k = 0; k < d->groups[i].nr_zones; k++)
			if (zone_usable(&d->zones[d->groups[i].zones[k]]))
				break;
		groups += k < d->groups[i].nr_zones;
	}
	/* A segment has no more extents than this. */
	budget = zns_min(budget, 256u);
	max = zns_alloc_max_qos(groups, budget, budget, d->zone_mibps);
	bound = zns_min(groups, budget);
	if (a->qos > max)
		return zns_fail(err, -ERANGE, "QoS of %u MiB/s exceeds what %s can promise: at most %u MiB/s (%u %s x %u MiB/s)",
				a->qos, d->reg.path, max, bound, budget < groups ? "open zones" : "groups", d->zone_mibps);
	a->needed = zns_alloc_width(a->qos, d->zone_mibps);
	return 0;
}

struct choice {
	struct zns_group_state *gs;
	uint32_t *order;	/* group indices, best first */
	uint32_t found;
	uint32_t width;
	char note[256];		/* share mode: why it is less than asked */
	char why[256];		/* contention: why not now */
};

static bool reserved_by(const ZnsPb__Reservation *r, uint32_t group)
{
	size_t i;

	for (i = 0; r && i < r->n_groups; i++)
		if (r->groups[i] == group)
			return true;
	return false;
}

static void order_groups(struct znsd *d, const struct ask *a, struct choice *ch)
{
	const ZnsPb__Reservation *own = a->dynamic ? NULL : zns_store_find_reservation(d->store, a->container);
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	uint32_t i;

	groups_state(d, a->container, ch->gs);
	memcpy(gs, ch->gs, d->nr_groups * sizeof(*gs));
	for (i = 0; i < d->nr_groups; i++) {
		/* A container keeps its groups: the others rank behind, whoever shares its own. */
		if (own && !reserved_by(own, i))
			gs[i].nr_reservations += 1u << 24;
		if (a->mode != ADM_SHARE && gs[i].nr_leases)
			gs[i].free_zones = 0;
	}
	ch->found = zns_alloc_pick(gs, d->nr_groups, d->nr_groups, ch->order);
}

/* MiB/s that the first @n groups give together, each at its fair share. */
static uint64_t rate_of(const struct znsd *d, const struct choice *ch, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		sum += ((uint64_t)d->zone_mibps << 16) / (1 + ch->gs[ch->order[i]].nr_reservations);
	return (sum + (1 << 15)) >> 16;
}

/* 0; -EBUSY: not now (ch->why); -ENOSPC. */
static int choose(struct znsd *d, const struct ask *a, struct choice *ch, struct zns_err *err)
{
	uint32_t total = budget_total(d), used = budget_used(d), left = total > used ? total - used : 0, i, room = 0;

	order_groups(d, a, ch);
	for (i = 0; i < d->nr_groups; i++)
		room += ch->gs[i].free_zones;
	if (!room)
		return zns_fail(err, -ENOSPC, "%s is full: %u zones, %zu live checkpoints; remove some with `znsctl rm`",
				d->reg.path, d->nr_zones, zns_store_nr_checkpoints(d->store));
	ch->width = zns_min(a->needed, ch->found);
	if (a->mode != ADM_SHARE) {
		if (ch->found < a->needed)
			snprintf(ch->why, sizeof(ch->why), "%u groups are needed and %u are free", a->needed, ch->found);
		else if (left < a->needed)
			snprintf(ch->why, sizeof(ch->why), "%u zones are needed and %u of %u may still be opened",
				 a->needed, left, total);
		return *ch->why ? -EBUSY : 0;
	}
	if (!ch->found) {
		snprintf(ch->why, sizeof(ch->why), "every group with a free zone is reserved for normal I/O");
		return -EBUSY;
	}
	if (!left) {
		snprintf(ch->why, sizeof(ch->why), "all %u zones that may be open at once are being written", total);
		return -EBUSY;
	}
	while (ch->width < ch->found && ch->width < left && ch->width < 256 && rate_of(d, ch, ch->width) < a->qos)
		ch->width++;
	if (ch->width > left) {
		ch->width = left;
		snprintf(ch->note, sizeof(ch->note), "only %u of %u open zones are left: %u zones of %u, about %u MiB/s of %u",
			 left, total, left, a->needed, (unsigned)rate_of(d, ch, left), a->qos);
	} else if (rate_of(d, ch, ch->width) < a->qos) {
		snprintf(ch->note, sizeof(ch->note), "groups are shared or used up: %u zones, about %u MiB/s of %u",
			 ch->width, (unsigned)rate_of(d, ch, ch->width), a->qos);
	}
	return 0;
}

/* The reservation becomes what it was plus what is granted now; durable before the answer. */
static int reserve_groups(struct znsd *d, const struct ask *a, const struct choice *ch, struct zns_err *err)
{
	const ZnsPb__Reservation *own = zns_store_find_reservation(d->store, a->container);
	ZnsPb__Reservation r = ZNS_PB__RESERVATION__INIT;
	cleanup_free uint32_t *groups = NULL;
	cleanup_free char *name = znsd_strdup(a->container);
	uint32_t i, had = own ? own->n_groups : 0;

	groups = znsd_alloc((had + ch->width) * sizeof(*groups));
	if (own)
		memcpy(groups, own->groups, had * sizeof(*groups));
	r.groups = groups;
	r.n_groups = had;
	for (i = 0; i < ch->width; i++)
		if (!reserved_by(own, ch->order[i]))
			groups[r.n_groups++] = ch->order[i];
	if (own && r.n_groups == had && own->qos_mibps == a->qos)
		return 0;
	r.container = name;
	r.has_created_ns = 1;
	r.created_ns = own && own->has_created_ns ? own->created_ns : zns_now_ns();
	if (own && own->explicit_) {
		r.has_explicit_ = 1;
		r.explicit_ = 1;
	}
	r.has_qos_mibps = 1;
	r.qos_mibps = a->qos;
	return zns_store_reserve(d->store, &r, err);
}

static void tell(const struct znsd *d, const struct lease *l, struct reply *rep)
{
	ZnsPb__DumpGrant *g = reply_alloc(rep, sizeof(*g));
	uint32_t i;

	zns_pb__dump_grant__init(g);
	g->checkpoint.data = (uint8_t *)l->id;
	g->checkpoint.len = ZNS_UUID_LEN;
	g->zone_write_mibps = d->zone_mibps;
	g->has_stripe_unit = 1;
	g->stripe_unit = KIB(256);
	g->shared_groups = l->shared;
	g->n_groups = l->nr_groups;
	g->groups = reply_alloc(rep, l->nr_groups * sizeof(*g->groups));
	for (i = 0; i < l->nr_groups; i++) {
		g->groups[i] = reply_alloc(rep, sizeof(*g->groups[i]));
		zns_pb__granted_group__init(g->groups[i]);
		g->groups[i]->group = l->groups[i];
		g->groups[i]->weight = l->weights[i];
	}
	rep->r.dump = g;
}

static void grant(struct znsd *d, struct conn *c, const struct ask *a, const struct choice *ch, const uint8_t *id,
		  struct reply *rep)
{
	struct lease *l = lease_new(d, c, true, a->container, id);
	uint32_t i;

	l->dynamic = a->dynamic;
	l->qos_mibps = a->qos;
	l->min_room = a->min_room;
	l->width = l->nr_groups = ch->width;
	l->groups = znsd_alloc(ch->width * sizeof(*l->groups));
	memcpy(l->groups, ch->order, ch->width * sizeof(*l->groups));
	l->weights = znsd_alloc(ch->width * sizeof(*l->weights));
	if (a->mode == ADM_SHARE)
		zns_alloc_weights(ch->gs, ch->order, ch->width, l->weights);
	for (i = 0; i < ch->width; i++) {
		/* Admitted without contention: nobody else is on it now, whatever is reserved. */
		if (a->mode != ADM_SHARE)
			l->weights[i] = 1;
		l->shared += ch->gs[ch->order[i]].nr_reservations > 0;
	}
	tell(d, l, rep);
	if (*ch->note)
		rep->r.dump->note = reply_printf(rep, "%s", ch->note);
}

/*
 * A runtime freezes the container before criu asks, so whoever wants to wait asks before, and hands the lease over:
 * the ticket is the checkpoint's id. One that is not there any more is no error: the dump is admitted as any other.
 */
static bool take_over(struct znsd *d, struct conn *c, const ZnsPb__DumpBegin *q, struct reply *rep)
{
	const ProtobufCBinaryData *t = q->origin && q->origin->has_ticket ? &q->origin->ticket : NULL;
	struct lease *l;

	if (!t || t->len != ZNS_UUID_LEN)
		return false;
	for (l = d->leases; l; l = l->next)
		if (l->dump && !l->dying && !l->nr_zones && l->conn != c && !memcmp(l->id, t->data, ZNS_UUID_LEN) &&
		    !strcmp(l->container, q->container))
			break;
	if (!l)
		return false;
	l->conn = c;
	l->pid = conn_pid(c);
	if (q->min_room)
		l->min_room = q->min_room;
	tell(d, l, rep);
	return true;
}

/* 0: granted; -EBUSY: contention. */
static int admit(struct znsd *d, struct conn *c, const ZnsPb__DumpBegin *q, struct ask *a, struct reply *rep)
{
	cleanup_free struct zns_group_state *gs = znsd_alloc(d->nr_groups * sizeof(*gs));
	cleanup_free uint32_t *order = znsd_alloc(d->nr_groups * sizeof(*order));
	struct choice ch = { .gs = gs, .order = order };
	uint8_t id[ZNS_UUID_LEN];
	char who[512];
	int ret;

	ret = parse(q, a, &rep->err);
	if (!ret)
		ret = check_rate(d, a, &rep->err);
	if (!ret)
		ret = choose(d, a, &ch, &rep->err);
	if (ret == -EBUSY)
		return zns_fail(&rep->err, ret, "%s: %s; in use by %s", d->reg.path, ch.why,
				groups_holders(d, a->container, who, sizeof(who)));
	if (ret)
		return ret;
	ret = zns_uuid_generate(id);
	if (ret)
		return zns_fail_sys(&rep->err, ret, "no random UUID");
	if (!a->dynamic) {
		ret = reserve_groups(d, a, &ch, &rep->err);
		if (ret)
			return ret;
	}
	grant(d, c, a, &ch, id, rep);
	return 0;
}

int handle_dump_begin(struct znsd *d, struct conn *c, ZnsPb__Request *req, struct reply *rep)
{
	struct waiter *w, **p;
	struct ask a;
	int ret;

	if (lease_of(d, c))
		return zns_fail(&rep->err, -EBUSY, "this connection has a dump already");
	ret = parse(req->dump_begin, &a, &rep->err);
	if (ret)
		return ret;
	if (take_over(d, c, req->dump_begin, rep))
		return 0;
	/* First come, first served: nobody who waits is overtaken by one who would wait too. */
	if (a.mode != ADM_WAIT || !d->waiters)
		ret = admit(d, c, req->dump_begin, &a, rep);
	else
		ret = check_rate(d, &a, &rep->err) ?: -EBUSY;
	if (ret != -EBUSY || a.mode != ADM_WAIT)
		return ret;
	w = znsd_alloc(sizeof(*w));
	w->conn = c;
	w->req = req;
	w->seconds = a.wait_s;
	w->deadline = zns_mono_ns() + a.wait_s * 1000000000ull;
	for (p = &d->waiters; *p; p = &(*p)->next)
		;
	*p = w;
	conn_set_waiter(c, w);
	rep->later = true;
	return 0;
}

static void waiter_free(struct znsd *d, struct waiter *w)
{
	struct waiter **p;

	for (p = &d->waiters; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	conn_set_waiter(w->conn, NULL);
	zns_pb__request__free_unpacked(w->req, NULL);
	free(w);
}

void waiter_drop(struct znsd *d, struct conn *c)
{
	struct waiter *w;

	for (w = d->waiters; w; w = w->next)
		if (w->conn == c)
			break;
	if (w)
		waiter_free(d, w);
}

static void waiter_answer(struct znsd *d, struct waiter *w, struct reply *rep, int code)
{
	struct conn *c = w->conn;

	waiter_free(d, w);
	conn_answer(d, c, rep, code);
}

int waiters_run(struct znsd *d)
{
	uint64_t now = zns_mono_ns(), next = UINT64_MAX;
	struct waiter *w;

	/* Only the first may go: it is admitted, refused, or keeps the others behind it. */
	while (d->waiters) {
		struct reply rep = { .later = false };
		struct ask a;
		int ret;

		w = d->waiters;
		zns_pb__response__init(&rep.r);
		ret = admit(d, w->conn, w->req->dump_begin, &a, &rep);
		if (ret == -EBUSY) {
			reply_free(&rep);
			break;
		}
		waiter_answer(d, w, &rep, ret);
	}
again:
	for (w = d->waiters; w; w = w->next) {
		struct reply rep = { .later = false };
		char who[512];

		if (w->deadline > now) {
			next = zns_min(next, w->deadline);
			continue;
		}
		zns_pb__response__init(&rep.r);
		zns_fail(&rep.err, -ETIMEDOUT, "%s: not admitted in %u s; in use by %s", d->reg.path, w->seconds,
			 groups_holders(d, w->req->dump_begin->container, who, sizeof(who)));
		waiter_answer(d, w, &rep, -ETIMEDOUT);
		goto again;
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}
