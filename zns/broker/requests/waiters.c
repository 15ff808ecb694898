/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dumps that wait for admission. One list contains two queues: dumps that want groups of their own
 * (mode wait) or wait until zones are finished, and dumps that would share but find no zone to
 * write.
 */
#include <string.h>
#include "requests.h"

void waiter_add(struct znsd *d, const struct call *x, const struct dump_ask *a,
		const struct zns_err *why)
{
	struct waiter *w = znsd_alloc(sizeof(*w)), **p;

	w->conn = x->conn;
	w->req = x->q;
	w->share = a->mode == ADM_SHARE;
	w->seconds = a->wait_s;
	w->deadline = zns_mono_ns() + a->wait_s * 1000000000ull;
	snprintf(w->why, sizeof(w->why), "%s", why->msg);
	for (p = &d->server->waiters; *p; p = &(*p)->next)
		;
	*p = w;
	conn_set_waiter(x->conn, w);
	d->policy->nr_waiting++;
}

uint32_t waiters_before(const struct znsd *d, bool share)
{
	const struct waiter *w;
	uint32_t n = 0;

	for (w = d->server->waiters; w; w = w->next)
		n += w->share == share;
	return n;
}

void waiter_end(struct znsd *d, struct waiter *w)
{
	struct waiter **p;

	for (p = &d->server->waiters; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	d->policy->nr_waiting--;
	conn_set_waiter(w->conn, NULL);
	zns_pb__request__free_unpacked(w->req, NULL);
	free(w);
}

void waiter_drop(struct znsd *d, const struct conn *c)
{
	struct waiter *w;

	for (w = d->server->waiters; w; w = w->next)
		if (w->conn == c)
			break;
	if (w)
		waiter_end(d, w);
}
