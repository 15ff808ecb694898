// SPDX-License-Identifier: GPL-2.0-only
/*
 * Retention rules and marks. A rule is applied when a dump of its container has committed and its connection ends: by
 * then the handle is written, or the dump has taken its record back, and the older checkpoints are no longer the only
 * ones that a restore can find. What time alone makes due waits for the next dump or for `znsctl gc`: no broker runs
 * just to wait for it.
 */
#include <string.h>
#include "policy.h"
#include "zns/retention.h"

bool checkpoint_pinned(const struct znsd *d, const uint8_t *id)
{
	const ZnsPb__Mark *m = zns_store_find_mark(d->store, id);

	return m && m->pinned;
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
		struct grave g;

		if (!c)
			continue;
		if (checkpoint_remove(d, ids[i], "its container's retention", &g, &err))
			znsd_log("retention of %s: %s: %s", container, zns_uuid_format(ids[i], text), err.msg);
		bury(d, &g);
	}
}
