/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits rates by weight (Documentation/inside/sharing.md). As soon as one working lease has a
 * weight, the broker tells each lease that shares a group with others a limit. These limits divide
 * the time of a fully used group in proportion to the weights. Promises come first: the time that
 * they need is not divided. What a lease does not use of its share goes to the others.
 */
#include <string.h>
#include "policy.h"

#define AGAIN_NS 20000000u /* computed limits stay valid for this time */
#define WINDOW_NS 100000000u /* the rate that a lease uses is averaged over at least this time */
/*
 * A lease that uses less than 90 % of its limit is offered 1.25 × what it uses, so that it can grow
 * again. The rest goes to the others.
 */
#define NEEDS 0.9
#define GROWS 1.25
/* a lease that has reported no progress for this long since it began is left out */
#define SILENT_NS 1000000000u
/* The part of a group's time that is distributed. The rest keeps queues short, so that the order of
 * requests in a queue does not matter. */
#define FULL 0.99
/* used instead of FULL while a new lease, which has no limit yet, fills the queues */
#define DRAINS 0.9
#define BEGINS 3u /* number of windows during which a lease counts as new */
#define LEAST 0.02 /* the part of a group's time that promises always leave to other leases */

/* A lease that takes part in the distribution. */
struct party {
	struct lease *l;
	double weight;
	uint32_t first, nr; /* its items in the table: index of the first, and their number */
	/* its costs in the table: index of the first, and the index behind the last */
	uint32_t from, until;
	bool meets; /* does another tenant use one of its groups? */
};

struct table {
	struct party *p;
	uint32_t nr;
	struct zns_weighed *item;
	uint32_t nr_items, max_items;
	uint32_t *res;
	double *cost;
	uint32_t nr_cost, max_res, max_cost;
};

static bool concerned(const struct lease *l)
{
	if (l->dying_until)
		return false;
	switch (l->kind) {
	case LEASE_COMPACT:
		return l->compact.charged;
	case LEASE_RESTORE:
		return !l->read_mibps &&
		       (l->weigh.reports || zns_now_ns() - l->since_ns < (int64_t)SILENT_NS);
	default:
		return lease_admitted(l) && !lease_promised(l);
	}
}

static bool said(const struct lease *l)
{
	return l->read_mibps || (concerned(l) && (l->weight || l->kind == LEASE_COMPACT));
}

bool weights_count(const struct znsd *d)
{
	const struct lease *l;

	for (l = d->leases; l; l = l->next)
		if (said(l))
			return true;
	return false;
}

double weight_of(const struct lease *l)
{
	return (l->weight ? l->weight : ZNS_WEIGHT_DEFAULT) / (double)ZNS_WEIGHT_DEFAULT;
}

/* ---- the cost of each lease's work on each group ---- */

/* How many seconds of a group it takes to write one MiB. */
static double writing(const struct znsd *d, uint32_t group)
{
	return 1.0 / d->groups[group].mibps;
}

static double reading(const struct znsd *d, uint32_t group)
{
	return 1.0 / group_read_mibps(d, group);
}

static void add_cost(struct table *t, uint32_t group, double cost)
{
	znsd_grow(t->res, t->nr_cost, t->max_res);
	znsd_grow(t->cost, t->nr_cost, t->max_cost);
	t->res[t->nr_cost] = group;
	t->cost[t->nr_cost++] = cost;
}

/* Adds an item for @p: all costs from index @from on. Its pointers into res[] and cost[] are set by
 * run(), since both arrays may still be reallocated. */
static void add_item(struct table *t, struct party *p, uint32_t from)
{
	znsd_grow(t->item, t->nr_items, t->max_items);
	t->item[t->nr_items++] = (struct zns_weighed){ .nr = t->nr_cost - from };
	p->nr++;
}

static void describe(const struct znsd *d, struct table *t, struct party *p)
{
	const struct lease *l = p->l;
	uint32_t from = t->nr_cost, i;

	p->first = t->nr_items;
	p->from = from;
	switch (l->kind) {
	case LEASE_RESTORE: /* a restore must read its bytes from the groups where they are */
		for (i = 0; i < l->weigh.nr_parts; i++)
			add_cost(t, l->weigh.part[i].group,
				 l->weigh.part[i].part * reading(d, l->weigh.part[i].group));
		if (t->nr_cost > from)
			add_item(t, p, from);
		break;
	case LEASE_COMPACT: /* each byte is read in one group and written in the other */
		for (i = 0; i < l->compact.nr_at; i++) {
			double rd = reading(d, l->compact.at[i]), wr = writing(d, l->compact.at[i]);

			add_cost(t, l->compact.at[i],
				 l->compact.nr_at == 1 ? (rd + wr) / 2 : (i ? wr : rd) / 2);
		}
		if (t->nr_cost > from)
			add_item(t, p, from);
		break;
	default: /* a writer can choose among its groups */
		for (i = 0; i < l->nr_groups; i++) {
			from = t->nr_cost;
			add_cost(t, l->groups[i], writing(d, l->groups[i]));
			add_item(t, p, from);
		}
	}
	p->until = t->nr_cost;
}

