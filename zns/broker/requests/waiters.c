// SPDX-License-Identifier: GPL-2.0-only
/*
 * Dumps that wait for admission. Two queues in one list: those that want groups of their own (wait, and anything that
 * waits for zones to be finished), and those that would share but find no zone to write at all. In each queue only the
 * first may go: it is admitted, refused, or keeps the others behind it.
 */
#include <string.h>
#include "../znsd.h"

void waiter_add(struct znsd *d, struct conn *c, ZnsPb__Request *req, const struct ask *a, const struct zns_err *why)
{
	struct waiter *w = znsd_alloc(sizeof(*w)), **p;

	w->conn = c;
	w->req = req;
	w->share = a->mode == ADM_SHARE;
	w->seconds = a->wait_s;
	w->deadline = zns_mono_ns() + a->wait_s * 1000000000ull;
	snprintf(w->why, sizeof(w->why), "%s", why->msg);
	for (p = &d->waiters; *p; p = &(*p)->next)
		;
	*p = w;
	conn_set_waiter(c, w);
}

uint32_t waiters_before(const struct znsd *d, bool share)
{
	const struct waiter *w;
	uint32_t n = 0;

	for (w = d->waiters; w; w = w->next)
		n += w->share == share;
	return n;
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

/* Whoever can be admitted now, in order. */
static void admit_all(struct znsd *d)
{
	bool blocked[2] = { false, false };	/* by waiter.share */
	struct waiter *w, *next;

	for (w = d->waiters; w && !(blocked[0] && blocked[1]); w = next) {
		struct reply rep = { .later = false };
		bool room = false;
		struct ask a;
		int ret;

		next = w->next;
		if (blocked[w->share])
			continue;
		zns_pb__response__init(&rep.r);
		ret = admit(d, w->conn, w->req->dump_begin, &a, &room, &rep);
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
	if (!blocked[0]) {
		free(d->held);
		d->held = NULL;
	}
}

int waiters_run(struct znsd *d)
{
	uint64_t now = zns_mono_ns(), next = UINT64_MAX;
	struct waiter *w;

	admit_all(d);
again:
	for (w = d->waiters; w; w = w->next) {
		struct reply rep = { .later = false };

		if (w->deadline > now) {
			next = zns_min(next, w->deadline);
			continue;
		}
		zns_pb__response__init(&rep.r);
		zns_fail(&rep.err, -ETIMEDOUT, "not admitted in %u s: %s", w->seconds, w->why);
		waiter_answer(d, w, &rep, -ETIMEDOUT);
		goto again;
	}
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}
