/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests of a running dump or restore, and the end of it. */
#include "table.h"

/* shares by weight are computed again within this time after a lease has begun or ended */
#define WEIGH_MS 50u

static void tell_growth(const struct znsd *d, const struct growth *g, struct reply *rep)
{
	uint32_t i;

	rep->r.has_again_ms = g->again;
	rep->r.again_ms = g->again_ms;
	rep->r.has_crowded = 1;
	rep->r.writers = reply_alloc(rep, g->nr_groups * sizeof(*rep->r.writers));
	for (i = 0; i < g->nr_groups; i++) {
		ZnsPb__GrantedGroup *w = reply_alloc(rep, sizeof(*w));

		zns_pb__granted_group__init(w);
		w->group = g->groups[i].group;
		w->weight = g->groups[i].writers;
		rep->r.crowded |= w->weight > 1;
		rep->r.writers[rep->r.n_writers++] = w;
	}
	if (g->limit_mibps)
		rep->r.rate_mibps = rep->r.rate_mibps ? zns_min(rep->r.rate_mibps, g->limit_mibps) :
							g->limit_mibps;
	rep->r.more_zones = reply_alloc(rep, g->nr_gained * sizeof(*rep->r.more_zones));
	for (i = 0; i < g->nr_gained; i++) {
		ZnsPb__ZoneGrant *z = reply_zone(d, rep, g->gained[i].zone);

		z->has_writers = 1;
		z->writers = g->gained[i].writers;
		rep->r.more_zones[rep->r.n_more_zones++] = z;
	}
}

int serve_progress(struct znsd *d, const struct call *x, struct reply *rep)
{
	const ZnsPb__Progress *q = x->q->progress;
	struct growth g;

	rate_note(d, x->l, q->bytes, q->total);
	weight_note(x->l, q->has_moved ? q->moved : q->bytes);
	rep->r.has_rate_mibps = 1;
	rep->r.rate_mibps = rate_limit(d, x->l);
	dump_grow(d, x->l, q, &g);
	if (g.shares)
		tell_growth(d, &g, rep);
	growth_fini(&g);
	if (weights_count(d)) {
		rep->r.again_ms = rep->r.has_again_ms ? zns_min(rep->r.again_ms, WEIGH_MS) :
							WEIGH_MS;
		rep->r.has_again_ms = 1;
	}
	if (q->has_done && q->done && !lease_writes(x->l)) {
		x->l->ended_well = true;
		rep->r.restore = restore_remember(d, x->l, q);
	}
	return 0;
}

int serve_zone_get(struct znsd *d, const struct call *x, struct reply *rep)
{
	uint32_t zone;
	int ret = dump_zone(d, x->l, x->q->zone_get, &zone, &rep->err);

	if (!ret)
		rep->r.zone = reply_zone(d, rep, zone);
	return ret;
}

int serve_dump_room(struct znsd *d, const struct call *x, struct reply *rep)
{
	if (x->q->dump_room->anew)
		lease_give_back(d, x->l);
	rep->r.has_room = 1;
	return dump_room(d, x->l, &rep->r.room, &rep->err);
}

/* If it fails, the lease exists until the client aborts or disconnects. */
int serve_commit(struct znsd *d, const struct call *x, struct reply *rep)
{
	int ret;

	if (conn_left(x->conn)) /* the client has given up and did not report a commit */
		return zns_fail(&rep->err, -EPIPE,
				"commit: the program that asked for it has ended");
	ret = commit_dump(d, x->l, x->q->commit, &rep->err);
	if (ret)
		return ret;
	rep->r.has_shared_groups = 1;
	rep->r.shared_groups = x->l->dump.nr_shared;
	conn_committed(x->conn, x->q->commit->container);
	x->l->ended_well = true;
	if (x->q->commit->bytes > x->l->bytes)
		history_moved(d, x->l, x->q->commit->bytes);
	lease_end(d, x->l);
	return 0;
}

int serve_abort(struct znsd *d, const struct call *x, struct reply *rep)
{
	struct lease *l = lease_of(d, x->conn);

	/* Without a lease there is nothing to undo. */
	if (l) {
		naming_end(d, l);
		lease_end(d, l);
	}
	return 0;
}

int serve_memory_naming(struct znsd *d, const struct call *x, struct reply *rep)
{
	return naming_begin(d, x->l, x->q->memory_naming, &rep->err);
}