/* ---- which leases belong to one tenant ---- */

static bool same_tenant(const struct lease *a, const struct lease *b)
{
	if (a->own_class || b->own_class)
		return a->own_class && b->own_class;
	return !strcmp(a->container, b->container);
}

static bool touch(const struct table *t, const struct party *a, const struct party *b)
{
	for (uint32_t i = a->from; i < a->until; i++)
		for (uint32_t k = b->from; k < b->until; k++)
			if (t->res[i] == t->res[k])
				return true;
	return false;
}

/*
 * Sets the weights. A tenant has one weight: the highest that any of its leases asks for. Its
 * leases that share a group divide that weight.
 */
static void set_weights(struct table *t)
{
	for (uint32_t i = 0; i < t->nr; i++) {
		struct party *p = &t->p[i];
		double most = weight_of(p->l);
		uint32_t n = 1;

		for (uint32_t k = 0; k < t->nr; k++) {
			bool same = k != i && same_tenant(p->l, t->p[k].l), on;

			if (k == i)
				continue;
			on = touch(t, p, &t->p[k]);
			p->meets |= on && !same;
			if (!same)
				continue;
			most = zns_max(most, weight_of(t->p[k].l));
			n += on;
		}
		p->weight = most / n;
	}
}

/* Marks leases on a group where a restore has a promise, so that they get a limit even without a
 * weight. */
static void meet_promises(const struct znsd *d, struct table *t)
{
	for (uint32_t i = 0; i < t->nr; i++)
		for (uint32_t k = t->p[i].from; k < t->p[i].until && !t->p[i].meets; k++)
			t->p[i].meets = promise_on(d, t->res[k]);
}

static void take_promises(const struct znsd *d, bool begins, double *room)
{
	uint32_t i;

	for (i = 0; i < d->nr_groups; i++)
		room[i] = begins ? DRAINS : FULL;
	promises_take(d, room);
	for (i = 0; i < d->nr_groups; i++)
		room[i] = zns_max(room[i], LEAST);
}

/* The rate that a lease can use in MiB/s; 0: it can use everything it gets. */
static double need_of(const struct lease *l)
{
	double need = 0;

	if (l->weigh.known && l->weigh.limit > 0 && l->weigh.used < NEEDS * l->weigh.limit)
		need = l->weigh.used * GROWS + 1;
	if (lease_admitted(l) && l->dump.cap_mibps)
		need = need > 0 ? zns_min(need, (double)l->dump.cap_mibps) : l->dump.cap_mibps;
	return need;
}

/* Computes the rate of each lease. No lease except @self gets more than it needs. */
static void run(struct table *t, const double *room, uint32_t nr_groups, const struct party *self)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < t->nr; i++) {
		const struct party *p = &t->p[i];
		double need = p == self ? 0 : need_of(p->l);

		for (uint32_t k = p->first; k < p->first + p->nr; k++) {
			t->item[k].res = t->res + at;
			t->item[k].cost = t->cost + at;
			t->item[k].weight = p->weight;
			t->item[k].most = need / p->nr;
			at += t->item[k].nr;
		}
	}
	znsd_enough(zns_alloc_weigh(t->item, t->nr_items, room, nr_groups));
}

static double rate_in(const struct table *t, const struct party *p)
{
	double sum = 0;

	for (uint32_t k = p->first; k < p->first + p->nr; k++)
		sum += t->item[k].rate;
	return sum;
}

static void forget(struct znsd *d)
{
	for (struct lease *l = d->leases; l; l = l->next)
		l->weigh.limit = 0;
}

