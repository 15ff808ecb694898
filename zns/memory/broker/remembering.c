/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Handles the requests of the pager of a memory context. The table below registers the handlers
 * with the broker.
 */
#include "memory.h"
#include "../../broker/requests/requests.h"

static int serve_begin(struct znsd *d, const struct call *x, struct reply *rep)
{
	const struct holder who = conn_holder(x->conn);
	ZnsPb__MemoryGrant *g;
	struct lease *l;
	int ret = memory_begin(d, &who, x->q->memory_begin, &l, &rep->err);

	if (ret)
		return ret;
	g = reply_alloc(rep, sizeof(*g));
	zns_pb__memory_grant__init(g);
	g->groups = l->groups;
	g->n_groups = l->nr_groups;
	g->zones = reply_alloc(rep, l->nr_zones * sizeof(*g->zones));
	for (; g->n_zones < l->nr_zones; g->n_zones++)
		g->zones[g->n_zones] = reply_zone(d, rep, l->zones[g->n_zones].zone);
	rep->r.memory = g;
	return 0;
}

static int serve_zone(struct znsd *d, const struct call *x, struct reply *rep)
{
	uint32_t zone;
	int ret = memory_zone(d, x->l, x->q->memory_zone, &zone, &rep->err);

	if (!ret)
		rep->r.zone = reply_zone(d, rep, zone);
	return ret;
}

static int serve_free(struct znsd *d, const struct call *x, struct reply *rep)
{
	return memory_free(d, x->l, x->q->memory_free, &rep->err);
}

static int serve_step(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__MemoryStep *q = x->q->memory_step;
	bool give_way;
	int ret;

	rep->r.busy_groups = reply_alloc(rep, (q->n_groups + 1) * sizeof(*rep->r.busy_groups));
	ret = memory_step(d, x->l, q, rep->r.busy_groups, &rep->r.n_busy_groups, &give_way,
			  &rep->err);
	rep->r.named_zones = reply_alloc(rep, (x->l->nr_zones + 1) * sizeof(*rep->r.named_zones));
	rep->r.n_named_zones = memory_named(d, x->l, rep->r.named_zones);
	rep->r.has_give_way = 1;
	rep->r.give_way = !ret && give_way;
	if (!ret)
		rep->r.refused = (char *)memory_refused(d, x->l, &rep->r.may_write);
	rep->r.has_may_write = !ret;
	return ret;
}

static int of_pager(const struct znsd *d, struct call *x, struct zns_err *err)
{
	x->l = lease_of(d, x->conn);
	if (x->l && memory_is(x->l))
		return 0;
	return zns_fail(err, -EINVAL, "no memory context on this connection");
}

static const struct request_kind kinds[] = {
	{ .name = "memory_begin", .serve = serve_begin },
	{ .name = "memory_zone", .find = of_pager, .serve = serve_zone },
	{ .name = "memory_free", .find = of_pager, .serve = serve_free },
	{ .name = "memory_step", .find = of_pager, .serve = serve_step },
};

__attribute__((constructor)) static void enrol(void)
{
	dispatch_register(kinds, ZNS_ARRAY_SIZE(kinds));
}
