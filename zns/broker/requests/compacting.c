/* SPDX-License-Identifier: GPL-2.0-only */
/* Requests of a client that moves a checkpoint. */
#include "table.h"

int serve_compact_begin(struct znsd *d, const struct call *x, struct reply *rep)
{
	const struct holder who = conn_holder(x->conn);
	struct chain chain = { .v = NULL };
	int ret = compact_begin(d, &who, x->q->compact_begin, &chain, &rep->err);

	reply_chain(rep, &chain);
	return ret;
}

int serve_compact_zone(struct znsd *d, const struct call *x, struct reply *rep)
{
	uint32_t zone;
	int ret = compact_zone(d, x->l, x->q->compact_zone, &zone, &rep->err);

	if (!ret)
		rep->r.zone = reply_zone(d, rep, zone);
	return ret;
}

int serve_compact_step(struct znsd *d, const struct call *x, struct reply *rep)
{
	int ret = compact_step(d, x->l, x->q->compact_step, &rep->r.wait_ms, &rep->err);

	rep->r.has_wait_ms = !ret;
	rep->r.has_rate_mibps = !ret;
	rep->r.rate_mibps = ret ? 0 : rate_limit(d, x->l);
	return ret;
}

int serve_compact_commit(struct znsd *d, const struct call *x, struct reply *rep)
{
	int ret = compact_commit(d, x->l, x->q->compact_commit, &rep->err);

	if (!ret)
		lease_end(d, x->l);
	return ret;
}