static void weigh(struct znsd *d)
{
	cleanup_free double *room = NULL;
	struct table t = { .p = NULL };
	bool begins = false;
	uint32_t i = 0;
	struct lease *l;

	for (l = d->leases; l; l = l->next)
		t.nr += concerned(l);
	t.p = znsd_alloc((t.nr + 1) * sizeof(*t.p));
	for (l = d->leases; l; l = l->next)
		if (concerned(l))
			t.p[i++].l = l;
	for (i = 0; i < t.nr; i++) {
		describe(d, &t, &t.p[i]);
		begins |= t.p[i].l->weigh.windows < BEGINS;
	}
	set_weights(&t);
	meet_promises(d, &t);
	room = znsd_alloc((d->nr_groups + 1) * sizeof(*room));
	take_promises(d, begins, room);
	run(&t, room, d->nr_groups, NULL);
	for (i = 0; i < t.nr; i++)
		if (t.p[i].meets)
			t.p[i].l->weigh.next = rate_in(&t, &t.p[i]);
	/* A lease that needs less now may increase to its full share at once, so its own limit does
	 * not depend on what it used before. */
	for (i = 0; i < t.nr; i++) {
		if (!t.p[i].meets || !need_of(t.p[i].l))
			continue;
		run(&t, room, d->nr_groups, &t.p[i]);
		t.p[i].l->weigh.next = rate_in(&t, &t.p[i]);
	}
	forget(d);
	for (i = 0; i < t.nr; i++)
		if (t.p[i].meets)
			t.p[i].l->weigh.limit = t.p[i].l->weigh.next;
	free(t.p);
	free(t.item);
	free(t.res);
	free(t.cost);
}

uint32_t weight_limit(struct znsd *d, const struct lease *l)
{
	uint64_t now = zns_mono_ns();

	if (!weights_count(d)) {
		if (d->policy->weighed_ns)
			forget(d);
		d->policy->weighed_ns = 0;
		return 0;
	}
	if (!l->weigh.met || now - d->policy->weighed_ns >= AGAIN_NS) {
		weigh(d);
		d->policy->weighed_ns = now;
		for (struct lease *o = d->leases; o; o = o->next)
			o->weigh.met = true;
	}
	return l->weigh.limit > 0 ? zns_max((uint32_t)(l->weigh.limit + 0.5), 1u) : 0;
}

void weight_note(struct lease *l, uint64_t bytes)
{
	uint64_t now = zns_mono_ns();

	l->weigh.reports = true;
	if (!l->weigh.ns || bytes < l->weigh.bytes) {
		l->weigh.ns = now;
		l->weigh.bytes = bytes;
	} else if (now - l->weigh.ns >= WINDOW_NS) {
		l->weigh.used = (double)(bytes - l->weigh.bytes) / (double)MIB(1) /
				((double)(now - l->weigh.ns) / 1e9);
		/* The first window includes the start of the lease, so its rate is ignored. */
		l->weigh.known = l->weigh.windows++ > 0;
		l->weigh.ns = now;
		l->weigh.bytes = bytes;
	}
}

/* ---- how the bytes that a reader reads are distributed over the groups ---- */

void weight_reader(struct znsd *d, struct lease *l, const struct chain *chain)
{
	cleanup_free uint64_t *of = znsd_alloc((d->nr_groups + 1) * sizeof(*of));
	uint64_t all = 0;

	for (size_t i = 0; i < chain->nr; i++)
		for (size_t k = 0; k < chain->v[i]->n_zones; k++) {
			const ZnsPb__ZoneUse *u = chain->v[i]->zones[k];

			if (u->zone >= d->nr_zones)
				continue;
			of[d->zones[u->zone].group] += u->len;
			all += u->len;
		}
	l->weigh.part = znsd_alloc((d->nr_groups + 1) * sizeof(*l->weigh.part));
	for (uint32_t g = 0; g < d->nr_groups && all; g++)
		if (of[g])
			l->weigh.part[l->weigh.nr_parts++] = (struct lease_part){
				.group = g, .part = (double)of[g] / (double)all
			};
}

uint32_t weight_of_record(const ZnsPb__Checkpoint *k)
{
	return k && k->has_weight ? zns_min(zns_max(k->weight, ZNS_WEIGHT_MIN), ZNS_WEIGHT_MAX) : 0;
}

int weight_check(uint32_t weight, struct zns_err *err)
{
	if (!weight || (weight >= ZNS_WEIGHT_MIN && weight <= ZNS_WEIGHT_MAX))
		return 0;
	return zns_fail(err, -EINVAL, "a weight of %u is out of range: %u to %u", weight,
			ZNS_WEIGHT_MIN, ZNS_WEIGHT_MAX);
}

uint32_t weight_under(const struct zns_tenant *t, uint32_t weight)
{
	if (!weight)
		weight = t->weight;
	return t->max_weight ? zns_min(weight, t->max_weight) : weight;
}

/*
 * The weight of other leases than dumps. The record does not contain the task's user, so rules by
 * uid do not apply. A wrong line in tenants.conf prevents dumps, but not restores.
 */
uint32_t weight_of_tenant(const char *container, uint32_t weight)
{
	struct zns_err e = ZNS_ERR_INIT;
	struct zns_tenant t;

	return zns_tenant_find(container, -1, &t, &e) ? weight : weight_under(&t, weight);
}
