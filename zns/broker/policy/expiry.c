// SPDX-License-Identifier: GPL-2.0-only
/*
 * Retention rules and marks. A rule is applied when a dump of its container has committed and its connection ends: by
 * then the handle is written, or the dump has taken its record back, and the older checkpoints are no longer the only
 * ones that a restore can find. What time alone makes due waits for the next dump or for `znsctl gc`: no broker runs
 * just to wait for it.
 */
#include <string.h>
#include "../znsd.h"
#include "zns/retention.h"

int handle_retain(struct znsd *d, const ZnsPb__Retention *q, struct reply *rep)
{
	ZnsPb__Retention r = *q;
	int ret = zns_check_container(q->container, &rep->err);

	if (ret)
		return ret;
	r.has_set_ns = 1;
	r.set_ns = zns_now_ns();
	return zns_store_retain(d->store, &r, &rep->err);
}

int handle_mark(struct znsd *d, const ZnsPb__Mark *q, struct reply *rep)
{
	ZnsPb__Mark m = ZNS_PB__MARK__INIT;
	const ZnsPb__Mark *old;
	char id[ZNS_UUID_STR];

	if (q->checkpoint.len != ZNS_UUID_LEN)
		return zns_fail(&rep->err, -EINVAL, "a checkpoint id has %d bytes", ZNS_UUID_LEN);
	if (!zns_store_find(d->store, q->checkpoint.data))
		return zns_fail(&rep->err, -ENOENT, "%s has no checkpoint %s", d->reg.path,
				zns_uuid_format(q->checkpoint.data, id));
	old = zns_store_find_mark(d->store, q->checkpoint.data);
	m.checkpoint = q->checkpoint;
	m.pinned = q->has_pinned ? q->pinned : old && old->pinned;
	m.has_pinned = m.pinned;
	m.gone_ns = q->has_gone_ns ? q->gone_ns : old ? old->gone_ns : 0;
	m.has_gone_ns = m.gone_ns != 0;
	return zns_store_set_mark(d->store, &m, &rep->err);
}

bool checkpoint_pinned(const struct znsd *d, const uint8_t *id)
{
	const ZnsPb__Mark *m = zns_store_find_mark(d->store, id);

	return m && m->pinned;
}

void list_rules(struct znsd *d, struct reply *rep)
{
	size_t n = zns_store_nr_retentions(d->store), m = zns_store_nr_marks(d->store), i;

	rep->r.n_retentions = n;
	rep->r.retentions = reply_alloc(rep, n * sizeof(*rep->r.retentions));
	for (i = 0; i < n; i++)
		rep->r.retentions[i] = (ZnsPb__Retention *)zns_store_retention(d->store, i);
	rep->r.n_marks = m;
	rep->r.marks = reply_alloc(rep, m * sizeof(*rep->r.marks));
	for (i = 0; i < m; i++)
		rep->r.marks[i] = (ZnsPb__Mark *)zns_store_mark(d->store, i);
}

/* 1 + the place of @c's parent among the @n ids, 0: none. Most often it is the last. */
static size_t parent_place(uint8_t (*ids)[ZNS_UUID_LEN], size_t n, const ZnsPb__Checkpoint *c)
{
	while (c->has_parent && n && memcmp(ids[n - 1], c->parent.data, ZNS_UUID_LEN))
		n--;
	return c->has_parent ? n : 0;
}

void retention_apply(struct znsd *d, const char *container)
{
	const ZnsPb__Retention *rule = zns_store_find_retention(d->store, container);
	size_t all = zns_store_nr_checkpoints(d->store), n = 0, i;
	cleanup_free struct zns_retained *v = NULL;
	cleanup_free uint8_t (*ids)[ZNS_UUID_LEN] = NULL;
	struct zns_err err = ZNS_ERR_INIT;
	char text[ZNS_UUID_STR];

	if (!rule)
		return;
	v = znsd_alloc(all * sizeof(*v));
	ids = znsd_alloc(all * sizeof(*ids));
	for (i = 0; i < all; i++) {
		const ZnsPb__Checkpoint *c = zns_store_checkpoint(d->store, i);

		if (strcmp(c->container, container) || c->pages_only)	/* a migration that is not over */
			continue;
		memcpy(ids[n], c->id.data, ZNS_UUID_LEN);
		v[n] = (struct zns_retained){ .created_ns = c->created_ns, .pinned = checkpoint_pinned(d, c->id.data),
					      .pre_dump = c->pre_dump, .parent = parent_place(ids, n, c),
					      .needed = parent_needed(d, c->id.data, container) };
		n++;
	}
	zns_retention(v, n, rule->keep, rule->ttl_s, zns_now_ns());
	for (i = n; i-- > 0;) {		/* children before their parents */
		const ZnsPb__Checkpoint *c = v[i].due ? zns_store_find(d->store, ids[i]) : NULL;
		cleanup_free uint32_t *zones = NULL;
		uint32_t nr;

		if (!c)
			continue;
		note_ours(d, c);
		zones = bury_zones(c, &nr);
		zns_uuid_format(ids[i], text);
		if (zns_store_remove(d->store, ids[i], "its container's retention", &err))
			znsd_log("retention of %s: %s: %s", container, text, err.msg);
		else
			bury(d, zones, nr, zns_store_find_tombstone(d->store, ids[i]));
		d->sweep = true;
	}
}
