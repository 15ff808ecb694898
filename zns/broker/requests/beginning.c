/* SPDX-License-Identifier: GPL-2.0-only */
/* Begins a dump or a restore. A dump that cannot be admitted at once waits (waiters.c). There are
 * two queues, each strictly in order: until the first dump of a queue is admitted or refused, all
 * others in it wait. */
#include <string.h>
#include "table.h"

static ZnsPb__GrantedGroup *granted(struct reply *rep, uint32_t group, uint32_t weight)
{
	ZnsPb__GrantedGroup *g = reply_alloc(rep, sizeof(*g));

	zns_pb__granted_group__init(g);
	g->group = group;
	g->weight = weight;
	return g;
}

static void tell(struct znsd *d, const struct lease *l, const char *note, struct reply *rep)
{
	struct chain chain = { .v = NULL };
	const ZnsPb__Tombstone *t = zns_store_find_tombstone(d->store, l->id);
	ZnsPb__DumpGrant *g = reply_alloc(rep, sizeof(*g));
	/* on a disk all streams write to its one group */
	uint32_t i, pages = on_disk(d) ? l->dump.width : l->nr_groups - l->dump.nr_meta;

	zns_pb__dump_grant__init(g);
	g->checkpoint.data = (uint8_t *)l->id;
	g->checkpoint.len = ZNS_UUID_LEN;
	g->zone_write_mibps = d->zone_mibps;
	g->shared_groups = l->dump.nr_shared;
	g->has_packed = g->packed = l->packed;
	g->has_scattered = g->scattered = l->dump.scattered;
	g->has_max_rate_mibps = l->dump.max_rate_mibps > 0;
	g->max_rate_mibps = l->dump.max_rate_mibps;
	g->has_rate_mibps = 1;
	g->rate_mibps = rate_limit(d, l);
	g->has_deleted_ns = t != NULL;
	g->deleted_ns = t ? t->deleted_ns : 0;
	g->n_groups = pages;
	g->groups = reply_alloc(rep, pages * sizeof(*g->groups));
	g->n_metadata_groups = l->dump.nr_meta;
	g->metadata_groups = reply_alloc(rep, l->dump.nr_meta * sizeof(*g->metadata_groups));
	for (i = 0; on_disk(d) && i < pages; i++)
		g->groups[i] = granted(rep, l->groups[0], 1);
	for (i = 0; !on_disk(d) && i < l->nr_groups; i++)
		*(i < pages ? &g->groups[i] : &g->metadata_groups[i - pages]) =
			granted(rep, l->groups[i], l->dump.weights[i]);
	rep->r.dump = g;
	if (*note)
		g->note = reply_printf(rep, "%s", note);
	if (l->dump.has_parent &&
	    chain_of(d, zns_store_find(d->store, l->dump.parent), &chain, NULL))
		chain.nr = 0; /* the length of the chain was checked above */
	reply_chain(rep, &chain);
}

static int begin_dump(struct znsd *d, struct conn *c, const ZnsPb__DumpBegin *q, struct dump_ask *a,
		      bool *room, struct reply *rep)
{
	const struct holder who = conn_holder(c);
	struct admitted got;
	int ret = admit(d, &who, q, a, &got, &rep->err);

	*room = got.room;
	if (!ret)
		tell(d, got.lease, got.note, rep);
	return ret;
}

static int try_dump_begin(struct znsd *d, const struct call *x, struct reply *rep)
{
	const struct holder who = conn_holder(x->conn);
	const ZnsPb__DumpBegin *q = x->q->dump_begin;
	bool room = false, share;
	uint32_t before;
	struct lease *l;
	struct dump_ask a;
	int ret;

	if (lease_of(d, x->conn))
		return zns_fail(&rep->err, -EBUSY, "this connection has a dump already");
	ret = ask_check(d, q, &a, &rep->err);
	if (ret)
		return ret;
	l = admit_take_over(d, &who, q, &a);
	if (l) {
		tell(d, l, "", rep);
		return 0;
	}
	/* First come, first served: a new request waits if others are waiting in the same queue. */
	share = a.mode == ADM_SHARE;
	before = waiters_before(d, share);
	if (before)
		ret = zns_fail(&rep->err, -EBUSY,
			       "%s: %u dumps wait already, which is the most: try again later",
			       d->reg.path, before);
	else
		ret = begin_dump(d, x->conn, q, &a, &room, rep);
	if (ret != -EBUSY || (a.mode == ADM_REJECT && !room))
		return ret;
	waiter_add(d, x, &a, &rep->err);
	rep->later = true;
	return 0;
}

int serve_dump_begin(struct znsd *d, const struct call *x, struct reply *rep)
{
	int ret = try_dump_begin(d, x, rep);

	d->history.all.dumps_refused += ret != 0;
	return ret;
}

static void waiter_answer(struct znsd *d, struct waiter *w, struct reply *rep, int code)
{
	struct conn *c = w->conn;

	d->history.all.dumps_refused += code != 0;
	waiter_end(d, w);
	conn_answer(d, c, rep, code);
}

/* Admits in order all waiting dumps that can be admitted now. */
static void admit_all(struct znsd *d)
{
	bool blocked[2] = { false, false }; /* for the two queues, indexed by waiter.share */
	struct waiter *w, *next;

	for (w = d->server->waiters; w && !(blocked[0] && blocked[1]); w = next) {
		struct reply rep;
		bool room = false;
		struct dump_ask a;
		int ret;

		next = w->next;
		if (blocked[w->share])
			continue;
		reply_init(&rep);
		ret = begin_dump(d, w->conn, w->req->dump_begin, &a, &room, &rep);
		if (ret != -EBUSY) {
			waiter_answer(d, w, &rep, ret);
			continue;
		}
		blocked[w->share] = true;
		snprintf(w->why, sizeof(w->why), "%s", rep.err.msg);
		reply_free(&rep);
		if (!w->share)
			choose_hold(d, &a);
	}
	if (!blocked[0])
		choose_release(d);
}

int waiters_run(struct znsd *d)
{
	uint64_t now = zns_mono_ns(), next = UINT64_MAX;
	struct waiter *w;

	d->freed = false;
	admit_all(d);
again:
	for (w = d->server->waiters; w; w = w->next) {
		struct reply rep;

		if (w->deadline > now) {
			next = zns_min(next, w->deadline);
			continue;
		}
		reply_init(&rep);
		zns_fail(&rep.err, -ETIMEDOUT, "not admitted in %u s: %s", w->seconds, w->why);
		waiter_answer(d, w, &rep, -ETIMEDOUT);
		goto again;
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

static void tell_hot(const struct znsd *d, const struct lease *l, struct reply *rep)
{
	ZnsPb__HotGrant *g = reply_alloc(rep, sizeof(*g));

	zns_pb__hot_grant__init(g);
	g->owner = l->hot;
	g->zones = d->hot_shape.nr_zones;
	g->slots = d->hot_shape.nr_slots;
	g->slot_bytes = d->hot_shape.slot_bytes;
	rep->r.hot = g;
	rep->fd = zns_hot_fd(d->hot);
}

int serve_restore_begin(struct znsd *d, const struct call *x, struct reply *rep)
{
	const struct holder who = conn_holder(x->conn);
	const ZnsPb__RestoreBegin *q = x->q->restore_begin;
	struct chain chain = { .v = NULL };
	struct lease *l;
	char note[160] = "";
	int ret = weight_check(q->weight, &rep->err);

	if (!ret)
		ret = read_begin(d, &who, &q->checkpoint, q->chain, &chain, &l, &rep->err);
	if (ret) {
		free(chain.v);
		return ret;
	}
	if (!q->half)
		ret = promise_admit(d, l, q, note, sizeof(note), &rep->err);
	if (ret) {
		free(chain.v);
		lease_end(d, l);
		return ret;
	}
	if (note[0])
		rep->r.promise_note = reply_printf(rep, "%s", note);
	l->weight = weight_of_tenant(l->container,
				     q->weight ? q->weight : weight_of_record(chain.v[0]));
	if (q->hot && conn_ours(x->conn) && hot_begin(d, l, chain.v[0], !q->half))
		tell_hot(d, l, rep);
	reply_chain(rep, &chain);
	rep->r.has_rate_mibps = 1;
	rep->r.rate_mibps = rate_limit(d, l);
	rep->r.restore = restore_of(d, l->container);
	rep->r.first_pages = (ZnsPb__FirstPages *)zns_store_find_first(d->store,
								       q->checkpoint.data);
	return 0;
}
